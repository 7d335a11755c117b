"""What a run does in a pool that it shares: when it lends, what it gives back, and how its own nodes go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from asa.core.event import Event, Leased, LeaseEnded, Recalled
from asa.core.job import Resources
from asa.core.units import MIB
from executors.mesos.framework import Borrower, Call, FrameworkOutcome, Lease, TaskNeed, TaskProgram
from executors.mesos.operator import Operator
from executors.mesos.scheduler import FrameworkScheduler
from executors.mesos.sharing import IDLE_S, NOTICE_S, PoolNode, PoolRun, PoolSnapshot, Tenant


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
class World:
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
        self.tenant = Tenant(self.borrower, scheduler, self.told.append, self.dismissed.append, self._post)
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
def world() -> World:
    return World()


class TestWant:
    def test_others_are_told_when_we_begin_and_when_we_cease_to_wait(self, world: World) -> None:
        for task, count in ((Resources(), 4), (Resources(), 2), (Resources(), 0), (None, 0), (None, 0)):
            world.tenant.want(task, count)
        assert world.told == [True, False]

    def test_the_framework_borrows_so_much_and_first_uses_its_own(self, world: World) -> None:
        world.tenant.want(Resources(2, memory=5, gpus=1), 4)
        world.tenant.want(Resources(2), 2)
        need, less = TaskNeed(2.0, 5, 1), TaskNeed(2.0)
        assert world.asked.calls == [("renew",), ("borrow", need, 4), ("borrow", less, 2)]

    def test_what_spans_nodes_is_not_borrowed_but_waited_for(self, world: World) -> None:
        world.tenant.want(Resources(8, nodes=2), 4)
        assert world.told == [True]
        assert [call[2] for call in world.asked.calls if call[0] == "borrow"] == [0]

    def test_without_anything_to_do_nothing_is_borrowed(self, world: World) -> None:
        world.tenant.want(Resources(), 4)
        world.tenant.want(None, 0)
        assert world.asked.calls[-1][2] == 0


class TestHeed:
    def test_a_new_lease(self, world: World) -> None:
        assert world.tenant.heed(FrameworkOutcome(world.lease.key, "leased", agent="b"))
        (event,) = world.events
        assert isinstance(event, Leased)
        assert (event.allocation, event.lender, event.until) == (world.lease.key, "them", 900.0)
        assert event.resources == Resources(2, memory=64 * MIB)

    @pytest.mark.parametrize("reason", ["", "the agent was lost"])
    def test_the_end_of_a_lease(self, world: World, reason: str) -> None:
        assert world.tenant.heed(FrameworkOutcome(world.lease.key, "failed" if reason else "finished", reason, "b"))
        (event,) = world.events
        assert isinstance(event, LeaseEnded) and (event.allocation, event.reason) == (world.lease.key, reason)

    def test_a_supervisor_that_was_ended_for_others_starts_anew_when_we_wait_meanwhile(self, world: World) -> None:
        lent = FrameworkOutcome("nodes", "finished", agent="a")
        assert not world.tenant.heed(lent)
        assert world.asked.calls == [], "nothing of ours waits"
        world.tenant.want(Resources(), 1)
        world.asked.calls.clear()
        assert not world.tenant.heed(lent)
        assert world.asked.calls == [("renew",)]
        assert not world.tenant.heed(FrameworkOutcome("nodes", "failed", "no room", "a"))
        assert world.asked.calls == [("renew",)], "what failed has its own rule"
        assert world.events == []


class TestLend:
    def test_idle_nodes_are_lent_when_others_wait(self, world: World) -> None:
        world.step()
        assert world.dismissed == []
        world.change("others", waits=True)
        world.step()
        assert world.dismissed == [IDLE_S]

    def test_not_while_we_wait_ourselves(self, world: World) -> None:
        world.change("others", waits=True)
        world.tenant.want(Resources(8, nodes=2), 1)
        world.step()
        assert world.dismissed == []
        world.tenant.want(None, 0)
        world.step()
        assert world.dismissed == [IDLE_S]

    def test_not_to_a_run_without_a_driver_nor_to_ourselves(self, world: World) -> None:
        world.change("others", waits=True, connected=False)
        world.change("us", waits=True)  # the master has not heard yet that we do not any more
        world.step()
        assert world.dismissed == []


class TestClaim:
    def test_without_a_reason_leases_stay(self, world: World) -> None:
        world.change("us", waits=True)
        world.step()
        assert world.recalls() == []

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
        self, world: World, name: str, changes: dict[str, Any], reason: str
    ) -> None:
        world.change(name, **changes)
        world.step()
        assert world.recalls() == [reason]
        world.step()
        assert world.recalls() == [], "a lease is recalled once"

    def test_a_lender_that_is_gone_has_no_driver(self, world: World) -> None:
        del world.runs["them"]
        world.step()
        assert world.recalls() == ["run them has no driver any more"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"waits": True, "cores": 2.0},
            {"waits": False, "cores": 0.0},
            {"waits": True, "cores": 0.0, "connected": False},
        ],
        ids=["has what we would have left", "waits for nothing", "has no driver"],
    )
    def test_a_third_run_has_no_claim_when_it(self, world: World, changes: dict[str, Any]) -> None:
        world.change("others", **changes)
        world.step()
        assert world.recalls() == []

    def test_an_agent_that_the_master_has_forgotten_is_no_reason(self, world: World) -> None:
        """What was on it is told of by an update."""
        del world.nodes["b"]
        world.step()
        assert world.recalls() == []

    def test_once_it_has_ended_it_is_forgotten(self, world: World) -> None:
        world.change("them", waits=True)
        world.step()
        world.borrower.ended(world.lease.key)
        world.tenant.heed(FrameworkOutcome(world.lease.key, "finished"))
        world.borrower.leases[world.lease.key] = world.lease
        world.recalls()
        world.step()
        assert world.recalls() == ["run them needs it"]


class TestReleased:
    def test_an_agent_on_which_nothing_runs_goes_at_once(self, world: World) -> None:
        world.released.add("us.0")
        world.change("a", used=0.0)
        world.step(10.0)
        assert world.operations == [("MARK_AGENT_GONE", "a")]

    def test_what_others_have_on_it_is_given_notice(self, world: World) -> None:
        world.released.add("us.0")
        world.step(10.0)
        assert world.operations == [("deactivate", "a")] and world.tenant.leaving
        world.step(10.0 + NOTICE_S - 0.1)
        assert world.operations == [("deactivate", "a")], "once"
        world.step(10.0 + NOTICE_S)
        assert world.operations[1:] == [("MARK_AGENT_GONE", "a")]

    def test_it_goes_as_soon_as_they_have_left(self, world: World) -> None:
        world.released.add("us.0")
        world.step(10.0)
        world.change("a", used=0.0)
        world.step(11.0)
        assert world.operations[1:] == [("MARK_AGENT_GONE", "a")]
        del world.nodes["a"]
        world.step(12.0)
        assert not world.tenant.leaving and len(world.operations) == 2

    def test_others_are_let_alone(self, world: World) -> None:
        world.released.add("us.1")
        world.step(10.0)
        assert world.operations == [] and not world.tenant.leaving
