"""Any idle nodes, neighbours or not: take some jobs out, and put each back where it costs least."""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.bounds import CLOSE_PRICES, priced_nodes
from asa.lab.placement.tjap.instance import Placed, Tables, Window, cost, placed
from asa.lab.placement.tjap.native import (
    Random,
    Tree,
    accepts,
    add_potential,
    below,
    cheapest,
    draw,
    hops,
    some_jobs,
    sort_front,
    temperature,
    tree_of,
)
from asa.lab.placement.tjap.scas import Scas

HOT, COLD = 0.02, 0.001
"""Temperature at the beginning and at the end, as shares of a job's mean cost."""
SHAKE = 0.05
"""Largest random price of a node, as a share of what a node costs in the mean; a thousandth of it only breaks ties."""


class Free:
    """Ruin and recreate over all placements; a job that is put back goes where it costs least, which is proven.

    It begins with neighbours (`Scas`), so that it is never worse than these. Prices of nodes lead away from what other
    jobs want: those of the bound, or random ones. It stops as soon as the bound is reached.

    References
    ----------
    G. Schrimpf, J. Schneider, H. Stamm-Wilbrandt and G. Dueck, "Record breaking optimization results using the ruin and
    recreate principle", Journal of Computational Physics 159 (2000).

    Examples
    --------
    Two jobs of two nodes: neighbours would cost more.

    >>> from asa.lab.placement.tjap.instance import grouped
    >>> found = Free().place(grouped([0, 2, 3, 5, 6, 9], [2, 3], below=[2, 8]))
    >>> [places.tolist() for places in found.places], found.status
    ([[1, 2], [0, 3, 4]], 'optimal')
    """

    def __init__(self, *, iterations: int = 2500, removed: int = 3, seed: int = 0) -> None:
        if iterations < 0 or removed < 1:
            raise InvalidInput(f"{iterations} iterations, {removed} jobs removed: at least 0, and at least 1, expected")
        self._moves, self._seed = (iterations, removed), seed

    def place(self, window: Window) -> Placed:
        first = Scas(width=10).place(window)
        known = cost(window, first)
        bound, prices = priced_nodes(window, known)
        owner = np.full(len(window.idle), -1, dtype=np.int64)
        for job, places in enumerate(first.places):
            owner[places] = job
        enough = -math.inf if any(window.potential) else bound * (1 + CLOSE_PRICES)
        if known > enough:
            state = np.array([self._seed], dtype=np.uint64)
            known = float(ruin(window.tables, window.sizes, owner, prices, enough, self._moves, state))
        return placed(owner, len(window.sizes), "optimal" if known <= enough else "feasible", bound)


@compiled
def ruin(
    t: Tables, sizes: Ints, owner: Ints, prices: Floats, enough: float, moves: tuple[int, int], state: Random
) -> float:
    """Improve `owner`, the job that holds each idle node, until it costs `enough`; what it costs then. See `Free`."""
    jobs, tree = len(sizes), tree_of(t, sizes.max())
    leaves, rank, chosen = len(tree.room), -sizes, np.arange(jobs)
    room, price, guide = tree.room.copy(), np.zeros(leaves), np.zeros(leaves)
    counts = np.zeros(leaves, np.int64)
    has, spent = np.zeros((jobs, leaves), np.int64), np.empty(jobs)
    for place in range(len(owner)):
        if owner[place] >= 0:
            has[owner[place], t.groups[0, place]] += 1
    for job in range(jobs):
        spent[job] = hops(tree, sizes[job], has[job], counts)
        for leaf in range(leaves):
            room[leaf] -= has[job, leaf]
    scale = spent.sum() / jobs if spent.sum() > 0 else t.far  # with a potential, jobs that cost nothing move, too
    known = spent.sum() - add_potential(tree, room, counts, price)
    before, last, kept, best = spent.copy(), has.copy(), has.copy(), known
    for turn in range(moves[0]):
        if best <= enough:
            break
        heat = temperature(scale, HOT, COLD, turn / moves[0])
        many = 1 + below(state, min(moves[1], jobs))
        some_jobs(state, chosen, many)
        if draw(state) < 0.5:
            sort_front(chosen, many, rank)
        for k in range(many):
            job = chosen[k]
            before[job] = spent[job]
            for leaf in range(leaves):
                last[job, leaf] = has[job, leaf]
                room[leaf] += has[job, leaf]
        lead(state, prices, SHAKE * scale * jobs / len(owner), guide)
        for k in range(many):
            job = chosen[k]
            price[:] = guide
            add_potential(tree, room, counts, price)
            cheapest(tree, sizes[job], room, price, has[job])
            spent[job] = hops(tree, sizes[job], has[job], counts)
            for leaf in range(leaves):
                room[leaf] -= has[job, leaf]
        found = spent.sum() - add_potential(tree, room, counts, price)
        if accepts(state, found, known, heat):
            known = found
            if found < best:
                best = found
                kept[:] = has
            continue
        for k in range(many):
            job = chosen[k]
            spent[job] = before[job]
            for leaf in range(leaves):
                room[leaf] += has[job, leaf] - last[job, leaf]
                has[job, leaf] = last[job, leaf]
    give(tree, kept, owner)
    return float(best)


@inner
def lead(state: Random, prices: Floats, most: float, price: Floats) -> None:
    """Fill `price` with what a node below each leaf switch is to cost in one move: the bound's prices, or at random."""
    kind = draw(state)
    share, shake = 0.0, most / 1000
    if kind < 0.3:
        share = 1.5 * draw(state)
    elif kind < 0.7:
        shake = most
    for leaf in range(len(price)):
        price[leaf] = share * prices[leaf] + shake * draw(state)


@inner
def give(tree: Tree, has: Ints, owner: Ints) -> None:
    """Fill `owner` from how many nodes of each leaf switch the jobs have: nodes in their order, jobs in theirs."""
    begin = 0
    for leaf in range(len(tree.room)):
        place, begin = begin, begin + tree.room[leaf]
        for job in range(len(has)):
            for _ in range(has[job, leaf]):
                owner[place] = job
                place += 1
        for rest in range(place, begin):
            owner[rest] = -1
