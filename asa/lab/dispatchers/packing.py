"""Dispatchers that start a set of jobs that fit now and reserve nothing: bin packing, knapsack, random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.decision import Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.ports import Placement
from asa.core.view import QueueView
from asa.lab.core.compiled import compiled
from asa.lab.core.objective import OBJECTIVES, Objective, Waiting
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import FreeResources, columns, room_of

# -- Bin packing ------------------------------------------------------------------------------------------------------


class BinPacking:
    """Start the largest job that fits, then the largest that fits beside it, and so on until none does.

    The size of a job is its cores; of equal ones the first in the queue starts. Nothing is reserved, so large jobs may
    starve: that is the point of this baseline.

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
    [Start(job='C', nodes=(), preempts=()), Start(job='A', nodes=(), preempts=())]
    """

    def __init__(self, placement: Placement | None = None) -> None:
        self._placement = placement

    def decide(self, view: QueueView | TableView) -> list[Start]:
        room = room_of(view, self._placement)
        places = np.flatnonzero(room.fitting())
        return in_turn(room, places[np.argsort(-room.sizes[places], kind="stable")])


def in_turn(room: FreeResources, order: Ints) -> list[Start]:
    """Start the jobs at these places as far as they fit. One pass will do: the room only shrinks."""
    starts: list[Start] = []
    for place, size in zip(order.tolist(), room.sizes[order].tolist(), strict=True):
        if size <= room.free and (start := room.start(place)):
            starts.append(start)
    return starts


# -- Knapsack ---------------------------------------------------------------------------------------------------------


class Knapsack:
    """Of the first jobs in the queue, start the set that is worth most for an objective.

    Items are the jobs of a window at the head of the queue that fit, each on its own. Their weights are their sizes,
    and the sack is what is free. Memory, GPUs and nodes are no part of it: jobs of the best set that do not fit for
    want of these are passed over, in the queue's order, and the rest of the window is solved again until nothing fits.

    Parameters
    ----------
    objective
        ``"capability"`` or ``"capacity"``, or an `Objective`; of it the gains are maximised.

    References
    ----------
    Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section IV-A, Optimization: "formulated
    as a 0-1 knapsack problem which is solved using dynamic programming", with the objectives of DRAS itself. The paper
    does not say what window it looks at; ours is that of DRAS (Table III).

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob
    >>> queue = [QueuedJob(name, Resources(cores=cores), 60.0, 0.0) for name, cores in [("A", 1), ("B", 2), ("C", 3)]]
    >>> view = QueueView(now=9.0, capacity=Resources(cores=5), queue=tuple(queue), running=())
    >>> Knapsack().decide(view)
    [Start(job='B', nodes=(), preempts=()), Start(job='C', nodes=(), preempts=())]
    >>> Knapsack("capacity").decide(view)
    [Start(job='A', nodes=(), preempts=()), Start(job='B', nodes=(), preempts=())]
    """

    def __init__(
        self, objective: str | Objective = "capability", window: int = 50, placement: Placement | None = None
    ) -> None:
        if isinstance(objective, str):
            if objective not in OBJECTIVES:
                raise UnknownName("objective", objective, OBJECTIVES)
            objective = OBJECTIVES[objective]()
        if window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {window}")
        self._objective, self._window, self._placement = objective, window, placement

    def decide(self, view: QueueView | TableView) -> list[Start]:
        room = room_of(view, self._placement)
        submit, estimate, _ = columns(view)
        queue = Waiting(np.maximum(0.0, view.now - submit), estimate, room.sizes, room.total - room.free, room.total)
        gains = self._objective.gains(queue)
        places = np.arange(min(self._window, len(gains)))
        starts: list[Start] = []
        while len(places := places[room.fitting()[places]]):
            chosen = best_set(gains[places], room.sizes[places], room.free)
            if not chosen.any():
                break
            starts += [start for place in places[chosen].tolist() if (start := room.start(place))]
            places = places[~chosen]
        return starts


def best_set(values: npt.ArrayLike, sizes: npt.ArrayLike, room: int) -> npt.NDArray[np.bool_]:
    """Which items, of those that fit into `room` together, have the largest sum of values; shape (n,).

    Values are at least 0, sizes whole numbers of at least 1.

    Of equally good sets, the one that takes the earliest items. Takes time and memory in proportion to n and `room`.

    Examples
    --------
    >>> best_set([6.0, 5.0, 5.0], [4, 3, 3], room=6)
    array([False,  True,  True])
    """
    values, sizes = np.asarray(values, dtype=np.float64), np.asarray(sizes, dtype=np.int64)
    if sizes.sum() <= room:
        return values >= 0
    step = int(np.gcd.reduce(sizes))
    taken: npt.NDArray[np.bool_] = solve(values, sizes // step, room // step)
    return taken


@compiled
def solve(values: Floats, sizes: Ints, room: int) -> npt.NDArray[np.bool_]:
    """0-1 knapsack by dynamic programming over the room, from the last item to the first."""
    best = np.zeros(room + 1)  # of the items seen so far, in this much room
    take = np.zeros((len(values), room + 1), np.bool_)
    for item in range(len(values) - 1, -1, -1):
        for space in range(room, sizes[item] - 1, -1):
            value = values[item] + best[space - sizes[item]]
            if value >= best[space]:
                best[space] = value
                take[item, space] = True
    taken = np.zeros(len(values), np.bool_)
    for item in range(len(values)):
        if take[item, room]:
            taken[item] = True
            room -= sizes[item]
    return taken


# -- Random -----------------------------------------------------------------------------------------------------------


class Random:
    """Start jobs drawn at random, each with the same chance among those that fit, until none does.

    Unlike other dispatchers it has a memory: the state of its generator. The same seed makes the same choices in the
    same queues.

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
        # A job that does not fit will not fit later, so going through all jobs in random order is drawing among those
        # that fit.
        return in_turn(room, self._draw.permutation(np.flatnonzero(room.fitting())))
