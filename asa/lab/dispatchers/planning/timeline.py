"""What a machine will have left over time, and where jobs fit into it; compiled.

Neighbouring nodes that are alike, now and at all times, are one group; a job that takes some of them divides it. So
what a planner looks at grows with the jobs, and not with the nodes.

A job of one unit starts in the first group of nodes that has room, so groups are looked at one by one. The units of
another may be spread over many nodes, and start together. How many of them a group holds throughout changes with the
start: it grows when the start leaves behind a stretch that had held fewer, and shrinks when the end enters one. A sweep
over these changes, of all groups, in the order of their times, finds the first start at which all of them hold enough.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner, inner_allocating
from asa.lab.dispatchers.planning.instance import Instance, Problem, Starts

# -- Binary heaps of keys, each with a value beside it ----------------------------------------------------------------

Values = npt.NDArray[Any]


@inner
def heapify(keys: Floats, values: Values, size: int) -> None:
    """Make a heap of the first keys."""
    for place in range(size // 2 - 1, -1, -1):
        _sink(keys, values, place, size)


@inner
def push(keys: Floats, values: Values, size: int, key: float, value: float) -> int:
    """Put one more in; the new size."""
    place = size
    while place > 0 and keys[(place - 1) // 2] > key:
        above = (place - 1) // 2
        keys[place], values[place] = keys[above], values[above]
        place = above
    keys[place], values[place] = key, value
    return size + 1


@inner
def pop(keys: Floats, values: Values, size: int) -> int:
    """Take the one in front out; the new size."""
    keys[0], values[0] = keys[size - 1], values[size - 1]
    _sink(keys, values, 0, size - 1)
    return size - 1


@inner
def _sink(keys: Floats, values: Values, place: int, size: int) -> None:
    """Let a key sink until none below it is less."""
    key, value, child = keys[place], values[place], 2 * place + 1
    while child < size:
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], values[place] = keys[child], values[child]
        place, child = child, 2 * child + 1
    keys[place], values[place] = key, value


# -- What nodes have left over time -----------------------------------------------------------------------------------

_ROOM = 16  # stretches of a row, to begin with


class FreeTimeline(NamedTuple):
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

    nodes: FreeTimeline
    pool: FreeTimeline
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


def _empty(free: Ints, rows: int, room: int) -> FreeTimeline:
    made = FreeTimeline(np.zeros((rows, room)), np.zeros((rows, room, free.shape[1])), np.ones(rows, np.int64))
    made.free[: len(free), 0] = free
    return made


@compiled
def _give_back(t: FreeTimeline, at: Floats, rows: Ints, amounts: Ints) -> None:
    """Rows from the first to the last have so much more from a time on."""
    for entry in range(len(at)):
        for row in range(rows[entry, 0], rows[entry, 1] + 1):
            stretch = _cut(t, row, at[entry])
            for k in range(t.free.shape[2]):
                t.free[row, stretch, k] += amounts[entry, k]


def wider(t: Future) -> Future:
    """The same with room for twice as many stretches of nodes."""
    nodes, more = t.nodes, ((0, 0), (0, t.nodes.since.shape[1]))
    roomy = FreeTimeline(np.pad(nodes.since, more), np.pad(nodes.free, (*more, (0, 0))), nodes.used)
    return t._replace(nodes=roomy)


def copied(t: Future) -> Future:
    """The same, to be planned with."""
    nodes, pool = (FreeTimeline(line.since.copy(), line.free.copy(), line.used.copy()) for line in (t.nodes, t.pool))
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
def stretches(t: FreeTimeline, row: int, begin: float, end: float) -> tuple[int, int]:
    """The first stretch of a row that has to do with what is between two times, and the one behind the last."""
    first, used = 0, t.used[row]
    while first + 1 < used and t.since[row, first + 1] <= begin:
        first += 1
    last = first + 1
    while last < used and t.since[row, last] < end:
        last += 1
    return first, last


@inner
def least(t: FreeTimeline, row: int, k: int, first: int, last: int) -> float:
    """The least that a row has of a resource from one stretch until before another."""
    found = t.free[row, first, k]
    for stretch in range(first + 1, last):
        found = min(found, t.free[row, stretch, k])
    return float(found)


@inner
def reserve(t: FreeTimeline, row: int, at: float, end: float, need: Floats, sort: int, units: float) -> None:
    """Take so many units of a sort from a row, from one time to another."""
    first, last = _cut(t, row, at), _cut(t, row, end)
    for stretch in range(first, last):
        for k in range(t.free.shape[2]):
            t.free[row, stretch, k] -= units * need[k, sort]


@inner
def _cut(t: FreeTimeline, row: int, at: float) -> int:
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


# -- Whether a job fits at a time -------------------------------------------------------------------------------------


@inner_allocating
def room_at(p: Problem, t: Future, at: float) -> Floats:
    """How many units of each sort all nodes together hold at an instant, shape (sorts,)."""
    room, row = np.zeros(len(p.most)), 0
    while row >= 0:
        first, _ = stretches(t.nodes, row, at, at)
        for sort in range(len(room)):
            if p.members[p.part[sort], t.first[row]]:
                room[sort] += holds(p, t, row, first, sort) * t.size[row]
        row = t.after[row]
    return room


@inner
def fits_at(p: Problem, t: Future, job: int, at: float, room: Floats) -> bool:
    """Whether a job can start at a time, at which there was once so much room."""
    sort, end, there, row = p.sort[job], at + p.duration[job], 0.0, 0
    if p.units[job] > room[sort]:
        return False
    if len(p.draws) > 0:
        first, last = stretches(t.pool, 0, at, end)
        for k in range(len(p.draws)):
            if least(t.pool, 0, k, first, last) < p.units[job] * p.draws[k, sort]:
                return False
    while row >= 0 and there < p.units[job]:
        if p.members[p.part[sort], t.first[row]]:
            there += _throughout(p, t, row, sort, at, end) * t.size[row]
        row = t.after[row]
    return bool(there >= p.units[job])


@inner
def take(p: Problem, t: Future, job: int, at: float, row: int, found: Starts) -> None:
    """Give a job the first nodes that hold any of it, from its start on; `row`: the group from which on to look."""
    sort, end, left, place = p.sort[job], at + p.duration[job], p.units[job], p.first[job]
    while left > 0 and row >= 0:
        units = 0
        if p.members[p.part[sort], t.first[row]]:
            units = int(min(_throughout(p, t, row, sort, at, end), left))
        if units > 0:
            nodes = min(t.size[row], left // units)
            if nodes < t.size[row]:
                divide(t, row, nodes)
            for node in range(t.first[row], t.first[row] + nodes):
                found.node[place], found.given[place] = node, units
                place += 1
            left -= nodes * units
            reserve(t.nodes, row, at, end, p.need, sort, units)
        row = t.after[row]
    found.start[job], found.rows[job] = at, place - p.first[job]
    if len(p.draws) > 0:
        reserve(t.pool, 0, at, end, p.draws, sort, p.units[job])


@inner
def holds(p: Problem, t: Future, row: int, stretch: int, sort: int) -> float:
    """How many units of a sort each node of a group holds during a stretch."""
    found = p.most[sort]
    for k in range(len(p.need)):
        need, free = p.need[k, sort], t.nodes.free[row, stretch, k]
        if need > 0:
            if free < need:
                return 0.0
            found = min(found, np.floor(free / need))
    return float(found)


@inner
def _throughout(p: Problem, t: Future, row: int, sort: int, begin: float, end: float) -> float:
    """How many units of a sort each node of a group holds all the time between two times."""
    first, last = stretches(t.nodes, row, begin, end)
    found = holds(p, t, row, first, sort)
    for stretch in range(first + 1, last):
        if found > 0:
            found = min(found, holds(p, t, row, stretch, sort))
    return found


# -- When a job can start at the earliest -----------------------------------------------------------------------------


class Sweep(NamedTuple):
    """Room for a sweep: starts [s] from which on nodes hold more units of a job, or behind which fewer, and how many.

    `held` (stretches,) is what each node of the group at hand holds, stretch by stretch.
    """

    rising: Floats
    growth: Floats
    falling: Floats
    loss: Floats
    held: Floats


@compiled
def earliest_starts(p: Problem, t: Future) -> Floats:
    """When each job could start if it were the next [s], shape (n,)."""
    sweep, found = sweep_room(t), np.empty(len(p.sort))
    for job in range(len(found)):
        found[job] = earliest(p, t, job, 0.0, sweep)[0]
    return found


@inner_allocating
def sweep_room(t: Future) -> Sweep:
    """Room for one job after the other."""
    size = t.nodes.since.size
    return Sweep(np.empty(size), np.empty(size), np.empty(size), np.empty(size), np.empty(t.nodes.since.shape[1]))


@inner
def earliest(p: Problem, t: Future, job: int, begin: float, sweep: Sweep) -> tuple[float, int]:
    """When a job can start, from a time on [s]; inf: never. And the first group that may hold any of it then."""
    while True:
        at, row = _on_nodes(p, t, job, begin, sweep)
        if len(p.draws) == 0 or at == math.inf:
            return at, row
        begin = _in_row(t.pool, 0, p.draws, p.sort[job], p.units[job], p.duration[job], at, math.inf)
        if begin == at or begin == math.inf:
            return begin, row


@inner
def not_before(p: Problem, planned: Ints, found: Starts, job: int, begin: float) -> float:
    """A job never starts before one that was planned earlier, needs no more of anything, and is no longer [s]."""
    for other in planned:
        start = found.start[other]
        easier = p.units[other] <= p.units[job] and p.duration[other] <= p.duration[job]
        if start > begin and easier and _no_more(p, p.sort[other], p.sort[job]):
            begin = start
    return begin


@inner
def _no_more(p: Problem, one: int, other: int) -> bool:
    """Whether a unit of one sort needs no more of anything than one of another, and may go wherever that goes."""
    less = p.part[one] == p.part[other] and p.most[one] >= p.most[other]
    for k in range(len(p.need)):
        less &= p.need[k, one] <= p.need[k, other]
    for k in range(len(p.draws)):
        less &= p.draws[k, one] <= p.draws[k, other]
    return bool(less)


@inner
def _on_nodes(p: Problem, t: Future, job: int, begin: float, sweep: Sweep) -> tuple[float, int]:
    """The same, whatever the machine has as a whole.

    Jobs of several units are looked for span by span, each twice as long as the one before: most start long before all
    that is planned ends.
    """
    if p.units[job] == 1:
        return _of_one_unit(p, t, job, begin)
    end, last = max(2 * begin, begin + p.duration[job]), 0.0
    for row in range(t.groups[0]):
        last = max(last, t.nodes.since[row, t.nodes.used[row] - 1])
    while True:
        at = _of_many_units(p, t, job, begin, end, sweep)
        if at < math.inf or end >= last:
            return at, 0
        begin, end = end, 2 * end


# ----------------------------------------------------------- one unit


@inner
def _of_one_unit(p: Problem, t: Future, job: int, begin: float) -> tuple[float, int]:
    """When a job of one unit can start, from a time on, and in which group: the first one that has room so early."""
    sort, lasts = p.sort[job], p.duration[job]
    best, where, row = math.inf, 0, 0
    while row >= 0 and best > begin:
        if p.members[p.part[sort], t.first[row]]:
            at = _in_row(t.nodes, row, p.need, sort, 1.0, lasts, begin, best)
            if at < best:
                best, where = at, row
        row = t.after[row]
    return best, where


@inner
def _in_row(
    t: FreeTimeline, row: int, need: Floats, sort: int, units: float, lasts: float, begin: float, before: float
) -> float:
    """When a row first has room for so many units of a sort, for so long; inf if not from `begin` on, and `before`."""
    since = math.inf
    for stretch in range(t.used[row]):
        ends = t.since[row, stretch + 1] if stretch + 1 < t.used[row] else math.inf
        begins = max(t.since[row, stretch], begin)
        if ends <= begins:
            continue
        if min(since, begins) >= before:
            break
        fits = True
        for k in range(t.free.shape[2]):
            fits &= t.free[row, stretch, k] >= units * need[k, sort]
        if not fits:
            since = math.inf
            continue
        since = min(since, begins)
        if ends >= since + lasts:
            return float(since)
    return math.inf


# ----------------------------------------------------------- many units


@inner
def _of_many_units(p: Problem, t: Future, job: int, begin: float, end: float, sweep: Sweep) -> float:
    """When a job of several units can start between two times; inf if not."""
    sort, there, ups, downs, row = p.sort[job], 0.0, 0, 0, 0
    while row >= 0:
        if p.members[p.part[sort], t.first[row]]:
            units, ups, downs = _changes(p, t, row, job, begin, end, sweep, ups, downs)
            there += units
        row = t.after[row]
    if there >= p.units[job]:
        return begin
    heapify(sweep.rising, sweep.growth, ups)
    heapify(sweep.falling, sweep.loss, downs)
    while ups > 0:
        at = sweep.rising[0]
        while ups > 0 and sweep.rising[0] == at:
            there += sweep.growth[0]
            ups = pop(sweep.rising, sweep.growth, ups)
        while downs > 0 and sweep.falling[0] < at:
            there -= sweep.loss[0]
            downs = pop(sweep.falling, sweep.loss, downs)
        if there >= p.units[job]:
            return float(at)
    return math.inf


@inner
def _changes(
    p: Problem, t: Future, row: int, job: int, begin: float, end: float, sweep: Sweep, ups: int, downs: int
) -> tuple[float, int, int]:
    """How many units of a job a group holds throughout when it starts at a time, and how that changes until another.

    Stretches from `left` until before `right` are those under the job. What is found is put behind the `ups` and
    `downs` that there are; returned with their new numbers.
    """
    sort, lasts, count, since, held = p.sort[job], p.duration[job], t.nodes.used[row], t.nodes.since, sweep.held
    left, nodes = 0, float(t.size[row])
    while left + 1 < count and since[row, left + 1] <= begin:
        left += 1
    held[left] = holds(p, t, row, left, sort)
    right, now = left + 1, held[left]
    while right < count and since[row, right] < begin + lasts:
        held[right] = holds(p, t, row, right, sort)
        now = min(now, held[right])
        right += 1
    at_begin = now
    while left + 1 < count:
        leaves = since[row, left + 1]
        enters = _latest(since[row, right], lasts) if right < count else math.inf
        if min(leaves, enters) > end:
            break
        if leaves <= enters and left + 1 < right:  # else it is too short to be seen at such times
            left += 1
            then = held[left]
            for stretch in range(left + 1, right):
                then = min(then, held[stretch])
            if then > now:
                sweep.rising[ups], sweep.growth[ups] = leaves, (then - now) * nodes
                ups += 1
        else:
            held[right] = holds(p, t, row, right, sort)
            then = min(now, held[right])
            right += 1
            if then < now:
                sweep.falling[downs], sweep.loss[downs] = enters, (now - then) * nodes
                downs += 1
        now = then
    return at_begin * nodes, ups, downs


@inner
def _latest(end: float, lasts: float) -> float:
    """When what lasts so long has to start at the latest, to be over at a time [s]; exact in floating point."""
    start = end - lasts
    return start if start + lasts <= end else float(np.nextafter(start, -math.inf))
