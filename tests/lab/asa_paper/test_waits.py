"""Recorded waits: what a log shows of its queue, and estimators that are replayed on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.estimators.baselines import Last, Median, Zero
from asa.estimators.fixedshare import FixedShare
from asa.lab.asa_paper.accuracy import Probe, predict_all
from asa.lab.asa_paper.queue_history import (
    SMALLEST,
    UNASKED_S,
    Moments,
    ObservedWait,
    QueueHistory,
    assumed,
    load_log,
    planned,
    records,
)
from asa.lab.asa_paper.replay import SPANS, Replayed, ReplayTable, heeds_quantiles, replay, score, tabulate
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.records import Trace, TraceReport
from tests.lab.traces.shared import shared_file

# -- Queue history ----------------------------------------------------------------------------------------------------

small = st.integers(0, 6)
jobs = st.lists(st.tuples(small, small, small, st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=14)


def queue_of(rows: list[tuple[int, int, int, int, int]]) -> QueueHistory:
    submit, wait, run, cores, wall = np.array(sorted(rows, key=lambda row: row[0]), dtype=float).T
    return QueueHistory.of(Workload.of(submit=submit, wait=wait, run=run, cores=cores, walltime=wall))


def by_hand(queue: QueueHistory, now: float, above: int) -> tuple[list[float], list[int], list[int]]:
    """Counters, and who waits and runs, job by job."""
    waits = [k for k in range(above) if queue.submit[k] <= now < queue.start[k]]
    runs = [k for k in range(above) if queue.start[k] <= now < queue.end[k]]
    ends = {k: float(queue.start[k] + queue.walltime[k]) for k in runs}
    counters = [
        len(waits),
        sum(queue.cores[k] * queue.walltime[k] for k in waits),
        sum(queue.cores[k] for k in runs),
        max((now - queue.submit[k] for k in waits), default=0.0),
        sum(queue.cores[k] * max(0.0, ends[k] - now) for k in runs),
    ]
    return [float(value) for value in counters], waits, sorted(runs, key=lambda k: ends[k])


def seen(queue: QueueHistory, moments: Moments) -> list[list[float]]:
    asked = (queue.queued, queue.backlog, queue.busy, queue.oldest, queue.left)
    return np.array([ask(moments) for ask in asked], dtype=float).T.tolist()


@given(jobs)
def test_submissions_see_what_looking_job_by_job_sees(rows: list[tuple[int, int, int, int, int]]) -> None:
    queue = queue_of(rows)
    found = seen(queue, queue.submissions(np.arange(len(queue))))
    for row, counters in enumerate(found):
        now = float(queue.submit[row])
        expected, waits, runs = by_hand(queue, now, row)
        assert counters == pytest.approx(expected)
        assert queue.waiting(now, row).tolist() == waits
        assert queue.running(now, row).tolist() == runs


@given(jobs, st.lists(st.integers(-1, 20), min_size=1, max_size=5))
def test_so_do_other_moments(rows: list[tuple[int, int, int, int, int]], times: list[int]) -> None:
    queue = queue_of(rows)
    moments = queue.at(np.array(times, dtype=float))
    for now, above, counters in zip(times, moments.above.tolist(), seen(queue, moments), strict=True):
        expected, waits, runs = by_hand(queue, now, len(queue))
        assert counters == pytest.approx(expected)
        assert queue.waiting(now, above).tolist() == waits
        assert queue.running(now, above).tolist() == runs


@given(jobs, st.integers(0, 6))
def test_later_events_cannot_be_seen(rows: list[tuple[int, int, int, int, int]], now: int) -> None:
    """Whoever waits or runs at a moment may wait and run for ever: the moment looks the same."""
    queue = queue_of(rows)
    later = QueueHistory(
        queue.submit,
        np.where(queue.start > now, queue.start + 1000.0, queue.start),
        np.where(queue.end > now, queue.end + 2000.0, queue.end),
        queue.cores,
        queue.walltime,
        queue.user,
    )
    moments = queue.at(np.array([float(now)]))
    assert seen(queue, moments) == seen(later, moments)


def test_sums_keep_their_digits_years_after_the_epoch() -> None:
    """Large cores and times must not swallow a job of one core."""
    since = 1.6e9
    queue = QueueHistory.of(
        Workload.of(
            submit=since + np.array([0.0, 1.0, 2.0]),
            wait=[0.0, 0.0, 50.0],
            run=[1000.0, 90.0, 5.0],
            cores=[160_000, 1, 1],
            walltime=[1000.0, 100.0, 10.0],
        )
    )
    found = seen(queue, queue.at(np.array([since + 51.0])))
    assert found == [[1.0, 10.0, 160_001.0, 49.0, 160_000 * 949.0 + 50.0]]


def test_missing_wall_times_are_those_of_jobs_that_have_ended() -> None:
    submit, end = np.array([0.0, 10.0, 20.0, 30.0]), np.array([15.0, 30.0, 31.0, 90.0])
    run = np.array([15.0, 5.0, 9.0, 60.0])
    assert assumed(submit, end, run, np.array([np.nan, 7.0, np.nan, np.nan])).tolist() == [UNASKED_S, 7.0, 15.0, 10.0]


def test_nor_are_they_nothing() -> None:
    submit, end, run = np.array([0.0, 5.0]), np.array([0.0, 9.0]), np.array([0.0, 4.0])
    assert assumed(submit, end, run, np.full(2, np.nan)).tolist() == [1.0, 1.0]


CAPACITY = 4
small_history = st.integers(0, 9)
planned_jobs = st.lists(
    st.tuples(
        small_history,
        small_history,
        small_history,
        st.integers(1, CAPACITY),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


def with_profiles(queue: QueueHistory, now: float, cores: int, walltime: float) -> float:
    """The same plan from the readable profile of free cores."""
    runs = [k for k in range(len(queue)) if queue.start[k] <= now < queue.end[k]]
    held = [(Resources(cores=int(queue.cores[k])), float(queue.start[k] + queue.walltime[k])) for k in runs]
    profile = Profile(Resources(cores=CAPACITY), now, held)
    waits = [k for k in range(len(queue)) if queue.submit[k] <= now < queue.start[k]]
    wanted = [(Resources(cores=int(queue.cores[k])), float(queue.walltime[k])) for k in waits]
    for need, duration in [*wanted, (Resources(cores=cores), walltime)]:
        at = profile.earliest(need, duration)
        profile.reserve(need, at, duration)
    return at - now


@given(planned_jobs, small_history, st.integers(1, CAPACITY), st.integers(1, 9))
def test_it_is_the_plan_of_the_readable_profile(
    rows: list[tuple[int, int, int, int, int]], now: int, cores: int, walltime: int
) -> None:
    submit, wait, run, size, wall = np.array(sorted(rows, key=lambda row: row[0]), dtype=float).T
    queue = QueueHistory.of(Workload.of(submit=submit, wait=wait, run=run, cores=size, walltime=wall))
    (found,) = planned(
        queue, queue.at(np.array([float(now)])), np.array([cores]), np.array([float(walltime)]), CAPACITY
    )
    assert math.isclose(found, with_profiles(queue, float(now), cores, float(walltime)), abs_tol=1e-9)


def test_a_job_larger_than_the_machine_waits_for_all_work() -> None:
    queue = QueueHistory.of(Workload.of(submit=[0, 10], wait=[0, 90], run=[80, 5], cores=[4, 2], walltime=[100, 60]))
    found = planned(queue, queue.at(np.array([20.0])), np.array([5]), np.array([1.0]), CAPACITY)
    assert found.tolist() == [(4 * 80 + 2 * 60) / 4]


def trace_of(jobs: Workload, cores: int | None = 8, epoch: float = 1000.0) -> Trace:
    nothing = np.full(len(jobs), np.nan)
    machine = None if cores is None else Cluster.of(cores)
    report, outcome = TraceReport("made up", len(jobs), len(jobs)), np.full(len(jobs), -1, dtype=np.int8)
    return Trace(jobs, machine, report, "made-up.swf", epoch, nothing, outcome)


def made_up() -> Workload:
    """A machine of 8 cores, and recorded waits.

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
    """The log as it was at a submission: what waits or runs may go on for ever, and no further job is submitted."""
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


