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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled, inner
from asa.lab.placement.tjap.free import give
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import (
    Random,
    Tree,
    accepts,
    below,
    cheapest,
    draw,
    hops,
    some_jobs,
    sort_front,
    temperature,
    tree_of,
)

# -- Prospects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prospect:
    """Times beside a window of J jobs; M nodes are held.

    Parameters
    ----------
    lasts
        How long each job of the window is expected to hold its nodes [s], shape (J,).
    groups
        The switch that each held node is below, at each level, numbered as in `Window.groups`; shape (levels, M).
    free_in
        When each held node is expected to be free, from now [s], shape (M,).

    Raises
    ------
    InvalidInput
        When shapes do not go together, or a time is negative or not finite.
    """

    lasts: Floats
    groups: Ints
    free_in: Floats

    def __post_init__(self) -> None:
        if self.lasts.ndim != 1 or self.groups.ndim != 2 or self.free_in.shape != self.groups.shape[1:]:
            raise InvalidInput(
                f"a prospect of {self.lasts.shape} jobs, groups {self.groups.shape} and times {self.free_in.shape}: "
                "(J,), (levels, M) and (M,) expected"
            )
        for times in (self.lasts, self.free_in):
            if not (np.isfinite(times) & (times >= 0)).all():
                raise InvalidInput("times of a prospect must be finite, and at least 0 s")


class KnownTimes(NamedTuple):
    """How near in time nodes of a window become free, for what is compiled.

    Two nodes that become free d [s] apart are near by exp(-d / fade); 1 where that is at once.

    Parameters
    ----------
    alike
        A node of a job to one of another, or of its own; shape (J, J).
    soon
        A node of a job to one that stays idle; shape (J,).
    lost
        By how much nearer the held nodes below a switch are to an idle node than to a node of a job, in sum; shape
        (J, levels, F), for at most F switches of a level.
    """

    alike: Floats
    soon: Floats
    lost: Floats


def times_of(window: Window, prospect: Prospect, fade: float) -> KnownTimes:
    """Times beside a window; `fade` > 0 [s]."""
    jobs, groups = len(window.sizes), window.tables.groups
    levels, switches = len(window.hops), int(groups[0, -1]) + 1 if groups.size else 0
    if len(prospect.lasts) != jobs or len(prospect.groups) != levels:
        raise InvalidInput(
            f"a prospect of {len(prospect.lasts)} jobs and {len(prospect.groups)} levels beside a window of {jobs} and "
            f"{levels}: the same expected"
        )
    lasts, free_in = prospect.lasts, prospect.free_in
    nearer = np.exp(-free_in / fade) - np.exp(-np.abs(lasts[:, None] - free_in) / fade)
    lost = np.zeros((jobs, len(groups), switches))
    for level in range(levels - 1):
        known, first = np.unique(window.groups[level], return_index=True)
        at = np.searchsorted(known, prospect.groups[level])
        seen = at < len(known)
        seen[seen] = known[at[seen]] == prospect.groups[level][seen]
        switch = groups[level, first][at[seen]]
        for job in range(jobs):
            lost[job, level] = np.bincount(switch, nearer[job, seen], minlength=switches)
    return KnownTimes(np.exp(-np.abs(lasts[:, None] - lasts) / fade), np.exp(-lasts / fade), lost)


def no_times(window: Window) -> KnownTimes:
    """Nothing is known: nodes of jobs never become free."""
    jobs, groups = len(window.sizes), window.tables.groups
    switches = int(groups[0, -1]) + 1 if groups.size else 0
    return KnownTimes(np.zeros((jobs, jobs)), np.zeros(jobs), np.zeros((jobs, len(groups), switches)))


# -- Method -----------------------------------------------------------------------------------------------------------

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
        return self._place(window, no_times(window))

    def place_with(self, window: Window, prospect: Prospect) -> Placed:
        return self._place(window, times_of(window, prospect, self._fade))

    def _place(self, window: Window, times: KnownTimes) -> Placed:
        owner = np.full(len(window.idle), -1, dtype=np.int64)
        if len(window.sizes):
            state = np.array([self._seed], dtype=np.uint64)
            search(window.tables, window.sizes, owner, times, self._moves, state)
        return placed(owner, len(window.sizes))


@compiled
def search(t: Tables, sizes: Ints, owner: Ints, times: KnownTimes, moves: tuple[int, int], state: Random) -> float:
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
        heat = temperature(scale, HOT, COLD, turn / max(moves[0], 1))
        if accepts(state, found, known, heat):
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
def add_prices(tree: Tree, worth: Floats, times: KnownTimes, count: Ints, job: int, price: Floats) -> None:
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
def value(worth: Floats, times: KnownTimes, count: Ints) -> float:
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
