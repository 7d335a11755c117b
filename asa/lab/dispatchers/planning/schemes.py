"""Schedule generation schemes: plans made by listing jobs in an order, active and non-delay.

Of an active plan that is every job before them in the list: the serial schedule-generation scheme of project
scheduling, on nodes. Nothing that comes later holds up what comes earlier, even where it could have started at once; so
short jobs that need much at a time do not wait until all has become quiet. When few jobs may have a reservation the
plan is a non-delay one but for them.

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
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import UnknownName
from asa.lab.core.compiled import compiled, inner
from asa.lab.dispatchers.planning.instance import MOST, Instance, Problem, QueuePlan, Starts, plan_of, problem, starts
from asa.lab.dispatchers.planning.timeline import (
    Future,
    copied,
    earliest,
    fits_at,
    future,
    not_before,
    pop,
    push,
    room_at,
    sweep_room,
    take,
    wider,
)

# -- Active plans: each job as early as possible, in order ------------------------------------------------------------


def active(instance: Instance, order: Ints, *, now: bool = False) -> QueuePlan:
    """Plan the waiting jobs in this order; those `now` that start now, and as many others as decide on these.

    The start of a job that does not fit, whatever ends, is NaN.

    Examples
    --------
    >>> from asa.lab.dispatchers.planning.instance import example
    >>> active(example(), np.array([2, 1, 0])).start
    array([15., 10.,  0.])
    """
    p = problem(instance)
    found = starts(p)
    serial(p, future(instance), order, found, now=now)
    return plan_of(p, found)


def reserving(instance: Instance, order: Ints, may: Bools, *, now: bool = False) -> QueuePlan:
    """Plan them as a non-delay plan, with reservations for some: at every instant whatever fits beside these, in order.

    Parameters
    ----------
    instance, order
        What is planned, and in which order.
    may
        Which jobs may have a reservation, shape (n,). They get one when it is their turn for the first time, for as
        early as possible.
    now
        Plan those only that start now, and as many others as decide on these.

    Examples
    --------
    The wide job comes first and does not fit yet. Only with a reservation does the long one wait for it.

    >>> from asa.lab.dispatchers.planning.instance import example
    >>> order = np.array([1, 0, 2])
    >>> reserving(example(), order, np.array([False, False, False])).start
    array([ 0., 20.,  0.])
    >>> reserving(example(), order, np.array([False, True, False])).start
    array([15., 10.,  0.])
    """
    p, t, at = problem(instance), future(instance), 0.0
    found = starts(p)
    while len(order):
        t = _passed(p, t, order, found, (at, may, now))
        order = order[np.isnan(found.start[order])]
        ends = np.concatenate([p.back_at, found.start + p.duration])
        if now or not (ends > at).any():
            break
        at = float(ends[ends > at].min())
    return plan_of(p, found)


def serial(p: Problem, t: Future, order: Ints, found: Starts, *, now: bool = False) -> None:
    """Plan jobs in this order, on a future that changes; `now`: until nothing more can start now."""
    _passed(p, t, order, found, (0.0, np.ones(len(p.sort), np.bool_), now))


Turn = tuple[float, Bools, bool]
"""When it is [s]; which jobs may have a reservation, shape (n,); whether nothing counts but what starts now."""


def _passed(p: Problem, t: Future, order: Ints, found: Starts, turn: Turn) -> Future:
    """Go through jobs once; the future that there is then."""
    place = 0
    while (place := _pass(p, t, order, place, found, turn)) < len(order):
        t = wider(t)
    return t


@compiled
def _pass(p: Problem, t: Future, order: Ints, begin: int, found: Starts, turn: Turn) -> int:
    """The same from a place in the order on; the place that was reached before there was no more room."""
    now, may, only_now = turn
    sweep, room, last, used, most = sweep_room(t), room_at(p, t, now), len(order), _used(t), t.nodes.since.shape[1]
    for place in range(begin, len(order)):
        while only_now and last > place and not fits_at(p, t, order[last - 1], now, room):
            last -= 1
        if last == place:
            break
        if used + 2 > most:
            used = _used(t)
        if used + 2 > most:
            return place
        job, start, row = order[place], math.inf, 0
        if may[job]:
            start, row = earliest(p, t, job, not_before(p, order[:place], found, job, now), sweep)
        elif fits_at(p, t, job, now, room):
            start = now
        if start < math.inf:  # else nodes that it needs are down
            take(p, t, job, start, row, found)
            used += 2
    return len(order)


@inner
def _used(t: Future) -> int:
    """Stretches of the group that has most."""
    most = 0
    for row in range(t.groups[0]):
        most = max(most, t.nodes.used[row])
    return most


# -- Non-delay plans: no node idles while a job could use it ----------------------------------------------------------


def nondelay(instance: Instance, order: Ints, until: float = math.inf) -> QueuePlan:
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
        occupy(p, b, job)
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
def occupy(p: Problem, b: Book, job: int) -> None:
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


# -- Orders: by rules, and by search ----------------------------------------------------------------------------------

KeyRule = Callable[[Instance], Floats]
"""Keys of the waiting jobs, shape (n,), at least 0; the lowest is first."""


def share(instance: Instance) -> Floats:
    """What each job takes of the machine: the sum over resources of its parts of all there is, shape (n,)."""
    total = np.concatenate([instance.capacity.sum(axis=0), instance.shared])
    demands = np.hstack([instance.demands, instance.shared_demands])
    found: Floats = (instance.units[:, None] * demands[instance.kind] / np.maximum(total, 1)).sum(axis=1)
    return found


def _dense(instance: Instance) -> Floats:
    return np.asarray(instance.duration**2 * share(instance))


def _pcp(instance: Instance) -> Floats:
    slowdown = (instance.waited + instance.duration) / instance.duration
    rank = np.lexsort((instance.duration * share(instance), instance.duration, -slowdown))
    return np.argsort(rank).astype(np.float64)


RULES: Mapping[str, KeyRule] = {
    "dense": _dense,
    "sjf": lambda instance: instance.duration,
    "pcp": _pcp,
    "fcfs": lambda instance: 1 / (1 + instance.waited),
}
"""``dense``: those first that bring most for what they take, by duration^2 share: Smith's rule, by which weighted
completion times are least on one machine, for a weight of one over the duration. ``pcp``: PCP'20's priority, the
slowdown by now, then the duration, then what is taken for how long."""


def keys(instance: Instance, rule: str) -> Floats:
    """Keys of the waiting jobs by a rule, shape (n,)."""
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES)
    return RULES[rule](instance)


LEAST_KEY = 1e-300
"""Keys that a search makes stay between this and its reciprocal."""


def order_of(key: Floats) -> Ints:
    """Jobs by their keys; of equal ones, those who have stood longer."""
    return np.argsort(key, kind="stable")


def improve(
    instance: Instance, key: Floats, *, seconds: float = math.inf, tries: int | None = None, seed: int = 0
) -> tuple[QueuePlan, int]:
    """Search for keys that make a better active plan; the best one, and how many were tried.

    In turn, one job is moved forward, drawn by what its wait adds to all slowdowns; the keys of some are shaken; and
    long jobs are moved on or back as against short ones. What is not worse is kept. Keys below 0 stay as they are:
    those jobs come first, whatever that costs. With `tries` and without `seconds` the result is always the same.
    """
    began, p, empty = time.perf_counter(), problem(instance), future(instance)
    draw, found, best = np.random.default_rng(seed), starts(p), starts(p)
    tried, cost = 0, math.inf
    trial, key = key.astype(np.float64), key.astype(np.float64)
    movable = key >= 0
    while True:
        serial(p, copied(empty), order_of(trial), found)
        reached = float(np.nansum(p.weight * found.start))  # NaN where nodes that a job needs are down
        if reached <= cost:
            cost, key = reached, trial
            for column, kept in zip(found, best, strict=True):
                kept[:] = column
        harm = np.where(movable, np.nan_to_num(p.weight * best.start), 0.0)
        enough = tried == tries or time.perf_counter() - began >= seconds
        if enough or harm.sum() <= 0 or movable.sum() < 2:
            return plan_of(p, best), tried
        trial, tried = key.copy(), tried + 1
        with np.errstate(over="ignore"):  # keys drift as long as nothing is better
            moved = trial[movable] * _move(draw, tried, p.duration, harm)[movable]
        trial[movable] = np.clip(moved, LEAST_KEY, 1 / LEAST_KEY)


def _move(draw: np.random.Generator, turn: int, duration: Floats, harm: Floats) -> Floats:
    """What the keys are to be multiplied by, shape (n,)."""
    jobs = len(duration)
    if turn % 3 == 0:
        return np.asarray(duration ** draw.normal(0.0, 0.5))
    factors = np.ones(jobs)
    if turn % 3 == 1:
        job = int(np.searchsorted(np.cumsum(harm), draw.random() * harm.sum(), side="right"))
        factors[min(job, jobs - 1)] = math.exp(-abs(draw.normal()))
    else:
        shaken = draw.random(jobs) < max(2 / jobs, 0.02)
        factors[shaken] = np.exp(draw.normal(0.0, 0.7, int(shaken.sum())))
    return factors
