"""Whether a job fits at some time beside all that is planned, and giving it its nodes then; compiled."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.lab.core.compiled import inner, inner_allocating
from asa.lab.dispatchers.planning.problem import Problem, Starts
from asa.lab.dispatchers.planning.timeline import Future, divide, least, reserve, stretches


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
