"""Jobs that end together, together: nodes below one switch are worth more when they become free at about the same time.

A window's potential values pairs of nodes that stay idle. Here every pair of nodes below the same switch of a level is
worth that much, times how near in time they become free: exp(-d / fade) for d [s] in between. An idle node is free now.
So holes are not torn open where large ones would be, and jobs are put beside jobs that end when they do, which leaves
large holes later.

For one job this is a price of nodes, and a bonus for pairs of its own nodes below one switch; then where it costs least
is found exactly (`tree.cheapest`).
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.free import give
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import Random, below, draw, some_jobs, sort_front
from asa.lab.placement.tjap.prospect import Prospect, Times, no_times, times_of
from asa.lab.placement.tjap.tree import Tree, cheapest, hops, tree_of

HOT, COLD = 0.01, 0.0002
"""Temperature at the beginning and at the end, as shares of a job's mean cost."""
SHAKE, SHAKEN, TIES = 0.2, 0.4, 1e-4
"""Largest random price of a node, as a share of what a node costs in the mean, and the share of moves that have one;
others have just enough to break ties."""


class Together:
    """Ruin and recreate; a job that is put back goes where it costs least, less what nodes are worth to later jobs.

    What pairs of nodes are worth is the window's potential; without one this is a plain search over all placements.

    Parameters
    ----------
    fade
        Two nodes that become free so far apart [s] are worth 1/e of two that do at once; > 0.
    iterations
        How many moves are tried.
    removed
        Most jobs that a move takes out.
    seed
        Of what is drawn; the same for every window.

    Notes
    -----
    No paper has this. The potential alone is the limit of a small `fade`, but for pairs of one job's nodes, which
    become free together whatever it is.

    Examples
    --------
    Two racks, each with two idle nodes. Those held in the first are free in a minute, those in the second in an hour;
    so a job of one minute goes into the first, and one of an hour into the second.

    >>> from asa.lab.placement.tjap.instance import grouped
    >>> held, times = np.array([[0, 0, 1, 1], [0, 0, 0, 0]]), np.array([60.0, 60.0, 3600.0, 3600.0])
    >>> for lasts in (60.0, 3600.0):
    ...     window = grouped([0, 1, 4, 5], [2], below=[4], potential=[0.1])
    ...     Together().place_with(window, Prospect(np.array([lasts]), held, times)).places[0].tolist()
    [0, 1]
    [2, 3]
    """

    def __init__(self, *, fade: float = 150.0, iterations: int = 100, removed: int = 3, seed: int = 0) -> None:
        if not 0 < fade < math.inf or iterations < 0 or removed < 1:
            raise InvalidInput(
                f"fade {fade:g} s, {iterations} iterations, {removed} jobs removed: above 0 and finite, at least 0, "
                "and at least 1, expected"
            )
        self._fade, self._moves, self._seed = float(fade), (iterations, removed), seed

    def place(self, window: Window) -> Placed:
        """See `asa.lab.placement.tjap.instance.PlacementMethod`."""
        return self._place(window, no_times(window))

    def place_with(self, window: Window, prospect: Prospect) -> Placed:
        """See `asa.lab.placement.tjap.prospect.ForesightedMethod`."""
        return self._place(window, times_of(window, prospect, self._fade))

    def _place(self, window: Window, times: Times) -> Placed:
        owner = np.full(len(window.idle), -1, dtype=np.int64)
        if len(window.sizes):
            state = np.array([self._seed], dtype=np.uint64)
            search(window.tables, window.sizes, owner, times, self._moves, state)
        return placed(owner, len(window.sizes))


