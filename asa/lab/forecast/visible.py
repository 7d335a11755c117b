"""A queue as columns, from what any user can see of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.decision import JobKey
from asa.core.units import DAY
from asa.core.view import QueueView
from asa.lab.core.table import TableView

SHORTEST_S = 1.0
"""A running job whose wall time is over is expected to be gone after so long [s]."""


@dataclass(frozen=True, eq=False, slots=True)
class Visible:
    """Jobs of a queue at one moment; only their cores count.

    Parameters
    ----------
    now
        Time of the look [s].
    cores
        Cores of the machine.
    running
        Keys of the running jobs.
    running_cores, left_s
        Their cores, and the time that is left of their wall times [s], above 0; shape (r,).
    started
        When they started [s], NaN where the view does not tell; shape (r,).
    waiting
        Keys of the waiting jobs, in order of priority.
    waiting_cores, walltime_s, submitted
        Their cores, wall times [s] and times of submission [s], shape (w,).
    """

    now: float
    cores: int
    running: tuple[JobKey, ...]
    running_cores: Ints
    left_s: Floats
    started: Floats
    waiting: tuple[JobKey, ...]
    waiting_cores: Ints
    walltime_s: Floats
    submitted: Floats


def visible(view: QueueView | TableView) -> Visible:
    """The columns of a view.

    A wall time that is not known is taken to be the longest one in the view, or a day. Memory, GPUs and nodes are not
    looked at: a user does not see which nodes a job could have.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob
    >>> seen = visible(QueueView(0.0, Resources(4), (QueuedJob("a", Resources(2), 60.0, 0.0),), ()))
    >>> seen.waiting, seen.waiting_cores.tolist(), seen.walltime_s.tolist()
    (('a',), [2], [60.0])
    """
    if isinstance(view, QueueView):
        running = tuple(job.key for job in view.running)
        running_cores = np.array([job.resources.cores for job in view.running], dtype=np.int64)
        ends, started = np.array([job.ends for job in view.running]), np.full(len(running), np.nan)
        waiting = tuple(job.key for job in view.queue)
        waiting_cores = np.array([job.resources.cores for job in view.queue], dtype=np.int64)
        walltime = np.array([job.walltime_s for job in view.queue])
        submitted = np.array([job.submitted for job in view.queue])
    else:
        running, waiting = tuple(view.active.tolist()), tuple(view.waiting.tolist())
        runs, waits = view.jobs[view.active], view.jobs[view.waiting]
        running_cores, waiting_cores = runs["cores"].copy(), waits["cores"].copy()
        ends, started = runs["started"] + runs["walltime"], runs["started"].copy()
        walltime, submitted = waits["walltime"].copy(), waits["submit"].copy()
    left = np.maximum(ends - view.now, SHORTEST_S)
    longest = max([0.0, *walltime[np.isfinite(walltime)], *left[np.isfinite(left)]]) or DAY
    return Visible(
        float(view.now),
        view.capacity.cores,
        running,
        running_cores,
        np.where(np.isfinite(left), left, longest),
        started,
        waiting,
        waiting_cores,
        np.where(np.isfinite(walltime), walltime, longest),
        submitted,
    )
