"""The plan alone: events in, actions out."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Ask, Cancel, StrategyDecision, Wake
from asa.core.event import (
    AllocationStarted,
    Amending,
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    HoldAsked,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Recalled,
    Released,
    RunEnded,
    RunStarted,
    RunState,
    StageExpanded,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
    Wanted,
    decode,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.run import BARREN_MOST, GONE_S, JOIN_S, UNRESPONSIVE_S, StageProgress, Wait
from asa.core.stage import StageSpec
from asa.core.view import StageView, WorkflowView
from asa.strategies.asking import ask_for
from asa.workflows.explain import explain
from asa.workflows.plan import Action, Expand, Finish, LaunchTasks, Plan, Release, Submit, Teach, Want
from benchmarks.plan import ALONE, SHAPES, plan_alone
from tests.workflows.world import picture

JOB = "run.0"


def stage(name: str = "a", *after: str, width: int | None = 4, retries: int = 0) -> StageSpec:
    """Four cores for 600 s, one for each task."""
    return StageSpec(name, Resources(4), Resources(), 600.0, 100.0, after, retries, width)


def ask(name: str = "a") -> Ask:
    return Ask((name,), Resources(4), 600.0)


def plan_of(*stages: StageSpec, strategy: Any = "per-stage", regime: QueueRegime = QueueRegime.FIFO) -> Plan:
    plan = Plan(STRATEGIES.create(strategy), Capabilities(site="x", regime=regime))
    return tell(
        plan,
        RunStarted(0.0, "run", "w", stages or (stage(),), "fake", "s", "fake", "shared", "x", ""),
        DriverStarted(0.0, 1, "host"),
    )


def tell(plan: Plan, *events: Event) -> Plan:
    for event in events:
        plan.on(event)
    return plan


def submitted(at: float = 1.0, key: str = JOB, stages: tuple[str, ...] = ("a",), *after: str) -> list[Event]:
    job = JobRequest(key, Resources(4), 600.0, ("x",))
    return [Submitting(at, key, job, stages, after), Submitted(at, key, JobHandle("7", key, at))]


def started(at: float = 10.0, key: str = JOB) -> list[Event]:
    """Its wait was learned from, too."""
    return [AllocationStarted(at, key, at), Learned(at, key, "a", 9.0), NodeJoined(at, key, "n1", 4)]


def done(*indices: int, at: float = 20.0, key: str = JOB) -> list[Event]:
    return [TaskDone(at, "a", index, key, "n1", 11.0) for index in indices]


RUNNING = [*submitted(), *started(), TasksLaunched(11.0, "a", ((0, 4),), JOB)]


# ------------------------------------------------------------------------------------------------ from stage to stage


def test_a_stage_from_the_job_to_the_result() -> None:
    plan = plan_of()
    assert plan.decide(1.0) == [Submit(JOB, ask())]
    assert tell(plan, *submitted()).decide(1.0) == []
    (teach,) = tell(plan, AllocationStarted(10.0, JOB, 10.0)).decide(10.0)
    assert isinstance(teach, Teach) and (teach.wait_s, teach.censored, teach.wait.stage) == (9.0, False, "a")
    assert tell(plan, *started()).decide(10.0) == [LaunchTasks("a", ((0, 4),), JOB)]
    assert tell(plan, TasksLaunched(11.0, "a", ((0, 4),), JOB)).decide(11.0) == []
    assert tell(plan, *done(0, 1, 2)).decide(20.0) == []
    release = Release(JOB, "no stage needs it any more")
    assert tell(plan, *done(3)).decide(20.0) == [release]
    assert tell(plan, Released(20.0, JOB, release.reason)).decide(20.0) == [Finish(RunState.SUCCEEDED)]
    assert tell(plan, RunEnded(20.0, RunState.SUCCEEDED)).decide(20.0) == []
    assert not plan.closed and tell(plan, JobEnded(21.0, JOB, JobState.COMPLETED)).closed


def test_the_next_stage_is_asked_for_when_the_one_before_is_done() -> None:
    plan = tell(plan_of(stage(), stage("b", "a")), *RUNNING, *done(0, 1, 2, 3))
    assert plan.decide(20.0) == [Submit("run.1", ask("b")), Release(JOB, "no stage needs it any more")]


def test_a_width_is_found_out_before_anything_else_is_decided() -> None:
    plan = tell(plan_of(stage(), stage("b", "a", width=None)), *RUNNING, *done(0, 1, 2, 3))
    assert plan.decide(20.0) == [Expand("b")]
    tell(plan, StageExpanded(20.0, "b", 0))
    assert plan.decide(20.0) == [Release(JOB, "no stage needs it any more")], "of a stage without tasks nothing is left"


def test_lost_tasks_are_launched_first() -> None:
    lost = TaskFailed(15.0, "a", 2, JOB, "n1", 11.0, "lost", infrastructure=True)
    plan = tell(plan_of(stage(width=8)), *RUNNING, lost, *done(0))
    assert plan.decide(20.0) == [LaunchTasks("a", ((2, 3), (4, 5)), JOB)]


# ------------------------------------------------------------------------------------------------ letting go


def test_a_run_that_is_cancelled_lets_everything_go() -> None:
    plan = tell(plan_of(), *submitted(), CancelAsked(5.0, "enough"))
    assert plan.decide(5.0) == [Finish(RunState.CANCELLED, "enough"), Cancel(JOB, "the run is over")]
    plan = tell(plan_of(), *RUNNING, CancelAsked(15.0, "enough"))
    assert plan.decide(15.0) == [Finish(RunState.CANCELLED, "enough"), Release(JOB, "the run is over")]


def test_while_it_is_held_nothing_new_is_submitted_or_launched() -> None:
    held, released = HoldAsked(15.0, True), HoldAsked(30.0, False)
    plan = tell(plan_of(stage(width=8), stage("b", "a")), held)
    assert plan.decide(15.0) == [] and plan.wake_at(15.0) == math.inf
    assert tell(plan, released).decide(30.0) == [Submit("run.0", ask())]

    plan = tell(plan_of(stage(width=8), stage("b", "a")), *RUNNING, held, *done(0, 1))
    assert plan.decide(20.0) == [], "what runs goes on, but nothing takes its place"
    assert [type(action) for action in tell(plan, released).decide(30.0)] == [LaunchTasks]
    plan = tell(plan_of(), held, DriverStarted(25.0, 1, "host", keeps=True), HoldAsked(26.0, True))
    assert plan.decide(26.0) == [] and plan.on_hold == 15.0, "the next driver finds it held"

    plan = tell(plan_of(), *RUNNING, held, *done(0, 1, 2, 3))
    assert Release(JOB, "no stage needs it any more") in plan.decide(20.0), "what no stage needs is not kept"
    assert Finish(RunState.SUCCEEDED) in tell(plan, Released(20.0, JOB)).decide(20.0)
    plan = tell(plan_of(), *RUNNING, held, CancelAsked(16.0, "enough"))
    assert plan.decide(16.0) == [Finish(RunState.CANCELLED, "enough"), Release(JOB, "the run is over")]


def test_a_job_with_too_little_time_left_goes_although_its_stage_has_tasks() -> None:
    plan = tell(plan_of(stage(width=8)), *RUNNING, *done(0, 1, 2, 3, at=580.0))
    assert plan.decide(580.0) == [Submit("run.1", ask()), Release(JOB, "too little of its wall time is left")]


def test_a_released_job_that_does_not_end_is_cancelled() -> None:
    plan = tell(plan_of(), *RUNNING, *done(0, 1, 2, 3), Released(20.0, JOB), RunEnded(20.0, RunState.SUCCEEDED))
    assert plan.decide(20.0) == [] and plan.wake_at(20.0) == 20.0 + UNRESPONSIVE_S
    assert plan.decide(49.9) == [] and plan.wake_at(49.9) == 20.0 + UNRESPONSIVE_S
    assert plan.decide(50.0) == [Cancel(JOB, "it was released and did not end")]


def test_jobs_whose_nodes_never_join_are_cancelled_and_asked_for_again_but_not_for_ever() -> None:
    """Something before the supervisor hangs: a module, a disk."""
    plan, now = plan_of(replace(stage(), walltime_s=2 * JOIN_S)), 0.0
    for number in range(BARREN_MOST):
        key = f"run.{number}"
        (submit,) = plan.decide(now)
        assert isinstance(submit, Submit) and submit.token == key
        asked = Submitting(now, key, JobRequest(key, Resources(4), 2 * JOIN_S, ("x",)), ("a",))
        tell(
            plan,
            asked,
            Submitted(now, key, JobHandle("7", key, now)),
            AllocationStarted(now, key, now),
            Learned(now, key, "a", 0.0),
        )
        assert plan.decide(now) == [] and plan.wake_at(now) == now + JOIN_S
        now += JOIN_S
        assert plan.decide(now) == [Cancel(key, "no node joined in 30 min")]
        tell(plan, Cancelled(now, key, "hangs"), JobEnded(now, key, JobState.CANCELLED))
    assert "3 allocations in a row ended before they finished a task" in plan.stages["a"].error


def test_a_job_whose_nodes_are_gone_is_cancelled() -> None:
    plan = tell(plan_of(), *RUNNING, NodeLost(20.0, JOB, "n1", "silent"))
    assert plan.wake_at(20.0) == 20.0 + GONE_S
    tell(plan, DriverStarted(100.0, 2, "host"))  # they may come back to it
    assert plan.decide(100.0 + GONE_S - 0.1) == [] and plan.wake_at(100.0) == 100.0 + GONE_S
    assert plan.decide(100.0 + GONE_S) == [Cancel(JOB, "its nodes are gone for 5 min")]
    tell(plan, Cancelled(400.0, JOB, "gone"), JobEnded(401.0, JOB, JobState.CANCELLED))
    assert plan.decide(401.0) == [Submit("run.1", ask())]
    assert explain(plan, 401.0)


def test_a_job_in_a_pool_of_several_runs_goes_on_without_nodes_of_this_one() -> None:
    """They may be lent: what works there must not be ended."""
    plan = Plan(STRATEGIES.create("per-stage"), Capabilities(site="x", regime=QueueRegime.FIFO), borrows=True)
    begins = RunStarted(0.0, "run", "w", (stage(),), "fake", "s", "fake", "shared:lab", "x", "")
    tell(plan, begins, DriverStarted(0.0, 1, "host"), *RUNNING, NodeLost(20.0, JOB, "n1", "it is lent to others"))
    assert math.isinf(plan.pool.held[JOB].overdue_at)
    tell(plan, DriverStarted(100.0, 2, "host"))
    assert math.isinf(plan.pool.held[JOB].overdue_at)


def test_a_job_that_may_have_been_parked_counts_as_parked() -> None:
    """Its driver died before it knew: the next one lets it go when its stage is ready."""
    behind = stage("b", "a")
    plan = plan_of(stage(), behind, strategy="hold:technique=parked", regime=QueueRegime.MULTIFACTOR)
    parks = Amending(2.0, "run.1", None, None, True)
    tell(plan, *submitted(), *submitted(1.0, "run.1", ("b",)), parks, DriverStarted(3.0, 2, "host"))
    assert plan.pool.held["run.1"].parked and plan.pool.held["run.1"].amending is None


def test_nodes_that_come_back_in_time_keep_their_job() -> None:
    plan = tell(plan_of(), *RUNNING, NodeLost(20.0, JOB, "n1", "silent"), NodeJoined(300.0, JOB, "n1", 4))
    assert math.isinf(plan.pool.held[JOB].overdue_at)


def test_explain_says_why_a_job_is_being_cancelled() -> None:
    plan = tell(plan_of(), *submitted(), Cancelled(5.0, JOB, "another one came first"))
    assert explain(plan, 5.0).endswith("job 7 is being cancelled: another one came first")


def test_a_task_reported_after_its_job_counts() -> None:
    """Of what ended together, the batch system's word may come first."""
    plan = tell(
        plan_of(), *RUNNING, *done(0, 1, 2, at=19.0), JobEnded(20.0, JOB, JobState.COMPLETED), *done(3, at=20.0)
    )
    assert plan.decide(20.0) == [Finish(RunState.SUCCEEDED)]


