"""What a log's queue looked like at given moments, to somebody who sees it and nothing that comes later."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload

UNASKED_S = 3600.0
"""Wall time of a job that asked for none, before any other job has ended [s]."""


class Moments(NamedTuple):
    """When somebody looks at a queue.

    Parameters
    ----------
    now
        Times, shape (k,) [s]; what starts or ends at that very time has done so.
    above
        How many jobs have been submitted by then; of those of the same instant, so many.
    """

    now: Floats
    above: Ints


@dataclass(frozen=True, eq=False)
class QueueLog:
    """When jobs came, left the queue, and ended; in order of submission.

    Parameters
    ----------
    submit, start, end
        Times [s], shape (n,). A job that was cancelled while it waited starts and ends at that time.
    cores
        Of each job.
    walltime
        Requested times [s]; what `assumed` says for a job that asked for none.
    user
        Codes of users; negative where they are not known.

    Examples
    --------
    The third job sees the first one run, which holds four cores for 100 s, and the second one wait.

    >>> log = Workload.of(
    ...     submit=[0, 10, 30], run=[80, 50, 9], cores=[4, 2, 1], walltime=[100, 60, 10], wait=[0, 70, 100]
    ... )
    >>> queue = QueueLog.of(log)
    >>> third = queue.submissions(np.array([2]))
    >>> queue.queued(third), queue.backlog(third), queue.busy(third), queue.oldest(third), queue.left(third)
    (array([1]), array([120.]), array([4]), array([20.]), array([280.]))
    """

    submit: Floats
    start: Floats
    end: Floats
    cores: Ints
    walltime: Floats
    user: Ints

    @classmethod
    def of(cls, log: Workload) -> QueueLog:
        """The queue of a log whose waits are all known."""
        start = log.submit + log.wait
        end = start + log.run
        return cls(log.submit, start, end, log.cores, assumed(log.submit, end, log.run, log.walltime), log.user)

    @classmethod
    def by(cls, schedule: Schedule, now: float) -> QueueLog:
        """The queue of a machine until a moment [s]; what has not happened by then happens later, no matter when."""
        jobs = schedule.workload
        start = np.where(schedule.start <= now, schedule.start, now + 1.0)
        end = np.where(schedule.end <= now, schedule.end, now + 2.0)
        came = np.flatnonzero(jobs.submit <= now)
        return cls(jobs.submit, start, end, jobs.cores, jobs.walltime, jobs.user).take(came)

    def __len__(self) -> int:
        return len(self.submit)

    def take(self, rows: Ints) -> QueueLog:
        """Some of the jobs only, in order of submission."""
        times = self.submit[rows], self.start[rows], self.end[rows]
        return QueueLog(*times, self.cores[rows], self.walltime[rows], self.user[rows])

    def submissions(self, rows: Ints) -> Moments:
        """The moments at which the jobs of these rows are submitted: they see the rows above."""
        return Moments(self.submit[rows], np.asarray(rows, dtype=np.int64))

    def at(self, now: Floats) -> Moments:
        """The moments after all that happens at these times [s]."""
        return Moments(now, np.searchsorted(self.submit, now, side="right"))

    def queued(self, moments: Moments) -> Ints:
        """Jobs that wait."""
        return _whole(self._sum(self.start, np.ones(len(self)), moments))

    def backlog(self, moments: Moments) -> Floats:
        """Cores times wall time of the jobs that wait [core-s]."""
        return np.maximum(0.0, self._sum(self.start, self.cores * self.walltime, moments))

    def busy(self, moments: Moments) -> Ints:
        """Cores that jobs run on."""
        return _whole(self._held(self.end, self.cores.astype(np.float64), moments))

    def left(self, moments: Moments) -> Floats:
        """Cores times wall time that running jobs have left [core-s]; nothing for a job past its wall time."""
        cores = self.cores.astype(np.float64)
        origin = self.submit[0] if len(self) else 0.0  # small numbers, for sums that keep their digits
        due = self.start + self.walltime
        stop = np.minimum(self.end, due)
        work, held = self._held(stop, cores * (due - origin), moments), self._held(stop, cores, moments)
        return np.maximum(0.0, work - held * (moments.now - origin))

    def oldest(self, moments: Moments) -> Floats:
        """How long the job that waits longest has waited [s]; 0 when none waits."""
        first = np.searchsorted(self._waits_until, moments.now, side="right")
        waits = first < moments.above
        age = np.zeros(len(moments.now))
        age[waits] = moments.now[waits] - self.submit[first[waits]]
        return age

    def waiting(self, now: float, above: int) -> Ints:
        """Rows of the jobs that wait at a moment, in order of submission."""
        first = int(np.searchsorted(self._waits_until, now, side="right"))
        return first + np.flatnonzero(self.start[first:above] > now)

    def running(self, now: float, above: int) -> Ints:
        """Rows of the jobs that run at a moment, in order of the ends that their wall times tell."""
        first = int(np.searchsorted(self._runs_until, now, side="right"))
        rows = first + np.flatnonzero((self.start[first:above] <= now) & (self.end[first:above] > now))
        return rows[np.argsort(self.start[rows] + self.walltime[rows], kind="stable")]

    @cached_property
    def _waits_until(self) -> Floats:
        """Until when at least one of the rows so far waits: the first above a time is the oldest that waits then."""
        return np.maximum.accumulate(self.start)

    @cached_property
    def _runs_until(self) -> Floats:
        return np.maximum.accumulate(self.end)

    def _held(self, until: Floats, amount: Floats, moments: Moments) -> Floats:
        """Sum of `amount` over jobs that have started and for which `until` has not come."""
        return self._sum(until, amount, moments) - self._sum(self.start, amount, moments)

    def _sum(self, until: Floats, amount: Floats, moments: Moments) -> Floats:
        """Sum of `amount` over jobs that were submitted, and for which `until` has not come."""
        order = np.argsort(until, kind="stable")
        came, gone = _sums(amount), _sums(amount[order])
        # Jobs of the same instant that are not above, and over at once, are among those that are gone.
        at_once = _sums(np.where(until <= self.submit, amount, 0.0))
        below = at_once[np.searchsorted(self.submit, moments.now, side="right")] - at_once[moments.above]
        over = gone[np.searchsorted(until[order], moments.now, side="right")]
        return np.asarray(came[moments.above] - over + below)


def assumed(submit: Floats, end: Floats, run: Floats, walltime: Floats) -> Floats:
    """Wall times; for a job without one, the mean run time of all jobs that had ended when it was submitted [s].

    `UNASKED_S` where none had.

    Examples
    --------
    >>> submit, end = np.array([0.0, 50.0, 100.0]), np.array([80.0, 90.0, 300.0])
    >>> assumed(submit, end, np.array([80.0, 40.0, 200.0]), np.full(3, np.nan))
    array([3600., 3600.,   60.])
    """
    order = np.argsort(end, kind="stable")
    ended = np.searchsorted(end[order], submit, side="right")
    mean = np.where(ended > 0, _sums(run[order])[ended] / np.maximum(ended, 1), UNASKED_S)
    return np.where(np.isnan(walltime), np.maximum(mean, 1.0), walltime)


def _sums(amount: Floats) -> Floats:
    """Sums of the first 0, 1, ... n entries, shape (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(amount)])


def _whole(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)
