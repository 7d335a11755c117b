"""Neighbours among the nodes that others have left (DCAS): adaptive large neighbourhood search.

References
----------
S. Ropke and D. Pisinger, "An adaptive large neighborhood search heuristic for the pickup and delivery problem with time
windows", Transportation Science 40 (2006): an operator is drawn by its weight, which follows its scores.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import (
    Random,
    accepts,
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
    temperature,
)
from asa.lab.placement.tjap.scas import Scas

HOT, COLD = 0.03, 0.001
"""Temperature at the beginning and at the end, as shares of a job's mean cost."""
OPERATORS = 4
LARGEST_FIRST, ANY_ORDER, LARGEST_FIRST_SHAKEN, ANY_ORDER_SHAKEN = range(OPERATORS)
"""Repair operators: in which order jobs are put back; with costs as they are, or changed at random (shaken)."""
SHAKE = 0.1
"""Most that the cost of a stretch is changed by at random, as a share of it."""
NEW_BEST, IMPROVED, ACCEPTED, REJECTED = 3.0, 1.0, 0.3, 0.0
"""Scores of an operator, by what its move has brought."""
DECAY = 0.9
"""How much of an operator's weight is kept when it is used; the rest is its score."""
LEAST_WEIGHT = 0.1


class DcasAlns:
    """Each job has neighbours among the nodes that others had left when it was placed.

    It begins with the best placement of neighbours among all idle nodes (`Scas`), which is of this kind, too; a move
    takes some jobs out and puts each back where it costs least, on neighbours among the nodes that are left then.
    So a job may go around others that leave later; unless `ordered`, this is allowed, as in the paper's own search.

    Parameters
    ----------
    ordered
        Whether there must be an order in which each job has neighbours among the nodes left by those before it. That is
        what the paper's text says; its authors' code does not ask for it.

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
        owner = np.full(len(window.idle), -1, dtype=np.int64)
        for job, places in enumerate(Scas(width=10).place(window).places):
            owner[places] = job
        if len(window.sizes) > 1:
            state = np.array([self._seed], dtype=np.uint64)
            search(window.tables, window.sizes, owner, self._moves, self._ordered, state)
        return placed(owner, len(window.sizes))


class Scratch(NamedTuple):
    """Room to work in, for N nodes and J jobs.

    `ring` (N,) are the nodes that no job holds, in order; `seen` and `left` count nodes below switches; `cost` (N,) is
    that of the stretch from each place of the ring on; `begins` (J,) and `rest` (N,) are those of `in_some_order`.
    """

    ring: Ints
    seen: Ints
    left: Ints
    cost: Floats
    begins: Ints
    rest: Ints


@compiled
def search(t: Tables, sizes: Ints, owner: Ints, moves: tuple[int, int], strict: bool, state: Random) -> None:
    """Improve `owner`, the job that holds each idle node; see `DcasAlns`."""
    jobs, nodes, (iterations, removed) = len(sizes), len(owner), moves
    s = Scratch(
        np.empty(nodes, np.int64),
        np.zeros(t.groups.shape, np.int64),
        np.zeros(t.groups.shape, np.int64),
        np.empty(nodes),
        np.empty(jobs, np.int64),
        np.empty(nodes, np.int64),
    )
    chosen, largest_first, weights = np.arange(jobs), -sizes, np.ones(OPERATORS)
    spent = paid(t, owner, jobs, s.ring, s.seen)
    scale = spent.sum() / jobs if spent.sum() > 0 else t.far  # with a potential, jobs that cost nothing move, too
    known = spent.sum() - count_left(t, s.ring, rest_of(owner, s.ring), s.left)
    best, kept, last, before = known, owner.copy(), owner.copy(), spent.copy()
    for turn in range(iterations):
        last[:], before[:] = owner, spent
        many, operator = 1 + below(state, min(removed, jobs)), roulette(state, weights)
        some_jobs(state, chosen, many)
        if operator in (LARGEST_FIRST, LARGEST_FIRST_SHAKEN):
            sort_front(chosen, many, largest_first)
        shake = SHAKE if operator >= LARGEST_FIRST_SHAKEN else 0.0
        give_back(owner, chosen, many)
        found = repair(t, sizes, owner, chosen, many, shake, spent, s, state)
        score = REJECTED
        if accepts(state, found, known, temperature(scale, HOT, COLD, turn / iterations)) and (
            not strict or in_some_order(owner, s.begins, s.rest)
        ):
            score = NEW_BEST if found < best else IMPROVED if found < known else ACCEPTED
            known = found
            if found < best:
                best = found
                kept[:] = owner
        if score == REJECTED:
            owner[:], spent[:] = last, before
        weights[operator] = max(LEAST_WEIGHT, DECAY * weights[operator] + (1 - DECAY) * score)
    owner[:] = kept


@inner
def repair(
    t: Tables, sizes: Ints, owner: Ints, chosen: Ints, many: int, shake: float, spent: Floats, s: Scratch, state: Random
) -> float:
    """Put the first `many` of the chosen jobs back in order, each where it costs least; what the placement costs then.

    What each job pays goes into `spent`.
    """
    count = rest_of(owner, s.ring)
    worth = count_left(t, s.ring, count, s.left)
    for k in range(many):
        job = chosen[k]
        stretches(t, s.ring, count, sizes[job], s.left, s.seen, s.cost)
        start = least(state, s.cost, count, shake)
        spent[job] = stretch(t, s.ring, count, start, sizes[job], s.seen)
        take(owner, s.ring, count, start, sizes[job], job)
        count = rest_of(owner, s.ring)
        worth = count_left(t, s.ring, count, s.left)
    return float(spent.sum() - worth)


@inner
def roulette(state: Random, weights: Floats) -> int:
    """An operator, drawn by weight."""
    left, operator = draw(state) * weights.sum(), 0
    while operator + 1 < len(weights) and left >= weights[operator]:
        left -= weights[operator]
        operator += 1
    return operator


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

    Jobs with neighbours are taken off until none is left or has any: nodes that are gone only bring others together.
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
