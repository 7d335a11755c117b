from __future__ import annotations

import pytest

from asa.core.event import DriverStarted, Event, JobEnded, Leased, LeaseEnded, NodeJoined, TaskDone, TasksLaunched
from asa.core.job import JobState, Resources
from asa.core.stage import StageState
from asa.metrics.timeline import FAILURES_KEPT, Timeline
from asa.testing.runlogs import MadeStage, job_asked, run_begins, run_log, stage_spec


def folded(*events: Event) -> Timeline:
    timeline = Timeline()
    for event in events:
        timeline.on(event)
    return timeline


def test_stages_become_ready_one_by_one() -> None:
    diamond = [
        MadeStage("a", 1),
        MadeStage("b", 1, task_s=10, after=("a",)),
        MadeStage("c", 1, task_s=90, after=("a",)),
        MadeStage("d", 1, after=("b", "c")),
    ]
    timeline = folded(*run_log(diamond, start=0.0))
    stages = timeline.stages
    assert stages["b"].ready == stages["c"].ready == stages["a"].ended
    assert stages["d"].ready == stages["c"].ended
    assert all(stage.state is StageState.DONE for stage in stages.values())


def test_node_that_joins_before_the_batch_system_says_so_starts_the_job() -> None:
    timeline = folded(*run_begins(stage_spec("a", 1, 1)), *job_asked(0.0, "j0", 1, "a"), NodeJoined(7.0, "j0", "n", 1))
    assert timeline.jobs["j0"].since == 7.0 and timeline.jobs["j0"].state is JobState.RUNNING


def test_report_that_comes_after_the_jobs_end_is_not_counted_out_twice() -> None:
    timeline = folded(
        *run_begins(stage_spec("a", 2, 2)),
        *job_asked(0.0, "j0", 2, "a"),
        TasksLaunched(1.0, "a", ((0, 2),), "j0"),
        JobEnded(5.0, "j0", JobState.TIMEOUT, 1.0),
        TaskDone(5.1, "a", 0, "j0", "n", 1.0),
    )
    assert timeline.stages["a"].underway == 0 and timeline.stages["a"].done == 1


def test_events_of_unknown_jobs_change_nothing() -> None:
    timeline = folded(*run_begins(stage_spec("a", 1, 1)), JobEnded(5.0, "other", JobState.COMPLETED, 1.0))
    assert timeline.jobs == {} and timeline.last == 5.0


@pytest.mark.parametrize("bad", [3, FAILURES_KEPT + 50])
def test_number_of_failures_kept_is_bounded(bad: int) -> None:
    timeline = folded(*run_log([MadeStage("a", 300, bad, bad_tasks=bad)]))
    assert timeline.failed == bad and len(timeline.failures) == min(bad, FAILURES_KEPT)


LEASE = (
    *run_begins(stage_spec("a", 2, 2)),
    Leased(10.0, "l1", Resources(2), "other", 500.0),
    NodeJoined(12.0, "l1", "n", 2),
    TasksLaunched(12.0, "a", ((0, 2),), "l1"),
)


def test_a_lease_runs_from_when_it_was_given() -> None:
    lease = folded(*LEASE).jobs["l1"]
    assert (lease.lender, lease.state, lease.since, lease.request.walltime_s) == (
        "other",
        JobState.RUNNING,
        10.0,
        490.0,
    )


@pytest.mark.parametrize(("reason", "state"), [("", JobState.COMPLETED), ("the agent is gone", JobState.FAILED)])
def test_what_ran_in_a_lease_that_ends_has_to_run_again(reason: str, state: JobState) -> None:
    timeline = folded(*LEASE, TaskDone(15.0, "a", 0, "l1", "n", 12.0), LeaseEnded(20.0, "l1", reason))
    lease = timeline.jobs["l1"]
    assert (lease.state, lease.runs, lease.ended, lease.reason) == (state, [(10.0, 20.0)], 20.0, reason)
    assert (timeline.stages["a"].underway, timeline.stages["a"].done) == (0, 1)


def test_leases_end_with_their_driver() -> None:
    timeline = folded(*LEASE, DriverStarted(90.0, 2, "host"), LeaseEnded(95.0, "unknown"))
    lease = timeline.jobs["l1"]
    assert (lease.state, lease.runs, lease.ended) == (JobState.LOST, [(10.0, 12.0)], 12.0), "it was last seen then"
    again = folded(*LEASE, LeaseEnded(20.0, "l1"), DriverStarted(90.0, 2, "host")).jobs["l1"]
    assert (again.state, again.ended) == (JobState.COMPLETED, 20.0), "what has ended stays as it was"
