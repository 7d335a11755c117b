"""Runs that share a pool: what they know of one another, borrow, lend and return."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.event import Event, Leased, LeaseEnded, Recalled
from asa.core.job import Resources
from asa.core.units import MIB
from executors.mesos import sharing
from executors.mesos.codec import BadMessage, Message, decode, encode
from executors.mesos.framework import (
    NEVER_S,
    PASS_S,
    RUN,
    Accept,
    Borrower,
    Call,
    Decline,
    FrameworkOutcome,
    Lease,
    Offered,
    TaskNeed,
    TaskProgram,
)
from executors.mesos.messages import attribute, identity, message
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.resources import Resources as MesosResources
from executors.mesos.resources import parse, scalars
from executors.mesos.scheduler import FrameworkScheduler
from executors.mesos.sharing import (
    ALLOCATION,
    GRACE,
    IDLE_S,
    NOTICE_S,
    OrphanWatch,
    PoolNode,
    PoolRun,
    PoolSnapshot,
    Tenant,
    framework_labels,
    framework_name,
    look_at_pool,
)
from tests.executors.mesos import live
from tests.executors.mesos.master.world import AWARE, MULTI, World, task_info
from tests.executors.mesos.scripted import until

# ---------------------------------------------------------------------- shared


class Asking(Operator):
    """Asks a master that is in this process, and notes what it has changed."""

    def __init__(self, world: World) -> None:
        super().__init__(PoolDirectory(Path("nowhere")))
        self._world = world
        self.changes: list[str] = []

    def call(self, name: str, **payload: Any) -> Message:
        if not name.startswith("GET_"):
            self.changes.append(name)
        answer, effects = self._world.master.operate(message(name, **payload), self._world.now)
        self._world.do(effects)
        found: Message = {} if answer is None else decode(encode(answer))[name.lower()]
        return found


class Pool:
    """Runs, which subscribe as ours do, and the agents of their allocations, with 4 cores each."""

    def __init__(self) -> None:
        self.world = World()
        self.operator = Asking(self.world)
        self._frameworks: dict[str, str] = {}
        self._hosts = itertools.count()

    def run(self, name: str, *, waits: bool = False) -> None:
        """A run's driver comes, or comes again."""
        self._frameworks[name] = self.world.subscribe(self._frameworks.get(name), **info_of(name, waits=waits))
        self._refuse(name)

    def tell(self, run: str, *, waits: bool) -> None:
        """What a run says to its neighbours has changed."""
        framework = self._frameworks[run]
        info = {"id": identity(framework), "user": "me", "failover_timeout": 100} | info_of(run, waits=waits)
        self.world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info})

    def leave(self, run: str) -> None:
        """A run's driver is gone."""
        self.world.cut(self._frameworks[run])

    def node(self, allocation: str, run: str, grace: str = "60") -> str:
        """An agent of an allocation; its id."""
        told = {ALLOCATION: allocation, RUN: run, GRACE: grace}
        return self.agent(*({"name": key, "type": "TEXT", "text": {"value": value}} for key, value in told.items()))

    def agent(self, *attributes: Message) -> str:
        """An agent with these attributes; its id."""
        info = {"hostname": f"n{next(self._hosts)}", "port": 5051, "attributes": list(attributes)}
        info["resources"] = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 4}}]
        return self.world.agent(agent_info=info)

    def work(self, run: str, task: str, agent: str, cpus: float = 1.0) -> None:
        """A run has a task on an agent."""
        framework = self._frameworks[run]
        self.world.call(framework, "REVIVE")
        self.world.sleep(5.0)
        self.world.start(framework, task_info(task, agent, cpus), refuse_s=0)
        self._refuse(run)
        self.world.update(agent, framework, task, "TASK_RUNNING")

    def end(self, run: str, task: str, agent: str) -> None:
        """A task has ended, and its run knows."""
        text = self.world.update(agent, self._frameworks[run], task, "TASK_FINISHED")
        self.world.acknowledge(self._frameworks[run], agent, task, text)

    def _refuse(self, run: str) -> None:
        """Leave everything to the others."""
        framework = self._frameworks[run]
        self.world.call(framework, "SUPPRESS")
        if names := [offer.id for offer in self.world.state.offers.values() if offer.framework == framework]:
            self.world.accept(framework, names, refuse_s=0)