def test_the_end_of_a_job_counts_once() -> None:
    plan = tell(plan_of(), *RUNNING, JobEnded(20.0, JOB, JobState.FAILED))
    before = picture(plan)
    for event in (JobEnded(20.0, JOB, JobState.FAILED), SubmitRefused(20.0, JOB, "no"), LeaseEnded(20.0, JOB)):
        plan.on(event)
    assert picture(plan) == before


def test_a_new_driver_runs_again_what_the_last_one_left() -> None:
    plan = tell(plan_of(), *RUNNING, *done(0), DriverStarted(30.0, 2, "host"), NodeJoined(31.0, JOB, "n1", 4))
    (launch,) = [action for action in plan.decide(31.0) if isinstance(action, LaunchTasks)]
    assert [index for start, stop in launch.ranges for index in range(start, stop)] == [1, 2, 3]


def test_of_a_run_that_is_over_nothing_runs_or_waits() -> None:
    plan = tell(plan_of(stage(), stage("b", "a")), *RUNNING, *done(0), RunEnded(20.0, RunState.CANCELLED, "enough"))
    first, second = explain(plan, 20.0).splitlines()
    assert first.startswith("a: stopped, 1 of 4 tasks done") and second.startswith("b: not run")


def test_a_release_has_a_reason_but_in_older_logs() -> None:
    plan = tell(plan_of(stage(), stage("b", "a")), *RUNNING)
    tell(plan, Released(580.0, JOB, "too little of its wall time is left"))
    assert "job 7 is being released: too little of its wall time is left" in explain(plan, 580.0)
    old = decode("Released", {"at": 580.0, "allocation": JOB})
    assert old == Released(580.0, JOB, "")
    assert explain(tell(plan_of(), *RUNNING, old), 580.0).endswith("job 7 is being released")


