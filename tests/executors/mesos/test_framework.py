"""What the framework decides: node programs, gangs, offers; and what carries it out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.codec import Message
from executors.mesos.framework import (
    CAPACITY,
    NEVER_S,
    PASS_S,
    Accept,
    Borrower,
    Call,
    Decline,
    Framework,
    FrameworkOutcome,
    Kill,
    NodeProgram,
    Offered,
    Patience,
    Reconcile,
    Revive,
    Suppress,
    TaskGang,
    TaskNeed,
    TaskProgram,
    parse_offer,
)
from executors.mesos.messages import identity, message, nanoseconds, task_status
from executors.mesos.resources import scalars, to_json
from executors.mesos.scheduler import FrameworkScheduler
from tests.waiting import until

TRUE = TaskProgram(("true",))


def offer(agent: str, cpus: float = 2.0, number: int = 1, ends: float | None = None, **attributes: str) -> Message:
    found: Message = {
        "id": identity(f"o-{agent}-{number}"),
        "agent_id": identity(agent),
        "hostname": f"host-{agent}",
        "allocation_info": {"role": "asa"},
        "resources": to_json(scalars(cpus=cpus, mem=1024), "asa"),
        "attributes": [{"name": key, "type": "TEXT", "text": {"value": value}} for key, value in attributes.items()],
    }
    if ends is not None:
        found["unavailability"] = {"start": nanoseconds(ends)}
    return found


def gang(key: str = "g", size: int = 2, cpus: float = 2.0, wall_s: float = 0.0, apart: bool = False) -> TaskGang:
    return TaskGang(key, (TRUE,) * size, TaskNeed(cpus), wall_s=wall_s, apart=apart)


def tasks(calls: list[Call]) -> dict[str, str]:
    """Task -> agent of all that is launched."""
    return {
        task["task_id"]["value"]: task["agent_id"]["value"]
        for call in calls
        if isinstance(call, Accept)
        for task in call.tasks
    }


def tell(framework: Framework, launched: dict[str, str], state: str, now: float = 1.0) -> list[Call]:
    calls: list[Call] = []
    for task, agent in launched.items():
        calls += framework.update(task_status(task, state, now, source="SOURCE_AGENT", agent_id=agent), now)
    return calls


def outcomes(framework: Framework) -> list[tuple[str, str]]:
    found = [(outcome.key, outcome.state) for outcome in framework.outcomes]
    framework.outcomes.clear()
    return found


class TestGang:
    def test_offers_are_withheld_until_all_of_it_fits(self) -> None:
        framework = Framework()
        assert framework.gang(gang(size=3), 0.0) == []
        assert framework.offers([offer("a")], 0.0) == []
        assert framework.offers([offer("b")], 1.0) == []
        calls = framework.offers([offer("c")], 2.0)
        assert [call.offers for call in calls if isinstance(call, Accept)] == [("o-a-1",), ("o-b-1",), ("o-c-1",)]
        launched = tasks(calls)
        assert list(launched.values()) == ["a", "b", "c"]
        tell(framework, launched, "TASK_RUNNING")
        assert outcomes(framework) == [("g", "started")]
        tell(framework, launched, "TASK_FINISHED")
        assert outcomes(framework) == [("g", "finished")]

    def test_members_share_an_agent_with_one_accept(self) -> None:
        framework = Framework()
        framework.gang(gang(size=3), 0.0)
        calls = framework.offers([offer("a", cpus=4.5), offer("b")], 0.0)
        accepts = [call for call in calls if isinstance(call, Accept)]
        assert [len(call.tasks) for call in accepts] == [2, 1]

    def test_members_that_are_to_be_apart_are(self) -> None:
        framework = Framework()
        framework.gang(gang(size=2, apart=True), 0.0)
        assert tasks(framework.offers([offer("a", cpus=8)], 0.0)) == {}
        assert sorted(tasks(framework.offers([offer("b", cpus=8)], 0.0)).values()) == ["a", "b"]

    def test_offers_are_given_back_after_a_while_for_a_while(self) -> None:
        framework = Framework(patience=Patience(hold_s=10, pause_s=5))
        framework.gang(gang(size=2), 0.0)
        framework.offers([offer("a")], 3.0)
        assert framework.due() == 13.0
        assert framework.wake(12.9) == []
        assert framework.wake(13.0) == [Decline(("o-a-1",), 5)]
        assert framework.due() is None

    def test_they_are_given_back_together(self) -> None:
        framework = Framework(patience=Patience(hold_s=10, pause_s=5))
        framework.gang(gang(size=3), 0.0)
        framework.offers([offer("a")], 3.0)
        framework.offers([offer("b")], 9.0)
        assert framework.wake(13.0) == [Decline(("o-a-1", "o-b-1"), 5)], "so that they are there together afterwards"

    @pytest.mark.parametrize("free", [(0.0, 4.0, 8.0, 12.0), (26.7, 30.5, 34.9, 38.5)])
    def test_agents_that_become_free_one_after_the_other_are_there_together_in_the_end(self, free: Any) -> None:
        """Each by itself, held for 10 s and away for 6 s, they never would be."""
        framework, number = Framework(patience=Patience(hold_s=10, pause_s=5)), itertools.count(1)
        framework.gang(gang(size=len(free)), 0.0)
        comes, agents = [(when, f"a{which}") for which, when in enumerate(free)], dict[str, str]()
        for now in itertools.count():  # the master offers what was refused every second
            calls = framework.wake(now)
            new = [offer(agent, number=next(number)) for when, agent in comes if when <= now]
            comes = [item for item in comes if item[0] > now]
            agents |= {one["id"]["value"]: one["agent_id"]["value"] for one in new}
            calls += framework.offers(new, now + 0.01)
            if tasks(calls):
                break
            comes += [(now + 5.01, agents[id]) for call in calls if isinstance(call, Decline) for id in call.offers]
            assert now < 100

    def test_two_frameworks_do_not_go_on_giving_back_at_the_same_time(self) -> None:
        dues = []
        for name in ("one", "other"):
            framework = Framework(name, patience=Patience(hold_s=10, pause_s=5))
            framework.gang(gang(size=2), 0.0)
            framework.offers([offer("a")], 0.0)
            framework.wake(10.0)
            framework.offers([offer("b")], 20.0)
            dues.append(framework.due())
        assert all(25.0 <= due <= 30.0 for due in dues) and abs(dues[0] - dues[1]) > 0.1

    def test_one_that_cannot_start_whole_is_rolled_back_and_tried_again(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        first = tasks(framework.offers([offer("a"), offer("b")], 0.0))
        on_a, on_b = first
        tell(framework, {on_a: "a"}, "TASK_RUNNING")
        assert tell(framework, {on_b: "b"}, "TASK_LOST") == [Kill(on_a, "a")]
        assert outcomes(framework) == []
        assert tell(framework, {on_a: "a"}, "TASK_KILLED") == [Revive()], "it waits again"
        assert outcomes(framework) == [("g", "retried")]
        second = tasks(framework.offers([offer("a", number=2), offer("c")], 1.0))
        assert len(second) == 2 and not set(first) & set(second)

    def test_it_fails_after_so_many_attempts(self) -> None:
        framework = Framework(patience=Patience(attempts=2))
        framework.gang(gang(size=1), 0.0)
        for number in (1, 2):
            launched = tasks(framework.offers([offer("a", number=number)], 0.0))
            tell(framework, launched, "TASK_FAILED")
        assert outcomes(framework) == [("g", "retried"), ("g", "failed")]
        assert tasks(framework.offers([offer("a", number=3)], 0.0)) == {}

    def test_one_that_loses_a_member_ends(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        launched = tasks(framework.offers([offer("a"), offer("b")], 0.0))
        tell(framework, launched, "TASK_RUNNING")
        on_a, on_b = launched
        assert tell(framework, {on_a: "a"}, "TASK_UNREACHABLE")[0] == Kill(on_a, "a")
        tell(framework, {on_b: "b"}, "TASK_KILLED")
        assert outcomes(framework) == [("g", "started"), ("g", "failed")]
        assert tell(framework, {on_a: "a"}, "TASK_RUNNING") == [Kill(on_a, "a")], "it has come back: nobody wants it"

    def test_calls_that_were_lost_with_the_stream_are_made_up_for(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        launched = tasks(framework.offers([offer("a"), offer("b")], 0.0))
        on_a, on_b = launched
        assert framework.subscribed(1.0) == [Revive(), Reconcile(tuple(launched.items())), Reconcile(()), Suppress()]
        tell(framework, {on_a: "a"}, "TASK_RUNNING")
        tell(framework, {on_b: "b"}, "TASK_GONE")
        assert tell(framework, {on_a: "a"}, "TASK_RUNNING") == [Kill(on_a, "a")], "the first may have been lost, too"
        tell(framework, {on_a: "a"}, "TASK_UNKNOWN")
        assert outcomes(framework) == [("g", "retried")]

    def test_what_is_silent_for_long_is_asked_for(self) -> None:
        framework = Framework(patience=Patience(silence_s=30))
        framework.gang(gang(size=1), 0.0)
        launched = tasks(framework.offers([offer("a")], 0.0))
        assert framework.due() == 30.0
        assert framework.wake(29.0) == []
        assert framework.wake(30.0) == [Reconcile(tuple(launched.items()))]
        assert framework.due() == 60.0
        tell(framework, launched, "TASK_RUNNING", 40.0)
        assert framework.due() is None

    def test_withdrawn(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        launched = tasks(framework.offers([offer("a"), offer("b")], 0.0))
        assert framework.withdraw("g", 0.0) == [Kill(*item) for item in launched.items()]
        tell(framework, launched, "TASK_KILLED")
        assert outcomes(framework) == [("g", "failed")]
        framework.gang(gang("h"), 0.0)
        framework.withdraw("h", 0.0)
        assert outcomes(framework) == [("h", "failed")]

    def test_agents_that_leave_too_soon_are_not_used(self) -> None:
        framework = Framework()
        framework.gang(gang(size=1, wall_s=100.0), 0.0)
        assert tasks(framework.offers([offer("a", ends=99.0)], 0.0)) == {}
        assert list(tasks(framework.offers([offer("b", ends=100.0)], 0.0)).values()) == ["b"]

    def test_one_that_has_waited_for_long_is_not_passed(self) -> None:
        framework = Framework(patience=Patience(passed_s=60))
        framework.gang(gang("large", size=2), 0.0)
        framework.gang(gang("small", size=1), 0.0)
        assert list(tasks(framework.offers([offer("a")], 59.0))) == ["small.1.1.0"]
        framework.gang(gang("next", size=1), 60.0)
        assert tasks(framework.offers([offer("a", number=2)], 60.0)) == {}
        assert len(tasks(framework.offers([offer("b")], 61.0))) == 2

    def test_a_rescinded_offer_is_not_used(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        framework.offers([offer("a")], 0.0)
        framework.rescinded("o-a-1")
        assert tasks(framework.offers([offer("b")], 0.0)) == {}

    def test_a_new_stream_makes_offers_void(self) -> None:
        framework = Framework()
        framework.gang(gang(), 0.0)
        framework.offers([offer("a")], 0.0)
        assert framework.subscribed(1.0) == [Revive(), Reconcile(())]
        assert tasks(framework.offers([offer("b")], 1.0)) == {}


class TestCrew:
    def node_program(self) -> NodeProgram:
        return NodeProgram("nodes", lambda offer: TaskProgram(("serve", offer.hostname)), {"run": "r1"})

    def test_it_takes_all_of_every_agent_of_its_own(self) -> None:
        framework = Framework()
        framework.add_program(self.node_program(), 0.0)
        calls = framework.offers([offer("a", cpus=3, run="r1"), offer("b", run="r2"), offer("c", run="r1")], 0.0)
        (first, second, declined) = calls
        assert isinstance(first, Accept) and isinstance(second, Accept)
        assert first.tasks[0]["command"]["arguments"] == ["serve", "host-a"]
        assert first.tasks[0]["resources"] == to_json(scalars(cpus=3, mem=1024), "asa")
        assert declined == Decline(("o-b-1",), NEVER_S)

    def test_where_it_has_ended_well_it_does_not_run_again(self) -> None:
        framework = Framework()
        framework.add_program(self.node_program(), 0.0)
        launched = tasks(framework.offers([offer("a", run="r1")], 0.0))
        tell(framework, launched, "TASK_FINISHED")
        assert framework.outcomes == [FrameworkOutcome("nodes", "finished", "", "a")]
        assert tasks(framework.offers([offer("a", number=2, run="r1")], 0.0)) == {}

    def test_where_it_failed_it_is_tried_again_a_few_times(self) -> None:
        framework = Framework(patience=Patience(attempts=2))
        framework.add_program(self.node_program(), 0.0)
        for number, expected in ((1, 1), (2, 1), (3, 0)):
            launched = tasks(framework.offers([offer("a", number=number, run="r1")], 0.0))
            assert len(launched) == expected
            tell(framework, launched, "TASK_FAILED")

    def test_tasks_of_an_earlier_life_are_its_own(self) -> None:
        framework = Framework(name="2")
        framework.add_program(self.node_program(), 0.0)
        tell(framework, {"nodes.a.1-1": "a"}, "TASK_RUNNING")
        assert tasks(framework.offers([offer("a", cpus=0.5, run="r1")], 0.0)) == {}

    def test_a_launch_that_was_lost_is_made_again(self) -> None:
        framework = Framework()
        framework.add_program(self.node_program(), 0.0)
        launched = tasks(framework.offers([offer("a", run="r1")], 0.0))
        assert Reconcile(tuple(launched.items())) in framework.subscribed(1.0)
        tell(framework, launched, "TASK_GONE")
        assert len(tasks(framework.offers([offer("a", number=2, run="r1")], 2.0))) == 1

    def test_an_unknown_task_is_ended(self) -> None:
        assert tell(Framework(), {"x": "a"}, "TASK_RUNNING") == [Kill("x", "a")]
        assert tell(Framework(), {"x": "a"}, "TASK_KILLED") == []

    def test_without_anything_to_start_there_are_no_offers(self) -> None:
        framework = Framework()
        assert framework.offers([offer("a")], 0.0) == [Decline(("o-a-1",), NEVER_S), Suppress()]
        assert framework.gang(gang(), 0.0) == [Revive()]

    def test_where_it_has_ended_well_it_runs_anew_once_that_is_asked_for(self) -> None:
        framework = Framework()
        framework.add_program(self.node_program(), 0.0)
        first = tasks(framework.offers([offer("a", run="r1")], 0.0))
        tell(framework, first, "TASK_FINISHED")
        framework.offers([offer("a", number=2, run="r1")], 0.0)
        assert framework.renew(1.0) == [Revive()]
        again = tasks(framework.offers([offer("a", number=3, run="r1")], 1.0))
        assert list(again.values()) == ["a"] and not set(again) & set(first)

    def test_where_it_has_failed_for_good_it_is_not_renewed(self) -> None:
        framework = Framework(patience=Patience(attempts=1))
        framework.add_program(self.node_program(), 0.0)
        tell(framework, tasks(framework.offers([offer("a", run="r1")], 0.0)), "TASK_FAILED")
        framework.renew(1.0)
        assert tasks(framework.offers([offer("a", number=2, run="r1")], 1.0)) == {}

    def test_where_it_runs_renewal_changes_nothing(self) -> None:
        framework = Framework()
        framework.add_program(self.node_program(), 0.0)
        framework.offers([offer("a", run="r1")], 0.0)
        framework.renew(1.0)
        assert tasks(framework.offers([offer("a", number=2, run="r1")], 1.0)) == {}


class TestLease:
    """The crew's program runs on the agents of run r1; an agent of r2 is borrowed."""

    def framework(self, name: str = "1") -> Framework:
        borrower = Borrower("r1", name, lambda lease, offer: TaskProgram(("serve", lease.key)))
        framework = Framework(name, borrower=borrower)
        framework.add_program(NodeProgram("nodes", lambda offer: TRUE, {"run": "r1"}), 0.0)
        return framework

    def leased(self, framework: Framework) -> dict[str, str]:
        assert framework.borrow(TaskNeed(1.0), 2, 0.0) == [Revive()]
        assert framework.offers([offer("b", run="r2")], 0.0) == [Decline(("o-b-1",), PASS_S)]
        launched = tasks(framework.offers([offer("b", number=2, run="r2")], PASS_S))
        assert framework.outcomes.pop() == FrameworkOutcome(*launched, "leased", agent="b")
        return launched

    def test_the_crew_s_own_agents_come_first_and_are_no_leases(self) -> None:
        framework = self.framework()
        framework.borrow(TaskNeed(1.0), 2, 0.0)
        launched = tasks(framework.offers([offer("a", run="r1"), offer("b", run="r2")], 0.0))
        assert list(launched) == ["nodes.a.1-1"]

    def test_from_the_first_to_the_last(self) -> None:
        framework = self.framework()
        launched = self.leased(framework)
        assert list(launched.values()) == ["b"]
        assert tell(framework, launched, "TASK_RUNNING") == [] and framework.outcomes == []
        tell(framework, launched, "TASK_FINISHED")
        assert framework.outcomes == [FrameworkOutcome(*launched, "finished", agent="b")]
        assert tell(framework, launched, "TASK_FINISHED") == [], "it is over, and told of once"
        assert len(framework.outcomes) == 1

    def test_one_that_fails_says_why(self) -> None:
        framework = self.framework()
        (key,) = launched = self.leased(framework)
        tell(framework, launched, "TASK_GONE")
        assert framework.outcomes == [FrameworkOutcome(key, "failed", "TASK_GONE", "b")]

    def test_a_new_stream_asks_for_them_by_name(self) -> None:
        framework = self.framework()
        nodes = tasks(framework.offers([offer("a", run="r1")], 0.0))
        launched = self.leased(framework)
        assert Reconcile((*nodes.items(), *launched.items())) in framework.subscribed(9.0)

    def test_one_that_is_silent_for_long_is_asked_for(self) -> None:
        framework = self.framework()
        launched = self.leased(framework)
        due = framework.due()
        assert due is not None
        assert framework.wake(due - 0.1) == []
        assert framework.wake(due) == [Reconcile(tuple(launched.items()))]
        tell(framework, launched, "TASK_RUNNING")
        framework.wake(due + 0.1)
        assert framework.due() is None

    def test_one_of_an_earlier_life_is_ended(self) -> None:
        earlier = self.leased(self.framework("1"))
        (task, agent) = next(iter(earlier.items()))
        framework = self.framework("2")
        assert tell(framework, earlier, "TASK_RUNNING") == [Kill(task, agent)]
        assert tell(framework, earlier, "TASK_KILLED") == [] and framework.outcomes == []

    def test_when_nothing_more_is_wanted_offers_of_others_are_declined(self) -> None:
        framework = self.framework()
        self.leased(framework)
        assert framework.borrow(TaskNeed(1.0), 0, 5.0) == []
        assert framework.offers([offer("c", run="r2")], 5.0) == [Decline(("o-c-1",), NEVER_S)]


