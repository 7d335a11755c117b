"""Non-delay list planning, compiled: at every instant, all jobs start that fit, in the order of a list.

The parallel schedule-generation scheme of project scheduling, on nodes. What makes it quick: for every sort of job it
is known at any time how many units the machine has room for, so that whether a job fits takes one comparison. When a
node changes, what it holds of all sorts is looked up, for nodes have the same left again and again.

References
----------
R. Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", European Journal of
Operational Research 90 (1996).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, inner
from asa.lab.dispatchers.planning.heap import pop, push
from asa.lab.dispatchers.planning.instance import Instance, Plan
from asa.lab.dispatchers.planning.problem import MOST, Problem, Starts, plan_of, problem, starts


def nondelay(instance: Instance, order: Ints, until: float = math.inf) -> Plan:
    """Plan the waiting jobs in this order; with `until` [s] those only that start by then, 0 for now.

    Examples
    --------
    >>> from asa.lab.dispatchers.planning.instance import example
    >>> nondelay(example(), np.array([2, 1, 0])).start
    array([ 0., 20.,  0.])
    """
    p = problem(instance)
    b = _book(instance, p)
    b.waiting[: len(order)] = order
    b.at[WAITING] = len(order)
    _decode(p, b, until)
    return plan_of(p, b.found)


class Book(NamedTuple):
    """Where a plan has come to.

    `free` (nodes, resources) is what nodes have left, and `room` (sorts,) how many units of each sort that is on all
    of them. `fits` (slots, sorts) is how many a node holds that has `known` (slots, resources) left. `pool` (s,) is
    what is left of what all share. `waiting` are the jobs that have not started, in order; `found` is where the others
    are. `ends` and `ending` are a heap: when those end, and which. `at` counts: jobs that wait, jobs in the heap, rows
    of `back` that are back. `now` is the time that was reached [s].
    """

    free: Floats
    room: Floats
    known: Floats
    fits: Floats
    pool: Floats
    waiting: Ints
    ends: Floats
    ending: Ints
    found: Starts
    at: Ints
    now: Floats


WAITING, PENDING, BACK = range(3)

SLOTS = 509
"""For so many different remains of nodes it is known what fits; a prime, for they tend to be multiples of something."""


def _book(instance: Instance, p: Problem) -> Book:
    """The begin of a plan: nothing has started."""
    jobs, sorts = len(instance), len(instance.sorts)
    return Book(
        instance.free.astype(np.float64),
        np.zeros(sorts),
        np.full((SLOTS, instance.capacity.shape[1]), np.nan),
        np.empty((SLOTS, sorts)),
        instance.pool.astype(np.float64),
        np.zeros(jobs, np.int64),
        np.zeros(jobs),
        np.zeros(jobs, np.int64),
        starts(p),
        np.zeros(3, np.int64),
        np.zeros(1),
    )


@compiled
def _decode(p: Problem, b: Book, until: float) -> None:
    """Plan all jobs that wait, or those only that start until a time [s]."""
    for node in range(len(b.free)):
        count(p, b, node, 1.0)
    start_all(p, b)
    while b.at[WAITING] > 0 and step(p, b, until):
        start_all(p, b)


@inner
def start_all(p: Problem, b: Book) -> None:
    """Start what fits now, in order."""
    now, kept = b.now[0], 0
    for place in range(b.at[WAITING]):
        job = b.waiting[place]
        if b.room[p.sort[job]] < p.units[job] or not affords(p, b, job):
            b.waiting[kept] = job
            kept += 1
            continue
        take(p, b, job)
        draw(p, b, job, -1.0)
        b.found.start[job] = now
        b.at[PENDING] = push(b.ends, b.ending, b.at[PENDING], now + p.duration[job], job)
    b.at[WAITING] = kept


@inner
def step(p: Problem, b: Book, until: float) -> bool:
    """Go on to the next instant at which something ends, and give it back; False when that is after `until` [s]."""
    at = math.inf
    if b.at[PENDING] > 0:
        at = b.ends[0]
    if b.at[BACK] < len(p.back_at):
        at = min(at, p.back_at[b.at[BACK]])
    if at > until or at == math.inf:
        return False
    b.now[0] = at
    while b.at[BACK] < len(p.back_at) and p.back_at[b.at[BACK]] <= at:
        row = b.at[BACK]
        for node in range(p.back[row, 0], p.back[row, 1] + 1):
            count(p, b, node, -1.0)
            for k in range(b.free.shape[1]):
                b.free[node, k] += p.back[row, 2] * p.demands[p.back[row, 3], k]
            count(p, b, node, 1.0)
        for k in range(len(b.pool)):
            b.pool[k] += p.drawn[row, k]
        b.at[BACK] += 1
    while b.at[PENDING] > 0 and b.ends[0] <= at:
        job = b.ending[0]
        b.at[PENDING] = pop(b.ends, b.ending, b.at[PENDING])
        draw(p, b, job, 1.0)
        for row in range(p.first[job], p.first[job] + b.found.rows[job]):
            change(p, b, b.found.node[row], p.sort[job], b.found.given[row])
    return True


# ----------------------------------------------------------- what all share


@inner
def affords(p: Problem, b: Book, job: int) -> bool:
    """Whether there is enough left for a job of what all share."""
    fits = True
    for k in range(len(b.pool)):
        fits &= b.pool[k] >= p.units[job] * p.draws[k, p.sort[job]]
    return fits


@inner
def draw(p: Problem, b: Book, job: int, sign: float) -> None:
    """What a job draws comes back (1), or is gone (-1)."""
    for k in range(len(b.pool)):
        b.pool[k] += sign * p.units[job] * p.draws[k, p.sort[job]]


# ----------------------------------------------------------- nodes


@inner
def take(p: Problem, b: Book, job: int) -> None:
    """Give a job that fits the first nodes that hold any of it."""
    sort, left, row = p.sort[job], p.units[job], p.first[job]
    least = p.need[0, sort]
    for node in range(len(b.free)):
        if b.free[node, 0] < least:  # most nodes are full, and this is quickly seen
            continue
        holds = int(held_by(p, b, node, sort))
        if holds > 0:
            given = min(left, holds)
            b.found.node[row], b.found.given[row] = node, given
            row += 1
            left -= given
            change(p, b, node, sort, -given)
            if left == 0:
                break
    b.found.rows[job] = row - p.first[job]


@inner
def held_by(p: Problem, b: Book, node: int, sort: int) -> float:
    """How many units of a sort a node holds now."""
    holds = p.most[sort] * p.members[p.part[sort], node]
    for k in range(b.free.shape[1]):
        need, free = p.need[k, sort], b.free[node, k]
        if need > 0.0:
            if free < need:
                return 0.0
            holds = min(holds, np.floor(free / need))
    return float(holds)


@inner
def change(p: Problem, b: Book, node: int, sort: int, units: int) -> None:
    """A node has so many units of a sort more."""
    count(p, b, node, -1.0)
    for k in range(b.free.shape[1]):
        b.free[node, k] += units * p.need[k, sort]
    count(p, b, node, 1.0)


@inner
def count(p: Problem, b: Book, node: int, sign: float) -> None:
    """What a node holds counts (1), or no longer counts (-1)."""
    slot, several = slot_of(p, b, node), len(p.members) > 1
    for sort in range(len(p.most)):
        holds = b.fits[slot, sort]
        if several:
            holds *= p.members[p.part[sort], node]
        b.room[sort] += sign * holds


@inner
def slot_of(p: Problem, b: Book, node: int) -> int:
    """Where it stands how many units of each sort fit into what a node has; looked up, or else computed."""
    code, known = 0, True
    for k in range(b.free.shape[1]):
        code = code * 1_000_003 + int(b.free[node, k])
    slot = code % SLOTS
    for k in range(b.free.shape[1]):
        known &= b.known[slot, k] == b.free[node, k]
    if not known:
        fit(p, b, node, slot)
    return slot


@inner
def fit(p: Problem, b: Book, node: int, slot: int) -> None:
    """How many units of each sort fit into what a node has: without branches, for all sorts side by side.

    Amounts are whole numbers, so all products are exact below 2^53.
    """
    fits, sorts = b.fits, len(p.most)
    for sort in range(sorts):
        fits[slot, sort] = p.most[sort]
    for k in range(b.free.shape[1]):
        free = b.free[node, k]
        b.known[slot, k] = free
        for sort in range(sorts):
            need = p.need[k, sort]
            holds = np.floor(free * p.inverse[k, sort])
            rest = free - holds * need
            holds += (1.0 if rest >= need else 0.0) - (1.0 if rest < 0.0 else 0.0)
            holds = holds if need > 0.0 else MOST
            fits[slot, sort] = holds if holds < fits[slot, sort] else fits[slot, sort]