# -- Replay -----------------------------------------------------------------------------------------------------------


def job(size: int, submitted: float, wait: float) -> ObservedWait:
    return ObservedWait(size, submitted, wait, Context(at=submitted, cores=size, backlog_s=submitted))


class Spy:
    """Remembers what it was taught, and says how much that was."""

    made: list[Spy]

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.taught: list[tuple[float, float | None, Context | None]] = []
        self.made.append(self)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return len(self.taught) + (quantile or 0.0)

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        self.taught.append((wait_s, predicted_s, context))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


@pytest.fixture
def spy() -> type[Spy]:
    return type("Fresh", (Spy,), {"made": []})


replay_jobs = st.lists(st.tuples(st.integers(4, 6), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=30)


@given(replay_jobs)
def test_each_size_is_predicted_as_if_it_were_alone(rows: list[tuple[int, int, int]]) -> None:
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    found = replay(lambda seed: FixedShare(seed=seed), records)
    for size in {record.size for record in records}:
        probes = [Probe(record.submitted, record.wait_s) for record in records if record.size == size]
        assert found.predicted[found.sizes == size].tolist() == predict_all(FixedShare(), probes)[0].tolist()


@given(replay_jobs)
def test_nothing_is_learned_before_it_has_happened(rows: list[tuple[int, int, int]]) -> None:
    pooled = type("Pooled", (Spy,), {"made": [], "pooled": True})
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    made = replay(pooled, records).predicted
    for place, record in enumerate(records):
        assert made[place] == sum(other.started <= record.submitted for other in records[:place])


def test_waits_are_learned_with_their_predictions_and_the_contexts_of_their_submissions(spy: type[Spy]) -> None:
    records = [job(4, 0, 500), job(4, 10, 20), job(4, 40, 7), job(4, 600, 0)]
    replay(spy, records)
    assert spy.made[0].taught == [
        (20, 0.0, records[1].context),
        (7, 1.0, records[2].context),
        (500, 0.0, records[0].context),
    ]


def test_sizes_have_estimators_of_their_own_with_seeds_of_their_own(spy: type[Spy]) -> None:
    records = [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)]
    replay(spy, records, seed=1)
    assert [len(each.taught) for each in spy.made] == [2, 1]
    seeds = [each.seed for each in spy.made]
    assert len(set(seeds)) == 2
    replay(spy, records, seed=1)
    replay(spy, records, seed=2)
    assert [each.seed for each in spy.made[2:4]] == seeds
    assert not {each.seed for each in spy.made[4:]} & set(seeds)