# ------------------------------------------------------------------------------------------------ asking the strategy


class Later:
    """Asks for every stage, but not before a time; counts how often it is asked itself."""

    estimator, own_pools = "last", False

    def __init__(self, at: float) -> None:
        self.at, self.asked = at, 0

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        self.asked += 1
        return [Wake(self.at)] if view.now < self.at else [ask_for(item) for item in view.stages]


def test_a_decision_changes_nothing_and_the_strategy_is_asked_once_for_each_change() -> None:
    strategy = Later(0.0)
    plan = plan_of(strategy=strategy)
    before = picture(plan)
    assert plan.decide(1.0) == plan.decide(1.0) == [Submit(JOB, ask())]
    assert picture(plan) == before and strategy.asked == 1
    tell(plan, *submitted()).decide(1.0)
    assert strategy.asked == 2


def test_a_stage_that_is_looked_at_alone_is_seen_as_among_all() -> None:
    plan = tell(plan_of(stage(), stage("b", "a"), stage("c", "a")), *RUNNING, *submitted(12.0, "run.1", ("b", "c")))
    stages = plan.view(13.0).stages
    alone = [stages[number] for number in range(len(stages))]
    assert alone == list(plan.view(13.0).stages) == list(stages) and [*reversed(stages)] == alone[::-1]
    assert stages[1:] == tuple(alone[1:]) and [len(seen.allocations) for seen in alone] == [1, 1, 1]


