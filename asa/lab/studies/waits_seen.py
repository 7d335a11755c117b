"""Waits that a log observed, each with what could be seen of the queue when the job was submitted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.studies.queue_planned import planned
from asa.lab.studies.queue_seen import Moments, QueueLog
from asa.lab.traces.load import FORMATS, Trace, contents, load_trace

SMALLEST = 4
"""Jobs of fewer cores are passed over: they start in gaps whatever the queue is."""


class Record(NamedTuple):
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

    The latter were part of the queue, though nobody learns a wait from them.

    Raises
    ------
    InvalidInput
        When the file is missing, broken, or of no known format.
    """
    if FORMATS["swf"].begins.match(contents(path).lstrip()):
        return load_trace(path, "swf", processors="allocated", cancelled=True)
    return load_trace(path)


def records(trace: Trace, sizes: int = 3, jobs: int = 2000, plan: bool = True) -> list[Record]:
    """Jobs of a log's most frequent sizes, in order of submission.

    The contexts are what the log itself shows at each submission, from all of its jobs: those submitted before,
    whatever has started or ended by then, requested times but never the run time of a job that still runs. One's own
    geometry is the number of cores, of whichever user.

    Parameters
    ----------
    trace
        A log with observed waits, as `load_log` reads it.
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
    queue = QueueLog.of(log)
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
        pending_s=_alike(queue, queue.cores, rows, QueueLog.oldest),
        alike_queued=_alike(queue, queue.cores, rows, QueueLog.queued),
        own_queued=_alike(queue, queue.user, rows, QueueLog.queued),
        own_backlog_s=_alike(queue, queue.user, rows, lambda own, moments: own.backlog(moments) / capacity),
        own_cores=_alike(queue, queue.user, rows, QueueLog.busy),
        plan=plan,
    )
    return [
        Record(context.cores, context.at, wait, context)
        for context, wait in zip(seen, log.wait[rows].tolist(), strict=True)
    ]


def contexts(
    queue: QueueLog,
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
    queue
        The queue they see.
    cores, walltime
        Their size and wall time [s].
    capacity
        Cores of the machine.
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
    queue: QueueLog, key: Ints, rows: Ints, see: Callable[[QueueLog, Moments], Floats | Ints]
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


def _views(queue: QueueLog, moments: Moments, capacity: int, epoch: float) -> Iterator[QueueView]:
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
