from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.studies.waits_seen import SMALLEST, load_log, records
from asa.lab.traces.load import Trace
from asa.lab.traces.lublin import lublin
from asa.lab.traces.rules import Report
from tests.lab.traces.shared import shared_file


def trace_of(jobs: Workload, cores: int | None = 8, epoch: float = 1000.0) -> Trace:
    nothing = np.full(len(jobs), np.nan)
    machine = None if cores is None else Cluster.of(cores)
    report, outcome = Report("made up", len(jobs), len(jobs)), np.full(len(jobs), -1, dtype=np.int8)
    return Trace(jobs, machine, report, "made-up.swf", epoch, nothing, outcome)


def made_up() -> Workload:
    """A machine of 8 cores, and the waits that somebody wrote down.

    At 40 s one job of 4 cores runs (since 0 s, asked for 100 s), one of 2 cores (since 20 s, asked for 10 s: overdue),
    one of 4 cores waits since 10 s, one of 1 core since 30 s.
    """
    return Workload.of(
        submit=[0, 10, 20, 30, 40],
        wait=[0, 80, 0, 25, 60],
        run=[90, 30, 50, 5, 7],
        cores=[4, 4, 2, 1, 4],
        walltime=[100, 60, 10, 40, 20],
        user=[1, 2, 2, 3, 2],
    )


def test_a_context_is_what_could_be_seen_at_submission() -> None:
    found = records(trace_of(made_up()), sizes=1)
    assert [(record.size, record.submitted, record.wait_s) for record in found] == [
        (4, 1000.0, 0.0),
        (4, 1010.0, 80.0),
        (4, 1040.0, 60.0),
    ]
    assert found[2].context == Context(
        at=1040.0,
        cores=4,
        walltime_s=20.0,
        pending_s=30.0,
        backlog_s=(4 * 60 + 1 * 40) / 8,
        queued=2,
        free_cores=2,
        planned_s=60.0,  # job 1 gets the 4 cores free by 40 s until 100 s, when those of job 0 are due, too
        oldest_s=30.0,
        left_s=4 * 60 / 8,
        alike_queued=1,
        own_queued=1,
        own_backlog_s=4 * 60 / 8,
        own_cores=2,
    )
    assert found[2].started == 1100.0
    view = found[2].context.queue
    assert view is not None
    assert [(job.key, job.submitted, job.walltime_s, job.user) for job in view.queue] == [
        (1, 1010.0, 60.0, "2"),
        (3, 1030.0, 40.0, "3"),
    ]
    assert [(job.key, job.ends, job.resources.cores) for job in view.running] == [(2, 1040.0, 2), (0, 1100.0, 4)]


def test_the_queue_itself_has_the_same_counters() -> None:
    for record in records(trace_of(_busy(), cores=32)):
        context, view = record.context, record.context.queue
        assert view is not None
        assert view.now == context.at
        seen = view.counters()
        assert (seen.queued, seen.free_cores) == (context.queued, context.free_cores)
        assert seen.backlog_s == pytest.approx(context.backlog_s)
        assert all(job.ends >= view.now for job in view.running)
        assert [job.submitted for job in view.queue] == sorted(job.submitted for job in view.queue)


@pytest.mark.parametrize("place", [24, 60, 104, -1])
def test_nothing_of_a_context_comes_from_the_future(place: int) -> None:
    """The log as it was at a submission: what still waits or runs may go on for ever, and nobody comes any more."""
    jobs = _busy()
    row = int(np.flatnonzero(jobs.cores >= SMALLEST)[place])
    now = jobs.submit[row]
    start = jobs.submit + jobs.wait
    later = replace(
        jobs,
        wait=np.where(start > now, jobs.wait + 1e6, jobs.wait),
        run=np.where((start > now) | (start + jobs.run > now), jobs.run + 1e6, jobs.run),
    )
    known = later.take(np.arange(row + 1))
    whole, cut = (records(trace_of(each, cores=32), sizes=99, jobs=1000) for each in (jobs, known))
    (before,) = (record.context for record in whole if record.context.at == 1000.0 + now)
    assert _numbers(cut[-1].context) == pytest.approx(_numbers(before), rel=1e-9, abs=1e-6)
    assert cut[-1].context.queue == before.queue
    assert before.queued


def test_plans_are_left_out_on_demand() -> None:
    bare, full = (records(trace_of(_busy(), cores=32), plan=plan) for plan in (False, True))
    assert all(record.context.planned_s is None and record.context.queue is None for record in bare)
    assert all(record.context.planned_s is not None for record in full)
    assert [record.context.backlog_s for record in bare] == [record.context.backlog_s for record in full]


