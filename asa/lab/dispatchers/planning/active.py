"""List planning that looks ahead, compiled: jobs start as early as they can beside those that have a reservation.

Of an active plan that is every job before them in the list: the serial schedule-generation scheme of project
scheduling, on nodes. Nothing that comes later holds up what comes earlier, even where it could have started at once; so
short jobs that need much at a time do not wait until all has become quiet. When few jobs may have a reservation the
plan is a non-delay one but for them.

References
----------
R. Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", European Journal of
Operational Research 90 (1996).
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.lab.core.compiled import compiled, inner
from asa.lab.dispatchers.planning.earliest import earliest, not_before, sweep_room
from asa.lab.dispatchers.planning.fitting import fits_at, room_at, take
from asa.lab.dispatchers.planning.instance import Instance, Plan
from asa.lab.dispatchers.planning.problem import Problem, Starts, plan_of, problem, starts
from asa.lab.dispatchers.planning.timeline import Future, future, wider


def active(instance: Instance, order: Ints, *, now: bool = False) -> Plan:
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


def reserving(instance: Instance, order: Ints, may: Bools, *, now: bool = False) -> Plan:
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
