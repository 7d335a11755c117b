"""Bin packing: the largest jobs first, as long as anything fits."""

from __future__ import annotations

import numpy as np

from asa.core.decision import Start
from asa.core.ports import Placement
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import room_of


class BinPacking:
    """Start the largest job that fits, then the largest that fits beside it, and so on until none does.

    The size of a job is its cores; of equal ones the first in the queue starts. Nothing is reserved, so large jobs may
    starve: that is the point of this baseline.

    Parameters
    ----------
    placement
        Chooses nodes where it matters which; the machine's own method unless given.

    References
    ----------
    Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section IV-A, BinPacking: "it
    iteratively allocates the largest runnable jobs (i.e., job size is less than or equal to the number of available
    nodes in the system) until the system cannot accommodate any further jobs".

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob
    >>> queue = [QueuedJob(name, Resources(cores=cores), 60.0, 0.0) for name, cores in [("A", 1), ("B", 9), ("C", 3)]]
    >>> BinPacking().decide(QueueView(now=0.0, capacity=Resources(cores=4), queue=tuple(queue), running=()))
    [Start(job='C', nodes=()), Start(job='A', nodes=())]
    """

    def __init__(self, placement: Placement | None = None) -> None:
        self._placement = placement

    def decide(self, view: QueueView | TableView) -> list[Start]:
        """What to start now, largest first."""
        room = room_of(view, self._placement)
        places = np.flatnonzero(room.fitting())
        order = places[np.argsort(-room.sizes[places], kind="stable")]
        # One pass will do: the room only shrinks, so what did not fit will not.
        starts: list[Start] = []
        for place, size in zip(order.tolist(), room.sizes[order].tolist(), strict=True):
            if size <= room.free and (start := room.start(place)):
                starts.append(start)
        return starts