def test_the_most_frequent_sizes_from_the_middle_of_the_log() -> None:
    sizes = [4] * 6 + [5] * 3 + [6] * 4 + [1] * 20
    jobs = Workload.of(submit=range(33), run=[1.0] * 33, cores=sizes, wait=[0.0] * 33)
    assert [(record.size, record.submitted) for record in records(trace_of(jobs, epoch=np.nan), sizes=2, jobs=2)] == [
        (4, 2.0),
        (4, 3.0),
        (6, 10.0),
        (6, 11.0),
    ]


def test_jobs_that_were_cancelled_wait_for_others_but_are_not_learned_from() -> None:
    jobs = Workload.of(submit=[0, 5, 9], wait=[0, 60, 30], run=[50, 0, 9], cores=[4, 4, 4], walltime=[90, 20, 10])
    found = records(trace_of(jobs))
    assert [record.submitted for record in found] == [1000.0, 1009.0]
    assert found[1].context.queued == 1
    assert found[1].context.pending_s == 4.0


def test_without_a_machine_it_is_as_large_as_what_ran_at_once() -> None:
    jobs = Workload.of(submit=[0, 5, 9], wait=[0, 0, 30], run=[50, 10, 9], cores=[4, 5, 4], walltime=[90, 20, 10])
    found = records(trace_of(jobs, cores=None))
    assert [record.context.free_cores for record in found] == [9, 5, 0]


def test_unknown_users_have_no_queue_of_their_own() -> None:
    jobs = Workload.of(submit=[0, 1], wait=[0, 0], run=[5, 5], cores=[4, 4], walltime=[9, 9])
    assert [record.context.own_queued for record in records(trace_of(jobs))] == [None, None]


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidInput, match="sizes=0"):
        records(trace_of(made_up()), sizes=0)
    with pytest.raises(InvalidInput, match=r"made-up\.swf has no observed wait of a job of 4 cores"):
        records(trace_of(Workload.of(submit=[0], run=[1], cores=[3], wait=[0])))


def test_a_log_is_read_with_the_processors_that_jobs_got(tmp_path: Path) -> None:
    line = "{} {} {} {} {} -1 -1 {} 60 -1 {} 1 1 1 -1 -1 -1 -1\n"
    path = tmp_path / "log.swf"
    rows = [(1, 0, 5, 30, 8, 4, 1), (2, 1, 9, 0, 8, 4, 5)]  # the second one is cancelled after 9 s
    path.write_text("; MaxProcs: 16\n" + "".join(line.format(*row) for row in rows))
    log = load_log(path).workload
    assert log.cores.tolist() == [8, 8]
    assert log.run.tolist() == [30.0, 0.0]
    (tmp_path / "log.txt").write_text("JobID|Submit|Start|End|NCPUS\n1|100|110|170|4\n")
    assert load_log(tmp_path / "log.txt").workload.cores.tolist() == [4], "other logs tell no more than these"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "waits_h"),
    [
        ("HPC2N-2002-2.2-cln", {4: 12.17, 8: 4.70, 16: 7.90}),
        ("CTC-SP2-1996-3.1-cln", {4: 2.26, 8: 1.81, 16: 9.62}),
        ("ANL-Intrepid-2009-1", {256: 0.07, 2048: 3.94, 4096: 3.90}),
    ],
)
def test_means_of_the_logs_that_earlier_work_looked_at(name: str, waits_h: dict[int, float]) -> None:
    found = records(load_log(shared_file("swf", f"{name}.swf.gz")), plan=False)
    for size, hours in waits_h.items():
        waits = [record.wait_s for record in found if record.size == size]
        assert len(waits) == 2000
        assert np.mean(waits) / 3600.0 == pytest.approx(hours, abs=0.006)


def _numbers(context: Context) -> dict[str, float]:
    found = {item.name: getattr(context, item.name) for item in fields(context) if item.name != "queue"}
    return {name: value for name, value in found.items() if value is not None}


def _busy() -> Workload:
    jobs = lublin(jobs=400, cores=32, seed=3, load=0.95, estimates="uniform:5")
    schedule = simulate(jobs, Cluster.of(32), "easy")
    return Workload.of(
        submit=jobs.submit, run=jobs.run, cores=jobs.cores, walltime=jobs.walltime, wait=schedule.wait, user=jobs.user
    )
