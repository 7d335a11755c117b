"""A queue in a few numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

from asa.core.context import Context
from asa.core.view import QueueView

if TYPE_CHECKING:  # annotations only: NumPy takes a tenth of a second to import
    from asa.core.table import TableView


@dataclass(frozen=True, slots=True)
class Counters:
    """What sites show of a queue even where they show no jobs: the fields of `asa.core.context.Context` of these names.

    Jobs without a wall time count for nothing where work is summed up. No core is free where more are held than there
    are (a machine that shrank).
    """

    backlog_s: float
    queued: int
    free_cores: int
    oldest_s: float
    left_s: float


def counters(view: QueueView | TableView) -> Counters:
    """The counters of a queue; of a plain view without NumPy.

    Examples
    --------
    Half of four cores run something; one job of two cores wants an hour.

    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob, RunningJob
    >>> waiting, running = QueuedJob("a", Resources(2), 3600.0, 40.0), RunningJob("b", Resources(2), 160.0)
    >>> counters(QueueView(100.0, Resources(4), (waiting,), (running,)))
    Counters(backlog_s=1800.0, queued=1, free_cores=2, oldest_s=60.0, left_s=30.0)
    """
    if not isinstance(view, QueueView):
        return _of_table(view)
    cores, now = view.capacity.cores, view.now
    work = sum(job.resources.cores * job.walltime_s for job in view.queue if math.isfinite(job.walltime_s))
    left = sum(job.resources.cores * max(0.0, job.ends - now) for job in view.running if math.isfinite(job.ends))
    busy = sum(job.resources.cores for job in view.running)
    oldest = now - min((job.submitted for job in view.queue), default=now)
    return Counters(work / cores, len(view.queue), max(0, cores - busy), max(0.0, oldest), left / cores)


def as_seen(view: QueueView | TableView) -> QueueView:
    """What a user sees of a queue, a simulated one included: no starts, no run times; it stays as it is in time."""
    if isinstance(view, QueueView):
        return view
    return QueueView(view.now, view.capacity, view.queue, view.running)


def looked(context: Context, view: QueueView | TableView) -> Context:
    """The context of a job that goes into this queue: with its counters, and the queue itself.

    Whoever keeps it keeps the view: give it a plain one (`as_seen`), for a table changes as soon as time passes.
    """
    return replace(context, **asdict(counters(view)), queue=cast(QueueView, view))


def _of_table(view: TableView) -> Counters:
    import numpy as np

    waiting, running = view.jobs[view.waiting], view.jobs[view.active]
    asked, ends = waiting["walltime"], running["started"] + running["walltime"]
    work = waiting["cores"] @ np.where(np.isfinite(asked), asked, 0.0)
    left = running["cores"] @ np.where(np.isfinite(ends), np.maximum(ends - view.now, 0.0), 0.0)
    cores = view.cluster.cores
    return Counters(
        float(work) / cores,
        len(waiting),
        max(0, cores - int(running["cores"].sum())),
        max(0.0, view.now - float(waiting["submit"].min(initial=view.now))),
        float(left) / cores,
    )