@pytest.mark.parametrize("after", ["the one before", "nothing"])
def test_what_a_decision_looks_at_does_not_grow_with_the_number_of_stages(
    monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """One allocation for all; views of stages that are made, and tasks that are given, are counted."""
    looked_at: list[str] = []
    view = StageProgress.view

    def counted(self: StageProgress, *args: Any) -> StageView:
        looked_at.append(self.spec.name)
        return view(self, *args)

    def most(number: int) -> int:
        names = [f"s{count}" for count in range(number)]
        before = [(), *((name,) for name in names)] if after == "the one before" else [()] * number
        specs = [stage(name, *others, width=1) for name, others in zip(names, before, strict=False)]
        plan = plan_of(*specs, strategy="big-job")
        (submit,) = plan.decide(1.0)
        assert isinstance(submit, Submit)
        tell(plan, *submitted(1.0, submit.token, submit.ask.stages), *started(key=submit.token))
        at_once = []
        for now in range(20, 20 + number):
            looked_at.clear()
            for action in plan.decide(now):
                if isinstance(action, LaunchTasks):
                    plan.on(TasksLaunched(now, action.stage, action.ranges, action.allocation))
            at_once.append(len(looked_at))
            (held,) = plan.pool.held.values()
            (name, index), *_ = held.running
            plan.on(TaskDone(now + 0.5, name, index, held.key, "n1", now))
        assert all(progress.state.final for progress in plan.stages.values())
        return max(at_once)

    monkeypatch.setattr(StageProgress, "view", counted)
    assert most(10) == most(60) <= 2


def test_a_strategy_is_asked_again_at_its_wake_time() -> None:
    strategy = Later(30.0)
    plan = plan_of(strategy=strategy)
    assert plan.decide(1.0) == [] and plan.wake_at(1.0) == 30.0
    assert plan.decide(29.0) == [] and strategy.asked == 1
    assert plan.decide(30.0) == [Submit(JOB, ask())] and plan.wake_at(30.0) == math.inf


# ------------------------------------------------------------------------------------------------ what a wait teaches


@pytest.mark.parametrize(
    ("freed", "started", "gated", "ages", "lesson"),
    [
        (-math.inf, 500.0, False, True, (400.0, False)),
        (50.0, 500.0, False, False, (400.0, False)),  # what it waited for had ended before it was submitted
        (300.0, 500.0, False, True, (400.0, True)),  # had it not depended, it might have started long before
        (50.0, 500.0, False, True, (400.0, False)),
        (300.0, 500.0, False, False, (200.0, False)),
        (300.0, 305.0, False, False, (5.0, False)),  # short waits count, or only long ones were learned
        (-math.inf, 500.0, True, True, (400.0, True)),
    ],
)
def test_a_wait_that_a_dependency_or_a_held_place_made_says_nothing_of_the_queue(
    freed: float, started: float, gated: bool, ages: bool, lesson: tuple[float, bool]
) -> None:
    wait = Wait(JobRequest(JOB, Resources(), 600.0, ()), "a", 100.0, freed, started, None, gated=gated)
    assert wait.lesson(dependents_age=ages) == lesson


def test_a_wait_is_a_difference_of_the_batch_systems_times_where_it_tells() -> None:
    plan = tell(plan_of(), *submitted(at=3.5), AllocationStarted(12.0, JOB, 10.0, ("n1",), submitted=4.0))
    assert plan.untaught[JOB].lesson(dependents_age=True) == (6.0, False)
    silent = tell(plan_of(), *submitted(at=3.5), AllocationStarted(12.0, JOB, 10.0, ("n1",)))
    assert silent.untaught[JOB].lesson(dependents_age=True) == (6.5, False)


# Leases of other runs' nodes.


CORE = Resources()
LEASE = "run.lease-1"


def wide(name: str = "s", tasks: int | None = 8, cores: int = 8, task: Resources = CORE, *after: str) -> StageSpec:
    return StageSpec(name, Resources(cores), task, 600.0, 100.0, after, 1, tasks)


def plan_after(*events: Event, stages: tuple[StageSpec, ...] = (wide(),), borrows: bool = True) -> Plan:
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


def actions(kind: type[Action], plan: Plan, now: float = 3.0) -> list[Any]:
    return [action for action in plan.decide(now) if isinstance(action, kind)]


def wanted(plan: Plan, now: float = 3.0) -> Want:
    (want,) = actions(Want, plan, now)
    return want


class TestWant:
    @pytest.mark.parametrize(("tasks", "asked"), [(1, 1), (2, 2), (3, 2), (7, 4), (8, 8), (1000, 512)])
    def test_powers_of_two_are_asked_for(self, tasks: int, asked: int) -> None:
        assert wanted(plan_after(stages=(wide(tasks=tasks),))) == Want(CORE, asked)

    def test_only_when_that_changes(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8))
        assert actions(Want, plan) == []
        plan.on(lease(1))
        assert wanted(plan) == Want(CORE, 4)

    def test_cores_of_leases_on_their_way_are_subtracted(self) -> None:
        plan = plan_after(lease(6))
        assert wanted(plan) == Want(CORE, 2)
        plan.on(lease(4, key="run.lease-2"))
        assert wanted(plan) == Want(CORE, 0), "more than enough is coming, but tasks wait"

    def test_joined_leases_are_filled_before_more_is_asked_for(self) -> None:
        plan = plan_after(lease(), joined())
        (launch,) = plan.decide(3.0)
        assert launch == LaunchTasks("s", ((0, 4),), LEASE)
        plan.on(TasksLaunched(3.0, "s", ((0, 4),), LEASE))
        assert wanted(plan) == Want(CORE, 4)

    def test_nothing_when_nothing_waits(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8), lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        assert wanted(plan) == Want(None, 0)
        plan.on(Wanted(3.0, None))
        assert actions(Want, plan) == []

    def test_nothing_when_the_run_is_over_or_to_end(self) -> None:
        plan = plan_after(Wanted(1.0, CORE, 8), RunEnded(2.0, RunState.FAILED, "why"))
        assert wanted(plan) == Want(None, 0)

    def test_tasks_of_one_size_and_rather_those_that_fit_a_node(self) -> None:
        sizes = wide("wide", 3, 16, Resources(8, nodes=2)), wide("deep", 4, 8, Resources(2)), wide("thin", 5)
        assert wanted(plan_after(stages=sizes)) == Want(Resources(2), 4)
        assert wanted(plan_after(stages=sizes[:1])) == Want(Resources(8, nodes=2), 2)

    def test_a_run_that_is_alone_asks_for_nothing(self) -> None:
        assert actions(Want, plan_after(borrows=False)) == []
        assert actions(Want, plan_after(RunEnded(2.0, RunState.FAILED, "why"), borrows=False)) == []


