"""The best placement of neighbours, proven: dynamic programming over the ring's places and what has been placed.

Windows that are too large for that: a bound by prices, and a beam search that the bound guides.

References
----------
A. M. Geoffrion, "Lagrangean relaxation for integer programming", Mathematical Programming Study 2 (1974); B. T. Polyak,
"Minimization of unsmooth functionals", USSR Computational Mathematics 9 (1969): the steps.
The paper's section IV has the same problem as a 0-1 program (`M_SCAS`) and as a constrained shortest path. Here the
path is walked once for every multiset of jobs; jobs of one size are interchangeable. A stretch that goes over the end
of the ring is tried as a first step, where its cost and a bound of the rest promise something.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.instance import Placed, Window, placed
from asa.lab.placement.tjap.native import all_stretches, draw

# -- Beam search ------------------------------------------------------------------------------------------------------

Keys = npt.NDArray[np.uint64]
STEPS, PATIENCE = 300, 10
"""Times that prices are changed; and that they may be in vain, until steps become shorter."""


def beam(cost: Floats, size: Ints, copies: Ints, width: int) -> tuple[Ints, float]:
    """Jobs on neighbours, as rows of sort and first place, and a bound on what any such placement costs.

    No stretch of the placement goes over the end of the ring; the bound holds for those that do, too.

    Parameters
    ----------
    cost
        Of one job of each size on each stretch of the ring, shape (sorts, N).
    size, copies
        The different sizes of jobs, and how many jobs there are of each; shape (sorts,).
    """
    steps = np.zeros((int(copies.sum()), 2), dtype=np.int64)
    prices = cost.min(axis=1)
    search(cost, size, copies, prices, steps, 1)  # a first one: how far prices are stepped depends on what is known
    upper = float(cost[steps[:, 0], steps[:, 1]].sum())
    bound = priced(cost, size, copies, prices, upper)
    better = np.zeros_like(steps)
    search(cost, size, copies, prices, better, width)
    if cost[better[:, 0], better[:, 1]].sum() < upper:
        steps = better
    return steps, bound


@compiled
def priced(cost: Floats, size: Ints, copies: Ints, prices: Floats, upper: float) -> float:
    """The best bound that prices of jobs give; `prices`, shape (sorts,), are what to begin with, and become its.

    How often a size may be placed is not restricted, but each time earns its price: the cheapest such path, and the
    price of all jobs, cost together no more than any placement. Small jobs have room more often than large ones: their
    prices are changed by less.
    """
    sorts, rest, over = len(size), np.zeros(cost.shape[1] + 1), np.zeros(3, np.int64)
    used, turn, best_prices = np.zeros(sorts, np.int64), np.zeros(sorts), prices.copy()
    best, reach, stale = -math.inf, 1.0, 0
    for _ in range(STEPS):
        earned, least = rest_costs(cost, size, copies, prices, rest), over_end(cost, size, prices, rest, over)
        bound = earned + min(rest[0], least)
        stale += 1
        if bound > best:
            best, stale = bound, 0
            best_prices[:] = prices
        elif stale == PATIENCE:
            reach, stale = reach * 0.7, 0
            prices[:] = best_prices
            rest_costs(cost, size, copies, prices, rest)
            least = over_end(cost, size, prices, rest, over)
        used[:] = 0
        if least < rest[0]:
            used[over[0]] = 1
            follow(cost, size, prices, rest, used, over[1], 1)
            follow(cost, size, prices, rest, used, over[2], -1)
        else:
            follow(cost, size, prices, rest, used, 0, 1)
        lacking = norm = 0.0
        for sort in range(sorts):
            lacks = copies[sort] - used[sort]
            turn[sort] = lacks + turn[sort] / 2
            lacking += lacks**2 * size[sort] ** 3
            norm += turn[sort] ** 2 * size[sort] ** 3
        if lacking == 0:
            break  # the cheapest path is a placement: there is no better bound
        step = reach * max(upper - bound, 1e-9 * upper) / max(norm, lacking)  # turns that cancel make no long steps
        for sort in range(sorts):
            prices[sort] += step * turn[sort] * size[sort] ** 3
    prices[:] = best_prices
    return best


@inner
def rest_costs(cost: Floats, size: Ints, copies: Ints, prices: Floats, rest: Floats) -> float:
    """Fill `rest`, shape (N + 1,): the cheapest path from each place to the end; the price of all jobs."""
    nodes, earned = cost.shape[1], 0.0
    rest[nodes] = 0.0
    for start in range(nodes - 1, -1, -1):
        least = rest[start + 1]
        for sort in range(len(size)):
            end = start + size[sort]
            if end <= nodes:
                least = min(least, cost[sort, start] - prices[sort] + rest[end])
        rest[start] = least
    for sort in range(len(size)):
        earned += prices[sort] * copies[sort]
    return earned


@inner
def over_end(cost: Floats, size: Ints, prices: Floats, rest: Floats, over: Ints) -> float:
    """At most what a path costs that has a stretch over the end; `over` is its sort, where it ends and where it begins.

    Between these lie the others; the path that is cheapest from its end on is at most theirs and the one from where it
    begins.
    """
    nodes, least = cost.shape[1], math.inf
    for sort in range(len(size)):
        for head in range(1, size[sort]):
            start = nodes - size[sort] + head
            if start >= head:
                value = cost[sort, start] - prices[sort] + rest[head] - rest[start]
                if value < least:
                    least = value
                    over[0], over[1], over[2] = sort, head, start
    return least


@inner
def follow(cost: Floats, size: Ints, prices: Floats, rest: Floats, used: Ints, start: int, sign: int) -> None:
    """Add `sign` to `used`, shape (sorts,), for each job of the cheapest path from `start` on."""
    nodes = cost.shape[1]
    while start < nodes:
        chosen = -1
        for sort in range(len(size)):
            end = start + size[sort]
            if end <= nodes and cost[sort, start] - prices[sort] + rest[end] == rest[start]:
                chosen = sort
                break
        if chosen < 0:
            start += 1
        else:
            used[chosen] += sign
            start += size[chosen]


@compiled
def search(cost: Floats, size: Ints, copies: Ints, prices: Floats, steps: Ints, width: int) -> None:
    """Fill `steps` with a cheap placement: from place to place, the `width` most promising multisets are kept.

    What is promised of one: its cost less its jobs' prices, and the cheapest path for the rest.
    """
    nodes, sorts = cost.shape[1], len(size)
    rest, keys, state = np.zeros(nodes + 1), np.empty(sorts, np.uint64), np.zeros(1, np.uint64)
    rest_costs(cost, size, copies, prices, rest)
    for sort in range(sorts):  # a multiset is known by the sum of its jobs' keys
        draw(state)
        keys[sort] = state[0] * np.uint64(0x94D049BB133111EB)
    key, spent = np.zeros((nodes + 1, width), np.uint64), np.zeros((nodes + 1, width))
    used, left = np.zeros((nodes + 1, width, sorts), np.int16), np.zeros((nodes + 1, width), np.int64)
    come, how = np.zeros((nodes + 1, width), np.int64), np.full((nodes + 1, width), -1, np.int64)
    count, worst = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    count[0], left[0, 0] = 1, (copies * size).sum()
    for at in range(nodes):
        for one in range(count[at]):
            for sort in range(-1, sorts):
                if sort < 0:
                    end, same, price, fewer = at + 1, key[at, one], spent[at, one], 0
                else:
                    end, same = at + size[sort], key[at, one] + keys[sort]
                    price, fewer = spent[at, one] + cost[sort, at] - prices[sort], size[sort]
                    if used[at, one, sort] == copies[sort]:
                        continue
                if left[at, one] - fewer > nodes - end:
                    continue  # no room for the others
                slot = settle(key[end], spent[end], count, worst, end, same, price)
                if slot >= 0:
                    for each in range(sorts):
                        used[end, slot, each] = used[at, one, each]
                    left[end, slot] = left[at, one] - fewer
                    come[end, slot], how[end, slot] = one, sort
                    if sort >= 0:
                        used[end, slot, sort] += 1
    trace(size, spent, left, come, how, count, steps)


@inner
def settle(key: Keys, spent: Floats, count: Ints, worst: Ints, end: int, same: int, price: float) -> int:
    """Where to keep a partial placement that ends there, among those that do; -1 when it is not worth it.

    Of one multiset only the cheapest is kept; where there is no room, the most expensive goes.
    """
    full = count[end] == len(key)
    if full and price >= spent[worst[end]]:
        return -1
    slot = -1
    for other in range(count[end]):
        if key[other] == same:
            if spent[other] <= price:
                return -1
            slot = other
            break
    if slot < 0 and full:
        slot = worst[end]
    elif slot < 0:
        slot = count[end]
        count[end] += 1
    key[slot], spent[slot] = same, price
    if count[end] == len(key):
        worst[end] = 0
        for other in range(1, count[end]):
            if spent[other] > spent[worst[end]]:
                worst[end] = other
    return slot


@inner
def trace(size: Ints, spent: Floats, left: Ints, come: Ints, how: Ints, count: Ints, steps: Ints) -> None:
    """Fill `steps` with how the cheapest complete placement came about."""
    end, one = len(count) - 1, -1
    for other in range(count[end]):
        if left[end, other] == 0 and (one < 0 or spent[end, other] < spent[end, one]):
            one = other
    row = 0
    while end > 0:
        sort, one = how[end, one], come[end, one]
        end -= 1 if sort < 0 else size[sort]
        if sort >= 0:
            steps[row, 0], steps[row, 1] = sort, end
            row += 1


# -- SCAS -------------------------------------------------------------------------------------------------------------

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

    The other parameters are as in `asa.lab.placement.tjap.scas.beam`.
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
