"""Node selection: first fit, best fit and contiguous, compiled for the simulator and callable from Python.

Nodes are numbered along the machine, so that neighbours in number are neighbours in the rack. What is chosen comes back
as *runs*: neighbouring nodes that give equally many units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.decision import NodeRun
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner, inner_allocating, ranking

# -- Compiled methods -------------------------------------------------------------------------------------------------

FIRST_FIT, BEST_FIT, CONTIGUOUS = range(3)
BLOCK = 64
"""Nodes that share an entry of `blocks`."""
MOST = 2**40
"""More units than any job has: what a node can hold when the job needs nothing of it."""


@compiled
def place(method: int, free: Ints, need: Ints, units: int, per_node: int, blocks: Ints, runs: Ints) -> int:
    """Choose nodes for a job; nothing but `runs` is changed.

    Parameters
    ----------
    free
        What the nodes have left, shape (nodes, resources); what is negative counts as nothing.
    need
        What one unit takes, shape (resources,); a resource with 0 is not counted.
    units
        How many units the job has; >= 1.
    per_node
        Most of them that may share a node; 0 for no limit.
    blocks
        How many of the nodes 64 b .. 64 b + 63 have some of the first resource left, for every b. Those where none has
        are passed over, unless the job needs none of it either.
    runs
        Room for the answer, shape (rows, 3): first node, last node, units on each; in order of the nodes.

    Returns
    -------
    How many rows were filled; 0 when the job does not fit; -1 when there are too few rows, whether it fits or not.
    """
    if method == BEST_FIT:
        return best_fit(free, need, units, per_node, blocks, runs)
    if method == CONTIGUOUS:
        return contiguous(free, need, units, per_node, blocks, runs)
    return first_fit(free, need, units, per_node, blocks, runs)


@inner
def place_within(
    method: int, free: Ints, need: Ints, units: int, per_node: int, most: int, blocks: Ints, runs: Ints
) -> int:
    """As `place`, on at most `most` nodes; 0 for no limit.

    Where the method would take more, it has to do with what `keep_fullest` leaves of `free`.
    """
    rows = place(method, free, need, units, per_node, blocks, runs)
    if most <= 0 or rows <= 0:
        return rows
    nodes = 0
    for row in range(rows):
        nodes += runs[row, 1] - runs[row, 0] + 1
    if nodes <= most:
        return rows
    keep_fullest(free, need, per_node, most)
    return place(method, free, need, units, per_node, blocks, runs)


@compiled
def close(room: Ints, windows: Floats, start: float, walltime: float, user: int) -> None:
    """Leave nothing of the nodes that `TableView.windows` keep from a job of this user that starts then, with this wall
    time [s]; NaN: none was asked for."""
    end = np.inf if walltime != walltime else max(start + walltime, np.nextafter(start, np.inf))
    for w in range(len(windows)):
        if windows[w, 0] >= end:
            break
        if windows[w, 1] > start and windows[w, 3 + len(room) + user] == 0:
            for node in range(len(room)):
                if windows[w, 2 + node] == 1:
                    for k in range(room.shape[1]):
                        room[node, k] = 0


@compiled
def keep_fullest(free: Ints, need: Ints, per_node: int, most: int) -> None:
    """Leave nothing on any but the `most` nodes that can be given most units, of equal ones those of lowest numbers."""
    given = np.empty(len(free))
    for node in range(len(free)):
        given[node] = -capped(held(free, node, need), per_node)
    order = ranking(given)
    for turn in range(most, len(order)):
        for k in range(free.shape[1]):
            free[order[turn], k] = 0


@inner
def first_fit(free: Ints, need: Ints, units: int, per_node: int, blocks: Ints, runs: Ints) -> int:
    """As many units as fit on each node, lowest numbers first; see `place`."""
    left, rows = units, 0
    for block in range(len(blocks)):
        if blocks[block] == 0 and need[0] > 0:
            continue
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(free))):
            given = min(left, capped(held(free, node, need), per_node))
            if given > 0:
                rows = add(runs, rows, node, given)
                left -= given
                if left == 0 or rows < 0:
                    return rows
    return 0


@inner_allocating
def best_fit(free: Ints, need: Ints, units: int, per_node: int, blocks: Ints, runs: Ints) -> int:
    """As many units as fit on each node, those that can hold fewest first, then lowest numbers; see `place`."""
    holds = all_held(free, need, blocks)
    low, high = 1, max(1, holds.max())
    if below(holds, high, units, per_node) < units:
        return 0
    while low < high:  # the fullest nodes that it takes: all that hold fewer units than `low`, some that hold as many
        middle = low + (high - low) // 2
        if below(holds, middle, units, per_node) >= units:
            high = middle
        else:
            low = middle + 1
    left = units - below(holds, low - 1, units, per_node)
    rows = 0
    for node in range(len(holds)):
        given = capped(holds[node], per_node)
        if holds[node] == low:
            given = min(given, left)
            left -= given
        if given > 0 and holds[node] <= low:
            rows = add(runs, rows, node, given)
            if rows < 0:
                return rows
    return rows


@inner_allocating
def contiguous(free: Ints, need: Ints, units: int, per_node: int, blocks: Ints, runs: Ints) -> int:
    """The stretch of nodes that fits most tightly; if there is none, the largest, and so on for the rest; see `place`.

    A stretch is as many neighbours as there are with room for a unit each; it is filled from its first node on.
    """
    holds = all_held(free, need, blocks)
    first, size = stretches(holds, per_node)
    if size.sum() < units:
        return 0
    order = ranking(-size.astype(np.float64))  # stable: lowest numbers first among equals
    given = np.zeros(len(holds), np.int64)
    left = units
    for turn in range(len(order)):
        chosen = order[turn]
        if size[chosen] >= left:
            for later in range(turn + 1, len(order)):
                if left <= size[order[later]] < size[chosen]:
                    chosen = order[later]
        node = first[chosen]
        while left > 0 and node < len(holds) and holds[node] > 0:
            given[node] = min(left, capped(holds[node], per_node))
            left -= given[node]
            node += 1
        if left == 0:
            break
    rows = 0
    for node in range(len(given)):
        if given[node] > 0:
            rows = add(runs, rows, node, given[node])
            if rows < 0:
                return rows
    return rows


@inner
def held(free: Ints, node: int, need: Ints) -> int:
    """How many units a node can hold."""
    units = MOST
    for k in range(len(need)):
        if need[k] > 0:
            if free[node, k] < need[k]:
                return 0
            units = min(units, free[node, k] // need[k])
    return units


@inner_allocating
def all_held(free: Ints, need: Ints, blocks: Ints) -> Ints:
    """How many units each node can hold, shape (nodes,)."""
    holds = np.zeros(len(free), np.int64)
    for block in range(len(blocks)):
        if blocks[block] > 0 or need[0] == 0:
            for node in range(block * BLOCK, min((block + 1) * BLOCK, len(free))):
                holds[node] = held(free, node, need)
    return holds


@compiled
def most_units(free: Ints, need: Ints, per_node: int) -> int:
    """How many units all nodes can hold; a job of more of them does not fit, whatever the method."""
    units = 0
    for node in range(len(free)):
        units += capped(held(free, node, need), per_node)
    return units


@inner
def capped(holds: int, per_node: int) -> int:
    """How many units a node may be given, of those that it can hold."""
    return min(holds, per_node) if per_node > 0 else holds


@inner
def below(holds: Ints, level: int, units: int, per_node: int) -> int:
    """How many of `units` go on the nodes that can hold at most `level`."""
    found = 0
    for node in range(len(holds)):
        if holds[node] <= level:
            found += min(units - found, capped(holds[node], per_node))
    return found


@inner_allocating
def stretches(holds: Ints, per_node: int) -> tuple[Ints, Ints]:
    """First node of each stretch, and how many units it can be given; shapes (stretches,)."""
    first = np.empty((len(holds) + 1) // 2, np.int64)
    size = np.zeros(len(first), np.int64)
    count = 0
    for node in range(len(holds)):
        if holds[node] > 0:
            if node == 0 or holds[node - 1] == 0:
                first[count] = node
                count += 1
            size[count - 1] += capped(holds[node], per_node)
    return first[:count], size[:count]


@inner
def add(runs: Ints, rows: int, node: int, units: int) -> int:
    """Add a node to the runs; how many there are then, or -1 when there is no room for another."""
    if rows > 0 and runs[rows - 1, 1] == node - 1 and runs[rows - 1, 2] == units:
        runs[rows - 1, 1] = node
        return rows
    if rows == len(runs):
        return -1
    runs[rows, 0] = node
    runs[rows, 1] = node
    runs[rows, 2] = units
    return rows + 1


# -- Runs of nodes ----------------------------------------------------------------------------------------------------


def choose(method: int, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
    """Nodes for `units` units, by a method of `asa.lab.placement.nodes`; () when there is no room.

    Raises
    ------
    InvalidInput
        When the shapes do not fit together, or there is no unit to place.
    """
    free = np.ascontiguousarray(free, dtype=np.int64)
    need = np.ascontiguousarray(need, dtype=np.int64)
    if free.ndim != 2 or need.shape != free.shape[1:] or not free.size:
        raise InvalidInput(
            f"free amounts of shape {free.shape} and needs of shape {need.shape} do not go together: "
            "expected (nodes, resources) and (resources,)"
        )
    if units < 1 or per_node < 0:
        raise InvalidInput(f"no such job: {units} units, at most {per_node} per node; expected >= 1 and >= 0")
    blocks = np.ones(-(-len(free) // BLOCK), dtype=np.int64)  # counting them would take as long as it saves
    runs = np.empty((min(len(free), units), 3), dtype=np.int64)
    rows = place(method, free, need, units, per_node, blocks, runs)
    return tuple(NodeRun(*run) for run in runs[:rows].tolist())


Choose = Callable[[Ints, Ints, int, int], Sequence[NodeRun]]
"""Chooses nodes by what they have left, what a unit needs, how many units there are, and how many may share a node."""


def choose_within(choose: Choose, free: Ints, need: Ints, units: int, per_node: int, most: int) -> tuple[NodeRun, ...]:
    """Nodes by whatever method, at most `most` of them (0: no limit); see `place_within`."""
    runs = tuple(choose(free, need, units, per_node))
    if most and sum(run.last - run.first + 1 for run in runs) > most:
        fullest = np.array(free)
        keep_fullest(fullest, need, per_node, most)
        runs = tuple(choose(fullest, need, units, per_node))
    return runs


def amounts(runs: Sequence[NodeRun], nodes: int) -> Ints:
    """Units on each node, shape (nodes,).

    >>> amounts((NodeRun(0, 1, 4), NodeRun(3, 3, 2)), nodes=5)
    array([4, 4, 0, 2, 0])
    """
    first, last, units = np.fromiter(chain.from_iterable(runs), dtype=np.int64).reshape(-1, 3).T
    change = np.zeros(nodes + 1, dtype=np.int64)
    np.add.at(change, first, units)
    np.subtract.at(change, last + 1, units)
    return change.cumsum()[:nodes]


# -- First fit --------------------------------------------------------------------------------------------------------


class FirstFit:
    """Fill nodes in order of their numbers.

    `native` is the method's number in `asa.lab.placement.nodes`, for the compiled machine.

    Examples
    --------
    Four nodes with 1, 4, 0 and 2 cores left, and a job of four single cores:

    >>> FirstFit().choose([[1], [4], [0], [2]], need=[1], units=4, per_node=0)
    (NodeRun(first=0, last=0, units=1), NodeRun(first=1, last=1, units=3))
    """

    native = FIRST_FIT

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        return choose(self.native, free, need, units, per_node)


# -- Best fit ---------------------------------------------------------------------------------------------------------


class BestFit:
    """Fill the nodes that can hold fewest units of this job first, and of equal ones those with the lowest numbers.

    For a job of one unit this is the best fit of bin packing: the node that would be left with least. For more units
    it stays a greedy rule, which keeps empty nodes empty but may spread a job further than need be. What a node can
    hold is counted without the job's own limit of units per node.

    References
    ----------
    As a placement for batch jobs: C. Galleguillos, Z. Kiziltan, A. Netti and R. Soto, "AccaSim: a customizable workload
    management simulator for job dispatching research in HPC systems", Cluster Computing 23 (2020), whose best fit
    sorts nodes by load. Several resources count here by the scarcest, which needs no weights.

    Examples
    --------
    Four nodes with 1, 4, 0 and 2 cores left, and a job of four single cores:

    >>> BestFit().choose([[1], [4], [0], [2]], need=[1], units=4, per_node=0)
    (NodeRun(first=0, last=1, units=1), NodeRun(first=3, last=3, units=2))
    """

    native = BEST_FIT

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        return choose(self.native, free, need, units, per_node)


# -- Contiguous -------------------------------------------------------------------------------------------------------


class Contiguous:
    """Place a job on neighbours if that can be done, else on as few stretches of neighbours as possible.

    A *stretch* is as many nodes in a row as have room for a unit each. Of the stretches that hold the whole job, the
    one that holds fewest units is taken (the lowest numbers among equals), and filled from its first node on. If none
    holds the job, the largest is used up, and the rest of the job is placed in the same way. So this is a preference: a
    job that first fit can place is always placed.

    References
    ----------
    Slurm's select/linear plugin, which chooses nodes "so as to minimize the number of sets of consecutive nodes using a
    best-fit algorithm" (head of select_linear.c). It gives out whole nodes; here nodes may be shared.

    Examples
    --------
    Five nodes with 2, 2, 0, 1 and 2 cores left. Three cores fit on the last two; five do not fit on neighbours.

    >>> Contiguous().choose([[2], [2], [0], [1], [2]], need=[1], units=3, per_node=0)
    (NodeRun(first=3, last=3, units=1), NodeRun(first=4, last=4, units=2))
    >>> Contiguous().choose([[2], [2], [0], [1], [2]], need=[1], units=5, per_node=0)
    (NodeRun(first=0, last=1, units=2), NodeRun(first=3, last=3, units=1))
    """

    native = CONTIGUOUS

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        return choose(self.native, free, need, units, per_node)
