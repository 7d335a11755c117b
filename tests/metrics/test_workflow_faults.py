"""Runs in which something went wrong."""

from __future__ import annotations

import pytest

from asa.core.event import (
    AllocationStarted,
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    JobEnded,
    NodeJoined,
    Released,
    Requeued,
    RunEnded,
    RunState,
    StageFailed,
    SubmitRefused,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState
from asa.core.stage import StageState
from asa.core.units import HOUR
from asa.metrics.workflow import summarise
from asa.testing.runlogs import job_asked, run_begins, stage_spec


def test_resumed_run_counts_only_what_was_seen() -> None:
    """The driver dies after 160 s and is back after 400 s: tasks 1 and 2 run again, the gap is no run time."""
    run = summarise(
        [
            *run_begins(stage_spec("a", 3, 3)),
            *job_asked(0.0, "j0", 3, "a"),
            AllocationStarted(90.0, "j0", 90.0),
            TasksLaunched(100.0, "a", ((0, 3),), "j0"),
            TaskDone(150.0, "a", 0, "j0", "n", 100.0),
            NodeJoined(160.0, "j0", "n", 3),
            DriverStarted(400.0, 2, "login"),
            TaskDone(405.0, "a", 1, "j0", "n", 100.0),
            TasksLaunched(410.0, "a", ((1, 3),), "j0"),
            TaskDone(450.0, "a", 1, "j0", "n", 410.0),
            TaskDone(460.0, "a", 2, "j0", "n", 410.0),
            JobEnded(470.0, "j0", JobState.COMPLETED),
            RunEnded(470.0, RunState.SUCCEEDED),
        ]
    )
    (stage,) = run.stages
    assert (run.resumes, run.makespan_s) == (1, 460.0)
    assert (stage.launched, stage.done, stage.state) == (5, 3, StageState.DONE), "a task is done once"
    assert stage.run_time_s == 60.0 + 50.0
    assert run.core_hours_charged == pytest.approx(3 * 380 / HOUR), "the allocation outlived the driver"


def failed_by_task() -> list[Event]:
    return [
        *run_begins(stage_spec("a", 1, 1, retries=1), stage_spec("b", 1, 1, "a"), stage_spec("c", 1, 1, "b")),
        *job_asked(0.0, "j0", 1, "a"),
        AllocationStarted(10.0, "j0", 10.0),
        TasksLaunched(10.0, "a", ((0, 1),), "j0"),
        TaskFailed(15.0, "a", 0, "j0", "n", 10.0, "node lost", infrastructure=True),
        TasksLaunched(15.0, "a", ((0, 1),), "j0"),
        TaskFailed(20.0, "a", 0, "j0", "n", 15.0, "ValueError: 1"),
        TasksLaunched(20.0, "a", ((0, 1),), "j0"),
        TaskFailed(30.0, "a", 0, "j0", "n", 20.0, "ValueError: 2"),
        RunEnded(31.0, RunState.FAILED, "stage 'a' failed"),
        JobEnded(40.0, "j0", JobState.COMPLETED),
    ]


def test_failed_run() -> None:
    events = failed_by_task()
    run = summarise(events)
    assert [stage.state for stage in run.stages] == [StageState.FAILED, StageState.SKIPPED, StageState.SKIPPED]
    assert "ValueError: 2" in run.stages[0].error and run.stages[0].ended == 30.0
    assert run.stages[1].perceived_wait_s is None and run.stages[1].run_time_s is None
    assert (run.state, run.message, run.makespan_s) == (RunState.FAILED, "stage 'a' failed", 30.0)
    assert run.core_hours_charged == pytest.approx(30 / HOUR), "up to the job's end, not the run's"
    assert run.failed_attempts == 2 and [event.error for event in run.failures] == ["ValueError: 1", "ValueError: 2"]


def test_failed_run_that_is_resumed_goes_on() -> None:
    run = summarise(
        [
            *failed_by_task(),
            DriverStarted(100.0, 2, "login"),
            *job_asked(100.0, "j1", 1, "a"),
            AllocationStarted(110.0, "j1", 110.0),
            TasksLaunched(110.0, "a", ((0, 1),), "j1"),
            TaskFailed(115.0, "a", 0, "j1", "n", 110.0, "ValueError: 3"),
            TasksLaunched(115.0, "a", ((0, 1),), "j1"),
            TaskDone(120.0, "a", 0, "j1", "n", 115.0),
        ]
    )
    assert run.state is RunState.RUNNING and run.message == "" and run.ended is None
    assert [stage.state for stage in run.stages] == [StageState.DONE, StageState.READY, StageState.WAITING]
    assert run.stages[1].ready == 120.0 and run.stages[0].error == "" and run.stages[0].job == "j1"


def test_stage_that_fails_for_want_of_an_allocation_is_told_from_those_it_takes_along() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 1, 1), stage_spec("b", 1, 1, "a")),
            *job_asked(0.0, "j0", 1, "a"),
            JobEnded(20.0, "j0", JobState.NODE_FAIL, 10.0, reason="NodeFail"),
            *job_asked(20.0, "j1", 1, "a"),
            JobEnded(30.0, "j1", JobState.NODE_FAIL, 25.0, reason="NodeFail"),
            *job_asked(30.0, "j2", 1, "a"),
            JobEnded(60.0, "j2", JobState.NODE_FAIL, 35.0, reason="NodeFail"),
            RunEnded(60.0, RunState.FAILED, "3 allocations in a row"),
        ]
    )
    assert [stage.state for stage in run.stages] == [StageState.FAILED, StageState.SKIPPED]
    assert run.stages[0].error.startswith("3 allocations in a row ended")
    assert run.stages[0].perceived_wait_s == 60.0, "it waited until it was given up"
    assert run.jobs[0].runs == ((10.0, 20.0),) and run.jobs[0].reason == "NodeFail"


