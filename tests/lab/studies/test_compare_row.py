from __future__ import annotations

import json
from dataclasses import replace

import pytest

from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import RunState
from asa.core.job import JobRequest, JobState, Resources
from asa.lab.backend.simulated import Simulated
from asa.lab.studies.compare_row import Row, StageSpan, most_waiting, row_of
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import JobSummary, RunSummary, summarise
from asa.workflows.stage import Node, Stage, make_needs

LABELS = {"system": "here", "regime": "fifo", "workflow": "chain", "cores": 4, "strategy": "?", "seed": 7}


def chain(run_time_s: float = 2000.0) -> Node:
    """Two stages, one after the other."""

    def nothing(_index: int) -> None: ...

    needs = make_needs("first", cores=4, walltime=7200, run_time=run_time_s)
    first = Stage(nothing, needs, "first").map(range(4))
    return Stage(nothing, make_needs("second", cores=2, walltime=7200, run_time=600), "second").map([0, 1]).after(first)


def run(strategy: str, expected_wait_s: float = 0.0) -> RunSummary:
    """On an idle machine, by somebody who expects to wait."""
    waits = MemoryWaits("last")
    for cores in (2, 4):
        waits.learn(JobRequest(f"job {cores}", Resources(cores=cores), 7200.0, ()), expected_wait_s)
    queue = Simulated(nodes=1, cores=8, warmup=0)
    return summarise(
        run_virtual(chain(), queue, strategy, waits=waits, pool="per-stage", run_time=lambda stage, _: 2000.0)
    )


def test_a_row_sums_a_run_up() -> None:
    row = row_of(run("per-stage"), **LABELS)
    assert row.case == ("here", "chain", 4)
    assert row.makespan_s == 2600.0
    assert row.total_wait_s == 0.0
    assert row.core_hours == pytest.approx((4 * 2000 + 2 * 600) / 3600)
    assert row.overhead_core_hours == 0.0
    assert row.misses == 0
    assert row.stages == (StageSpan("first", 0.0, 2000.0), StageSpan("second", 0.0, 600.0))


def test_jobs_that_come_too_early_and_are_given_back_are_misses() -> None:
    row = row_of(run("asa-naive:grace_s=300", expected_wait_s=1000.0), **LABELS)
    assert row.misses >= 1
    assert row.overhead_core_hours >= row.misses * 2 * 300 / 3600 * 0.99
    assert row.core_hours == pytest.approx((4 * 2000 + 2 * 600) / 3600 + row.overhead_core_hours)


def test_a_job_that_comes_a_little_early_is_kept_and_is_no_miss() -> None:
    row = row_of(run("asa-naive:grace_s=300", expected_wait_s=200.0), **LABELS)
    assert row.misses == 0
    assert row.overhead_core_hours == pytest.approx(2 * 200 / 3600, rel=0.05)


def job(stage: str, submitted: float, started: float | None, ended: float | None = None) -> JobSummary:
    return JobSummary(
        token="", job_id="", stages=(stage,), state=JobState.COMPLETED, cores=1, nodes=(), walltime_s=1.0,
        submitted=submitted, started=started, ended=ended, runs=(), predicted_wait_s=None, wait_s=None,
        core_hours_charged=0.0, core_hours_used=0.0, overhead_core_hours=0.0, reason="",
    )  # fmt: skip


def test_jobs_in_the_queue_at_a_time() -> None:
    jobs = [job("a", 0, 10, 99), job("a", 5, None, 20), job("a", 10, 30), job("a", 20, 25), job("b", 0, 50)]
    assert most_waiting(jobs, "a") == 2
    assert most_waiting(jobs, "b") == 1
    assert most_waiting(jobs, "c") == 0
    assert most_waiting([job("a", 5, 5), job("a", 5, 5)], "a") == 0


def test_it_travels_as_json() -> None:
    row = row_of(run("big-job"), **LABELS)
    assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_a_run_that_failed_makes_no_row() -> None:
    with pytest.raises(RunFailed, match=r"chain on 4 cores of here under .* with seed 7 is failed: no luck"):
        row_of(replace(run("per-stage"), state=RunState.FAILED, message="no luck"), **LABELS)


@pytest.mark.parametrize("values", [{}, {"stages": []}, {"stages": [{"a": 1}]}])
def test_other_things_are_no_rows(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no row of a comparison"):
        Row.from_json(values)
