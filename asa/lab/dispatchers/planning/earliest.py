"""When a job can start at the earliest beside all that is planned; compiled.

A job of one unit starts in the first group of nodes that has room, so groups are looked at one by one. The units of
another may be spread over many nodes, and start together. How many of them a group holds throughout changes with the
start: it grows when the start leaves behind a stretch that had held fewer, and shrinks when the end enters one. A sweep
over these changes, of all groups, in the order of their times, finds the first start at which all of them hold enough.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner, inner_allocating
from asa.lab.dispatchers.planning.fitting import holds
from asa.lab.dispatchers.planning.heap import heapify, pop
from asa.lab.dispatchers.planning.problem import Problem, Starts
from asa.lab.dispatchers.planning.timeline import Future, Timeline


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
    t: Timeline, row: int, need: Floats, sort: int, units: float, lasts: float, begin: float, before: float
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