class TestUse:
    def test_tasks_that_would_take_longer_than_is_left_stay_out(self) -> None:
        done = (TasksLaunched(3.0, "s", ((0, 1),), LEASE), TaskDone(103.0, "s", 0, LEASE, "far", 3.0))
        plan = plan_after(lease(until=1000.0), joined(), *done)
        assert [launch.allocation for launch in actions(LaunchTasks, plan, 870.0)] == [LEASE], (
            "100 s, and a margin of 30 s"
        )
        assert actions(LaunchTasks, plan, 870.1) == []

    def test_of_a_short_one_a_long_task_does_not_make_the_best(self) -> None:
        """Other than in an allocation of its own, which will not be longer the next time."""
        done = (TasksLaunched(3.0, "s", ((0, 1),), "run.0"), TaskDone(103.0, "s", 0, "run.0", "near", 3.0))
        plan = plan_after(*done, lease(at=110.0, until=220.0), joined(at=110.0))
        assert actions(LaunchTasks, plan, 110.0) == []

    def test_its_own_stage_s_allocation_comes_first(self) -> None:
        plan = plan_after(lease(8), joined(8), NodeJoined(2.0, "run.0", "near", 8))
        assert actions(LaunchTasks, plan) == [LaunchTasks("s", ((0, 8),), "run.0")]

    def test_a_recalled_one_gets_no_more_and_goes_once_it_is_idle(self) -> None:
        plan = plan_after(lease(), joined(), TasksLaunched(3.0, "s", ((0, 1),), LEASE), Recalled(4.0, LEASE, "why"))
        assert actions(LaunchTasks, plan, 5.0) == [] and actions(Release, plan, 5.0) == []
        plan.on(TaskDone(6.0, "s", 0, LEASE, "far", 3.0))
        assert actions(Release, plan, 6.0) == [Release(LEASE, "its lender recalled it")]
        plan.on(Released(6.0, LEASE))
        assert actions(Release, plan, 6.0) == []
        assert actions(LaunchTasks, plan, 6.0) == []
        plan.on(LeaseEnded(7.0, LEASE))
        assert LEASE not in plan.pool.held

    def test_an_idle_lease_is_kept_until_it_is_recalled(self) -> None:
        plan = plan_after(lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        for index in range(7):
            plan.on(TaskDone(6.0, "s", index, LEASE, "far", 3.0))
        assert actions(Release, plan, 6.0) == []

    def test_when_the_run_is_over_leases_go_whatever_runs_in_them(self) -> None:
        plan = plan_after(lease(), joined(), TasksLaunched(3.0, "s", ((0, 1),), LEASE))
        plan.on(RunEnded(4.0, RunState.CANCELLED, "enough"))
        assert actions(Release, plan, 4.0) == [Release(LEASE, "the run is over")]

    def test_tasks_of_one_that_ends_run_again(self) -> None:
        plan = plan_after(lease(8), joined(8), TasksLaunched(3.0, "s", ((0, 8),), LEASE))
        plan.on(TaskDone(5.0, "s", 3, LEASE, "far", 3.0))
        assert plan.stages["s"].unlaunched == 0
        plan.on(LeaseEnded(6.0, LEASE, "the agent is gone"))
        assert list(plan.stages["s"].again) == [0, 1, 2, 4, 5, 6, 7]
        late = TaskFailed(6.1, "s", 0, LEASE, "far", 3.0, "lost", infrastructure=True)
        plan.on(late)
        assert list(plan.stages["s"].again) == [0, 1, 2, 4, 5, 6, 7], "a later report changes nothing"
        assert (plan.stages["s"].failures, plan.stages["s"].barren) == ({}, 0), (
            "neither the stage nor its tasks are to blame"
        )

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

    def test_nothing_is_learned_from_them(self) -> None:
        plan = plan_after(lease(), joined(), LeaseEnded(9.0, LEASE))
        assert plan.untaught == {} and plan.pool.idle_core_s == 0.0


# Whose allocations they are.


def two_stages(own: StageSpec, other: StageSpec, cores: int) -> Plan:
    """An allocation of so many cores that is meant for the first of two stages, which come in the other's order."""
    plan = tell(plan_of(other, own), *submitted(stages=(own.name,)), AllocationStarted(10.0, JOB, 10.0))
    return tell(plan, NodeJoined(10.0, JOB, "n1", cores), *submitted(key="run.1", stages=(other.name,)))


def test_an_allocation_serves_its_own_stage_first() -> None:
    plan = two_stages(wide("own", 6), wide("other", 9), 4)
    assert actions(LaunchTasks, plan, 11.0) == [LaunchTasks("own", ((0, 4),), JOB)]
    tell(plan, TasksLaunched(11.0, "own", ((0, 4),), JOB), TaskDone(12.0, "own", 0, JOB, "n1", 11.0))
    assert actions(LaunchTasks, plan, 12.0) == [LaunchTasks("own", ((4, 5),), JOB)]
    ended = [TaskDone(13.0, "own", index, JOB, "n1", 11.0) for index in (1, 2, 3)]
    tell(plan, TasksLaunched(12.0, "own", ((4, 6),), JOB), *ended)
    assert actions(LaunchTasks, plan, 13.0) == [LaunchTasks("other", ((0, 2),), JOB)], "it has nothing to run now"


def test_others_get_what_it_cannot_use() -> None:
    plan = two_stages(wide("own", 6, task=Resources(3)), wide("other", 9), 4)
    tell(plan, TasksLaunched(11.0, "own", ((0, 1),), JOB))
    assert actions(LaunchTasks, plan, 11.0) == [LaunchTasks("other", ((0, 1),), JOB)]
    tell(plan, TasksLaunched(11.0, "other", ((0, 1),), JOB), TaskDone(12.0, "own", 0, JOB, "n1", 11.0))
    assert actions(LaunchTasks, plan, 12.0) == [LaunchTasks("own", ((1, 2),), JOB)]


def test_explain_names_only_what_a_stage_waits_for_yet() -> None:
    first = replace(stage("a", width=2), continues=True)
    plan = tell(plan_of(first, stage("b"), replace(stage("c", "a", "b"), accepts_failed=True)), *RUNNING[:-1])
    tell(plan, TasksLaunched(11.0, "a", ((0, 2),), JOB), *done(0), TaskFailed(20.0, "a", 1, JOB, "n1", 11.0, "no"))
    assert "\nc: waits for b; " in explain(plan, 20.0)


def test_explain_counts_whole_nodes_where_jobs_get_these() -> None:
    plan = tell(plan_of(), *submitted())
    plan.site = replace(plan.site, cores_per_node=16, whole_nodes=True)
    assert explain(plan, 5.0).endswith("asks for 4 cores (charged 16)")


def test_clocks_that_differ_make_no_negative_times() -> None:
    """When a job has started is the batch system's word, and when it was submitted the driver's."""
    plan = tell(plan_of(), *submitted(1.0))
    assert "job 7 has been in the queue for 0 s," in explain(plan, 0.0)
    assert "job 7 started 0 s ago, its nodes have not joined yet" in explain(tell(plan, *started(10.0)[:2]), 9.0)


def test_explain_says_who_has_a_stage_s_allocation() -> None:
    plan = two_stages(wide("own", 6), wide("other", 9), 4)
    assert "own: ready, waits for an allocation; job 7 runs on n1 with 0 cores busy" in explain(plan, 20.0)
    tell(plan, TasksLaunched(11.0, "other", ((0, 1),), JOB))
    assert "job 7 runs on n1 with 1 core busy" in explain(plan, 20.0)
    tell(plan, TasksLaunched(11.0, "other", ((1, 4),), JOB))
    said = "own: ready, waits for its allocation, whose cores run other[0] for 9 s so far, other[1] for 9 s so far, "
    assert f"{said}other[2] for 9 s so far and 1 more task; job 7 runs on n1 with 4 cores busy" in explain(plan, 20.0)
    tell(plan, TaskDone(21.0, "other", 0, JOB, "n1", 11.0), TasksLaunched(22.0, "own", ((0, 1),), JOB))
    tell(plan, TaskDone(22.0, "other", 1, JOB, "n1", 11.0), TasksLaunched(22.0, "other", ((4, 5),), JOB))
    said = "own: running, 0 of 6 tasks done, waits for more cores of its allocation, whose cores run other[2] for 12 s "
    assert f"{said}so far, other[3] for 12 s so far, other[4] for about 9.1 s more; job 7" in explain(plan, 23.0)


@given(st.data())
def test_no_other_stage_takes_what_an_owner_could_use_and_nothing_idles(data: st.DataObject) -> None:
    sizes = st.sampled_from([Resources(1), Resources(2), Resources(3)])
    count = data.draw(st.integers(2, 4))
    stages = [wide(f"s{number}", data.draw(st.integers(1, 9)), 8, data.draw(sizes)) for number in range(count)]
    plan = plan_of(*stages)
    for number, spec in enumerate(data.draw(st.permutations(stages))):
        key = f"run.{number}"
        tell(plan, *submitted(key=key, stages=(spec.name,)), AllocationStarted(10.0, key, 10.0))
        for node in "nm"[: data.draw(st.integers(1, 2))]:
            tell(plan, NodeJoined(10.0, key, f"{node}{number}", data.draw(st.integers(spec.task.cores, 9))))
    now = 11.0
    while not all(progress.state.final for progress in plan.stages.values()):
        for action in actions(Release, plan, now):
            tell(plan, Released(now, action.allocation), JobEnded(now, action.allocation, JobState.COMPLETED))
        launches = actions(LaunchTasks, plan, now)
        for launch in launches:
            held = plan.pool.held[launch.allocation]
            owner = plan.stages[held.stages[0]]
            tell(plan, TasksLaunched(now, launch.stage, launch.ranges, launch.allocation))
            assert held.cores_busy <= sum(held.nodes.values())
            if launch.stage != owner.spec.name:
                mine = sum(name == owner.spec.name for name, _ in held.running)
                could = min(held.most(owner.spec.task), owner.unlaunched + mine)
                assert held.cores_busy + (could - mine) * owner.spec.task.cores <= sum(held.nodes.values())
        if launches:
            continue
        for held in plan.pool.held.values():
            owner = plan.stages[held.stages[0]]
            assert not owner.unlaunched or not held.room(owner.spec.task, 0.0)
            for stage in plan.stages.values():
                assert owner.unlaunched or not stage.unlaunched or not held.room(stage.spec.task, 0.0)
        running = [(name, index, held) for held in plan.pool.held.values() for name, index in held.running]
        name, index, held = data.draw(st.sampled_from(running))
        now += 1.0
        tell(plan, TaskDone(now, name, index, held.key, next(iter(held.nodes)), now - 1))


def test_a_task_that_outlived_its_wall_time_needs_no_second_job() -> None:
    """Its node is lost some seconds before the batch system says that the job has ended."""
    cut = TaskFailed(609.0, "a", 0, JOB, "n1", 11.0, "node lost", infrastructure=True)
    plan = tell(plan_of(), *RUNNING, *done(1, 2, 3), cut)
    assert not any(isinstance(action, Submit) for action in plan.decide(609.0))
    assert "task 0 ran for 9 min 58 s and reached the wall time" in plan.stages["a"].story
    tell(plan, JobEnded(612.0, JOB, JobState.TIMEOUT, 10.0))
    assert plan.stages["a"].failures == {0: 1}, "blamed once"


@pytest.mark.parametrize("ended", ["node", "job"])
def test_a_task_that_had_to_wait_in_its_allocation_is_not_blamed_for_that(ended: str) -> None:
    """Eight were sent to four cores. Four ended late, and left the others the rest of the wall time."""
    launched = [TasksLaunched(11.0, "a", ((0, 8),), JOB), *done(0, 1, 2, 3, at=400.0)]
    plan = tell(plan_of(stage(width=8)), *RUNNING[:-1], *launched)
    for index in (4, 5) if ended == "node" else ():
        plan.on(TaskFailed(609.0, "a", index, JOB, "n1", 609.0, "node lost", infrastructure=True))
    plan.on(JobEnded(610.0, JOB, JobState.TIMEOUT, started=10.0))
    assert plan.stages["a"].state.value == "running" and plan.stages["a"].done == 4
    (submit,) = plan.decide(611.0)
    assert isinstance(submit, Submit), "they run again"


def test_a_task_that_ran_to_the_wall_time_is_blamed_although_others_had_to_wait_before() -> None:
    launched = [TasksLaunched(11.0, "a", ((0, 8),), JOB), *done(0, 1, 2, 3, at=12.0), *done(4, 5, 6, at=13.0)]
    plan = tell(plan_of(stage(width=8)), *RUNNING[:-1], *launched, JobEnded(610.0, JOB, JobState.TIMEOUT, started=10.0))
    assert "task 7 ran for 9 min 58 s and reached the wall time" in plan.stages["a"].story


def test_a_view_has_what_changed_with_a_job_that_has_come_and_gone() -> None:
    plan = plan_of()
    assert plan.view(1.0)["a"].attempts == 0
    tell(plan, RUNNING[0], JobEnded(1.0, JOB, JobState.LOST, reason="never submitted"))
    assert plan.view(1.0)["a"].attempts == 1


# ------------------------------------------------------------------------------------------- many stages


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("strategy", "regime"), [("big-job", "fifo"), *ALONE, ("hold", "fifo"), ("stagger", "fifo")])
def test_a_stage_costs_the_same_among_more_stages(strategy: str, regime: str, shape: str) -> None:
    def calls(stages: int) -> int:
        """Of functions, to have a plan of so many stages run in a queue: what it costs, whatever the machine does."""
        count = 0

        def watch(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(watch)
        try:
            plan_alone(strategy, regime, shape, stages)
        finally:
            sys.setprofile(None)
        return count

    calls(10)  # what is imported, and remembered
    assert calls(300) < 2.15 * calls(150)


def test_a_task_that_ran_to_the_wall_time_is_blamed_although_others_wait_for_it() -> None:
    launched = [TasksLaunched(11.0, "a", ((0, 1),), JOB), TasksLaunched(300.0, "a", ((1, 8),), JOB)]
    plan = tell(plan_of(stage(width=8)), *RUNNING[:-1], *launched, *done(1, 2, at=400.0))
    tell(plan, JobEnded(610.0, JOB, JobState.TIMEOUT, started=10.0))
    assert "task 0 ran for 9 min 59 s and reached the wall time" in plan.stages["a"].story
    assert [*plan.stages["a"].failures] == [0], "the others had to wait"
