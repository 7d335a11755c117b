"""Active list planning, compiled: job after job starts as early as it can beside those before it in the list.

The serial schedule-generation scheme of project scheduling, on nodes. Unlike a non-delay plan, nothing that comes later
in the list holds up what comes earlier, even where it could have started at once; so short jobs that need much at a
time do not wait until all has become quiet.

References
----------
R. Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", European Journal of
Operational Research 90 (1996).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asa.core.cluster import Ints
from asa.core.compiled import compiled, inner, inner_allocating
from asa.core.ranking import ranking
from asa.core.workload import Floats
from asa.dispatchers.planning.instance import Instance, Plan
from asa.dispatchers.planning.problem import Problem, plan_of, problem

_ROOM = 16  # stretches of a node, to begin with


def active(instance: Instance, order: Ints, *, now: bool = False) -> Plan:
    """Plan the waiting jobs in this order; those `now` that start now, and as many others as decide on these.

    The start of a job that does not fit, whatever ends, is NaN.

    Examples
    --------
    >>> from asa.dispatchers.planning.instance import example
    >>> active(example(), np.array([2, 1, 0])).start
    array([15., 10.,  0.])
    """
    p, t = problem(instance), timeline(instance)
    found = starts(p)
    serial(p, t, order, found, now=now)
    return plan_of(p, found.start, found.rows, found.node, found.given)


class Timeline(NamedTuple):
    """What nodes have left over time: stretches, each until the next one begins, the last one for ever.

    `since` (nodes, stretches) is when they begin [s], `free` (nodes, stretches, resources) what is left, `used`
    (nodes,) how many there are. `hold` (nodes, stretches) is there to compute with: how many units of the job at hand a
    stretch holds.
    """

    since: Floats
    free: Floats
    used: Ints
    hold: Floats


class Starts(NamedTuple):
    """When jobs start, and where; as in `Book`."""

    start: Floats
    rows: Ints
    node: Ints
    given: Ints


def timeline(instance: Instance) -> Timeline:
    """An empty plan: what runs, and nothing else."""
    nodes, resources = instance.capacity.shape
    busy = np.zeros(nodes + 1, np.int64)
    np.add.at(busy, instance.release[:, 0], 1)
    np.add.at(busy, instance.release[:, 1] + 1, -1)
    room = max(_ROOM, int(np.cumsum(busy).max(initial=0)) + 4)
    made = Timeline(
        np.zeros((nodes, room)), np.zeros((nodes, room, resources)), np.ones(nodes, np.int64), np.zeros((nodes, room))
    )
    made.free[:, 0] = instance.free
    _give_back(made, instance.release_at, instance.release, instance.demands)
    return made


@compiled
def _give_back(t: Timeline, release_at: Floats, release: Ints, demands: Ints) -> None:
    for row in range(len(release)):
        for node in range(release[row, 0], release[row, 1] + 1):
            stretch = _cut(t, node, release_at[row])
            for k in range(t.free.shape[2]):
                t.free[node, stretch, k] += release[row, 2] * demands[release[row, 3], k]


def _wider(t: Timeline) -> Timeline:
    """The same with room for twice as many stretches."""
    more = (0, 0), (0, t.since.shape[1])
    return Timeline(np.pad(t.since, more), np.pad(t.free, (*more, (0, 0))), t.used, np.pad(t.hold, more))


def starts(p: Problem) -> Starts:
    """Room for the answer."""
    jobs, rows = len(p.sort), int(p.first[-1])
    return Starts(np.full(jobs, np.nan), np.zeros(jobs, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def serial(p: Problem, t: Timeline, order: Ints, found: Starts, *, now: bool = False) -> None:
    """Plan jobs in this order, on a timeline that changes; `now`: until nothing more can start now."""
    place = 0
    while (place := _serial(p, t, order, place, found, now)) < len(order):
        t = _wider(t)


@compiled
def _serial(p: Problem, t: Timeline, order: Ints, begin: int, found: Starts, now: bool) -> int:
    """The same from a place in the order on; the place that was reached before there was no more room."""
    changes, least = _changes_room(t), math.inf
    for sort in range(p.need.shape[1]):
        least = min(least, p.need[0, sort])
    for place in range(begin, len(order)):
        job = order[place]
        if now and not _any_now(t, least):
            break
        for node in range(len(t.used)):
            if t.used[node] + 2 > t.since.shape[1]:
                return place
        if p.units[job] == 1:
            at, node = _when_one(p, t, job)
            if at == math.inf:
                continue  # nodes that it needs are down
            first = p.first[job]
            found.start[job], found.rows[job], found.node[first], found.given[first] = at, 1, node, 1
            _reserve(p, t, node, at, p.duration[job], p.sort[job], 1)
        else:
            at = _when_many(p, t, job, changes)
            if at < math.inf:
                _take(p, t, job, at, found)
    return len(order)


@compiled
def earliest(p: Problem, t: Timeline) -> Floats:
    """When each job could start if it were the next [s], shape (n,)."""
    changes, found = _changes_room(t), np.empty(len(p.sort))
    for job in range(len(found)):
        if p.units[job] == 1:
            found[job] = _when_one(p, t, job)[0]
        else:
            found[job] = _when_many(p, t, job, changes)
    return found


@inner_allocating
def _any_now(t: Timeline, least: float) -> bool:
    """Whether a node has so much of the first resource left now."""
    return bool(t.free[:, 0, 0].max() >= least)


class Changes(NamedTuple):
    """How many more units of a job nodes hold from a start on, and how many fewer behind one; times in [s]."""

    rising: Floats
    growth: Floats
    falling: Floats
    loss: Floats


@inner_allocating
def _changes_room(t: Timeline) -> Changes:
    size = t.since.size
    return Changes(np.empty(size), np.empty(size), np.empty(size), np.empty(size))


@inner
def _holds(p: Problem, t: Timeline, node: int, stretch: int, sort: int) -> float:
    """How many units of a sort a node holds during a stretch."""
    holds = p.most[sort]
    for k in range(t.free.shape[2]):
        need, free = p.need[k, sort], t.free[node, stretch, k]
        if need > 0:
            if free < need:
                return 0.0
            holds = min(holds, np.floor(free / need))
    return float(holds)


@inner
def _when_one(p: Problem, t: Timeline, job: int) -> tuple[float, int]:
    """When a job of one unit can start, and on which node: the first one that has room so early."""
    sort, lasts = p.sort[job], p.duration[job]
    best, where = math.inf, 0
    for node in range(len(t.used)):
        if not p.members[p.part[sort], node]:
            continue
        since = math.inf
        for stretch in range(t.used[node]):
            begin = t.since[node, stretch]
            if min(since, begin) >= best:
                break
            fits = p.most[sort] >= 1
            for k in range(t.free.shape[2]):
                fits &= t.free[node, stretch, k] >= p.need[k, sort]
            if not fits:
                since = math.inf
                continue
            since = min(since, begin)
            if stretch + 1 == t.used[node] or t.since[node, stretch + 1] >= since + lasts:
                best, where = since, node
                break
    return best, where


@inner_allocating
def _when_many(p: Problem, t: Timeline, job: int, changes: Changes) -> float:
    """When a job of several units can start, all of them together; `hold` is what nodes hold of it."""
    sort, there, ups, downs = p.sort[job], 0.0, 0, 0
    for node in range(len(t.used)):
        if p.members[p.part[sort], node]:
            holds, ups, downs = _changes(p, t, node, job, changes, ups, downs)
            there += holds
    if there >= p.units[job]:
        return 0.0
    up, down, lost = ranking(changes.rising[:ups]), ranking(changes.falling[:downs]), 0
    for place in range(ups):
        at = changes.rising[up[place]]
        while lost < downs and changes.falling[down[lost]] < at:
            there -= changes.loss[down[lost]]
            lost += 1
        there += changes.growth[up[place]]
        if there >= p.units[job]:
            return float(at)
    return math.inf


@inner
def _changes(
    p: Problem, t: Timeline, node: int, job: int, changes: Changes, ups: int, downs: int
) -> tuple[float, int, int]:
    """How many units of a job a node holds throughout when it starts now, and how that changes with its start.

    It grows when the start leaves a stretch behind, at that very time, and shrinks once the end has entered one. What
    is found is put behind the `ups` and `downs` that there are; returned with their new numbers.
    """
    sort, lasts, count = p.sort[job], p.duration[job], t.used[node]
    for stretch in range(count):
        t.hold[node, stretch] = _holds(p, t, node, stretch, sort)
    left, right, now = 0, 1, t.hold[node, 0]
    while right < count and t.since[node, right] < lasts:
        now = min(now, t.hold[node, right])
        right += 1
    first = now
    while left + 1 < count:
        leaves = t.since[node, left + 1]
        enters = t.since[node, right] - lasts if right < count else math.inf
        if leaves <= enters:
            left += 1
            then = t.hold[node, left]
            for stretch in range(left + 1, right):
                then = min(then, t.hold[node, stretch])
            if then > now:
                changes.rising[ups], changes.growth[ups] = leaves, then - now
                ups += 1
        else:
            then = min(now, t.hold[node, right])
            right += 1
            if then < now:
                changes.falling[downs], changes.loss[downs] = enters, now - then
                downs += 1
        now = then
    return first, ups, downs


@inner
def _take(p: Problem, t: Timeline, job: int, at: float, found: Starts) -> None:
    """Give a job of several units the first nodes that hold any, from its start on."""
    sort, lasts, left, row = p.sort[job], p.duration[job], p.units[job], p.first[job]
    for node in range(len(t.used)):
        if left == 0:
            break
        if not p.members[p.part[sort], node]:
            continue
        stretch = 0
        while stretch + 1 < t.used[node] and t.since[node, stretch + 1] <= at:
            stretch += 1
        least = t.hold[node, stretch]
        stretch += 1
        while stretch < t.used[node] and t.since[node, stretch] < at + lasts and least > 0:
            least = min(least, t.hold[node, stretch])
            stretch += 1
        if least > 0:
            given = min(left, int(least))
            found.node[row], found.given[row] = node, given
            row += 1
            left -= given
            _reserve(p, t, node, at, lasts, sort, given)
    found.start[job], found.rows[job] = at, row - p.first[job]


@inner
def _reserve(p: Problem, t: Timeline, node: int, at: float, lasts: float, sort: int, units: int) -> None:
    """Take so many units from a node, for a time."""
    begin = _cut(t, node, at)
    end = _cut(t, node, at + lasts)
    for stretch in range(begin, end):
        for k in range(t.free.shape[2]):
            t.free[node, stretch, k] -= units * p.need[k, sort]


@inner
def _cut(t: Timeline, node: int, at: float) -> int:
    """The stretch that begins at a time; the one that holds it is cut in two if there is none."""
    count = t.used[node]
    stretch = count
    while stretch > 0 and t.since[node, stretch - 1] > at:
        stretch -= 1
    if stretch > 0 and t.since[node, stretch - 1] == at:
        return int(stretch - 1)
    for later in range(count, stretch, -1):
        t.since[node, later] = t.since[node, later - 1]
        for k in range(t.free.shape[2]):
            t.free[node, later, k] = t.free[node, later - 1, k]
    t.since[node, stretch] = at
    for k in range(t.free.shape[2]):
        t.free[node, stretch, k] = t.free[node, stretch - 1, k]
    t.used[node] = count + 1
    return int(stretch)