def test_a_pooled_estimator_learns_from_all_sizes(spy: type[Spy]) -> None:
    spy.pooled = True  # type: ignore[attr-defined]
    replay(spy, [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)])
    assert [len(each.taught) for each in spy.made] == [3]


def test_quantiles_are_asked_for_beside_the_prediction(spy: type[Spy]) -> None:
    found = replay(spy, [job(4, 0, 5), job(4, 10, 5)], quantiles=(0.25, 0.5))
    assert found.predicted.tolist() == [0.0, 1.0]
    assert found.quantile_predicted.tolist() == [[0.25, 0.5], [1.25, 1.5]]


def test_the_first_jobs_of_each_size_can_be_left_out() -> None:
    records = [job(4, 0, 1), job(8, 1, 2), job(4, 2, 3), job(4, 3, 4), job(8, 4, 5)]
    found = replay(lambda seed: Last(seed=seed), records).later(1)
    assert found.waits.tolist() == [3, 4, 5]
    assert [part.waits.tolist() for part in found.by_size()] == [[3, 4], [5]]
    assert found.later(2).by_size() == []


def test_jobs_must_come_in_order() -> None:
    with pytest.raises(InvalidInput, match="job 1 was submitted before"):
        replay(lambda seed: Last(seed=seed), [job(4, 5, 1), job(4, 4, 1)])


def test_no_jobs_no_predictions() -> None:
    assert len(replay(lambda seed: Last(seed=seed), [], quantiles=(0.5,)).predicted) == 0


HOUR = 3600.0


def replayed(
    predicted: list[float],
    waits: list[float],
    sizes: list[int] | None = None,
    quantiles: tuple[float, ...] = (),
    said: list[list[float]] | None = None,
) -> Replayed:
    return Replayed(
        np.array(predicted, dtype=float),
        np.array(waits, dtype=float),
        np.array(sizes or [4] * len(waits)),
        quantiles,
        np.array(said if said is not None else [[0.0] * len(quantiles)] * len(waits), dtype=float).reshape(
            len(waits), len(quantiles)
        ),
    )


def test_sizes_count_the_same_however_many_jobs_they_have() -> None:
    found = score(replayed([HOUR, 0, 0, 0], [0, 2 * HOUR, 4 * HOUR, 6 * HOUR], [4, 8, 8, 8]), warmup=0)
    assert found.jobs == 4
    assert found.early_h == pytest.approx((1 + 0) / 2)
    assert found.late_h == pytest.approx((0 + 4) / 2)
    assert found.mae_h == pytest.approx(found.early_h + found.late_h)
    assert found.not_over == pytest.approx((0 + 1) / 2)


