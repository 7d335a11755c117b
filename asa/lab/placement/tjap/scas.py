"""The best placement of neighbours, proven: dynamic programming over the ring's places and what has been placed.

References
----------
The paper's section IV has the same problem as a 0-1 program (`M_SCAS`) and as a constrained shortest path. Here the
path is walked once for every multiset of jobs; jobs of one size are interchangeable. A stretch that goes over the end
of the ring is tried as a first step, where its cost and a bound of the rest promise something.
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.beam import beam
from asa.lab.placement.tjap.instance import Placed, Window, placed
from asa.lab.placement.tjap.native import all_stretches

CELLS = 2**22
"""Largest table of the exact method: places, times multisets of jobs."""


class Scas:
    """Each job on neighbours in the ring of idle nodes (SCAS), at the least cost.

    With a potential, a stretch costs what the idle nodes would lose if its job came alone; what two jobs below the same
    switch lose together is less, so that the best under this measure need not be the best under the true one.

    Parameters
    ----------
    width
        How many partial placements are kept for each place where the exact method would need too much room
        (`CELLS`); a bound tells how far from the best these can be.

    Examples
    --------
    >>> from asa.lab.placement.tjap.instance import grouped
    >>> found = Scas().place(grouped([0, 1, 2, 3, 4, 9], [2, 4], below=[2, 4], hops=[2, 4, 6]))
    >>> [places.tolist() for places in found.places], found.bound
    ([[4, 5], [0, 1, 2, 3]], 8000.0)
    """

    def __init__(self, width: int = 100) -> None:
        if width < 1:
            raise InvalidInput(f"width {width}: at least 1 expected")
        self._width = width

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""
        size, copies = np.unique(window.sizes, return_counts=True)
        cost = np.empty((len(size), len(window.idle)))
        all_stretches(window.tables, size, cost)
        if math.prod(count + 1 for count in copies.tolist()) * (len(window.idle) + 1) > CELLS:
            steps, bound = beam(cost, size, copies, self._width)
            status = "feasible"
        else:
            steps = np.zeros((len(window.sizes), 2), dtype=np.int64)
            bound, status = exact(cost, size, copies, steps), "optimal"
        if any(window.potential):
            return _placed(window, steps, size, "feasible", None)
        return _placed(window, steps, size, status, bound)


def _placed(window: Window, steps: Ints, size: Ints, status: str, bound: float | None) -> Placed:
    """A placement from rows of sort and first place; the jobs of a sort in their order."""
    owner = np.full(len(window.idle), -1, dtype=np.int64)
    jobs = {sort: iter(np.flatnonzero(window.sizes == each)) for sort, each in enumerate(size.tolist())}
    for sort, start in steps.tolist():
        owner[(start + np.arange(size[sort])) % len(owner)] = next(jobs[sort])
    return placed(owner, len(window.sizes), status, bound)


@compiled
def exact(cost: Floats, size: Ints, copies: Ints, steps: Ints) -> float:
    """The least cost of jobs on neighbours; `steps`, shape (J, 2), is filled with sorts and first places.

    The other parameters are as in `asa.lab.placement.tjap.beam.beam`.
    """
    sorts, nodes = cost.shape
    stride, states, longest = np.empty(sorts, np.int64), 1, 0
    for sort in range(sorts):
        stride[sort] = states
        states *= copies[sort] + 1
        longest = max(longest, size[sort])
    best = np.empty((nodes + 1, states))
    walk(cost, size, copies, stride, best, 0)
    top, head, over = best[nodes, states - 1], 0, -1
    some = np.empty((0, 0))
    for first in range(1, longest):  # places at the beginning that a stretch over the end takes
        tried = False
        for sort in range(sorts):
            end = nodes - size[sort] + first
            if size[sort] <= first or end < first:
                continue
            rest = states - 1 - stride[sort]
            if cost[sort, end] + best[end, rest] >= top:
                continue  # without the head it would be no better
            if not tried:
                some = some if len(some) else np.empty((nodes + 1, states))
                walk(cost, size, copies, stride, some, first)
                tried = True
            if cost[sort, end] + some[end, rest] < top:
                top, head, over = cost[sort, end] + some[end, rest], first, sort
    end, state, count = nodes, states - 1, 0
    if over >= 0:
        walk(cost, size, copies, stride, best, head)
        end = nodes - size[over] + head
        state -= stride[over]
        steps[0, 0], steps[0, 1] = over, end
        count = 1
    while state > 0:
        if end > head and best[end - 1, state] == best[end, state]:
            end -= 1
            continue
        for sort in range(sorts):
            start = end - size[sort]
            if start < head or state // stride[sort] % (copies[sort] + 1) == 0:
                continue
            if best[start, state - stride[sort]] + cost[sort, start] == best[end, state]:
                steps[count, 0], steps[count, 1] = sort, start
                count += 1
                end, state = start, state - stride[sort]
                break
    return float(top)


@inner
def walk(cost: Floats, size: Ints, copies: Ints, stride: Ints, best: Floats, begin: int) -> None:
    """Least cost of every multiset of jobs on the places from `begin` up to each end; `best` is filled from there."""
    states = best.shape[1]
    for state in range(states):
        best[begin, state] = math.inf
    best[begin, 0] = 0.0
    for end in range(begin + 1, len(best)):
        for state in range(states):
            best[end, state] = best[end - 1, state]
        for sort in range(len(size)):
            start = end - size[sort]
            if start < begin:
                continue
            step, base, price = stride[sort], copies[sort] + 1, cost[sort, start]
            for block in range(0, states, step * base):
                for state in range(block + step, block + step * base):
                    value = best[start, state - step] + price
                    if value < best[end, state]:
                        best[end, state] = value