def info_of(run: str, *, waits: bool) -> Message:
    return {
        "name": framework_name(run),
        "roles": ["asa"],
        "capabilities": [AWARE, MULTI],
        "labels": framework_labels(waits=waits),
    }


# ---------------------------------------------------------------------- sharing


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


def resources(call: Accept) -> MesosResources:
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


class Asked:
    """A framework that notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def want(self, decide: Callable[[Any, float], list[Call]]) -> None:
        """As `FrameworkScheduler.want`."""
        assert decide(self, 7.0) == []

    def renew(self, now: float) -> list[Call]:
        self.calls.append(("renew",))
        return []

    def borrow(self, task: TaskNeed, count: int, now: float) -> list[Call]:
        self.calls.append(("borrow", task, count))
        return []


@dataclass
class Lending:
    """Run ``us`` with a lease of agent ``b``, which is that of run ``them``; ``others`` is a third one."""

    asked: Asked = field(default_factory=Asked)
    told: list[bool] = field(default_factory=list)
    dismissed: list[float] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    operations: list[tuple[str, str]] = field(default_factory=list)
    released: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.borrower = Borrower("us", "x", lambda lease, offer: TaskProgram(("serve",)))
        self.lease = Lease(f"{self.borrower.prefix}x-1", "b", "them", TaskNeed(2.0, 64 * MIB), 900.0)
        self.borrower.leases[self.lease.key] = self.lease
        scheduler = cast(FrameworkScheduler, self.asked)
        self.tenant = Tenant(self.borrower, scheduler, self.told.append, self.dismissed.append, self._post, lambda: 7.0)
        runs = (PoolRun("us", True, False, 4.0), PoolRun("them", True, False, 2.0))
        self.runs = {run.run: run for run in (*runs, PoolRun("others", True, False, 8.0))}
        nodes = (PoolNode("a", "us", "us.0", 60.0, True, 2.0), PoolNode("b", "them", "them.0", 60.0, True, 2.0))
        self.nodes = {node.agent: node for node in nodes}

    def _post(self, events: Sequence[Event]) -> None:
        self.events += events

    def change(self, name: str, **changes: Any) -> None:
        """Of a run, or of an agent."""
        if name in self.runs:
            self.runs[name] = replace(self.runs[name], **changes)
        else:
            self.nodes[name] = replace(self.nodes[name], **changes)

    def step(self, now: float = 0.0) -> None:
        pool = PoolSnapshot(dict(self.runs), dict(self.nodes))
        self.tenant.step(pool, self.released, cast(Operator, self), now)

    def recalls(self) -> list[str]:
        """Why leases were recalled since this was asked last."""
        found = [event.reason for event in self.events if isinstance(event, Recalled)]
        self.events.clear()
        return found

    # ---------------------------------------------------------------- the operator's part

    def call(self, name: str, *, agent_id: dict[str, str]) -> None:
        self.operations.append((name, agent_id["value"]))

    def deactivate(self, agent: str) -> None:
        self.operations.append(("deactivate", agent))
        self.change(agent, active=False)


@pytest.fixture
def lending() -> Lending:
    return Lending()


class TestWant:
    def test_other_runs_see_when_we_begin_and_when_we_cease_to_wait(self, lending: Lending) -> None:
        for task, count in ((Resources(), 4), (Resources(), 2), (Resources(), 0), (None, 0), (None, 0)):
            lending.tenant.want(task, count)
        assert lending.told == [True, False]

    def test_the_framework_borrows_so_much_and_first_uses_its_own(self, lending: Lending) -> None:
        lending.tenant.want(Resources(2, memory=5, gpus=1), 4)
        lending.tenant.want(Resources(2), 2)
        need, less = TaskNeed(2.0, 5, 1), TaskNeed(2.0)
        assert lending.asked.calls == [("renew",), ("borrow", need, 4), ("borrow", less, 2)]

    def test_what_spans_nodes_is_not_borrowed_but_waited_for(self, lending: Lending) -> None:
        lending.tenant.want(Resources(8, nodes=2), 4)
        assert lending.told == [True]
        assert [call[2] for call in lending.asked.calls if call[0] == "borrow"] == [0]

    def test_without_anything_to_do_nothing_is_borrowed(self, lending: Lending) -> None:
        lending.tenant.want(Resources(), 4)
        lending.tenant.want(None, 0)
        assert lending.asked.calls[-1][2] == 0


class TestHeed:
    def test_a_new_lease(self, lending: Lending) -> None:
        assert lending.tenant.on_outcome(FrameworkOutcome(lending.lease.key, "leased", agent="b"))
        (event,) = lending.events
        assert isinstance(event, Leased)
        assert (event.allocation, event.lender, event.until) == (lending.lease.key, "them", 900.0)
        assert event.resources == Resources(2, memory=64 * MIB)

    @pytest.mark.parametrize("reason", ["", "the agent was lost"])
    def test_the_end_of_a_lease(self, lending: Lending, reason: str) -> None:
        assert lending.tenant.on_outcome(
            FrameworkOutcome(lending.lease.key, "failed" if reason else "finished", reason, "b")
        )
        (event,) = lending.events
        assert isinstance(event, LeaseEnded) and (event.allocation, event.reason) == (lending.lease.key, reason)

    def test_a_supervisor_that_was_ended_for_others_starts_anew_when_we_wait_meanwhile(self, lending: Lending) -> None:
        lent = FrameworkOutcome("nodes", "finished", agent="a")
        assert not lending.tenant.on_outcome(lent)
        assert lending.asked.calls == [], "nothing of ours waits"
        lending.tenant.want(Resources(), 1)
        lending.asked.calls.clear()
        assert not lending.tenant.on_outcome(lent)
        assert lending.asked.calls == [("renew",)]
        assert not lending.tenant.on_outcome(FrameworkOutcome("nodes", "failed", "no room", "a"))
        assert lending.asked.calls == [("renew",)], "what failed has its own rule"
        assert lending.events == []


class TestLend:
    def test_idle_nodes_are_lent_when_others_wait(self, lending: Lending) -> None:
        lending.step()
        assert lending.dismissed == []
        lending.change("others", waits=True)
        lending.step()
        assert lending.dismissed == [IDLE_S]

    def test_not_while_we_wait_ourselves(self, lending: Lending) -> None:
        lending.change("others", waits=True)
        lending.tenant.want(Resources(8, nodes=2), 1)
        lending.step()
        assert lending.dismissed == []
        lending.tenant.want(None, 0)
        lending.step()
        assert lending.dismissed == [IDLE_S]

    def test_not_to_a_run_without_a_driver_nor_to_ourselves(self, lending: Lending) -> None:
        lending.change("others", waits=True, connected=False)
        lending.change("us", waits=True)  # the master has not heard yet that we do not any more
        lending.step()
        assert lending.dismissed == []


class TestClaim:
    def test_without_a_reason_leases_stay(self, lending: Lending) -> None:
        lending.change("us", waits=True)
        lending.step()
        assert lending.recalls() == []

    @pytest.mark.parametrize(
        ("name", "changes", "reason"),
        [
            ("b", {"active": False}, "the allocation them.0 ends"),
            ("them", {"connected": False}, "run them has no driver any more"),
            ("them", {"waits": True}, "run them needs it"),
            ("others", {"waits": True, "cores": 1.0}, "run others waits, and has less"),
        ],
    )
    def test_what_a_lease_is_given_back_for(
        self, lending: Lending, name: str, changes: dict[str, Any], reason: str
    ) -> None:
        lending.change(name, **changes)
        lending.step()
        assert lending.recalls() == [reason]
        lending.step()
        assert lending.recalls() == [], "a lease is recalled once"

    def test_a_lender_that_is_gone_has_no_driver(self, lending: Lending) -> None:
        del lending.runs["them"]
        lending.step()
        assert lending.recalls() == ["run them has no driver any more"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"waits": True, "cores": 2.0},
            {"waits": False, "cores": 0.0},
            {"waits": True, "cores": 0.0, "connected": False},
        ],
        ids=["has what we would have left", "waits for nothing", "has no driver"],
    )
    def test_a_third_run_has_no_claim_when_it(self, lending: Lending, changes: dict[str, Any]) -> None:
        lending.change("others", **changes)
        lending.step()
        assert lending.recalls() == []

    def test_an_agent_that_the_master_has_forgotten_is_no_reason(self, lending: Lending) -> None:
        """What was on it is told of by an update."""
        del lending.nodes["b"]
        lending.step()
        assert lending.recalls() == []

    def test_once_it_has_ended_it_is_forgotten(self, lending: Lending) -> None:
        lending.change("them", waits=True)
        lending.step()
        lending.borrower.ended(lending.lease.key)
        lending.tenant.on_outcome(FrameworkOutcome(lending.lease.key, "finished"))
        lending.borrower.leases[lending.lease.key] = lending.lease
        lending.recalls()
        lending.step()
        assert lending.recalls() == ["run them needs it"]


class TestReleased:
    def test_an_agent_on_which_nothing_runs_goes_at_once(self, lending: Lending) -> None:
        lending.released.add("us.0")
        lending.change("a", used=0.0)
        lending.step(10.0)
        assert lending.operations == [("MARK_AGENT_GONE", "a")]

    def test_what_others_have_on_it_is_given_notice(self, lending: Lending) -> None:
        lending.released.add("us.0")
        lending.step(10.0)
        assert lending.operations == [("deactivate", "a")] and lending.tenant.leaving
        lending.step(10.0 + NOTICE_S - 0.1)
        assert lending.operations == [("deactivate", "a")], "once"
        lending.step(10.0 + NOTICE_S)
        assert lending.operations[1:] == [("MARK_AGENT_GONE", "a")]

    def test_it_goes_as_soon_as_they_have_left(self, lending: Lending) -> None:
        lending.released.add("us.0")
        lending.step(10.0)
        lending.change("a", used=0.0)
        lending.step(11.0)
        assert lending.operations[1:] == [("MARK_AGENT_GONE", "a")]
        del lending.nodes["a"]
        lending.step(12.0)
        assert not lending.tenant.leaving and len(lending.operations) == 2

    def test_others_are_let_alone(self, lending: Lending) -> None:
        lending.released.add("us.1")
        lending.step(10.0)
        assert lending.operations == [] and not lending.tenant.leaving


def text(name: str, value: str) -> Message:
    return {"name": name, "type": "TEXT", "text": {"value": value}}


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_runs_and_what_they_hold(pool: Pool) -> None:
    pool.run("left")
    pool.run("right", waits=True)
    own, lent = pool.node("left.0", "left", "12.5"), pool.node("left.1", "left")
    pool.work("left", "t1", own, 3.0)
    pool.work("left", "t2", lent, 1.0)
    pool.work("right", "t3", lent, 2.0)
    found = look_at_pool(pool.operator)
    assert found.runs == {
        "left": PoolRun("left", connected=True, waits=False, cores=4.0),
        "right": PoolRun("right", connected=True, waits=True, cores=2.0),
    }
    assert found.nodes == {
        own: PoolNode(own, "left", "left.0", 12.5, active=True, used=3.0),
        lent: PoolNode(lent, "left", "left.1", 60.0, active=True, used=3.0),
    }
    pool.end("left", "t1", own)
    assert look_at_pool(pool.operator).nodes[own].used == 0.0


def test_a_run_may_wait_and_cease_to(pool: Pool) -> None:
    pool.run("left")
    for waits in (True, False):
        pool.tell("left", waits=waits)
        assert look_at_pool(pool.operator).runs["left"].waits is waits


def test_a_driver_goes_and_another_comes(pool: Pool) -> None:
    pool.run("left")
    pool.leave("left")
    assert not look_at_pool(pool.operator).runs["left"].connected
    pool.run("left", waits=True)
    assert look_at_pool(pool.operator).runs["left"] == PoolRun("left", connected=True, waits=True, cores=0.0)


def test_a_run_that_does_not_come_back_is_forgotten(pool: Pool) -> None:
    pool.run("left")
    pool.leave("left")
    pool.world.sleep(101.0)  # its failover timeout
    assert look_at_pool(pool.operator).runs == {}


def test_an_agent_that_is_to_get_nothing_new(pool: Pool) -> None:
    agent = pool.node("left.0", "left")
    pool.operator.deactivate(agent)
    assert not look_at_pool(pool.operator).nodes[agent].active


def test_frameworks_of_others_are_no_runs(pool: Pool) -> None:
    pool.world.subscribe(name="asa")
    pool.world.subscribe(name="spark")
    assert look_at_pool(pool.operator).runs == {}


def test_an_agent_that_was_started_by_hand_belongs_to_no_run(pool: Pool) -> None:
    agent = pool.agent(text("rack", "7"))
    assert look_at_pool(pool.operator).nodes[agent] == PoolNode(agent, "", "", 0.0, active=True, used=0.0)


def test_an_attribute_by_its_name() -> None:
    message = {"attributes": [{"name": "size", "type": "SCALAR", "scalar": {"value": 3.0}}, text("run", "left")]}
    assert attribute(message, "run") == "left"
    assert attribute(message, "allocation", "none") == "none"
    assert attribute(message, "size", "3") == "3", "only texts are read"
    assert attribute({}, "run") == ""


def test_what_makes_no_sense_is_a_bad_message(pool: Pool) -> None:
    class Odd(Asking):
        def call(self, name: str, **payload: object) -> Message:
            return {"agents": [{"agent_info": 7}]} if name == "GET_AGENTS" else super().call(name, **payload)

    with pytest.raises(BadMessage):
        look_at_pool(Odd(pool.world))


@pytest.fixture
def watch(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> OrphanWatch:
    """Steps by hand, in the time of the test."""
    monkeypatch.setattr(sharing, "Operator", lambda directory, **_: pool.operator)
    return OrphanWatch(PoolDirectory(Path("nowhere")))


def agents(pool: Pool) -> list[str]:
    return list(look_at_pool(pool.operator).nodes)


def test_while_its_driver_is_there_an_agent_stays(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    pool.node("left.0", "left", "0")
    for now in (0.0, 1e6):
        watch.step(now)
    assert pool.operator.changes == []


def test_an_idle_one_goes_when_its_driver_has_been_away_for_long(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    agent = pool.node("left.0", "left", "30")
    pool.leave("left")
    for now in (100.0, 129.9):
        watch.step(now)
    assert agents(pool) == [agent]
    watch.step(130.0)
    assert agents(pool) == []


def test_a_driver_that_comes_back_in_time_keeps_them(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    agent = pool.node("left.0", "left", "30")
    pool.leave("left")
    watch.step(100.0)
    pool.run("left")
    watch.step(120.0)
    pool.leave("left")
    watch.step(131.0)
    watch.step(160.0)
    assert agents(pool) == [agent], "the time counts from when it went last"
    watch.step(161.0)
    assert agents(pool) == []


def test_one_on_which_others_work_gets_nothing_new_and_goes_when_they_have_ended(
    pool: Pool, watch: OrphanWatch
) -> None:
    for run in ("left", "right"):
        pool.run(run)
    agent = pool.node("left.0", "left", "0")
    pool.work("right", "t1", agent)
    pool.leave("left")
    for now in (100.0, 101.0):
        watch.step(now)
    assert pool.operator.changes == ["DEACTIVATE_AGENT"], "once"
    assert not look_at_pool(pool.operator).nodes[agent].active
    pool.end("right", "t1", agent)
    watch.step(102.0)
    assert agents(pool) == []


def test_one_of_a_run_that_the_master_does_not_know_is_an_orphan(pool: Pool, watch: OrphanWatch) -> None:
    pool.node("left.0", "left", "5")
    watch.step(100.0)
    assert len(agents(pool)) == 1
    watch.step(105.0)
    assert agents(pool) == []


def test_one_that_was_started_by_hand_stays(pool: Pool, watch: OrphanWatch) -> None:
    agent = pool.agent()
    for now in (0.0, 1e6):
        watch.step(now)
    assert agents(pool) == [agent]


def test_its_thread_does_so_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a master and agents that are real: one belongs to a run that is not there, one to none."""
    monkeypatch.setattr(sharing, "ORPHANS_EVERY_S", 0.05)
    with live.pool(tmp_path, agents=1) as directory:
        attributes = [{"name": "run", "type": "TEXT", "text": {"value": "left"}}]
        with live.agent(directory, tmp_path / "orphan", attributes=attributes), sharing.Operator(directory) as operator:
            until(lambda: len(operator.get_agents()) == 2, "both agents")
            with OrphanWatch(directory):
                until(lambda: len(operator.get_agents()) == 1, "the end of the orphan")
            (left,) = look_at_pool(operator).nodes.values()
            assert left.run == ""
