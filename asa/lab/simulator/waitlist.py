"""The queue of a simulated machine, compiled: who waits, in which order, and what holds whom back."""

from __future__ import annotations

import math

from asa.lab.core.compiled import compiled, inner
from asa.lab.simulator.state import ELIGIBLE, HELD, WAITING, State


@inner
def write(s: State, kind: int, what: int, value: float) -> None:
    """Add a line to the log."""
    world = s.world[0]
    line = s.log[world.lines]
    line.at = world.now
    line.kind = kind
    line.what = what
    line.value = value
    world.lines += 1


@inner
def notice(s: State, job: int) -> None:
    """Something has happened to a job; its driver may want to know."""
    if s.fates[job].watched:
        s.world[0].notice = 1


@inner
def join(s: State, job: int) -> None:
    """Put a job into the queue, at its place."""
    world = s.world[0]
    row = world.waiting
    mine = s.jobs[job].place
    while row > 0 and s.jobs[s.queue[row - 1]].place > mine:
        s.queue[row] = s.queue[row - 1]
        row -= 1
    s.queue[row] = job
    world.waiting += 1
    world.dirty = 1


@compiled
def leave(s: State, job: int) -> None:
    """Take a job out of the queue; found by its place."""
    world = s.world[0]
    mine = s.jobs[job].place
    low, high = 0, world.waiting
    while low < high:
        middle = (low + high) >> 1
        if s.jobs[s.queue[middle]].place < mine:
            low = middle + 1
        else:
            high = middle
    for row in range(low, world.waiting - 1):
        s.queue[row] = s.queue[row + 1]
    world.waiting -= 1
    world.dirty = 1


@compiled
def shut(s: State, job: int, gate: int) -> None:
    """Hold a job back."""
    fate = s.fates[job]
    fate.gates |= gate
    if fate.status == WAITING:
        leave(s, job)
        fate.status = HELD


@compiled
def unshut(s: State, job: int, gate: int) -> None:
    """Take one reason away; with the last one the job joins the queue, and begins to age if it does not yet."""
    fate = s.fates[job]
    fate.gates &= ~gate
    if fate.status == HELD and fate.gates == 0:
        row = s.jobs[job]
        now = s.world[0].now
        fate.status = WAITING
        if math.isnan(row.eligible):
            row.eligible = now
            if now > row.submit:
                write(s, ELIGIBLE, job, 0.0)
        if math.isnan(row.accrue):
            row.accrue = now
        join(s, job)
        notice(s, job)
