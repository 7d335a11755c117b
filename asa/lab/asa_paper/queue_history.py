"""What a log shows of its queue at any moment, and the waits that it observed, each with what was visible then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.schedule import Schedule
from asa.lab.core.table import JOB
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.dispatchers.backfill import BackfillRule, scan
from asa.lab.traces.load import FORMATS, load_trace
from asa.lab.traces.records import Trace, contents

UNASKED_S = 3600.0
"""Wall time of a job that asked for none, before any other job has ended [s]."""


class Moments(NamedTuple):
    """When a queue is looked at.

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
class QueueHistory:
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
    >>> queue = QueueHistory.of(log)
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
    def of(cls, log: Workload) -> QueueHistory:
        """The queue of a log whose waits are all known."""
        start = log.submit + log.wait
        end = start + log.run
        return cls(log.submit, start, end, log.cores, assumed(log.submit, end, log.run, log.walltime), log.user)

    @classmethod
    def by(cls, schedule: Schedule, now: float) -> QueueHistory:
        """The queue of a machine until a moment [s]; what has not happened by then happens later, no matter when."""
        jobs = schedule.workload
        start = np.where(schedule.start <= now, schedule.start, now + 1.0)
        end = np.where(schedule.end <= now, schedule.end, now + 2.0)
        came = np.flatnonzero(jobs.submit <= now)
        return cls(jobs.submit, start, end, jobs.cores, jobs.walltime, jobs.user).take(came)

    def __len__(self) -> int:
        return len(self.submit)

    def take(self, rows: Ints) -> QueueHistory:
        """Some of the jobs only, in order of submission."""
        times = self.submit[rows], self.start[rows], self.end[rows]
        return QueueHistory(*times, self.cores[rows], self.walltime[rows], self.user[rows])

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


LOOKED_AT = 1000
"""Waiting jobs that are planned for, from the front of the queue."""


def planned(queue: QueueHistory, moments: Moments, cores: Ints, walltime: Floats, capacity: int) -> Floats:
    """The waits that jobs would be promised, shape (k,) [s]: first come, first served, each job where it fits first.

    As ``sbatch --test-only`` does it, but for priorities, of which logs tell nothing. A job that is larger than the
    machine is promised the time until all work of the waiting and running jobs is done.

    Parameters
    ----------
    queue
        Whose jobs are in the plan, those that run until their wall times.
    cores, walltime
        Of each job, shape (k,); [s].

    Examples
    --------
    All four cores are taken until 100 s, and promised to a job that waits from then until 160 s: at 30 s, any other job
    is 130 s from its start.

    >>> queue = QueueHistory(*map(np.array, ([0.0, 10.0], [0.0, 80.0], [80.0, 99.0], [4, 4], [100.0, 60.0], [1, 1])))
    >>> planned(queue, queue.at(np.array([30.0])), np.array([1]), np.array([50.0]), 4)
    array([130.])
    """
    jobs = np.zeros(len(queue) + 1, dtype=JOB)
    jobs["units"][:-1], jobs["estimate"][:-1], jobs["predicted"][:-1] = queue.cores, queue.walltime, queue.walltime
    own, rule = len(queue), BackfillRule(math.inf)
    found = np.empty(len(moments.now))
    for place, (now, above) in enumerate(zip(moments.now.tolist(), moments.above.tolist(), strict=True)):
        jobs["units"][own] = cores[place]
        jobs["estimate"][own] = jobs["predicted"][own] = walltime[place]
        ahead, active = queue.waiting(now, above), queue.running(now, above)
        waiting = np.append(ahead[: LOOKED_AT - 1], own)
        ends = np.maximum(queue.start[active] + queue.walltime[active], now)
        free = capacity - int(queue.cores[active].sum())
        starts, promised = np.empty(len(waiting), np.int64), np.empty(len(waiting))
        count = scan(now, rule, free, capacity, jobs, waiting, active, ends, starts, promised, True)
        if (starts[:count] == len(waiting) - 1).any():
            found[place] = 0.0
        elif math.isnan(promised[-1]):
            work = queue.cores[ahead] @ queue.walltime[ahead] + queue.cores[active] @ np.maximum(0.0, ends - now)
            found[place] = float(work) / capacity
        else:
            found[place] = promised[-1] - now
    return found


SMALLEST = 4
"""Jobs of fewer cores are passed over: they start in gaps whatever the queue is."""


class ObservedWait(NamedTuple):
    """A job of a log: its cores, when it was submitted [s], how long it waited [s], and what could be seen then."""

    size: int
    submitted: float
    wait_s: float
    context: Context

    @property
    def started(self) -> float:
        """When its wait became known [s]."""
        return self.submitted + self.wait_s


def load_log(path: str | Path) -> Trace:
    """A log as it is replayed: SWF with the processors that jobs got, and with jobs that were cancelled as they waited.

    The latter were part of the queue, though no wait is learned from them.
    """
    if FORMATS["swf"].begins.match(contents(path).lstrip()):
        return load_trace(path, "swf", processors="allocated", cancelled=True)
    return load_trace(path)


