"""Numbers of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from asa.core.errors import InvalidInput
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
    StageExpanded,
    StageFailed,
    SubmitRefused,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState, Resources
from asa.core.run import FoldedRun, TaskOutcome
from asa.core.stage import StageState
from asa.core.units import HOUR
from asa.metrics.attempts import Attempt, attempts_of
from asa.metrics.workflow import PoolSize, RunSummary, level_at, pool_size, steps, summarise
from tests.metrics.leased import LENDER, borrowing
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


@pytest.fixture
def example() -> list[Event]:
    """Three stages, one after the other; the job of the second comes 100 s early, and a task of the first runs in it.
    One job for the third is cancelled while it waits."""
    a, b, c = stage_spec("a", 2, 3), stage_spec("b", 4, 2, "a", task_cores=2, retries=1), stage_spec("c", 1, 1, "b")
    return [
        *run_begins(a, b, c, at=1000.0),
        *job_asked(1000.0, "j0", 2, "a"),
        AllocationStarted(1100.0, "j0", 1100.0, ("n1",)),
        NodeJoined(1100.0, "j0", "n1", 2),
        TasksLaunched(1100.0, "a", ((0, 2),), "j0"),
        *job_asked(1150.0, "j1", 4, "b", predicted=250.0),
        TaskDone(1200.0, "a", 0, "j0", "n1", 1105.0),
        AllocationStarted(1300.0, "j1", 1300.0, ("n2",)),
        NodeJoined(1300.0, "j1", "n2", 4),
        TasksLaunched(1305.0, "a", ((2, 3),), "j1"),
        TaskDone(1380.0, "a", 2, "j1", "n2", 1310.0),
        TaskDone(1400.0, "a", 1, "j0", "n1", 1105.0),
        Released(1400.0, "j0"),
        TasksLaunched(1400.0, "b", ((0, 2),), "j1"),
        JobEnded(1405.0, "j0", JobState.COMPLETED, 1100.0, 0),
        TaskFailed(1450.0, "b", 1, "j1", "n2", 1401.0, "ValueError: no"),
        TasksLaunched(1450.0, "b", ((1, 2),), "j1"),
        *job_asked(1499.0, "j2", 1, "c"),
        TaskDone(1500.0, "b", 0, "j1", "n2", 1401.0),
        *job_asked(1510.0, "j3", 1, "c"),
        TaskDone(1550.0, "b", 1, "j1", "n2", 1451.0),
        JobEnded(1560.0, "j1", JobState.COMPLETED, 1300.0, 0),
        AllocationStarted(1565.0, "j2", 1565.0, ("n1",)),
        Cancelled(1566.0, "j3", "no stage needs it any more"),
        JobEnded(1567.0, "j3", JobState.CANCELLED),
        TasksLaunched(1570.0, "c", ((0, 1),), "j2"),
        TaskDone(1600.0, "c", 0, "j2", "n1", 1570.0),
        RunEnded(1601.0, RunState.SUCCEEDED),
        JobEnded(1602.0, "j2", JobState.COMPLETED, 1565.0, 0),
    ]


def test_hand_computed_example(example: list[Event]) -> None:
    run = summarise(example)
    assert run.state is RunState.SUCCEEDED and run.resumes == 0 and run.failed_attempts == 1
    assert run.makespan_s == 600.0
    assert run.total_perceived_wait_s == 100 + 0 + 20
    assert run.core_hours_charged == pytest.approx((2 * 305 + 4 * 260 + 37) / HOUR)
    assert run.core_hours_used == pytest.approx((95 + 295 + 70 + 2 * (99 + 49 + 99) + 30) / HOUR)
    assert run.core_hours_wasted == pytest.approx(run.core_hours_charged - run.core_hours_used)
    assert run.overhead_core_hours == pytest.approx((4 * 100 - 70) / HOUR)
    assert run.big_job_core_hours == pytest.approx(4 * (300 + 150 + 30) / HOUR)
    assert run.per_stage_core_hours == pytest.approx((2 * 300 + 4 * 150 + 1 * 30) / HOUR)


def test_what_waits_while_the_critical_path_runs_does_not_count() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 1, 1), stage_spec("b", 1, 1), stage_spec("c", 1, 1, "a"), at=1000.0),
            *job_asked(1000.0, "j0", 1, "a"),
            *job_asked(1000.0, "j1", 1, "b"),
            AllocationStarted(1060.0, "j0", 1060.0),
            TasksLaunched(1060.0, "a", ((0, 1),), "j0"),
            AllocationStarted(1100.0, "j1", 1100.0),
            TasksLaunched(1100.0, "b", ((0, 1),), "j1"),
        ],
        now=1200.0,
    )
    assert [stage.perceived_wait_s for stage in run.stages] == [60.0, 100.0, None]
    assert run.total_perceived_wait_s == 60.0


def test_stages_of_the_example(example: list[Event]) -> None:
    a, b, c = summarise(example).stages
    assert (a.submitted, a.ready, a.started, a.ended) == (1000.0, 1000.0, 1100.0, 1400.0)
    assert (a.predicted_wait_s, a.wait_s, a.perceived_wait_s, a.run_time_s) == (None, 100.0, 100.0, 300.0)
    assert (b.submitted, b.ready, b.started, b.ended) == (1150.0, 1400.0, 1400.0, 1550.0)
    assert (b.predicted_wait_s, b.wait_s, b.perceived_wait_s, b.run_time_s) == (250.0, 150.0, 0.0, 150.0)
    assert (b.tasks, b.done, b.launched, b.running, b.state) == (2, 2, 3, 0, StageState.DONE)
    assert (c.job, c.wait_s, c.perceived_wait_s, c.run_time_s) == ("j2", 66.0, 20.0, 30.0), "not the job that never ran"


def test_jobs_of_the_example(example: list[Event]) -> None:
    jobs = {job.token: job for job in summarise(example).jobs}
    assert jobs["j1"].runs == ((1300.0, 1560.0),)
    assert jobs["j1"].job_id == "J1" and jobs["j1"].nodes == ("n2",)
    assert jobs["j1"].overhead_core_hours == pytest.approx(330 / HOUR)
    assert jobs["j3"].state is JobState.CANCELLED and jobs["j3"].reason == "no stage needs it any more"
    assert jobs["j3"].core_hours_charged == 0.0 and jobs["j3"].wait_s is None


def test_pool_size_of_the_example(example: list[Event]) -> None:
    size = pool_size(summarise(example))
    held = dict(zip(size.times.tolist(), size.held.tolist(), strict=True))
    assert [held[time] for time in (1100.0, 1300.0, 1405.0, 1560.0, 1565.0, 1602.0)] == [2, 6, 4, 0, 1, 0]
    assert size.busy.max() == 4


def test_json_has_the_documented_names(example: list[Event]) -> None:
    data = json.loads(json.dumps(summarise(example).to_json()))
    run = {
        "state",
        "makespan_s",
        "total_perceived_wait_s",
        "core_hours_charged",
        "core_hours_used",
        "overhead_core_hours",
    }
    stage = {
        "name", "cores", "submitted", "started", "ended", "predicted_wait_s", "wait_s", "perceived_wait_s",
    }  # fmt: skip
    assert run <= data.keys() and data["state"] == "succeeded"
    assert all(stage <= entry.keys() for entry in data["stages"])
    assert data["stages"][0]["predicted_wait_s"] is None, "unknown values are there, as null"


def test_empty_stage_is_done_when_it_is_ready() -> None:
    run = summarise([*run_begins(stage_spec("a", 1, None), stage_spec("b", 1, 0, "a")), StageExpanded(4.0, "a", 0)])
    assert [stage.state for stage in run.stages] == [StageState.DONE, StageState.DONE]
    assert [stage.perceived_wait_s for stage in run.stages] == [4.0, 0.0]


def test_events_that_are_no_run_are_refused() -> None:
    with pytest.raises(InvalidInput, match="RunStarted"):
        summarise([Released(1.0, "j0")])


def test_counting_goes_on_with_the_clock() -> None:
    events = run_log(montage())
    events = events[: len(events) // 3]
    charged = [summarise(events, events[-1].at + later).core_hours_charged for later in (0.0, 60.0, 3600.0)]
    assert charged[0] < charged[1] < charged[2]


def test_what_is_borrowed_is_used_but_neither_charged_nor_wasted() -> None:
    run = summarise(borrowing())
    assert run.core_hours_charged == pytest.approx(210 / HOUR)
    assert run.core_hours_used == pytest.approx(400 / HOUR)
    assert run.core_hours_borrowed == pytest.approx(300 / HOUR)
    assert run.core_hours_wasted == pytest.approx((210 - 100) / HOUR)
    assert run.overhead_core_hours == 0.0
    assert run.to_json()["core_hours_borrowed"] == pytest.approx(300 / HOUR)


def test_the_lease_is_among_the_jobs_and_waited_for_nothing() -> None:
    own, lease = summarise(borrowing()).jobs
    assert (own.lender, lease.lender) == ("", LENDER)
    assert (lease.job_id, lease.stages, lease.cores, lease.runs) == (None, (), 2, ((1050.0, 1300.0),))
    assert (lease.wait_s, lease.core_hours_charged, lease.overhead_core_hours) == (None, 0.0, 0.0)
    assert (lease.state, lease.nodes) == (JobState.COMPLETED, ("far",))


def test_a_stage_that_began_in_a_lease_has_not_waited_for_its_job() -> None:
    run = summarise(borrowing())
    (stage,) = run.stages
    assert (stage.job, stage.wait_s, stage.perceived_wait_s) == ("j0", 100.0, 60.0)
    assert run.total_perceived_wait_s == 60.0


def test_the_pool_was_as_large_as_both() -> None:
    size = pool_size(summarise(borrowing()))
    held = dict(zip(size.times.tolist(), size.held.tolist(), strict=True))
    assert [held[time] for time in (1050.0, 1100.0, 1300.0, 1310.0)] == [2, 3, 1, 0]


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


def test_stage_without_an_allocation_differs_from_those_it_skips() -> None:
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


def test_jobs_that_were_cancelled_without_a_driver_count_to_the_end_of_the_run() -> None:
    """How they ended is for the next driver to find; until then they go on to cost nothing."""
    events = [
        *run_begins(stage_spec("a", 4, 1)),
        *job_asked(0.0, "j0", 4, "a"),
        AllocationStarted(10.0, "j0", 10.0, ("n1",)),
        RunEnded(91.0, RunState.CANCELLED, "no time"),
    ]
    for now in (91.0, 5000.0):
        run = summarise(events, now, driven=False)
        assert [(job.state, job.runs) for job in run.jobs] == [(JobState.CANCELLED, ((10.0, 91.0),))]
        assert run.core_hours_charged == pytest.approx(4 * 81 / HOUR)
    (job,) = summarise(events, 95.0).jobs
    assert not job.state.final and job.runs == ((10.0, 95.0),), "its driver looks after it yet"


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


def test_what_a_job_was_given_is_charged_not_what_it_asked_for() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("a", 2, 1)),
            *job_asked(0.0, "j0", 2, "a"),
            AllocationStarted(10.0, "j0", 10.0, ("n1",), 8),
            Requeued(40.0, "j0", "node failure"),
            AllocationStarted(100.0, "j0", 100.0, ("n2",)),
            TasksLaunched(100.0, "a", ((0, 1),), "j0"),
            JobEnded(130.0, "j0", JobState.COMPLETED, 100.0, 0, cores=4),  # it was completing when it was first seen
            *job_asked(130.0, "j1", 2, "a"),
            AllocationStarted(140.0, "j1", 140.0, ("n1",)),
        ],
        now=150.0,
    )
    given, unsaid = run.jobs
    assert (given.cores, given.asked_cores, unsaid.cores, unsaid.asked_cores) == (4, 2, 2, 2)
    assert given.core_hours_charged == pytest.approx((8 * 30 + 4 * 30) / HOUR)
    assert run.core_hours_charged == pytest.approx((8 * 30 + 4 * 30 + 2 * 10) / HOUR)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> RunSummary:
    """Three jobs of 4 cores: 100 s with half of their cores busy, of which 36 kJ was measured; 50 s after 20 s that a
    requeue took; and one that goes on, for 10 s so far."""
    for name in ("ASA_NODE_POWER", "ASA_GRID_INTENSITY"):
        monkeypatch.delenv(name, raising=False)
    events: list[Event] = [
        *run_begins(stage_spec("a", 2, 1)),
        *(event for key in ("j0", "j1", "j2", "j3") for event in job_asked(0.0, key, 4, "a")),
        AllocationStarted(10.0, "j0", 10.0, ("n1",), 4),
        TasksLaunched(10.0, "a", ((0, 2),), "j0"),
        TaskDone(110.0, "a", 0, "j0", "n1", 10.0),
        TaskDone(110.0, "a", 1, "j0", "n1", 10.0),
        JobEnded(110.0, "j0", JobState.COMPLETED, 10.0, 0, energy_j=36e3),
        AllocationStarted(110.0, "j1", 110.0, ("n1",), 4),
        Requeued(130.0, "j1", "node failure"),
        AllocationStarted(140.0, "j1", 140.0, ("n1",), 4),
        JobEnded(190.0, "j1", JobState.COMPLETED, 140.0, 0, energy_j=9e3),
        AllocationStarted(190.0, "j2", 190.0, ("n1",), 4),
    ]
    return summarise(events, now=200.0)


def test_the_energy_that_was_measured(measured: RunSummary) -> None:
    """Of the last run of a requeued job alone it says too little; a job that never ran drew nothing."""
    assert [job.energy_j for job in measured.jobs] == [36e3, None, None, None]
    assert str(measured.energy) == "0.01 kWh measured (1 of 3 jobs)"
    said = measured.to_json()
    assert (said["energy_kwh"], said["energy_measured_kwh"], said["energy_unknown_jobs"]) == (None, 0.01, 2)
    assert ("energy_j" in said["jobs"][0], "energy_j" in said["jobs"][1]) == (True, False)


def test_the_energy_that_a_model_says_of_the_other_jobs(
    measured: RunSummary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ASA_NODE_POWER", "idle_w=80,busy_w=240,cores=8")
    assert str(measured.energy) == "0.01 kWh measured (1 of 3 jobs), 0.000889 kWh modelled (2 of 3 jobs)"
    said = measured.to_json()
    assert said["energy_modelled_kwh"] == pytest.approx(10 * 4 * (20 + 50 + 10) / 3.6e6)
    assert said["energy_kwh"] == pytest.approx(said["energy_modelled_kwh"] + 0.01)
    alone = replace(measured, jobs=(replace(measured.jobs[0], energy_j=None),))
    assert str(alone.energy) == "0.00222 kWh modelled"  # 40 W idle, 80 W more while half of its cores are busy
    monkeypatch.setenv("ASA_NODE_POWER", "idle_w=80,busy_w=240")
    assert str(measured.energy) == "0.01 kWh measured (1 of 3 jobs)"
    assert "ASA_NODE_POWER: cores=None: a whole number of at least 1 expected" in caplog.text


def test_the_co2_of_it_goes_by_when_jobs_ran(
    measured: RunSummary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """36 kJ from 10 to 110 s, of which 60 s at 100 g/kWh and 40 s at 600: 300 in the mean."""
    assert "co2_kg" not in measured.to_json()
    monkeypatch.setenv("ASA_GRID_INTENSITY", "200")
    assert str(measured.energy) == "0.01 kWh measured (1 of 3 jobs), 0.002 kg CO2"
    trace = tmp_path / "grid.csv"
    trace.write_text("1970-01-01T00:00:00,100\n1970-01-01T00:01:10,600\n1970-01-01T00:05:00,0\n")
    monkeypatch.setenv("ASA_GRID_INTENSITY", str(trace))
    assert measured.to_json()["co2_kg"] == pytest.approx(0.01 * 300 / 1000)
    monkeypatch.setenv("ASA_NODE_POWER", "idle_w=80,busy_w=240,cores=8")
    later = 40 * (20 + 50 + 10) / 3.6e6  # [kWh], all of it at 600
    assert measured.to_json()["co2_kg"] == pytest.approx((0.01 * 300 + later * 600) / 1000)
    trace.write_text("1970-01-02T00:00:00,100\n1970-01-02T00:01:10,600\n")
    assert "co2_kg" not in measured.to_json()
    assert "ASA_GRID_INTENSITY: the trace of intensity is from 86400" in caplog.text
    monkeypatch.setenv("ASA_GRID_INTENSITY", "much")
    assert "co2_kg" not in measured.to_json() and "much cannot be read" in caplog.text


def test_where_no_energy_is_known_nothing_is_said(example: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASA_NODE_POWER", raising=False)
    run = summarise(example)
    assert run.energy is None
    assert not [name for part in (run.to_json(), run.to_json()["jobs"][0]) for name in part if "energy" in name]


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


def test_intervals_that_touch_leave_no_gap() -> None:
    times, level = steps(np.array([0.0, 5.0]), np.array([5.0, 9.0]), np.array([2, 2]))
    assert times.tolist() == [0.0, 5.0, 9.0] and level.tolist() == [2, 2, 0]


def test_level_at_other_times() -> None:
    times, level = steps(np.array([1.0]), np.array([3.0]), np.array([7]))
    assert level_at(np.array([0.0, 1.0, 2.9, 3.0, 9.0]), times, level).tolist() == [0, 7, 7, 0, 0]


def test_run_without_jobs_has_an_empty_pool() -> None:
    size = pool_size(summarise(run_begins(stage_spec("a", 1, 1))))
    assert len(size.times) == len(size.held) == len(size.busy) == 0


def collected(*events: Event) -> FoldedRun:
    run = FoldedRun()
    for event in (
        *run_begins(*(replace(stage_spec(name, 4, 3), task=Resources(cores)) for name, cores in (("a", 2), ("b", 4)))),
        *(
            events
            or (
                TaskDone(20.0, "a", 0, "j0", "n0", 10.0),
                TaskFailed(25.0, "b", 1, "j1", "n1", 15.0, "no"),
                TaskFailed(30.0, "a", 1, "j0", "n0", 10.0, "node lost", infrastructure=True),
            )
        ),
    ):
        run.on(event)
    return run


def test_rows_come_back_in_order() -> None:
    assert list(attempts_of(collected())) == [
        Attempt("a", 0, "j0", "n0", 2, 10.0, 20.0, TaskOutcome.DONE),
        Attempt("b", 1, "j1", "n1", 4, 15.0, 25.0, TaskOutcome.FAILED),
        Attempt("a", 1, "j0", "n0", 2, 10.0, 30.0, TaskOutcome.LOST),
    ]


def test_attempts_of_an_allocation() -> None:
    attempts = attempts_of(collected())
    assert attempts.rows_of("j0").tolist() == [0, 2]
    assert attempts.rows_of("j1").tolist() == [1]
    assert attempts.rows_of("j9").tolist() == []
    assert [attempt.stage for attempt in attempts.take(attempts.rows_of("j1"))] == ["b"]


def test_core_seconds_within_a_window() -> None:
    attempts = attempts_of(collected())
    assert attempts.core_seconds().tolist() == [20.0, 40.0, 40.0]
    assert attempts.core_seconds(12.0, 18.0).tolist() == [12.0, 12.0, 12.0]
    assert attempts.core_seconds(28.0, 99.0).tolist() == [0.0, 0.0, 4.0]


def test_attempt_never_ends_before_it_starts() -> None:
    early = collected(TaskDone(9.99, "a", 0, "j0", "n0", 10.0))
    assert attempts_of(early).core_seconds().tolist() == [0.0]


def test_frozen_columns_do_not_grow_with_the_log() -> None:
    run = collected()
    attempts = attempts_of(run)
    run.on(TaskDone(40.0, "a", 2, "j0", "n0", 30.0))
    assert len(attempts) == 3 and len(attempts_of(run)) == 4


def test_nothing_collected() -> None:
    attempts = attempts_of(FoldedRun())
    assert len(attempts) == 0 and np.sum(attempts.core_seconds()) == 0.0 and attempts.rows_of("j0").size == 0


@st.composite
def made_stages(draw: st.DrawFn) -> list[MadeStage]:
    number = draw(st.integers(1, 4))
    names = [f"s{position}" for position in range(number)]
    seconds = st.floats(0.0, 500.0, allow_nan=False)
    return [
        MadeStage(
            name,
            cores=draw(st.integers(1, 6)),
            tasks=draw(st.integers(1, 12)),
            task_s=draw(st.floats(0.1, 90.0)),
            after=tuple(draw(st.sets(st.sampled_from(names[:position])))) if position else (),
            wait_s=draw(seconds),
            predicted_wait_s=draw(st.none() | seconds),
            lead_s=draw(seconds),
            lost_after_s=draw(st.none() | seconds),
            bad_tasks=draw(st.integers(0, 1)),
        )
        for position, name in enumerate(names)
    ]


def integral(size: PoolSize, level: NDArray[np.int64]) -> float:
    return float(np.sum(np.diff(size.times) * level[:-1])) / HOUR


def checked(run: RunSummary) -> None:
    size = pool_size(run)
    assert 0.0 <= run.core_hours_used <= run.core_hours_charged + 1e-9
    assert -1e-9 <= run.overhead_core_hours <= run.core_hours_wasted + 1e-9
    assert run.per_stage_core_hours <= run.big_job_core_hours + 1e-9
    assert sum(job.core_hours_charged for job in run.jobs) == pytest.approx(run.core_hours_charged)
    assert sum(job.core_hours_used for job in run.jobs) == pytest.approx(run.core_hours_used)
    assert integral(size, size.held) == pytest.approx(run.core_hours_charged, abs=1e-6)
    assert integral(size, size.busy) == pytest.approx(run.core_hours_used, abs=1e-6)
    assert (size.busy <= size.held).all()
    assert not size.held[-1:].any() and not size.busy[-1:].any(), "nothing is held at the end"
    assert all((stage.perceived_wait_s or 0.0) >= 0.0 for stage in run.stages)


def _ways(run: RunSummary, after: dict[str, tuple[str, ...]], last: str | None = None) -> Iterator[list[Any]]:
    """All ways through a workflow that lead to a stage, or to any."""
    stages = {stage.name: stage for stage in run.stages}
    for name in stages if last is None else after[last]:
        if not after[name]:
            yield [stages[name]]
        for way in _ways(run, after, name) if after[name] else ():
            yield [*way, stages[name]]


def test_a_side_branch_that_waits_while_the_rest_runs_has_cost_nothing() -> None:
    run = summarise(
        [
            *run_begins(stage_spec("depth", 1, 1), stage_spec("side", 1, 1), stage_spec("more", 1, 1, "depth")),
            *job_asked(0.0, "j0", 1, "depth", "more"),
            AllocationStarted(2.0, "j0", 2.0),
            TasksLaunched(2.0, "depth", ((0, 1),), "j0"),
            TaskDone(12.0, "depth", 0, "j0", "n1", 2.0, b""),
            TasksLaunched(13.0, "more", ((0, 1),), "j0"),
            TasksLaunched(20.0, "side", ((0, 1),), "j0"),
            TaskDone(22.0, "side", 0, "j0", "n1", 20.0, b""),
            TaskDone(26.0, "more", 0, "j0", "n1", 13.0, b""),
            RunEnded(26.0, RunState.SUCCEEDED),
        ]
    )
    assert [stage.perceived_wait_s for stage in run.stages] == [2.0, 20.0, 1.0]
    assert (run.makespan_s, run.total_perceived_wait_s) == (26.0, 3.0)


@settings(max_examples=40, deadline=None)
@given(made_stages(), st.data())
def test_whole_logs_and_beginnings_of_them_add_up(stages: list[MadeStage], data: st.DataObject) -> None:
    events = run_log(stages, seed=1)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(events)), min_size=2, max_size=2)))
    early, late, whole = (summarise(events[:cut]) for cut in (*cuts, len(events)))
    for run in (early, late, whole):
        checked(run)
    for name in ("makespan_s", "core_hours_charged", "core_hours_used"):
        # what is seen once the last task is done, until the outcome is known, is no part of the makespan
        seen = min(getattr(early, name), getattr(whole, name))
        assert seen <= getattr(late, name) + 1e-9, f"{name} only grows"
    assert whole.state is RunState.SUCCEEDED
    ways = [*_ways(whole, {stage.name: stage.after for stage in stages})]
    lasting = [sum(stage.ended - stage.ready for stage in way) for way in ways]
    assert max(lasting) == pytest.approx(whole.makespan_s), "stages of the critical path follow one another"
    critical = [way for way, lasts in zip(ways, lasting, strict=True) if lasts == pytest.approx(whole.makespan_s)]
    waits = [sum(stage.perceived_wait_s for stage in way) for way in critical]
    assert any(wait == pytest.approx(whole.total_perceived_wait_s) for wait in waits)
    assert all(stage.done == stage.tasks and stage.running == 0 for stage in whole.stages)
