from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.core.workload import Workload
from asa.lab.studies.queue_seen import UNASKED_S, Moments, QueueLog, assumed

small = st.integers(0, 6)
jobs = st.lists(st.tuples(small, small, small, st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=14)


def queue_of(rows: list[tuple[int, int, int, int, int]]) -> QueueLog:
    submit, wait, run, cores, wall = np.array(sorted(rows, key=lambda row: row[0]), dtype=float).T
    return QueueLog.of(Workload.of(submit=submit, wait=wait, run=run, cores=cores, walltime=wall))


def by_hand(queue: QueueLog, now: float, above: int) -> tuple[list[float], list[int], list[int]]:
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


def seen(queue: QueueLog, moments: Moments) -> list[list[float]]:
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
def test_what_comes_later_cannot_be_seen(rows: list[tuple[int, int, int, int, int]], now: int) -> None:
    """Whoever waits or runs at a moment may wait and run for ever: the moment looks the same."""
    queue = queue_of(rows)
    later = QueueLog(
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
    queue = QueueLog.of(
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


def test_wall_times_that_nobody_requested_are_those_of_jobs_that_have_ended() -> None:
    submit, end = np.array([0.0, 10.0, 20.0, 30.0]), np.array([15.0, 30.0, 31.0, 90.0])
    run = np.array([15.0, 5.0, 9.0, 60.0])
    assert assumed(submit, end, run, np.array([np.nan, 7.0, np.nan, np.nan])).tolist() == [UNASKED_S, 7.0, 15.0, 10.0]


def test_nor_are_they_nothing() -> None:
    submit, end, run = np.array([0.0, 5.0]), np.array([0.0, 9.0]), np.array([0.0, 4.0])
    assert assumed(submit, end, run, np.full(2, np.nan)).tolist() == [1.0, 1.0]