def records(trace: Trace, sizes: int = 3, jobs: int = 2000, plan: bool = True) -> list[ObservedWait]:
    """Jobs of a log's most frequent sizes, in order of submission.

    The contexts are what the log itself shows at each submission, from all of its jobs: those submitted before,
    whatever has started or ended by then, requested times but never the run time of a job that still runs. One's own
    geometry is the number of cores, of whichever user.

    Parameters
    ----------
    sizes
        How many numbers of cores, the most frequent ones of at least `SMALLEST`.
    jobs
        How many jobs of each at most, from the middle of the log.
    plan
        Whether to find out which wait a plan of the whole queue promises, too, and to keep the queue itself.

    Raises
    ------
    InvalidInput
        When `sizes` or `jobs` is less than 1, or the log has no wait of such a job.
    """
    if sizes < 1 or jobs < 1:
        raise InvalidInput(f"sizes={sizes}, jobs={jobs}: at least 1 of each expected")
    log = trace.workload.take(~np.isnan(trace.workload.wait))
    rows = _middle(log, sizes, jobs)
    if not len(rows):
        raise InvalidInput(f"{trace.source} has no observed wait of a job of {SMALLEST} cores or more to replay")
    queue = QueueHistory.of(log)
    epoch = 0.0 if math.isnan(trace.epoch) else trace.epoch
    everything = np.arange(len(log))
    capacity = trace.cluster.cores if trace.cluster else int(queue.busy(queue.at(queue.start[everything])).max())
    seen = contexts(
        queue,
        queue.submissions(rows),
        log.cores[rows],
        queue.walltime[rows],
        capacity,
        epoch=epoch,
        pending_s=_alike(queue, queue.cores, rows, QueueHistory.oldest),
        alike_queued=_alike(queue, queue.cores, rows, QueueHistory.queued),
        own_queued=_alike(queue, queue.user, rows, QueueHistory.queued),
        own_backlog_s=_alike(queue, queue.user, rows, lambda own, moments: own.backlog(moments) / capacity),
        own_cores=_alike(queue, queue.user, rows, QueueHistory.busy),
        plan=plan,
    )
    return [
        ObservedWait(context.cores, context.at, wait, context)
        for context, wait in zip(seen, log.wait[rows].tolist(), strict=True)
    ]


def contexts(
    queue: QueueHistory,
    moments: Moments,
    cores: Ints,
    walltime: Floats,
    capacity: int,
    *,
    epoch: float,
    plan: bool,
    **own: Sequence[float | None],
) -> list[Context]:
    """What jobs see that are submitted at some moments; each column of shape (k,).

    Parameters
    ----------
    epoch
        Added to all times [s].
    plan
        Whether to plan and keep the whole queue.
    own
        Fields of `Context` about jobs of one's own, or like one's own.
    """
    views = _views(queue, moments, capacity, epoch) if plan else itertools.repeat(None, len(moments.now))
    columns: dict[str, Iterable[Any]] = {
        "at": (epoch + moments.now).tolist(),
        "cores": cores.tolist(),
        "walltime_s": walltime.tolist(),
        **own,
        "backlog_s": (queue.backlog(moments) / capacity).tolist(),
        "queued": queue.queued(moments).tolist(),
        "free_cores": np.maximum(0, capacity - queue.busy(moments)).tolist(),
        "oldest_s": queue.oldest(moments).tolist(),
        "left_s": (queue.left(moments) / capacity).tolist(),
        "queue": views,
    }
    if plan:
        columns["planned_s"] = planned(queue, moments, cores, walltime, capacity).tolist()
    return [Context(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _middle(log: Workload, sizes: int, jobs: int) -> Ints:
    """Rows of the jobs to be predicted."""
    ran = (log.cores >= SMALLEST) & (log.run > 0)
    found, count = np.unique(log.cores[ran], return_counts=True)
    chosen = []
    for size in found[np.argsort(-count, kind="stable")[:sizes]]:
        rows = np.flatnonzero(ran & (log.cores == size))
        first = max(0, len(rows) // 2 - jobs // 2)
        chosen.append(rows[first : first + jobs])
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


def _alike(
    queue: QueueHistory, key: Ints, rows: Ints, see: Callable[[QueueHistory, Moments], Floats | Ints]
) -> list[float | None]:
    """What is seen of the jobs with the same key as the one of each row; None where the key is not known."""
    found: list[float | None] = [None] * len(rows)
    for value in np.unique(key[rows]):
        if value == UNKNOWN:
            continue
        alike = np.flatnonzero(key == value)
        places = np.flatnonzero(key[rows] == value)
        part = queue.take(alike)
        seen = see(part, part.submissions(np.searchsorted(alike, rows[places])))
        for place, each in zip(places.tolist(), seen.tolist(), strict=True):
            found[place] = each
    return found


def _views(queue: QueueHistory, moments: Moments, capacity: int, epoch: float) -> Iterator[QueueView]:
    """The whole queue at each moment, in order of submission; views share their jobs."""
    machine = Resources(cores=capacity)
    waits: dict[int, QueuedJob] = {}
    runs: dict[int, RunningJob] = {}

    def waiting(row: int) -> QueuedJob:
        if row not in waits:
            user = int(queue.user[row])
            waits[row] = QueuedJob(
                row,
                Resources(cores=int(queue.cores[row])),
                float(queue.walltime[row]),
                epoch + float(queue.submit[row]),
                "" if user == UNKNOWN else str(user),
            )
        return waits[row]

    def running(row: int, now: float) -> RunningJob:
        if row not in runs:
            ends = epoch + float(queue.start[row] + queue.walltime[row])
            runs[row] = RunningJob(row, Resources(cores=int(queue.cores[row])), ends)
        job = runs[row]
        return job if job.ends >= now else replace(job, ends=now)  # overdue: expected to end at any moment

    for now, above in zip(moments.now.tolist(), moments.above.tolist(), strict=True):
        yield QueueView(
            epoch + now,
            machine,
            tuple(map(waiting, queue.waiting(now, above).tolist())),
            tuple(running(row, epoch + now) for row in queue.running(now, above).tolist()),
        )
