"""What a machine will have left over time: of its nodes, group by group, and of what it has as a whole.

Neighbouring nodes that are alike, now and at all times, are one group; a job that takes some of them divides it. So
what a planner looks at grows with the jobs, and not with the nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner
from asa.lab.dispatchers.planning.instance import Instance

_ROOM = 16  # stretches of a row, to begin with


class Timeline(NamedTuple):
    """What rows have left over time: stretches, each until the next one begins, the last one for ever.

    `since` (rows, stretches) is when they begin [s], `free` (rows, stretches, resources) what is left, `used` (rows,)
    how many there are.
    """

    since: Floats
    free: Floats
    used: Ints


class Future(NamedTuple):
    """What a machine has left over time.

    `nodes` has a row for each group of nodes, and says what each node of it has; `first` is its first node, and `size`
    how many nodes it has from there on. Row 0 is the first group; `after` is the row of the next one, -1 behind the
    last. `groups` (1,) is how many there are. `pool` has one row: what all jobs share.
    """

    nodes: Timeline
    pool: Timeline
    first: Ints
    size: Ints
    after: Ints
    groups: Ints


def future(instance: Instance) -> Future:
    """An empty plan: what runs, and nothing else."""
    nodes, release = len(instance.capacity), instance.release
    begins = _begins(instance)
    first, size = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    after, groups = np.full(nodes, -1), len(begins)
    first[:groups], size[:groups] = begins, np.diff(begins, append=nodes)
    after[: groups - 1] = np.arange(1, groups)
    rows = np.searchsorted(begins, release[:, :2], side="right") - 1
    busy = np.zeros(groups + 1, np.int64)
    np.add.at(busy, rows[:, 0], 1)
    np.add.at(busy, rows[:, 1] + 1, -1)
    room = max(_ROOM, int(np.cumsum(busy).max(initial=0)) + 4)
    made = _empty(instance.free[begins], nodes, room)
    _give_back(made, instance.release_at, rows, release[:, 2:3] * instance.demands[release[:, 3]])
    shared = len(instance.shared)
    pool = _empty(instance.pool[None, :], 1, len(release) + 2 * len(instance) + 2 if shared else 1)
    if shared:
        _give_back(pool, instance.release_at, np.zeros_like(rows), instance.drawn)
    return Future(made, pool, first, size, after, np.array([groups]))


def _begins(instance: Instance) -> Ints:
    """First nodes of the groups: those that differ from the node before them."""
    free, members, release = instance.free, instance.members, instance.release
    begins = np.ones(len(free) + 1, dtype=np.bool_)
    begins[1:-1] = (free[1:] != free[:-1]).any(axis=1) | (members[:, 1:] != members[:, :-1]).any(axis=0)
    begins[release[:, 0]] = begins[release[:, 1] + 1] = True
    return np.flatnonzero(begins[:-1])


def _empty(free: Ints, rows: int, room: int) -> Timeline:
    made = Timeline(np.zeros((rows, room)), np.zeros((rows, room, free.shape[1])), np.ones(rows, np.int64))
    made.free[: len(free), 0] = free
    return made


@compiled
def _give_back(t: Timeline, at: Floats, rows: Ints, amounts: Ints) -> None:
    """Rows from the first to the last have so much more from a time on."""
    for entry in range(len(at)):
        for row in range(rows[entry, 0], rows[entry, 1] + 1):
            stretch = _cut(t, row, at[entry])
            for k in range(t.free.shape[2]):
                t.free[row, stretch, k] += amounts[entry, k]


def wider(t: Future) -> Future:
    """The same with room for twice as many stretches of nodes."""
    nodes, more = t.nodes, ((0, 0), (0, t.nodes.since.shape[1]))
    roomy = Timeline(np.pad(nodes.since, more), np.pad(nodes.free, (*more, (0, 0))), nodes.used)
    return t._replace(nodes=roomy)


def copied(t: Future) -> Future:
    """The same, to be planned with."""
    nodes, pool = (Timeline(line.since.copy(), line.free.copy(), line.used.copy()) for line in (t.nodes, t.pool))
    return Future(nodes, pool, t.first.copy(), t.size.copy(), t.after.copy(), t.groups.copy())


@inner
def divide(t: Future, row: int, keeps: int) -> int:
    """The group keeps so many nodes; the row of a new one, which has the others."""
    new, nodes = t.groups[0], t.nodes
    t.groups[0] += 1
    t.first[new], t.size[new], t.after[new] = t.first[row] + keeps, t.size[row] - keeps, t.after[row]
    t.size[row], t.after[row] = keeps, new
    nodes.used[new] = nodes.used[row]
    for stretch in range(nodes.used[row]):
        nodes.since[new, stretch] = nodes.since[row, stretch]
        for k in range(nodes.free.shape[2]):
            nodes.free[new, stretch, k] = nodes.free[row, stretch, k]
    return int(new)


@inner
def stretches(t: Timeline, row: int, begin: float, end: float) -> tuple[int, int]:
    """The first stretch of a row that has to do with what is between two times, and the one behind the last."""
    first, used = 0, t.used[row]
    while first + 1 < used and t.since[row, first + 1] <= begin:
        first += 1
    last = first + 1
    while last < used and t.since[row, last] < end:
        last += 1
    return first, last


@inner
def least(t: Timeline, row: int, k: int, first: int, last: int) -> float:
    """The least that a row has of a resource from one stretch until before another."""
    found = t.free[row, first, k]
    for stretch in range(first + 1, last):
        found = min(found, t.free[row, stretch, k])
    return float(found)


@inner
def reserve(t: Timeline, row: int, at: float, end: float, need: Floats, sort: int, units: float) -> None:
    """Take so many units of a sort from a row, from one time to another."""
    first, last = _cut(t, row, at), _cut(t, row, end)
    for stretch in range(first, last):
        for k in range(t.free.shape[2]):
            t.free[row, stretch, k] -= units * need[k, sort]


@inner
def _cut(t: Timeline, row: int, at: float) -> int:
    """The stretch that begins at a time; the one that holds it is cut in two if there is none."""
    count = t.used[row]
    stretch = count
    while stretch > 0 and t.since[row, stretch - 1] > at:
        stretch -= 1
    if stretch > 0 and t.since[row, stretch - 1] == at:
        return int(stretch - 1)
    for later in range(count, stretch, -1):
        t.since[row, later] = t.since[row, later - 1]
        for k in range(t.free.shape[2]):
            t.free[row, later, k] = t.free[row, later - 1, k]
    t.since[row, stretch] = at
    for k in range(t.free.shape[2]):
        t.free[row, stretch, k] = t.free[row, stretch - 1, k]
    t.used[row] = count + 1
    return int(stretch)
