"""Backfilling on a machine of slots, compiled: the same rule as `Backfill`'s readable form, and tested to equal it.

A machine of slots has equal nodes, and jobs that differ in how many equal units they take: one number says what is
free.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner, inner_allocating
from asa.lab.core.ranking import ranking

Table = npt.NDArray[np.void]


@compiled
def scan(
    now: float,
    depth: float,
    limit: int,
    free: int,
    slots: int,
    jobs: Table,
    waiting: Ints,
    active: Ints,
    ends: Floats,
    starts: Ints,
    promised: Floats,
    promise: bool,
) -> int:
    """Which of the waiting jobs start now.

    Parameters
    ----------
    now
        Time of the decision [s].
    depth
        How many blocked jobs get a reservation.
    limit
        How many waiting jobs are looked at.
    free, slots
        Units that are free, and that there are.
    jobs
        Table of jobs; its units and estimates [s] are read.
    waiting
        Rows of waiting jobs, in order.
    active, ends
        Rows of running jobs and their expected ends [s], in order of these.
    starts
        Takes the positions in `waiting` of those that start, in order.
    promised
        Takes, for each waiting job, the start it is promised [s], or NaN; only the first `limit` are written.
    promise
        Whether the promises matter even where they cannot change who starts.

    Returns
    -------
    int
        How many start.
    """
    count = min(limit, len(waiting))
    for j in range(count):
        promised[j] = np.nan
    started, k = 0, 0
    while k < count and (jobs[waiting[k]].units <= free or (depth == 0 and jobs[waiting[k]].units > slots)):
        if jobs[waiting[k]].units <= free:  # the first blocked one ends this; one that can never run blocks nobody
            free -= jobs[waiting[k]].units
            starts[started] = k
            started += 1
        k += 1
    if k == count or depth == 0 or (free == 0 and not promise):
        return started
    size = len(active) + started + (count - k) + 2
    times, room = np.empty(size), np.empty(size, np.int64)
    steps = _profile(now, free, jobs, waiting, starts[:started], active, ends, times, room)
    reserved = 0
    for j in range(k, count):
        if room[0] == 0 and (reserved >= depth or not promise):  # nobody else can start
            break
        units, lasts = jobs[waiting[j]].units, jobs[waiting[j]].estimate
        if units <= room[0] and _fits(times, room, steps, units, now + lasts):
            steps = _cut(times, room, steps, units, 0, now, now + lasts)
            starts[started] = j
            started += 1
        elif reserved < depth:
            step = _earliest(times, room, steps, units, lasts)
            if step >= 0:
                promised[j] = times[step]
                steps = _cut(times, room, steps, units, step, times[step], times[step] + lasts)
                reserved += 1
    return started


@inner_allocating
def _profile(
    now: float,
    free: int,
    jobs: Table,
    waiting: Ints,
    starts: Ints,
    active: Ints,
    ends: Floats,
    times: Floats,
    room: Ints,
) -> int:
    """Free units over time, from running jobs and from those that start now; how many steps."""
    soonest = np.nextafter(now, math.inf)  # one that is overdue is expected back in the very next moment
    order = np.empty(len(starts))
    for i in range(len(starts)):
        order[i] = max(now + jobs[waiting[starts[i]]].estimate, soonest)
    rank = ranking(order)
    times[0], room[0] = now, free
    steps, a, b = 1, 0, 0
    while a < len(active) or b < len(starts):
        mine = max(ends[a], soonest) if a < len(active) else math.inf
        new = order[rank[b]] if b < len(starts) else math.inf
        if a < len(active) and mine <= new:
            at, back = mine, jobs[active[a]].units
            a += 1
        else:
            at, back = new, jobs[waiting[starts[rank[b]]]].units
            b += 1
        if at > times[steps - 1]:
            times[steps], room[steps] = at, room[steps - 1]
            steps += 1
        room[steps - 1] += back
    return steps


@inner
def _fits(times: Floats, room: Ints, steps: int, units: int, end: float) -> bool:
    """Whether so many units are free from the first step until `end` [s]."""
    step = 0
    while room[step] >= units:
        step += 1
        if step == steps or times[step] >= end:
            return True
    return False


@inner
def _earliest(times: Floats, room: Ints, steps: int, units: int, lasts: float) -> int:
    """First step from which so many units are free for so long [s]; -1 when never."""
    begin = 0
    for step in range(steps):
        if room[step] < units:
            begin = step + 1
        elif step + 1 < steps and times[step + 1] >= times[begin] + lasts:
            return begin
    return begin if begin < steps else -1


@inner
def _cut(times: Floats, room: Ints, steps: int, units: int, first: int, start: float, end: float) -> int:
    """Take units out from step `first` until `end` [s], cutting the last step in two; the new number of steps."""
    end = max(end, np.nextafter(start, math.inf))  # a box too thin for a float still counts
    last = first
    while last < steps and times[last] < end:
        last += 1
    if end < math.inf and (last == steps or times[last] > end):
        for step in range(steps, last, -1):
            times[step], room[step] = times[step - 1], room[step - 1]
        times[last], room[last] = end, room[last - 1]
        steps += 1
    for step in range(first, last):
        room[step] -= units
    return steps
