"""What a run asks of others in the same pool, and what it does with what it is lent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.event import (
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeJoined,
    Recalled,
    Released,
    RunEnded,
    RunStarted,
    RunState,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
    Wanted,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageSpec
from asa.workflows.plan import Action, LaunchTasks, Plan, Release, Want
from tests.workflows.lender import Terms
from tests.workflows.world import Crash, World

CORE = Resources()
LEASE = "run.lease-1"


def stage(name: str = "s", tasks: int | None = 8, cores: int = 8, task: Resources = CORE, *after: str) -> StageSpec:
    return StageSpec(name, Resources(cores), task, 600.0, 100.0, after, 1, tasks)


def plan_after(*events: Event, stages: tuple[StageSpec, ...] = (stage(),), borrows: bool = True) -> Plan:
    """A plan whose job waits in the queue, and then these events."""
    site = Capabilities(site="x", regime=QueueRegime.FIFO)
    plan = Plan(STRATEGIES.create("per-stage"), site, borrows=borrows)
    job = JobRequest("run.0", stages[0].resources, 600.0, ("x",))
    for event in (
        RunStarted(0.0, "run", "w", stages, "fake", "s", "fake", "shared:p", "x", ""),
        DriverStarted(0.0, 1, "host"),
        Submitting(0.0, "run.0", job, tuple(spec.name for spec in stages), (), None),
        Submitted(0.0, "run.0", JobHandle("7", "run.0", 0.0)),
        *events,
    ):
        plan.on(event)
    return plan


def lease(cores: int = 4, at: float = 1.0, until: float = 1e5, key: str = LEASE) -> Leased:
    return Leased(at, key, Resources(cores), "other", until)


def joined(cores: int = 4, at: float = 2.0, key: str = LEASE) -> NodeJoined:
    return NodeJoined(at, key, "far", cores)


def of(kind: type[Action], plan: Plan, now: float = 3.0) -> list[Any]:
    return [action for action in plan.decide(now) if isinstance(action, kind)]


def wanted(plan: Plan, now: float = 3.0) -> Want:
    (want,) = of(Want, plan, now)
    return want


class TestWant:
    @pytest.mark.parametrize(("tasks", "asked"), [(1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (1000, 512)])
    def test_powers_of_two_are_asked_for(self, tasks: int, asked: int) -> None:
        assert wanted(plan_after(stages=(stage(tasks=tasks),))) == Want(CORE, asked)

    def test_only_when_that_changes(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8))
        assert of(Want, plan) == []
        plan.on(lease(1))
        assert wanted(plan) == Want(CORE, 4)

    def test_less_what_is_on_its_way(self) -> None:
        plan = plan_after(lease(6))
        assert wanted(plan) == Want(CORE, 2)
        plan.on(lease(4, key="run.lease-2"))
        assert wanted(plan) == Want(CORE, 0), "more than enough is coming, but tasks wait"

    def test_what_a_lease_has_joined_with_is_launched_into_before_more_is_asked_for(self) -> None:
        plan = plan_after(lease(), joined())
        (launch,) = plan.decide(3.0)
        assert launch == LaunchTasks("s", ((0, 4),), LEASE)
        plan.on(TasksLaunched(3.0, "s", ((0, 4),), LEASE))
        assert wanted(plan) == Want(CORE, 4)

    def test_nothing_when_nothing_waits(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8), lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        assert wanted(plan) == Want(None, 0)
        plan.on(Wanted(3.0, None))
        assert of(Want, plan) == []

    def test_nothing_when_the_run_is_over_or_to_end(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8), RunEnded(2.0, RunState.FAILED, "why"))
        assert wanted(plan) == Want(None, 0)

    def test_tasks_of_one_size_and_rather_those_that_fit_a_node(self) -> None:
        sizes = stage("wide", 3, 16, Resources(8, nodes=2)), stage("deep", 4, 8, Resources(2)), stage("thin", 5)
        assert wanted(plan_after(stages=sizes)) == Want(Resources(2), 4)
        assert wanted(plan_after(stages=sizes[:1])) == Want(Resources(8, nodes=2), 2)

    def test_a_run_that_is_alone_asks_nobody(self) -> None:
        assert of(Want, plan_after(borrows=False)) == []
        assert of(Want, plan_after(RunEnded(2.0, RunState.FAILED, "why"), borrows=False)) == []


class TestUse:
    def test_tasks_that_would_take_longer_than_is_left_stay_out(self) -> None:
        done = (TasksLaunched(3.0, "s", ((0, 1),), LEASE), TaskDone(103.0, "s", 0, LEASE, "far", 3.0))
        plan = plan_after(lease(until=1000.0), joined(), *done)
        assert [launch.allocation for launch in of(LaunchTasks, plan, 870.0)] == [LEASE], "100 s, and a margin of 30 s"
        assert of(LaunchTasks, plan, 870.1) == []

    def test_of_a_short_one_a_long_task_does_not_make_the_best(self) -> None:
        """Other than in an allocation of its own, which will not be longer the next time."""
        done = (TasksLaunched(3.0, "s", ((0, 1),), "run.0"), TaskDone(103.0, "s", 0, "run.0", "near", 3.0))
        plan = plan_after(*done, lease(at=110.0, until=220.0), joined(at=110.0))
        assert of(LaunchTasks, plan, 110.0) == []

    def test_its_own_stage_s_allocation_comes_first(self) -> None:
        plan = plan_after(lease(8), joined(8), NodeJoined(2.0, "run.0", "near", 8))
        assert of(LaunchTasks, plan) == [LaunchTasks("s", ((0, 8),), "run.0")]

    def test_a_recalled_one_gets_no_more_and_goes_once_it_is_idle(self) -> None:
        plan = plan_after(lease(), joined(), TasksLaunched(3.0, "s", ((0, 1),), LEASE), Recalled(4.0, LEASE, "why"))
        assert of(LaunchTasks, plan, 5.0) == [] and of(Release, plan, 5.0) == []
        plan.on(TaskDone(6.0, "s", 0, LEASE, "far", 3.0))
        assert of(Release, plan, 6.0) == [Release(LEASE, "its lender wants it back")]
        plan.on(Released(6.0, LEASE))
        assert of(Release, plan, 6.0) == []
        assert of(LaunchTasks, plan, 6.0) == []
        plan.on(LeaseEnded(7.0, LEASE))
        assert LEASE not in plan.pool.held

    def test_one_that_is_not_recalled_is_kept_although_it_is_idle(self) -> None:
        plan = plan_after(lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        for index in range(7):
            plan.on(TaskDone(6.0, "s", index, LEASE, "far", 3.0))
        assert of(Release, plan, 6.0) == []

    def test_when_the_run_is_over_leases_go_whatever_runs_in_them(self) -> None:
        plan = plan_after(lease(), joined(), TasksLaunched(3.0, "s", ((0, 1),), LEASE))
        plan.on(RunEnded(4.0, RunState.CANCELLED, "enough"))
        assert of(Release, plan, 4.0) == [Release(LEASE, "the run is over")]

    def test_tasks_of_one_that_ends_run_again(self) -> None:
        plan = plan_after(lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        plan.on(TaskDone(5.0, "s", 3, LEASE, "far", 3.0))
        assert plan.stages["s"].unlaunched == 0
        plan.on(LeaseEnded(6.0, LEASE, "the agent is gone"))
        assert list(plan.stages["s"].again) == [0, 1, 2, 4, 5, 6, 7]
        late = TaskFailed(6.1, "s", 0, LEASE, "far", 3.0, "lost", infrastructure=True)
        plan.on(late)
        assert list(plan.stages["s"].again) == [0, 1, 2, 4, 5, 6, 7], "what is told of them later changes nothing"
        assert (plan.stages["s"].failures, plan.stages["s"].barren) == ({}, 0), "nobody of ours is to blame"

    def test_a_new_driver_knows_no_leases_and_asks_anew(self) -> None:
        events = (Wanted(1.0, CORE, 8), lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        plan = plan_after(*events, DriverStarted(9.0, 2, "host"))
        assert list(plan.pool.held) == ["run.0"]
        assert wanted(plan, 9.0) == Want(CORE, 8)

    def test_a_run_is_closed_once_its_own_jobs_have_ended(self) -> None:
        plan = plan_after(lease(), joined(), RunEnded(4.0, RunState.CANCELLED, "enough"))
        assert not plan.closed
        plan.on(JobEnded(5.0, "run.0", JobState.CANCELLED))
        assert plan.closed and LEASE in plan.pool.held

    def test_nobody_is_taught_by_them(self) -> None:
        plan = plan_after(lease(), joined(), LeaseEnded(9.0, LEASE))
        assert plan.untaught == {} and plan.pool.idle_core_s == 0.0


# ------------------------------------------------------------------------------------------------ whole runs


@asa.stage(cores=4, walltime=600)
def square(x: int) -> int:
    return x * x


def world_in(path: Path, count: int = 8, **more: Any) -> World:
    given = {"wait": 300.0, "run_time": lambda task: 20.0, "lends": Terms()} | more
    return World(path, square.map(range(count)), "per-stage", **given)


def places(world: World) -> list[str]:
    """Where tasks were done, each place once."""
    return list(dict.fromkeys(event.allocation for event in world.events(TaskDone)))


def test_a_run_may_end_before_its_own_job_starts(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    assert world.drive() is RunState.SUCCEEDED
    assert places(world) == [LEASE]
    assert world.states() == ["cancelled"]
    assert world.lender.asked == [(CORE, 8), (CORE, 4), (CORE, 2), (CORE, 1), (None, 0)], "as the tasks end one by one"
    assert [event.allocation for event in world.events(Released)] == [LEASE]


def test_what_is_taken_back_goes_on_elsewhere(tmp_path: Path) -> None:
    world = world_in(tmp_path, wait=30.0, lends=Terms(recall_s=5.0, delay_s=25.0))
    assert world.drive() is RunState.SUCCEEDED
    assert places(world) == [LEASE, "run.0"]
    assert world.result() == [x * x for x in range(8)]
    assert max(world.attempts.values()) == 1, "no task is lost"


@pytest.mark.parametrize("silent", [False, True])
def test_what_is_lost_with_a_lease_runs_again(tmp_path: Path, silent: bool) -> None:
    lends = Terms(lasts_s=45.0, delay_s=20.0)
    world = world_in(tmp_path, 4, silent=silent, lends=lends, run_time=lambda task: 50.0, wait=60.0)
    assert world.drive() is RunState.SUCCEEDED
    assert world.events(LeaseEnded)[0].reason == "the agent is gone"
    assert places(world) == ["run.0"]


@pytest.mark.parametrize("at", [Leased, NodeJoined, TasksLaunched, Recalled])
def test_a_driver_that_takes_over_neither_adopts_nor_cancels_leases(tmp_path: Path, at: type[Event]) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    terms = Terms(recall_s=10.0)
    for path in (whole, torn):
        path.mkdir(mode=0o700)
    first = world_in(whole, lends=terms)
    first.drive()
    number = next(n for n, (_, event) in enumerate(first.log.read()) if isinstance(event, at)) - 1  # after RunStarted
    world = world_in(torn, lends=terms)
    with pytest.raises(Crash):
        world.drive(number)
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == first.result()
    assert [event.allocation for event in world.events(JobEnded, Cancelled)] == ["run.0", "run.0"]
    leases = [event.allocation for event in world.events(Leased)]
    assert len(leases) == len(set(leases)) > 1
