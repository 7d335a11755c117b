"""What a run takes of others: what they leave, no more than is wanted, and nothing of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.units import MIB
from executors.mesos.framework import (
    NEVER_S,
    PASS_S,
    RUN,
    Accept,
    Borrower,
    Decline,
    Lease,
    Offered,
    TaskNeed,
    TaskProgram,
)
from executors.mesos.messages import identity
from executors.mesos.resources import Resources, parse, scalars

CORE = TaskNeed(1.0)


def offer(agent: str = "a", run: str = "r2", number: int = 1, ends: float | None = None, **amounts: float) -> Offered:
    there = scalars(**({"cpus": 4.0, "mem": 4096.0} | amounts))
    return Offered(f"o-{agent}-{number}", agent, f"host-{agent}", "asa", there, {RUN: run} if run else {}, ends, 0.0)


def borrower() -> Borrower:
    return Borrower("r1", "x", lambda lease, offer: TaskProgram(("serve", lease.key, offer.hostname)))


def taken(borrower: Borrower, *offers: Offered, now: float = 0.0) -> list[Lease]:
    """The leases that come of offers that were left to others for long enough."""
    for call, lease in borrower.take(offers, now):
        assert isinstance(call, Decline) and lease is None
    return [lease for _, lease in borrower.take(offers, now + PASS_S) if lease is not None]


def resources(call: Accept) -> Resources:
    return parse(call.tasks[0]["resources"])


def test_what_others_leave_is_passed_once_and_then_taken() -> None:
    run = borrower()
    run.want(CORE, 2)
    assert list(run.take([offer()], 10.0)) == [(Decline(("o-a-1",), PASS_S), None)]
    assert list(run.take([offer(number=2)], 10.0 + PASS_S / 2)) == [(Decline(("o-a-2",), PASS_S / 2), None)]
    ((call, lease),) = run.take([offer(number=3)], 10.0 + PASS_S)
    assert isinstance(call, Accept) and lease is not None and call.offers == ("o-a-3",)
    assert (lease.agent, lease.lender, lease.need.cpus) == ("a", "r2", 2.0)
    assert run.leases == {lease.key: lease} and lease.key.startswith(run.prefix)
    (task,) = call.tasks
    assert (task["task_id"], task["agent_id"]) == (identity(lease.key), identity("a"))
    assert task["command"]["arguments"] == ["serve", lease.key, "host-a"]


def test_no_more_is_taken_than_is_wanted() -> None:
    run = borrower()
    run.want(TaskNeed(2.0), 3)
    offers = [offer(agent, cpus=5.0) for agent in "abc"]
    assert [lease.need.cpus for lease in taken(run, *offers)] == [4.0, 2.0]
    assert list(run.take([offer("d")], 99.0)) == []


def test_memory_goes_with_the_cores_when_none_is_declared() -> None:
    run = borrower()
    run.want(CORE, 3)
    (lease,) = taken(run, offer(cpus=4.0, mem=1000.0))
    assert lease.need == TaskNeed(3.0, 750 * MIB, 0)


def test_declared_memory_and_gpus_limit_what_is_taken_and_no_more_of_them_is() -> None:
    run = borrower()
    run.want(TaskNeed(1.0, 1024 * MIB, 1), 8)
    by_memory, by_gpus = taken(run, offer("a", mem=3500.0, gpus=8.0), offer("b", gpus=2.0, mem=1e5))
    assert by_memory.need == TaskNeed(3.0, 3 * 1024 * MIB, 3)
    assert by_gpus.need == TaskNeed(2.0, 2 * 1024 * MIB, 2)


@pytest.mark.parametrize(
    "item",
    [
        offer(run="r1"),
        offer(run=""),
        offer(cpus=0.5),
        offer(mem=100.0),
        offer(ends=9.0),
    ],
    ids=["our own", "started by hand", "no core", "no memory", "about to end"],
)
def test_what_is_of_no_use_is_not_looked_at(item: Offered) -> None:
    run = borrower()
    run.want(TaskNeed(1.0, 1024 * MIB), 1)
    assert list(run.take([item], 10.0)) == []


def test_a_lease_lasts_as_long_as_the_agent() -> None:
    run = borrower()
    run.want(CORE, 8)
    until, open_end = taken(run, offer("a", ends=500.0), offer("b"))
    assert until.until == 500.0
    assert open_end.until == PASS_S + NEVER_S


def test_when_nothing_is_wanted_any_more_nothing_is_taken() -> None:
    run = borrower()
    run.want(CORE, 4)
    assert len(list(run.take([offer()], 0.0))) == 1
    run.want(CORE, 0)
    assert list(run.take([offer()], PASS_S)) == []
    run.want(CORE, 4)
    assert taken(run, offer(), now=PASS_S), "it is left to others anew"


def test_after_a_lease_has_ended_its_agent_is_left_to_others_anew() -> None:
    run = borrower()
    run.want(CORE, 1)
    (lease,) = taken(run, offer())
    assert run.ended(lease.key) == lease
    assert run.ended(lease.key) is None and run.leases == {}
    run.want(CORE, 1)
    assert taken(run, offer(number=2), now=PASS_S)[0].key != lease.key


def test_what_is_left_of_an_agent_is_left_to_others_anew() -> None:
    run = borrower()
    run.want(CORE, 8)
    taken(run, offer())
    now = PASS_S + 1.0
    assert list(run.take([offer(number=2)], now)) == [(Decline(("o-a-2",), PASS_S), None)]
    run.ended(next(iter(run.leases)))
    assert list(run.take([offer(number=3)], now + PASS_S)) == [(Decline(("o-a-3",), PASS_S), None)]


NEEDS = st.builds(
    TaskNeed, st.integers(1, 4).map(float), st.sampled_from([0, 1, 300 * MIB, MIB + 12345]), st.sampled_from([0, 0, 1])
)
OFFERS = st.builds(
    offer,
    agent=st.sampled_from("abc"),
    run=st.sampled_from(["r1", "r2", "r3"]),
    ends=st.sampled_from([None, 5.0, 1e9]),
    cpus=st.integers(0, 8000).map(lambda milli: milli / 1000),
    mem=st.integers(0, 4_000_000).map(lambda milli: milli / 1000),
    gpus=st.sampled_from([0.0, 0.0, 1.0, 3.0]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), NEEDS, st.integers(0, 8)),
        st.tuples(st.just("offer"), st.lists(OFFERS, max_size=3), st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])),
        st.tuples(st.just("end"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
def test_a_lease_fits_its_offer_and_all_of_them_what_is_wanted(steps: list[tuple[str, Any, Any]]) -> None:
    run, now, task, left = borrower(), 0.0, CORE, 0
    keys: list[str] = []
    for what, first, second in steps:
        if what == "want":
            task, left = first, second
            run.want(task, left)
        elif what == "end" and run.leases:
            run.ended(list(run.leases)[first % len(run.leases)])
        elif what == "offer":
            now += second
            offers = {f"o{number}": replace(item, id=f"o{number}") for number, item in enumerate(first)}
            answers = list(run.take(offers.values(), now))
            answered = [key for call, _ in answers for key in call.offers]
            assert len(answered) == len(set(answered)), "an offer is used once"
            for call, lease in answers:
                there = offers[call.offers[0]]
                assert there.attributes[RUN] != "r1"
                if isinstance(call, Decline):
                    assert 0 < call.refuse_s <= PASS_S and lease is None
                    continue
                assert lease is not None
                check(call, lease, there, task)
                left -= round(lease.need.cpus / task.cpus)
                assert left >= 0, "no more than is wanted"
                keys.append(lease.key)
    assert len(keys) == len(set(keys)), "no two leases have one name"


def check(call: Accept, lease: Lease, there: Offered, task: TaskNeed) -> None:
    """The task holds what the lease says, and that is in the offer."""
    held = resources(call)
    assert (held.scalar("cpus"), held.scalar("gpus")) == (lease.need.cpus, lease.need.gpus)
    for name in ("cpus", "mem", "gpus"):
        assert held.scalar(name) <= there.resources.scalar(name)
    if task.memory:
        assert lease.need.memory == task.memory * round(lease.need.cpus / task.cpus)


def test_the_programs_see_what_was_leased() -> None:
    """The program is made once there is something to make it for."""
    seen: list[tuple[Lease, Offered]] = []

    def program(lease: Lease, offer: Offered) -> TaskProgram:
        seen.append((lease, offer))
        return TaskProgram(("serve",))

    run = Borrower("r1", "x", program)
    run.want(CORE, 1)
    there = offer()
    assert seen == [] and taken(run, there) == [seen[0][0]]
    assert seen[0][1] is there
