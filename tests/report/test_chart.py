from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.event import AllocationStarted, Event, TaskDone, TasksLaunched
from asa.metrics.workflow import summarise
from asa.report.chart import BINS, LANES_MOST, ROWS_DRAWN, TASKS_DRAWN, chart, pack
from asa.testing.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


def test_rows_of_a_montage_run() -> None:
    run = summarise(run_log(montage()))
    drawn = chart(run)
    rows = {row.stage.name: row for row in drawn.stages}
    assert rows["mProject"].wait == (0.0, 410.0) and rows["mImgtbl"].wait is None
    assert len(rows["mFitplane"].active) == 2, "it lost its first allocation and waited for another"
    early = next(row for row in drawn.jobs if row.job.stages == ("mDiff",))
    assert sum(end - start for start, end in early.early) * early.job.cores / 3600 == pytest.approx(
        early.job.overhead_core_hours
    )
    assert drawn.peak == 197 and drawn.span_s >= run.makespan_s


def test_small_jobs_show_tasks_and_large_ones_curves() -> None:
    drawn = chart(summarise(run_log([MadeStage("small", LANES_MOST, 60), MadeStage("large", LANES_MOST + 1, 60)])))
    small, large = drawn.jobs
    assert len(small.tasks) == 60 and not small.curves
    assert all(0 <= task.lane < LANES_MOST for task in small.tasks)
    assert not large.tasks and len(large.curves) == 1


def test_curves_keep_the_core_hours() -> None:
    run = summarise(run_log([MadeStage("a", 100, 5000, 40)]))
    (row,) = chart(run).jobs
    (curve,) = row.curves
    assert len(curve.level) <= BINS
    hours = sum((curve.times[1:] - curve.times[:-1]) * curve.level) / 3600
    assert hours == pytest.approx(run.core_hours_used)


def test_curves_are_stacked_the_uppermost_first() -> None:
    events = run_log([MadeStage("a", 64, 64, 50), MadeStage("b", 64, 64, 50)])
    first = next(event.allocation for event in events if isinstance(event, TasksLaunched))
    moved = [replace(event, allocation=first) if isinstance(event, TaskDone) else event for event in events]
    row = next(row for row in chart(summarise(moved)).jobs if row.job.token == first)
    upper, lower = row.curves
    assert (upper.level >= lower.level).all() and (upper.level > lower.level).any()


def test_number_of_things_drawn_is_bounded() -> None:
    chain = [MadeStage(f"s{n}", 2, 20, after=(f"s{n - 1}",) if n else ()) for n in range(ROWS_DRAWN + 30)]
    drawn = chart(summarise(run_log(chain)))
    assert len(drawn.stages) == len(drawn.jobs) == ROWS_DRAWN
    assert drawn.stages_left_out == drawn.jobs_left_out == 30
    assert sum(len(row.tasks) for row in drawn.jobs) <= TASKS_DRAWN


def test_run_that_has_hardly_begun() -> None:
    drawn = chart(summarise(run_begins(stage_spec("a", 1, 1))))
    assert drawn.jobs == () and len(drawn.held) == 0 and drawn.span_s > 0


def test_job_that_waits_and_job_that_runs_reach_to_now() -> None:
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1), stage_spec("b", 1, 1, "a")),
        *job_asked(0.0, "j0", 1, "a"),
        *job_asked(5.0, "j1", 1, "b", predicted=40.0),
        AllocationStarted(10.0, "j0", 10.0),
    ]
    first, second = chart(summarise(events, now=60.0)).jobs
    assert first.queued == (0.0, 10.0) and first.runs == ((10.0, 60.0),)
    assert second.queued == (5.0, 60.0) and second.runs == () and second.predicted == 45.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_tasks_of_one_core_never_overlap_when_there_is_room(tasks: list[tuple[int, int]]) -> None:
    started = np.array([start for start, _ in tasks], dtype=float)
    ended = np.array([start + length for start, length in tasks], dtype=float)
    lanes = pack(started, ended, np.ones(len(tasks), dtype=np.int64), len(tasks) + 1)
    for one in range(len(tasks)):
        for other in range(one):
            apart = ended[one] <= started[other] or ended[other] <= started[one]
            assert apart or lanes[one] != lanes[other]


def test_wide_tasks_stay_inside_and_beside_each_other() -> None:
    lanes = pack(np.zeros(3), np.ones(3), np.array([2, 1, 9]), 3)
    assert lanes[0] == 0 and lanes[1] == 2, "side by side"
    assert lanes[2] == 0, "cut to the lanes there are, and drawn over the others"


def test_no_tasks() -> None:
    assert pack(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), 4).tolist() == []
