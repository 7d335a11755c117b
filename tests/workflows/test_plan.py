"""The plan alone: events in, actions out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from asa.core.decision import Ask, StrategyDecision, Wake
from asa.core.event import (
    AllocationStarted,
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    Learned,
    LeaseEnded,
    NodeJoined,
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
    decode,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.run import UNRESPONSIVE_S, Wait
from asa.core.stage import StageSpec
from asa.core.view import WorkflowView
from asa.strategies.asking import ask_for
from asa.workflows.explain import explain
from asa.workflows.plan import Cancel, Expand, Finish, LaunchTasks, Plan, Release, Submit, Teach
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


@pytest.mark.parametrize(("retries", "outcome"), [(1, []), (0, [Release(JOB, "no stage needs it any more")])])
def test_a_task_that_fails_by_its_own_fault_takes_its_stage_along_unless_it_may_try_again(
    retries: int, outcome: list[Any]
) -> None:
    plan = tell(plan_of(stage(retries=retries)), *RUNNING, TaskFailed(15.0, "a", 2, JOB, "n1", 11.0, "no"))
    assert plan.decide(15.0) == ([LaunchTasks("a", ((2, 3),), JOB)] if retries else outcome)


def test_a_run_that_failed_says_of_which_stage_and_what_was_skipped() -> None:
    plan = plan_of(stage(), stage("b", "a"))
    tell(plan, *RUNNING, TaskFailed(15.0, "a", 2, JOB, "n1", 11.0, "no"), JobEnded(16.0, JOB, JobState.COMPLETED))
    message = "stage 'a' failed: task 2 on node n1: no\nskipped because of it: b"
    assert plan.decide(16.0) == [Finish(RunState.FAILED, message, "a")]


# ------------------------------------------------------------------------------------------------ letting go


def test_a_run_that_is_cancelled_lets_everything_go() -> None:
    plan = tell(plan_of(), *submitted(), CancelAsked(5.0, "enough"))
    assert plan.decide(5.0) == [Finish(RunState.CANCELLED, "enough"), Cancel(JOB, "the run is over")]
    plan = tell(plan_of(), *RUNNING, CancelAsked(15.0, "enough"))
    assert plan.decide(15.0) == [Finish(RunState.CANCELLED, "enough"), Release(JOB, "the run is over")]


def test_a_job_with_too_little_time_left_goes_although_its_stage_has_tasks() -> None:
    plan = tell(plan_of(stage(width=8)), *RUNNING, *done(0, 1, 2, 3, at=580.0))
    assert plan.decide(580.0) == [Submit("run.1", ask()), Release(JOB, "too little of its wall time is left")]


def test_one_that_is_released_and_does_not_end_is_cancelled_in_time() -> None:
    plan = tell(plan_of(), *RUNNING, *done(0, 1, 2, 3), Released(20.0, JOB), RunEnded(20.0, RunState.SUCCEEDED))
    assert plan.decide(20.0) == [] and plan.wake_at(20.0) == 20.0 + UNRESPONSIVE_S
    assert plan.decide(49.9) == [] and plan.wake_at(49.9) == 20.0 + UNRESPONSIVE_S
    assert plan.decide(50.0) == [Cancel(JOB, "it was released and did not end")]


def test_a_job_that_is_being_cancelled_is_told_so() -> None:
    plan = tell(plan_of(), *submitted(), Cancelled(5.0, JOB, "another one came first"))
    assert explain(plan, 5.0).endswith("job 7 is being cancelled: another one came first")


def test_a_task_that_is_told_of_after_its_job_counts() -> None:
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


def test_why_an_allocation_goes_is_told_and_older_logs_do_not_know() -> None:
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


def test_it_is_asked_again_when_it_wants_to_be() -> None:
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
        (300.0, 500.0, False, True, (400.0, False)),
        (300.0, 500.0, False, False, (200.0, False)),
        (479.0, 500.0, False, True, (400.0, False)),
        (480.0, 500.0, False, True, (400.0, True)),  # to within a twentieth of the wait, it did not wait for the queue
        (139.0, 150.0, False, True, (50.0, False)),
        (140.0, 150.0, False, True, (50.0, True)),  # or to within 10 s
        (300.0, 305.0, False, False, (5.0, True)),
        (-math.inf, 500.0, True, True, (400.0, True)),
    ],
)
def test_a_wait_that_a_dependency_or_a_held_place_made_says_nothing_of_the_queue(
    freed: float, started: float, gated: bool, ages: bool, lesson: tuple[float, bool]
) -> None:
    wait = Wait(JobRequest(JOB, Resources(), 600.0, ()), "a", 100.0, freed, started, None, gated=gated)
    assert wait.lesson(dependents_age=ages) == lesson
