"""Simulated annealing: the baseline of the paper, corrected; and as its authors published it."""

from __future__ import annotations

import math

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
    give_back,
    paid,
    rest_of,
    some_jobs,
    sort_front,
    stretch,
    take,
)
from asa.lab.placement.tjap.seq import in_order


class Anneal:
    """Take one or two jobs out, put each back at random among what is left; accept by Metropolis' rule.

    A job goes on neighbours in the ring of nodes that nobody holds then. So a placement may have no order in which all
    jobs have neighbours, as the paper's text has it (DCAS): its authors' code does not ask for one either.

    Parameters
    ----------
    iterations
        How many moves are tried.
    warmest, coldest
        Temperature at the beginning and at the end, in units of cost; `warmest` is 2500 unless given, 25000 with
        `as_published`.
    removed
        Most jobs that a move takes out.
    starts
        Among how many of the first nodes left a job's first node is drawn; 0 for all of them.
    as_published
        As the authors' code does it: a rejected move is not taken back, so that it is a random walk that remembers the
        best it has seen; what a job costs is rounded down, and at least 1; jobs go back in the window's order instead
        of the largest first; and `starts` is 100 unless given.
    seed
        Of what is drawn; the same for every window.

    References
    ----------
    Algorithm 1 of the paper without its network, and Table I: 500 iterations, 2500 to 2.5, two jobs. The authors' code
    (https://github.com/lzk23/hpcschedule, commit 1f87208) takes 25000 for 2500. S. Kirkpatrick, C. D. Gelatt and
    M. P. Vecchi, Science 220 (1983).
    """

    def __init__(
        self,
        *,
        iterations: int = 500,
        warmest: float | None = None,
        coldest: float = 2.5,
        removed: int = 2,
        starts: int | None = None,
        as_published: bool = False,
        seed: int = 0,
    ) -> None:
        if warmest is None:
            warmest = 25000.0 if as_published else 2500.0
        if iterations < 0 or removed < 1 or not warmest >= coldest > 0:
            raise InvalidInput(
                f"{iterations} iterations, {removed} jobs removed, temperatures from {warmest:g} to {coldest:g}: "
                "at least 0, at least 1, and falling, above 0, expected"
            )
        self._moves = iterations, removed, (100 if as_published else 0) if starts is None else starts
        self._temperatures, self._published, self._seed = (warmest, coldest), as_published, seed

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""
        state = np.array([self._seed], dtype=np.uint64)
        moves, temperatures = self._moves, self._temperatures
        owner = anneal(window.tables, window.sizes, in_order(window), moves, temperatures, self._published, state)
        return placed(owner, len(window.sizes))


@compiled
def anneal(
    t: Tables,
    sizes: Ints,
    owner: Ints,
    moves: tuple[int, int, int],
    temperatures: tuple[float, float],
    published: bool,
    state: Random,
) -> Ints:
    """The best placement met on the way from `owner`, which is changed; see `Anneal`."""
    iterations, removed, starts = moves
    jobs, seen, left = len(sizes), np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    ring, chosen, before = np.empty(len(owner), np.int64), np.arange(jobs), np.empty(jobs)
    rank, last = np.arange(jobs) if published else -sizes, owner.copy()
    spent = paid(t, owner, jobs, ring, seen)
    known = whole(spent) if published else spent.sum()  # of the placement that rejected moves are compared with
    known -= count_left(t, ring, rest_of(owner, ring), left)
    best, kept = known, owner.copy()
    cooling = math.log(temperatures[1] / temperatures[0])
    for turn in range(iterations):
        heat = temperatures[0] * math.exp(cooling * turn / iterations)
        if not published:
            last[:], before[:] = owner, spent
        many = 1 + below(state, min(removed, jobs))
        some_jobs(state, chosen, many)
        sort_front(chosen, many, rank)
        give_back(owner, chosen, many)
        count = rest_of(owner, ring)
        for k in range(many):
            job = chosen[k]
            start = below(state, min(count, starts) if starts > 0 else count)
            spent[job] = stretch(t, ring, count, start, sizes[job], seen)
            take(owner, ring, count, start, sizes[job], job)
            count = rest_of(owner, ring)
        found = (whole(spent) if published else spent.sum()) - count_left(t, ring, count, left)
        if accepts(state, found, known, heat):
            known = found
            if found < best:
                best = found
                kept[:] = owner
        elif not published:
            owner[:], spent[:] = last, before
    return kept


@inner
def whole(spent: Floats) -> float:
    """What jobs cost together if each pays a whole number, and at least 1."""
    total = 0.0
    for each in spent:
        total += max(math.floor(each), 1.0)
    return total