def test_logarithms_are_taken_after_a_minute_is_added() -> None:
    assert score(replayed([540, 0], [0, 0]), warmup=0).log10_error == pytest.approx(0.5)
    assert score(replayed([0, 0], [540, 5940]), warmup=0).log10_error == pytest.approx(1.5)


def test_pinball_losses_and_calibration() -> None:
    waits = [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    said = [[1.5 * HOUR, 3.0 * HOUR]] * 4
    found = score(replayed([0, 0, 0, 0], waits, quantiles=(0.25, 0.75), said=said), warmup=0)
    low = (0.75 * 0.5 + 0.25 * (0.5 + 1.5 + 2.5)) / 4
    high = (0.25 * (2 + 1) + 0.75 * 1) / 4
    assert found.pinball_h == pytest.approx((low, high))
    assert found.calibration == (0.25, 0.75)


def test_the_pinball_loss_of_the_median_is_half_the_error() -> None:
    waits = [100.0, 5000.0, 20.0]
    found = score(replayed([30, 40, 50], waits, quantiles=(0.5,), said=[[30], [40], [50]]), warmup=0)
    assert found.pinball_h[0] == pytest.approx(found.mae_h / 2)
    assert found.calibration is None  # one quantile cannot increase


def test_waits_a_minute_from_their_prediction_may_stand_on_either_side() -> None:
    """Of waits that are mostly 0, any low quantile is 0: that is calibrated."""
    waits = [0.0, 0.0, 0.0, 5000.0]
    said = [[0.0, 30.0, 59.0, 6000.0]] * 4
    found = score(replayed([0, 0, 0, 0], waits, quantiles=(0.1, 0.5, 0.9, 0.95), said=said), warmup=0)
    assert found.calibration == (0.1, 0.5, 0.75, 1.0)
    said = [[0.0, 61.0]] * 4
    assert score(replayed([0, 0, 0, 0], waits, quantiles=(0.1, 0.2), said=said), warmup=0).calibration == (0.1, 0.75)


@pytest.mark.parametrize(
    ("said", "heeds"),
    [
        ([[1, 2], [1, 1]], True),
        ([[1, 1], [2, 2]], False),  # ignores them
        ([[1, 2], [3, 1]], False),  # draws
        ([[2, 1]], False),
    ],
)
def test_quantiles_are_heeded_when_they_never_fall_and_once_rise(said: list[list[float]], heeds: bool) -> None:
    nothing = [0.0] * len(said)
    assert heeds_quantiles(replayed(nothing, nothing, quantiles=(0.2, 0.8), said=said)) is heeds
    swapped = [row[::-1] for row in said]
    assert heeds_quantiles(replayed(nothing, nothing, quantiles=(0.8, 0.2), said=swapped)) is heeds


def test_warm_up_jobs_do_not_count() -> None:
    found = score(replayed([9 * HOUR, 0, 0], [0, HOUR, HOUR]), warmup=1)
    assert (found.jobs, found.mae_h) == (2, 1.0)
    with pytest.raises(InvalidInput, match="more than the 3 jobs"):
        score(replayed([0, 0, 0], [0, 0, 0]), warmup=3)


def test_regret_is_none_for_the_best_alternative() -> None:
    found = score(replayed([0.0] * 5, [0.0] * 5), warmup=0)
    assert math.isclose(found.regret, 0.0, abs_tol=1e-12)
    assert score(replayed([HOUR] * 5, [0.0] * 5), warmup=0).regret > 0.5


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HPC2N-2002-2.2-cln", {Zero: (8.871, 1.733), Last: (9.603, 0.847), Median: (9.018, 0.873)}),
        ("CTC-SP2-1996-3.1-cln", {Zero: (4.528, 1.267), Last: (4.991, 0.728)}),
        ("ANL-Intrepid-2009-1", {Zero: (2.746, 1.368), Last: (2.987, 0.455), Median: (2.727, 0.429)}),
    ],
)
def test_errors_are_those_that_an_independent_program_found(
    name: str, expected: dict[type[Any], tuple[float, float]]
) -> None:
    """A prototype that shares no code with this one replayed the same jobs of these logs."""
    jobs = records(load_log(shared_file("swf", f"{name}.swf.gz")), plan=False)
    for make, (mae_h, log10_error) in expected.items():
        found = score(replay(lambda seed, make=make: make(seed=seed), jobs))
        assert found.mae_h == pytest.approx(mae_h, abs=0.0006)
        assert found.log10_error == pytest.approx(log10_error, abs=0.0006)