class TestOffered:
    def test_reads_what_every_offer_has(self) -> None:
        found = parse_offer(offer("a", ends=1700.5, run="r1"), 3.0)
        assert (found.id, found.agent, found.hostname, found.role) == ("o-a-1", "a", "host-a", "asa")
        assert (found.attributes, found.ends, found.made) == ({"run": "r1"}, 1700.5, 3.0)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), max_size=12),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=5),
)
def test_no_offer_is_used_twice_nor_beyond_what_it_has(
    given_offers: list[tuple[str, int]], gangs: list[tuple[int, int]]
) -> None:
    framework, calls = Framework(), list[Call]()
    for number, (size, cpus) in enumerate(gangs):
        calls += framework.gang(gang(f"g{number}", size, cpus), 0.0)
    there: dict[str, Offered] = {}
    for number, (agent, cpus) in enumerate(given_offers):
        item = offer(agent, cpus, number)
        there[item["id"]["value"]] = parse_offer(item, 0.0)
        calls += framework.offers([item], float(number))
    answered = [name for call in calls if isinstance(call, Accept | Decline) for name in call.offers]
    assert len(answered) == len(set(answered))
    for call in calls:
        if isinstance(call, Accept):
            taken = sum(task["resources"][0]["scalar"]["value"] for task in call.tasks)
            assert taken <= sum(there[name].resources.scalar("cpus") for name in call.offers)
    started: dict[str, int] = {}
    for task in tasks(calls):
        started[task.partition(".")[0]] = started.get(task.partition(".")[0], 0) + 1
    assert all(gangs[int(key[1:])][0] == count for key, count in started.items()), "all of a gang or none"