@pytest.mark.parametrize("first_too", [False, True])
def test_stage_whose_job_was_refused_ahead_of_time_failed_and_was_not_skipped(first_too: bool) -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 1, 1), stage_spec("b", 99, 1, "a"), stage_spec("c", 1, 1, "b")),
            *job_asked(0.0, "j0", 99, "b")[:1],
            SubmitRefused(1.0, "j0", "more cores than there are"),
            *([StageFailed(2.0, "a", "its input is not a list")] if first_too else []),
        ]
    )
    first = StageState.FAILED if first_too else StageState.READY
    assert [stage.state for stage in run.stages] == [first, StageState.FAILED, StageState.SKIPPED]


def test_tasks_given_to_a_released_allocation_never_ran() -> None:
    """A stage has not started as long as its tasks went only to an allocation that was on its way out."""
    run = summarise(
        [
            *run_begins(stage_spec("a", 1, 1)),
            *job_asked(0.0, "j0", 1, "a"),
            AllocationStarted(10.0, "j0", 10.0),
            Released(20.0, "j0"),
            TasksLaunched(20.0, "a", ((0, 1),), "j0"),
            JobEnded(22.0, "j0", JobState.COMPLETED),
            *job_asked(22.0, "j1", 1, "a"),
            AllocationStarted(60.0, "j1", 60.0),
            TasksLaunched(60.0, "a", ((0, 1),), "j1"),
        ]
    )
    (stage,) = run.stages
    assert (stage.started, stage.perceived_wait_s, stage.launched, stage.job) == (60.0, 60.0, 1, "j1")


def test_stage_that_cannot_be_expanded_fails() -> None:
    events = [
        *run_begins(stage_spec("a", 1, None), stage_spec("b", 1, 1, "a")),
        StageFailed(5.0, "a", "its input is not a list"),
    ]
    run = summarise(events)
    assert [stage.state for stage in run.stages] == [StageState.FAILED, StageState.SKIPPED]
    assert run.stages[0].error == "its input is not a list"


def test_cancelled_run_counts_its_waits_to_its_end() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 4, 1), stage_spec("b", 1, 1, "a")),
            *job_asked(0.0, "j0", 4, "a"),
            CancelAsked(90.0, "no time"),
            Cancelled(90.0, "j0", "no time"),
            RunEnded(91.0, RunState.CANCELLED, "no time"),
            JobEnded(95.0, "j0", JobState.CANCELLED),
        ]
    )
    assert run.stages[0].state is StageState.READY and run.stages[0].perceived_wait_s == 91.0
    assert run.stages[0].wait_s is None and run.stages[1].perceived_wait_s is None
    assert (run.makespan_s, run.core_hours_charged) == (91.0, 0.0)


def test_requeued_job_is_charged_for_both_runs_and_waited_once() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 2, 1)),
            *job_asked(0.0, "j0", 2, "a"),
            AllocationStarted(10.0, "j0", 10.0, ("n1",)),
            TasksLaunched(10.0, "a", ((0, 1),), "j0"),
            Requeued(40.0, "j0", "node failure"),
            TaskFailed(40.0, "a", 0, "j0", "n1", 10.0, "its node was lost", infrastructure=True),
            AllocationStarted(100.0, "j0", 100.0, ("n2",)),
            TasksLaunched(100.0, "a", ((0, 1),), "j0"),
        ],
        now=130.0,
    )
    (job,), (stage,) = run.jobs, run.stages
    assert job.runs == ((10.0, 40.0), (100.0, 130.0)) and job.nodes == ("n2",) and job.wait_s == 10.0
    assert run.core_hours_charged == pytest.approx(2 * 60 / HOUR)
    assert stage.run_time_s == 60.0 and stage.running == 1


def test_refused_job_costs_nothing() -> None:
    run = summarise(
        [*run_begins(stage_spec("a", 1, 1)), *job_asked(0.0, "j0", 1, "a")[:1], SubmitRefused(1.0, "j0", "no")]
    )
    (job,) = run.jobs
    assert (job.job_id, job.state, job.reason, job.core_hours_charged) == (None, JobState.FAILED, "no", 0.0)


def test_job_whose_stage_never_became_ready_is_all_overhead() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 1, 1), stage_spec("b", 8, 1, "a")),
            *job_asked(0.0, "j0", 8, "b"),
            AllocationStarted(10.0, "j0", 10.0),
        ],
        now=70.0,
    )
    assert run.overhead_core_hours == run.core_hours_charged == pytest.approx(8 * 60 / HOUR)