def log(seed: int, jobs: int = 120, scale: float = 1.0) -> list[ObservedWait]:
    """Waits of two sizes that follow a level, submitted so seldom that each is known to the next job."""
    rng = np.random.default_rng(seed)
    level = np.exp(np.cumsum(rng.normal(0.0, 0.3, jobs)) + 6.0)
    return [
        ObservedWait(4 if k % 2 else 8, 1e6 * k, scale * float(level[k]), Context(at=1e6 * k, cores=4 if k % 2 else 8))
        for k in range(jobs)
    ]


@pytest.fixture(scope="module")
def found() -> ReplayTable:
    logs = {"one": log(0), "two": log(1)}
    return tabulate(logs, ["zero", "median", "fixed-share", "algorithm1"], seeds=2, warmup=10)


def test_there_is_a_row_for_each_log_and_estimator_the_last_wait_first(found: ReplayTable) -> None:
    names = ["last", "zero", "median", "fixed-share", "algorithm1"]
    assert [(row.trace, row.estimator) for row in found.rows] == [
        (log, name) for log in ("one", "two") for name in names
    ]
    assert list(found.overall) == names


def test_relative_errors_are_those_of_the_scores(found: ReplayTable) -> None:
    last = found.rows[0].mean("mae_h")
    for row in found.rows[:5]:
        assert row.relative.value == pytest.approx(row.mean("mae_h") / last)
        assert row.errors.shape == (SPANS, 2)
    assert found.rows[0].relative.value == found.rows[0].relative.high == 1.0


def test_intervals_hold_the_values(found: ReplayTable) -> None:
    for estimate in [row.relative for row in found.rows] + list(found.overall.values()):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high


def test_the_mean_over_logs_is_geometric(found: ReplayTable) -> None:
    ratios = [row.relative.value for row in found.rows if row.estimator == "zero"]
    assert found.overall["zero"].value == pytest.approx(np.sqrt(ratios[0] * ratios[1]))


def test_ratios_do_not_depend_on_the_unit_of_time() -> None:
    once, twice = (tabulate({"log": log(3, scale=scale)}, ["zero"], warmup=10) for scale in (1.0, 2.0))
    assert once.overall["zero"].value == pytest.approx(twice.overall["zero"].value)


def test_only_estimators_that_draw_have_several_seeds(found: ReplayTable) -> None:
    assert {row.estimator: len(row.seeds) for row in found.rows} == {
        "last": 1,
        "zero": 1,
        "median": 1,
        "fixed-share": 1,
        "algorithm1": 2,
    }
    drawn = next(row for row in found.rows if row.estimator == "algorithm1")
    assert drawn.seeds[0] != drawn.seeds[1]
    assert drawn.mean("mae_h") == pytest.approx(np.mean([each.mae_h for each in drawn.seeds]))


def test_calibration_is_reported_for_estimators_with_quantiles(found: ReplayTable) -> None:
    told = {row.estimator: row.means("calibration") for row in found.rows}
    assert told["last"] is None
    assert told["algorithm1"] is None


def test_in_words_and_as_json(found: ReplayTable) -> None:
    text = found.text()
    assert "one: 100 jobs, means over 2 sizes" in text
    assert "geometric mean over 2 logs" in text
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(data["rows"]) == 10
    assert data["overall"]["last"]["value"] == 1.0
    assert data["rows"][4]["seeds"][1]["mae_h"] > 0


def test_it_can_be_drawn(found: ReplayTable, tmp_path: Path) -> None:
    found.draw(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    with pytest.raises(InvalidInput, match=r"cannot be written: end the name with \.png"):
        found.draw(tmp_path / "errors.doc")


def test_mistakes_of_replays_are_named() -> None:
    with pytest.raises(InvalidInput, match="0 logs"):
        tabulate({}, ["last"])
    with pytest.raises(InvalidInput, match="0 seeds"):
        tabulate({"log": log(0)}, ["last"], seeds=0)
    with pytest.raises(UnknownName, match="medain"):
        tabulate({"log": log(0)}, ["medain"])
    with pytest.raises(InvalidInput, match="more than the 200 jobs"):
        tabulate({"log": log(0)}, ["last"])


def test_progress_names_log_and_estimator() -> None:
    told: list[tuple[str, str]] = []
    tabulate({"log": log(0)}, ["zero"], warmup=10, progress=lambda trace, name: told.append((trace, name)))
    assert told == [("log", "last"), ("log", "zero")]