def test_messages_are_built_as_the_driver_expects() -> None:
    assert message("KILL", task_id=identity("t")) == {"type": "KILL", "kill": {"task_id": {"value": "t"}}}


# ------------------------------------------------------- framework ends


def test_a_crew_that_is_withdrawn() -> None:
    framework = Framework()
    framework.add_program(NodeProgram("nodes", lambda offer: TRUE, {"of": "nodes"}), 0.0)
    framework.add_program(NodeProgram("others", lambda offer: TRUE, {"of": "others"}), 0.0)
    launched = tasks(framework.offers([offer("a", of="nodes"), offer("b", of="others")], 0.0))
    assert len(launched) == 2
    calls = framework.withdraw("others", 0.0)
    assert [call for call in calls if isinstance(call, Kill)] == [
        Kill(task, agent) for task, agent in launched.items() if agent == "b"
    ]
    assert tasks(framework.offers([offer("c", of="others")], 0.0)).keys() & launched.keys() == set()
    framework.withdraw("nobody's", 0.0)


def test_a_member_that_has_ended_stays_ended() -> None:
    framework = Framework()
    framework.gang(gang(), 0.0)
    launched = tasks(framework.offers([offer("a"), offer("b")], 0.0))
    tell(framework, launched, "TASK_RUNNING")
    first = dict([next(iter(launched.items()))])
    tell(framework, first, "TASK_FINISHED")
    assert tell(framework, first, "TASK_FAILED") == tell(framework, first, "TASK_RUNNING") == []
    assert outcomes(framework) == [("g", "started")]


