"""A queue as learned dispatchers see it: columns of waiting jobs, and a machine of equal nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.decision import JobKey
from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import columns, room_of


@dataclass(frozen=True, eq=False)
class Queue:
    """Waiting jobs in order of priority, and what runs. Sizes are nodes, or the units that all jobs of a machine share.

    Parameters
    ----------
    now
        Time of the decision [s].
    keys
        Names of the waiting jobs, q of them.
    size
        What they ask for, shape (q,); >= 1.
    estimate, wait
        Their expected run times and the times since they were submitted [s], shape (q,); >= 0.
    priority
        From 0 (low) to 1 (high), shape (q,).
    free, total
        What is free, and what there is.
    ends, held
        When the running jobs are expected to end [s], not before `now`, and what each holds; shape (r,).
    """

    now: float
    keys: Sequence[JobKey]
    size: Ints
    estimate: Floats
    wait: Floats
    priority: Floats
    free: int
    total: int
    ends: Floats
    held: Ints


def queue_of(view: QueueView | TableView) -> Queue:
    """The queue of a view.

    Deviation: a trace has no priorities of two levels; quality of service, a share in [0, 1], stands for them, and 0
    where nobody tells.

    Raises
    ------
    InvalidInput
        When it depends on the nodes whether a job fits, jobs ask for more than cores, or it is not known how long one
        will run.
    """
    submit, estimate, _ = columns(view)
    if isinstance(view, TableView):
        if view.slots < 0:
            raise InvalidInput(
                "learned dispatchers need a machine of equal nodes, and jobs that share one kind of unit"
            )
        priority = np.asarray(view.column("qos"), np.float64)
        keys: Sequence[JobKey] = view.waiting.tolist()
        ends, held = view.ends, np.asarray(view.jobs["units"][view.active], np.int64)
    else:
        if any(job.resources.memory or job.resources.gpus for job in view.queue):
            raise InvalidInput("learned dispatchers know of cores only, and jobs of this queue ask for memory or GPUs")
        priority, keys = np.zeros(len(view.queue)), [job.key for job in view.queue]
        ends = np.maximum([job.ends for job in view.running], view.now)
        held = np.array([job.resources.cores for job in view.running], dtype=np.int64)
    unknown = ~np.isfinite(estimate)
    if unknown.any():
        raise InvalidInput(f"job {keys[int(unknown.argmax())]} has no wall time: learned dispatchers plan with it")
    room = room_of(view)
    wait = np.maximum(0.0, view.now - submit)
    return Queue(view.now, keys, room.sizes, estimate, wait, priority, room.free, room.total, ends, held)
