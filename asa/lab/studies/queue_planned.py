"""What a batch system would say of a job's start: a plan of the whole queue by wall times."""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.table import JOB
from asa.lab.dispatchers.scan import scan
from asa.lab.studies.queue_seen import Moments, QueueLog

LOOKED_AT = 1000
"""Waiting jobs that are planned for, from the front of the queue."""


def planned(queue: QueueLog, moments: Moments, cores: Ints, walltime: Floats, capacity: int) -> Floats:
    """The waits that jobs would be promised, shape (k,) [s]: first come, first served, each job where it fits first.

    As ``sbatch --test-only`` does it, but for priorities, of which logs tell nothing. A job that is larger than the
    machine is told the time until all work of the waiting and running jobs is done.

    Parameters
    ----------
    queue
        Whose jobs are in the plan, those that run until their wall times.
    moments
        When each job is submitted.
    cores, walltime
        Of each job, shape (k,); [s].
    capacity
        Cores of the machine.

    Examples
    --------
    All four cores are taken until 100 s, and promised to a job that waits from then until 160 s: at 30 s, any other job
    is 130 s from its start.

    >>> queue = QueueLog(*map(np.array, ([0.0, 10.0], [0.0, 80.0], [80.0, 99.0], [4, 4], [100.0, 60.0], [1, 1])))
    >>> planned(queue, queue.at(np.array([30.0])), np.array([1]), np.array([50.0]), 4)
    array([130.])
    """
    jobs = np.zeros(len(queue) + 1, dtype=JOB)
    jobs["units"][:-1], jobs["estimate"][:-1] = queue.cores, queue.walltime
    own = len(queue)
    found = np.empty(len(moments.now))
    for place, (now, above) in enumerate(zip(moments.now.tolist(), moments.above.tolist(), strict=True)):
        jobs["units"][own], jobs["estimate"][own] = cores[place], walltime[place]
        ahead, active = queue.waiting(now, above), queue.running(now, above)
        waiting = np.append(ahead[: LOOKED_AT - 1], own)
        ends = np.maximum(queue.start[active] + queue.walltime[active], now)
        free = capacity - int(queue.cores[active].sum())
        starts, promised = np.empty(len(waiting), np.int64), np.empty(len(waiting))
        count = scan(now, math.inf, len(waiting), free, capacity, jobs, waiting, active, ends, starts, promised, True)
        if (starts[:count] == len(waiting) - 1).any():
            found[place] = 0.0
        elif math.isnan(promised[-1]):
            work = queue.cores[ahead] @ queue.walltime[ahead] + queue.cores[active] @ np.maximum(0.0, ends - now)
            found[place] = float(work) / capacity
        else:
            found[place] = promised[-1] - now
    return found