# ------------------------------------------------------- offered


@pytest.mark.parametrize(("text", "cores"), [("2.5", 2.5), ("many", None), ("-1", None), ("inf", None), ("nan", None)])
def test_the_capacity_of_an_agent(text: str, cores: float | None) -> None:
    found = parse_offer(
        {
            "id": identity("o"),
            "agent_id": identity("a"),
            "hostname": "n1",
            "allocation_info": {"role": "asa"},
            "resources": to_json(scalars(cpus=2), "asa"),
            "attributes": [
                {"name": CAPACITY, "type": "TEXT", "text": {"value": text}},
                {"name": "racks", "type": "SET", "set": {"item": ["a"]}},
            ],
        },
        0.0,
    )
    assert found.capacity == cores
    assert found.attributes["racks"] == ""  # of types that say nothing to us


# ------------------------------------------------------- scheduler


class Driver:
    """Writes down what it is to tell the master."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.called.append((name, *arguments))

    def names(self) -> list[str]:
        return [name for name, *_ in self.called]


@pytest.fixture
def told() -> list[FrameworkOutcome]:
    return []


@pytest.fixture
def scheduler(told: list[FrameworkOutcome]) -> Iterator[FrameworkScheduler]:
    found = FrameworkScheduler(Framework(), told.extend)
    yield found
    found.close()


def raw_offer(name: str) -> dict[str, Any]:
    return {
        "id": identity(f"o-{name}"),
        "agent_id": identity(name),
        "hostname": name,
        "allocation_info": {"role": "asa"},
        "resources": to_json(scalars(cpus=2, mem=64), "asa"),
    }


def test_why_the_driver_has_given_up_is_an_outcome(scheduler: FrameworkScheduler, told: list[FrameworkOutcome]) -> None:
    scheduler.error(Driver(), "Framework has been removed")
    assert scheduler.ready.is_set() and scheduler.error_text == "Framework has been removed"
    assert told == [FrameworkOutcome("framework", "failed", "Framework has been removed")]


def test_what_was_rescinded_is_not_used(scheduler: FrameworkScheduler) -> None:
    driver = Driver()
    scheduler.registered(driver, identity("F1"), {})
    scheduler.want(
        lambda framework, now: framework.gang(TaskGang("g", (TaskProgram(("true",)),) * 2, TaskNeed(2.0)), now)
    )
    scheduler.resourceOffers(driver, [raw_offer("a")])
    scheduler.offerRescinded(driver, identity("o-a"))
    scheduler.resourceOffers(driver, [raw_offer("b")])
    assert "acceptOffers" not in driver.names()
    scheduler.resourceOffers(driver, [raw_offer("c")])
    taken = [arguments[0] for name, *arguments in driver.called if name == "acceptOffers"]
    assert sorted(taken, key=str) == [[identity("o-b")], [identity("o-c")]]


def test_what_waits_for_the_time_is_done_when_it_comes(scheduler: FrameworkScheduler) -> None:
    driver = Driver()
    scheduler.registered(driver, identity("F1"), {})
    waiting = TaskGang("g", (TaskProgram(("true",)),) * 2, TaskNeed(2.0))
    scheduler.want(lambda framework, now: framework.gang(waiting, now - 10_000.0))
    scheduler.want(lambda framework, now: framework.offers([raw_offer("a")], now - 10_000.0))
    until(lambda: "declineOffer" in driver.names())
