"""Neighbours among the nodes that others have left (DCAS): adaptive large neighbourhood search.

References
----------
S. Ropke and D. Pisinger, "An adaptive large neighborhood search heuristic for the pickup and delivery problem with time
windows", Transportation Science 40 (2006): which way of taking jobs out and putting them back is drawn follows what it
has brought.
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import (
    Random,
    below,
    count_left,
    draw,
    give_back,
    paid,
    rest_of,
    some_jobs,
    sort_front,
    stretch,
    stretches,
    take,
)
from asa.lab.placement.tjap.scas import Scas

HOT, COLD = 0.03, 0.001
"""Temperature at the beginning and at the end, as shares of a job's mean cost."""
SHAKE = 0.1
"""Most that the cost of a stretch is changed by at random, as a share of it."""
WAYS = 4
"""Jobs put back largest first, or in any order; with costs as they are, or shaken."""
MEMORY = 0.9
"""How much of a way's weight is kept when it is used."""


class DcasAlns:
    """Each job has neighbours among the nodes that others had left when it was placed.

    It begins with the best placement of neighbours among all idle nodes (`Scas`), which is of this kind, too; a move
    takes some jobs out and puts each back where it costs least, on neighbours among the nodes that nobody holds then.
    So a job may go around others that leave later; unless `ordered`, this is allowed, as in the paper's own search.

    Parameters
    ----------
    iterations
        How many moves are tried.
    removed
        Most jobs that a move takes out.
    ordered
        Whether there must be an order in which each job has neighbours among the nodes left by those before it. That is
        what the paper's text says; its authors' code does not ask for it.
    seed
        Of what is drawn; the same for every window.

    Examples
    --------
    The second job goes around the first one; as neighbours they would cost 5000.

    >>> from asa.lab.placement.tjap.instance import grouped
    >>> found = DcasAlns().place(grouped([0, 1, 2, 4, 5, 6, 7], [3, 4], below=[4, 8]))
    >>> [places.tolist() for places in found.places]
    [[0, 1, 2], [3, 4, 5, 6]]
    """

    def __init__(self, *, iterations: int = 3500, removed: int = 3, ordered: bool = False, seed: int = 0) -> None:
        if iterations < 0 or removed < 1:
            raise InvalidInput(f"{iterations} iterations, {removed} jobs removed: at least 0, and at least 1, expected")
        self._moves, self._ordered, self._seed = (iterations, removed), ordered, seed

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""
        owner = np.full(len(window.idle), -1, dtype=np.int64)
        for job, places in enumerate(Scas(width=10).place(window).places):
            owner[places] = job
        if len(window.sizes) > 1:
            state = np.array([self._seed], dtype=np.uint64)
            search(window.tables, window.sizes, owner, self._moves, self._ordered, state)
        return placed(owner, len(window.sizes))


@compiled
def search(t: Tables, sizes: Ints, owner: Ints, moves: tuple[int, int], strict: bool, state: Random) -> None:
    """Improve `owner`, the job that holds each idle node; see `DcasAlns`."""
    jobs, nodes = len(sizes), len(owner)
    seen, left = np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    ring, again, chosen, rank = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.arange(jobs), -sizes
    cost, begins, weights = np.empty(nodes), np.empty(jobs, np.int64), np.ones(WAYS)
    spent = paid(t, owner, jobs, ring, seen)
    scale = spent.sum() / jobs if spent.sum() > 0 else t.far  # with a potential, jobs that cost nothing move, too
    known = spent.sum() - count_left(t, ring, rest_of(owner, ring), left)
    best, kept, last, before = known, owner.copy(), owner.copy(), spent.copy()
    for turn in range(moves[0]):
        heat = scale * HOT * (COLD / HOT) ** (turn / moves[0])
        last[:], before[:] = owner, spent
        many, way = 1 + below(state, min(moves[1], jobs)), drawn(state, weights)
        some_jobs(state, chosen, many)
        if way % 2 == 0:
            sort_front(chosen, many, rank)
        give_back(owner, chosen, many)
        count = rest_of(owner, ring)
        worth = count_left(t, ring, count, left)
        for k in range(many):
            job = chosen[k]
            stretches(t, ring, count, sizes[job], left, seen, cost)
            start = least(state, cost, count, SHAKE if way >= 2 else 0.0)
            spent[job] = stretch(t, ring, count, start, sizes[job], seen)
            take(owner, ring, count, start, sizes[job], job)
            count = rest_of(owner, ring)
            worth = count_left(t, ring, count, left)
        found, gain = spent.sum() - worth, 0.0
        taken = found <= known or draw(state) < math.exp((known - found) / heat)
        if taken and (not strict or in_some_order(owner, begins, again)):
            gain = 3.0 if found < best else 1.0 if found < known else 0.3
            known = found
            if found < best:
                best = found
                kept[:] = owner
        if gain == 0.0:
            owner[:], spent[:] = last, before
        weights[way] = max(0.1, MEMORY * weights[way] + (1 - MEMORY) * gain)
    owner[:] = kept


@inner
def drawn(state: Random, weights: Floats) -> int:
    """A way, by weight."""
    left, way = draw(state) * weights.sum(), 0
    while way + 1 < len(weights) and left >= weights[way]:
        left -= weights[way]
        way += 1
    return way


@inner
def least(state: Random, cost: Floats, count: int, shake: float) -> int:
    """Where cost is least, each made larger at random, by up to this share; any of several that are equal."""
    low, at, ties = math.inf, 0, 1
    for start in range(count):
        value = cost[start] * (1.0 + shake * draw(state)) if shake > 0 else cost[start]
        if value < low:
            low, at, ties = value, start, 1
        elif value == low:
            ties += 1
            if draw(state) * ties < 1:
                at = start
    return at


@inner
def in_some_order(owner: Ints, begins: Ints, ring: Ints) -> bool:
    """Whether jobs can come in an order in which each has neighbours among the nodes left by those before it.

    Whoever has neighbours comes, until nobody is left or has any: nodes that are gone only bring others together.

    Parameters
    ----------
    begins, ring
        Room to work in, shapes (J,) and (N,).
    """
    count = len(owner)
    for place in range(count):
        ring[place] = place
    while True:
        for job in range(len(begins)):
            begins[job] = 0
        before, held = owner[ring[count - 1]], 0
        for k in range(count):
            job = owner[ring[k]]
            held += job >= 0
            if job >= 0 and job != before:
                begins[job] += 1
            before = job
        if held == 0:
            return True
        left = 0
        for k in range(count):
            job = owner[ring[k]]
            if job < 0 or begins[job] > 1:
                ring[left] = ring[k]
                left += 1
        if left == count:
            return False
        if left == 0:
            return True
        count = left
