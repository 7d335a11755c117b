"""Rows for the history, from a run's events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asa.core.event import AllocationStarted, Event, StageGrown, TaskDone, TaskFailed, TasksDone, TasksLaunched, packed
from asa.core.history import StageUsage, Usage, quantile
from asa.core.job import Resources
from asa.core.run import FoldedRun
from asa.metrics.usage import SAMPLED, usage
from tests.runlogs import MadeStage, job_asked, run_begins, run_log, stage_spec

GIB = 1 << 30


def folded(width: int, *events: Event | TasksDone) -> FoldedRun:
    """A run of one stage, whose tasks have two cores and a gigabyte, in an allocation of four; then this happens.

    Its job was asked for at 1 s and started at 11 s, and all tasks were launched at 20 s.
    """
    spec = stage_spec("align", 4, width, task_cores=2, retries=3)
    spec = replace(spec, task=replace(spec.task, memory=GIB), resources=replace(spec.resources, memory=GIB), code="c1")
    run = FoldedRun()
    for event in (
        *run_begins(spec),
        *job_asked(1.0, "j0", 4, "align"),
        AllocationStarted(11.0, "j0", 11.0, ("n",)),
        TasksLaunched(20.0, "align", ((0, width),), "j0"),
        *events,
    ):
        run.on(event)
    return run


def done(index: int, started: float, ended: float, peak: int = 1000, **more: object) -> TaskDone:
    event = TaskDone(ended, "align", index, "j0", "n", started, cpu_s=1.5 * (ended - started), peak=peak, given=7)
    return replace(event, source="rusage", **more)  # type: ignore[arg-type]


def found(run: FoldedRun, first: int = 0) -> tuple[StageUsage, int, list[Usage]]:
    ((name, whole, count, rows),) = usage(run)
    assert name == "align"
    return whole, count, sorted(rows(first), key=lambda row: row.ended)


def test_a_row_for_each_attempt_and_what_the_stage_took_as_a_whole() -> None:
    failed = TaskFailed(30.0, "align", 2, "j0", "n", 25.0, "killed", cause="memory", exit=-9, peak=5000, source="proc")
    again = TasksLaunched(31.0, "align", ((2, 3),), "j0")
    run = folded(3, done(0, 20.0, 30.0), done(1, 20.0, 25.0), failed, again, done(2, 31.0, 41.0, 6000))
    whole, count, rows = found(run)
    assert count == 4
    assert [row.outcome for row in rows] == ["ok", "ok", "memory", "ok"]
    assert (rows[3].run_time_s, rows[3].cpu_s, rows[3].threads, rows[3].memory) == (10.0, 15.0, 1.5, 6000)
    assert (rows[2].memory, rows[2].cpu_s, rows[2].source, rows[2].asked_memory) == (5000, None, "proc", GIB)
    assert rows[0] == Usage(
        "align", "c1", "site", 7, 2, 4, 5.0, 7.5, 1000, GIB, 3600.0, "ok", 25.0, "rusage"
    )  # fmt: skip
    assert (whole.tasks, whole.done, whole.cores, whole.width, whole.failures) == (3, 3, 2, 4, 1)
    assert (whole.wait_s, whole.perceived_wait_s, whole.run_time_s) == (10.0, 20.0, 20.0)
    assert whole.core_hours == pytest.approx(2 * 30 / 3600) and whole.input == 21
    assert [row.ended for row in found(run, 2)[2]] == [30.0, 41.0]


def test_what_was_asked_when_an_attempt_began() -> None:
    failed = TaskFailed(30.0, "align", 0, "j0", "n", 20.0, "killed", cause="memory", peak=GIB, source="rusage")
    more = Resources(4, memory=2 * GIB)
    grown = StageGrown(30.0, "align", more, Resources(2, memory=2 * GIB), 3600.0)
    run = folded(1, failed, grown, TasksLaunched(31.0, "align", ((0, 1),), "j0"), done(0, 31.0, 41.0))
    assert [row.asked_memory for row in found(run)[2]] == [GIB, 2 * GIB]


def test_what_the_infrastructure_took_along_is_no_row() -> None:
    lost = TaskFailed(30.0, "align", 0, "j0", "n", 20.0, "node lost", infrastructure=True, peak=1, source="rusage")
    run = folded(2, lost, done(1, 20.0, 30.0))
    whole, count, rows = found(run)
    assert (count, len(rows), whole.failures) == (1, 1, 0)
    assert whole.core_hours == pytest.approx(2 * 20 / 3600)


def test_of_a_large_stage_some_stand_for_all() -> None:
    width = 4 * SAMPLED
    tasks = [done(place, 20.0 + place, 22.0 + place, 1000 + place % 977) for place in range(width)]
    tasks[1237] = replace(tasks[1237], peak=10**6)
    whole, count, rows = found(folded(width, *packed(tasks)))
    assert (count, len(rows)) == (width, SAMPLED + 1)
    assert max(row.memory or 0 for row in rows) == 10**6 and sum(row.tasks for row in rows) == width + 1
    median = quantile([row.memory or 0 for row in rows], 0.5, [row.tasks for row in rows])
    assert median == pytest.approx(1000 + 977 / 2, rel=0.02)
    assert whole.width == 4 and whole.core_hours == pytest.approx(2 * 2 * width / 3600)


def test_runs_whose_tasks_nobody_measured_teach_nothing() -> None:
    assert list(usage(folded(1))) == []
    never_measured = FoldedRun()
    for event in run_log([MadeStage("a", 4, 8)]):
        never_measured.on(event)
    assert never_measured.stages["a"].done == 8 and list(usage(never_measured)) == []
    assert list(usage(folded(1, replace(done(0, 20.0, 30.0), source="", peak=0, cpu_s=0.0)))) == []
    assert list(usage(folded(1, done(0, 20.0, 20.1)))) == []
