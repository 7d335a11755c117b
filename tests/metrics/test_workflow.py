from __future__ import annotations

import json

import pytest

from asa.core.errors import InvalidInput
from asa.core.event import (
    AllocationStarted,
    Cancelled,
    Event,
    JobEnded,
    NodeJoined,
    Released,
    RunEnded,
    RunState,
    StageExpanded,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState
from asa.core.stage import StageState
from asa.core.units import HOUR
from asa.metrics.workflow import pool_size, summarise
from asa.testing.runlogs import job_asked, montage, run_begins, run_log, stage_spec
from tests.metrics.leased import LENDER, borrowing


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


def test_stages_that_wait_at_the_same_time_count_once() -> None:
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
    assert run.total_perceived_wait_s == 100.0


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
