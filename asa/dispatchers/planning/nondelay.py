"""Non-delay list planning, compiled: at every instant, all jobs start that fit, in the order of a list.

The parallel schedule-generation scheme of project scheduling, on nodes. What makes it quick: for every sort of job it
is known at any time how many units the machine has room for, so that whether a job fits takes one comparison. When a
node changes, what it can hold is computed anew for all sorts at once.

References
----------
R. Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", European Journal of
Operational Research 90 (1996).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.cluster import Ints
from asa.core.compiled import compiled, inner
from asa.core.workload import Floats
from asa.dispatchers.planning.instance import Instance, Plan
from asa.dispatchers.planning.problem import MOST, Problem, plan_of, problem


def nondelay(instance: Instance, order: Ints, until: float = math.inf) -> Plan:
    """Plan the waiting jobs in this order; with `until` [s] those only that start by then, 0 for now.

    Examples
    --------
    >>> from asa.dispatchers.planning.instance import example
    >>> nondelay(example(), np.array([2, 1, 0])).start
    array([ 0., 20.,  0.])
    """
    p = problem(instance)
    b = _book(instance, p)
    b.waiting[: len(order)] = order
    b.at[WAITING] = len(order)
    _decode(p, b, until)
    return plan_of(p, b.start, b.rows, b.node, b.given)


class Book(NamedTuple):
    """Where a plan has come to.

    `free` (nodes, resources) is what nodes have left, `holds` (nodes, sorts) how many units of each sort that is,
    `room` (sorts,) all nodes together, and `fit` (sorts,) is there to compute them. `waiting` are the jobs that have
    not started, in order. `ends` and `ending` are a heap: when jobs end that were planned, and which. `start` is NaN
    for those that wait; `rows`, `node` and `given` are where the others are. `at` counts: jobs that wait, jobs in the
    heap, rows of `back` that are back. `now` is the time that was reached [s].
    """

    free: Floats
    holds: npt.NDArray[np.float32]
    room: Floats
    fit: Floats
    waiting: Ints
    ends: Floats
    ending: Ints
    start: Floats
    rows: Ints
    node: Ints
    given: Ints
    at: Ints
    now: Floats


WAITING, PENDING, BACK = range(3)


def _book(instance: Instance, p: Problem) -> Book:
    """The begin of a plan: nothing has started."""
    jobs, nodes, sorts = len(instance), len(instance.capacity), len(instance.sorts)
    return Book(
        instance.free.astype(np.float64),
        np.zeros((nodes, sorts), np.float32),
        np.zeros(sorts),
        np.zeros(sorts),
        np.zeros(jobs, np.int64),
        np.zeros(jobs),
        np.zeros(jobs, np.int64),
        np.full(jobs, np.nan),
        np.zeros(jobs, np.int64),
        np.zeros(int(p.first[-1]), np.int64),
        np.zeros(int(p.first[-1]), np.int64),
        np.zeros(3, np.int64),
        np.zeros(1),
    )


@compiled
def _decode(p: Problem, b: Book, until: float) -> None:
    """Plan all jobs that wait, or those only that start until a time [s]."""
    for node in range(len(b.free)):
        recount(p, b, node)
    start_all(p, b)
    while b.at[WAITING] > 0 and step(p, b, until):
        start_all(p, b)


@inner
def start_all(p: Problem, b: Book) -> None:
    """Start what fits now, in order."""
    now, kept = b.now[0], 0
    for place in range(b.at[WAITING]):
        job = b.waiting[place]
        if b.room[p.sort[job]] < p.units[job]:
            b.waiting[kept] = job
            kept += 1
            continue
        take(p, b, job)
        b.start[job] = now
        push(b, now + p.duration[job], job)
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
            for k in range(b.free.shape[1]):
                b.free[node, k] += p.back[row, 2] * p.demands[p.back[row, 3], k]
            recount(p, b, node)
        b.at[BACK] += 1
    while b.at[PENDING] > 0 and b.ends[0] <= at:
        job = pop(b)
        for row in range(p.first[job], p.first[job] + b.rows[job]):
            change(p, b, b.node[row], p.sort[job], b.given[row])
    return True


# ----------------------------------------------------------- nodes


@inner
def take(p: Problem, b: Book, job: int) -> None:
    """Give a job that fits the first nodes that hold any of it."""
    sort, left, row = p.sort[job], p.units[job], p.first[job]
    for node in range(len(b.free)):
        holds = int(b.holds[node, sort])
        if holds > 0:
            given = min(left, holds)
            b.node[row], b.given[row] = node, given
            row += 1
            left -= given
            if left == 0:
                break
    b.rows[job] = row - p.first[job]
    for taken in range(p.first[job], row):
        change(p, b, b.node[taken], sort, -b.given[taken])


@inner
def change(p: Problem, b: Book, node: int, sort: int, units: int) -> None:
    """A node has so many units of a sort more."""
    for k in range(b.free.shape[1]):
        b.free[node, k] += units * p.need[k, sort]
    recount(p, b, node)


@inner
def recount(p: Problem, b: Book, node: int) -> None:
    """How many units of each sort a node holds now: without branches, for all sorts side by side.

    Amounts are whole numbers, so all products are exact below 2^53.
    """
    fit, sorts = b.fit, len(p.most)
    for sort in range(sorts):
        fit[sort] = p.most[sort]
    for k in range(b.free.shape[1]):
        free = b.free[node, k]
        for sort in range(sorts):
            need = p.need[k, sort]
            holds = np.floor(free * p.inverse[k, sort])
            rest = free - holds * need
            holds += (1.0 if rest >= need else 0.0) - (1.0 if rest < 0.0 else 0.0)
            holds = holds if need > 0.0 else MOST
            fit[sort] = holds if holds < fit[sort] else fit[sort]
    if len(p.members) > 1:
        for sort in range(sorts):
            fit[sort] *= p.members[p.part[sort], node]
    for sort in range(sorts):
        b.room[sort] += fit[sort] - b.holds[node, sort]
        b.holds[node, sort] = fit[sort]


# ----------------------------------------------------------- heap of ends


@inner
def push(b: Book, end: float, job: int) -> None:
    """Keep in mind when a job ends."""
    place = b.at[PENDING]
    b.at[PENDING] += 1
    while place > 0 and b.ends[(place - 1) // 2] > end:
        above = (place - 1) // 2
        b.ends[place], b.ending[place] = b.ends[above], b.ending[above]
        place = above
    b.ends[place], b.ending[place] = end, job


@inner
def pop(b: Book) -> int:
    """The job that ends first."""
    first = b.ending[0]
    b.at[PENDING] -= 1
    size = b.at[PENDING]
    end, job = b.ends[size], b.ending[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and b.ends[child + 1] < b.ends[child]:
            child += 1
        if b.ends[child] >= end:
            break
        b.ends[place], b.ending[place] = b.ends[child], b.ending[child]
        place = child
    b.ends[place], b.ending[place] = end, job
    return int(first)
