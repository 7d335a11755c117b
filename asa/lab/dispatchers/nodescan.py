"""Backfilling on a machine whose nodes or jobs differ, compiled: what fits depends on which nodes are free.

The rule is that of `asa.lab.dispatchers.backfill`, on nodes instead of numbers: a job starts on nodes that no
reservation needs while it runs, and a reservation is a time and a set of nodes. That is stricter than on a machine of
slots, where a reservation may still find other nodes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner, inner_allocating
from asa.lab.placement.native import BLOCK, place

Table = npt.NDArray[np.void]


@compiled
def scan_nodes(
    now: float,
    depth: float,
    limit: int,
    method: int,
    jobs: Table,
    demands: Ints,
    waiting: Ints,
    release_at: Floats,
    release: Ints,
    free: Ints,
    allowed: Ints,
    starts: Ints,
    promised: Floats,
) -> tuple[int, Ints]:
    """Which of the waiting jobs start now, and where.

    Parameters
    ----------
    now, depth, limit, starts, promised
        As in `asa.lab.dispatchers.scan.scan`.
    method
        Code of the placement.
    jobs, demands, waiting
        Table of jobs, what one unit of each kind takes, and rows of waiting jobs, in order.
    release_at, release
        When what runs is expected to end [s], in order, and what comes back then: shape (k,), and (k, 4): first node,
        last node, units of each, kind.
    free
        What nodes have left, shape (nodes, resources).
    allowed
        Nodes of each partition, shape (partitions, nodes).

    Returns
    -------
    tuple
        How many start, and on which nodes: rows of position, first node, last node, units of each.
    """
    count = min(limit, len(waiting))
    for j in range(count):
        promised[j] = np.nan
    free = free.copy()
    most = int(min(depth, count))
    begins, stops = np.empty(most), np.empty(most)  # of reservations
    held = np.zeros((most, len(free), free.shape[1]), np.int64)  # what each takes
    base = np.zeros((most, len(free), free.shape[1]), np.int64)  # what is free when it begins, but for reservations
    runs = np.empty((len(free), 3), np.int64)
    chosen, rows = np.empty((64, 4), np.int64), 0
    backs = len(release)  # of rows in use of what comes back
    started, reserved = 0, 0
    for j in range(count):
        job = jobs[waiting[j]]
        need, lasts = demands[job.kind], job.estimate
        members = allowed[max(job.partition, 0) % len(allowed)]
        room = _lowest(free, now, now + lasts, begins, stops, held, base, reserved)
        found = _place(method, room, members, need, job.units, job.per_node, runs)
        if found > 0:
            end = max(now + lasts, np.nextafter(now, math.inf))
            _give(free, runs, found, need, -1)
            for r in range(reserved):
                if begins[r] < end:
                    _give(base[r], runs, found, need, -1)
            chosen = _longer(chosen, rows + found)
            release = _longer(release, backs + found)
            release_at = _longer_times(release_at, backs + found)
            for k in range(found):
                _insert(release_at, release, backs, end, runs[k], job.kind)
                backs += 1
                chosen[rows, 0] = j
                for column in range(3):
                    chosen[rows, column + 1] = runs[k, column]
                rows += 1
            starts[started] = j
            started += 1
        elif depth == 0:
            future = free.copy()
            for k in range(backs):
                _return(future, release[k], demands)
            if _place(method, future, members, need, job.units, job.per_node, runs) > 0:
                break  # it blocks the others; one that can never run would not
        elif reserved < most:
            future = free.copy()
            at, k, found = now, 0, 0
            while found == 0 and at < math.inf:
                at = _next_time(at, release_at, k, backs, stops, reserved)
                while k < backs and release_at[k] <= at:
                    _return(future, release[k], demands)
                    k += 1
                if at < math.inf:
                    room = _lowest(future, at, at + lasts, begins, stops, held, base, reserved)
                    found = _place(method, room, members, need, job.units, job.per_node, runs)
            if found > 0:
                promised[j] = at
                begins[reserved], stops[reserved] = at, max(at + lasts, np.nextafter(at, math.inf))
                _add(base[reserved], future, 1)
                _give(held[reserved], runs, found, need, 1)
                reserved += 1
    return started, chosen[:rows]


@inner
def _next_time(after: float, release_at: Floats, k: int, backs: int, stops: Floats, reserved: int) -> float:
    """The next time [s] at which something comes back, from a job or from a reservation."""
    at = math.inf
    if k < backs:
        at = max(release_at[k], np.nextafter(after, math.inf))  # what is overdue is expected in the very next moment
    for r in range(reserved):
        if stops[r] > after:
            at = min(at, stops[r])
    return at


@inner_allocating
def _lowest(
    free: Ints, start: float, end: float, begins: Floats, stops: Floats, held: Ints, base: Ints, reserved: int
) -> Ints:
    """The least that nodes have left from `start` to `end` [s], reservations taken off.

    Between reservations it only grows, so it is enough to look at the start and where reservations begin.
    """
    room = free.copy()
    for r in range(reserved):
        if begins[r] <= start < stops[r]:
            _add(room, held[r], -1)
    for r in range(reserved):
        if start < begins[r] < end:
            then = base[r].copy()
            for q in range(reserved):
                if begins[q] <= begins[r] < stops[q]:
                    _add(then, held[q], -1)
            for node in range(len(room)):
                for k in range(room.shape[1]):
                    room[node, k] = min(room[node, k], then[node, k])
    return room


@inner_allocating
def _place(method: int, room: Ints, members: Ints, need: Ints, units: int, per_node: int, runs: Ints) -> int:
    """Nodes of a partition for a job, into `runs`; how many rows."""
    blocks = np.zeros((len(room) + BLOCK - 1) // BLOCK, np.int64)
    for node in range(len(room)):
        if not members[node]:
            for k in range(room.shape[1]):
                room[node, k] = 0
        if room[node, 0] > 0:
            blocks[node // BLOCK] += 1
    return int(place(method, room, need, units, per_node, blocks, runs))


@inner
def _add(room: Ints, other: Ints, sign: int) -> None:
    for node in range(len(room)):
        for k in range(room.shape[1]):
            room[node, k] += sign * other[node, k]


@inner
def _give(room: Ints, runs: Ints, found: int, need: Ints, sign: int) -> None:
    for row in range(found):
        for node in range(runs[row, 0], runs[row, 1] + 1):
            for k in range(room.shape[1]):
                room[node, k] += sign * runs[row, 2] * need[k]


@inner
def _return(room: Ints, row: Ints, demands: Ints) -> None:
    for node in range(row[0], row[1] + 1):
        for k in range(room.shape[1]):
            room[node, k] += row[2] * demands[row[3], k]


@inner
def _insert(release_at: Floats, release: Ints, backs: int, end: float, run: Ints, kind: int) -> None:
    """Put what will come back at `end` [s] where it belongs, behind `backs` others at most."""
    row = backs
    while row > 0 and release_at[row - 1] > end:
        release_at[row] = release_at[row - 1]
        for column in range(4):
            release[row, column] = release[row - 1, column]
        row -= 1
    release_at[row] = end
    for column in range(3):
        release[row, column] = run[column]
    release[row, 3] = kind


@inner_allocating
def _longer(table: Ints, rows: int) -> Ints:
    """The same table with room for so many rows at least."""
    if rows <= len(table):
        return table
    longer = np.empty((2 * rows, 4), np.int64)
    for row in range(len(table)):
        for column in range(4):
            longer[row, column] = table[row, column]
    return longer


@inner_allocating
def _longer_times(times: Floats, rows: int) -> Floats:
    if rows <= len(times):
        return times
    longer = np.empty(2 * rows)
    for row in range(len(times)):
        longer[row] = times[row]
    return longer
