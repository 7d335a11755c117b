"""Random: any job that fits, as long as one does."""

from __future__ import annotations

import numpy as np

from asa.core.decision import Start
from asa.core.ports import Placement
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import room_of


class Random:
    """Start jobs drawn at random, each with the same chance among those that fit, until none does.

    Unlike other dispatchers it has a memory: the state of its generator. The same seed makes the same choices in the
    same queues.

    Parameters
    ----------
    seed
        Of the generator, which is this dispatcher's own.
    placement
        Chooses nodes where it matters which; the machine's own method unless given.

    References
    ----------
    Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section IV-A, Random: "randomly selects
    runnable jobs from the queue to execute until no more jobs in the queue can fit into the system".
    """

    def __init__(self, seed: int = 0, placement: Placement | None = None) -> None:
        self._draw, self._placement = np.random.default_rng(seed), placement

    def decide(self, view: QueueView | TableView) -> list[Start]:
        """What to start now, in the order of the draws."""
        room = room_of(view, self._placement)
        places = np.flatnonzero(room.fitting())
        # A job that does not fit will not fit later, so going through all jobs in random order is drawing among those
        # that fit.
        order = self._draw.permutation(places)
        starts: list[Start] = []
        for place, size in zip(order.tolist(), room.sizes[order].tolist(), strict=True):
            if size <= room.free and (start := room.start(place)):
                starts.append(start)
        return starts