@compiled
def search(t: Tables, sizes: Ints, owner: Ints, times: Times, moves: tuple[int, int], state: Random) -> float:
    """Fill `owner`, the job that holds each idle node; what it costs, less what nodes are worth. See `Together`."""
    jobs, worth = len(sizes), t.kept
    tree = tree_of(Tables(t.groups, t.saved, t.far, t.kept.copy()), sizes.max())
    levels, leaves = tree.above.shape
    room, price, guide = tree.room.copy(), np.zeros(leaves), np.zeros(leaves)
    has, spent, counts = np.zeros((jobs, leaves), np.int64), np.zeros(jobs), np.zeros(leaves, np.int64)
    count = np.zeros((jobs + 1, levels, leaves), np.int64)  # nodes below each switch: of jobs; the last, idle ones
    for leaf in range(leaves):
        for level in range(levels - 1):
            count[jobs, level, tree.above[level, leaf]] += room[leaf]
    chosen, rank = np.argsort(-sizes), -sizes
    last, before, kept, known, best = has.copy(), spent.copy(), has.copy(), math.inf, math.inf
    scale = 0.0
    for turn in range(moves[0] + 1):
        many = jobs
        if turn > 0:
            if jobs == 1:
                break  # the first placement is the best there is
            many = 1 + below(state, min(moves[1], jobs))
            some_jobs(state, chosen, many)
            if draw(state) < 0.5:
                sort_front(chosen, many, rank)
        most = SHAKE * scale * jobs / len(owner) if draw(state) < SHAKEN else TIES * scale * jobs / len(owner)
        for leaf in range(leaves):
            guide[leaf] = most * draw(state)
        for k in range(many):
            job = chosen[k]
            before[job] = spent[job]
            last[job] = has[job]
            shift(tree, has, count, room, job, -1)
        for k in range(many):
            job = chosen[k]
            price[:] = guide
            add_prices(tree, worth, times, count, job, price)
            for level in range(levels - 1):
                tree.kept[level] = worth[level] * (1.0 + times.alike[job, job] - 2.0 * times.soon[job])
            cheapest(tree, sizes[job], room, price, has[job])
            spent[job] = hops(tree, sizes[job], has[job], counts)
            shift(tree, has, count, room, job, 1)
        found = spent.sum() - value(worth, times, count)
        if turn == 0:
            scale = spent.sum() / jobs if spent.sum() > 0 else t.far  # with a potential, jobs that cost nothing move
        heat = scale * HOT * (COLD / HOT) ** (turn / max(moves[0], 1))
        if found <= known or (heat > 0 and draw(state) < math.exp((known - found) / heat)):
            known = found
            if found < best:
                best = found
                kept[:] = has
            continue
        for k in range(many):
            job = chosen[k]
            shift(tree, has, count, room, job, -1)
            has[job] = last[job]
            spent[job] = before[job]
            shift(tree, has, count, room, job, 1)
    give(tree, kept, owner)
    return best


@inner
def shift(tree: Tree, has: Ints, count: Ints, room: Ints, job: int, sign: int) -> None:
    """A job takes its nodes (1), or gives them back (-1)."""
    levels, leaves = tree.above.shape
    idle = len(has)
    for leaf in range(leaves):
        some = sign * has[job, leaf]
        if some != 0:
            room[leaf] -= some
            for level in range(levels - 1):
                count[job, level, tree.above[level, leaf]] += some
                count[idle, level, tree.above[level, leaf]] -= some


@inner
def add_prices(tree: Tree, worth: Floats, times: Times, count: Ints, job: int, price: Floats) -> None:
    """Add to `price`, shape (F,), what a first node of each leaf switch loses of its worth when the job takes it."""
    levels, leaves = tree.above.shape
    idle = len(count) - 1
    for level in range(levels - 1):
        if worth[level] == 0:
            continue
        seen, loss = -1, 0.0
        for leaf in range(leaves):
            group = tree.above[level, leaf]
            if group != seen:
                seen = group
                loss = (1.0 - times.soon[job]) * (count[idle, level, group] - 1) + times.lost[job, level, group]
                for other in range(idle):
                    loss += count[other, level, group] * (times.soon[other] - times.alike[job, other])
            price[leaf] += worth[level] * loss


@inner
def value(worth: Floats, times: Times, count: Ints) -> float:
    """What all pairs of nodes are worth, less those of nodes that were held before, and what these are to idle ones."""
    jobs, total = len(count) - 1, 0.0
    for level in range(len(worth) - 1):
        if worth[level] == 0:
            continue
        for group in range(count.shape[2]):
            idle = count[jobs, level, group]
            found = idle * (idle - 1) / 2
            for job in range(jobs):
                mine = count[job, level, group]
                if mine == 0:
                    continue
                found += mine * (idle * times.soon[job] - times.lost[job, level, group])
                found += times.alike[job, job] * (mine * (mine - 1) / 2)
                for other in range(job):
                    found += times.alike[job, other] * mine * count[other, level, group]
            total += worth[level] * found
    return total
