"""How good a plan can be at best: lower bounds on the mean slowdown of an instance.

All jobs together are taken for a fluid that one machine works off, the densest first, none before the time at which it
could start on its nodes if it were alone. What a job weighs on that machine is its demand of one resource, or of a mix
of two; and, for what nodes really can hold, its share of a node, rounded in ways under which no node holds more than
before (dual feasible functions).

References
----------
M. X. Goemans, M. Queyranne, A. S. Schulz, M. Skutella and Y. Wang, "Single machine scheduling with release dates", SIAM
Journal on Discrete Mathematics 15 (2002): mean busy times. S. P. Fekete and J. Schepers, "New classes of fast lower
bounds for bin packing problems", Mathematical Programming 91 (2001): dual feasible functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled, ranking
from asa.lab.dispatchers.planning.instance import Instance, problem
from asa.lab.dispatchers.planning.timeline import earliest_starts, future

Rounding = Callable[[Floats], Floats]
"""Changes shares of a node, in [0, 1], in such a way that those that sum to at most 1 still do."""

_MIXES = (0.25, 0.5, 0.75)


def lower_bound(instance: Instance) -> float:
    """No plan has a smaller mean slowdown than this; 0 where no job waits."""
    if not len(instance):
        return 0.0
    p = problem(instance)
    early = earliest_starts(p, future(instance))
    alone = float(p.weight @ early)
    best = max([alone, *(_fluid_cost(instance, p.weight, early, density) for density in _densities(instance))])
    return float((best + (p.weight * (instance.waited + instance.duration)).sum()) / len(instance))


def roundings() -> Iterator[Rounding]:
    """Dual feasible functions."""
    yield from (partial(_steps, k) for k in (1, 2, 3, 4))
    yield from (partial(_ends, least) for least in (0.15, 0.25, 0.34))


def _ends(least: float, share: Floats) -> Floats:
    """What leaves no room for `least` takes all; what is less than that, nothing."""
    return np.where(share > 1 - least, 1.0, np.where(share < least, 0.0, share))


def _steps(k: int, share: Floats) -> Floats:
    """A share that is no multiple of 1 / (k + 1) becomes the multiple of 1 / k that it reaches."""
    scaled = share * (k + 1)
    whole = np.isclose(scaled, np.round(scaled), rtol=0, atol=1e-9)
    return np.where(whole, share, np.floor(scaled) / k)


Density = tuple[Floats, Floats]
"""What a unit of each kind takes of the machine, shape (kinds,), and what each node offers, shape (nodes,). The machine
offers one a node, for what it has as a whole too, so that mixes are fair."""


def _densities(instance: Instance) -> Iterator[Density]:
    found = []
    for k in range(len(instance.resources)):
        amounts = _amounts(instance.demands[:, k], instance.capacity[:, k].astype(np.float64))
        found.append([amounts, *(_rounded(instance, k, rounding) for rounding in roundings())])
    nodes = np.ones(len(instance.capacity))
    for k, amount in enumerate(instance.shared):
        found.append([_amounts(instance.shared_demands[:, k], nodes * (amount / len(nodes)))])
    for densities in found:
        yield from densities
    for one, other in combinations(found, 2):
        for first, second, mix in product(one, other, _MIXES):
            yield mix * first[0] + (1 - mix) * second[0], mix * first[1] + (1 - mix) * second[1]


def _amounts(demands: Ints, has: Floats) -> Density:
    """By plain amounts of something, of which each node has so much."""
    total = float(has.sum())
    scale = len(has) / total if total > 0 else 0.0
    return demands.astype(np.float64) * scale, has * scale


def _rounded(instance: Instance, resource: int, rounding: Rounding) -> Density:
    """By one resource: nodes that have some of it offer 1 each, a unit takes the least share that it is of any."""
    capacity = instance.capacity[:, resource].astype(np.float64)
    there = capacity > 0
    if not there.any():
        return np.zeros(len(instance.demands)), np.zeros(len(capacity))
    shares: Floats = instance.demands[:, resource, None] / np.unique(capacity[there])[None, :]
    return rounding(np.minimum(shares, 1.0)).min(axis=1), there.astype(np.float64)


def _fluid_cost(instance: Instance, weight: Floats, early: Floats, density: Density) -> float:
    """Least sum of weighted starts of the fluid."""
    takes, offers = density
    area = instance.units * takes[instance.kind] * instance.duration
    times = np.concatenate([[0.0], instance.release_at])
    first, last, units, kind = instance.release.T
    back = (last - first + 1) * units * takes[kind]
    speed = offers.sum() - back.sum() + np.concatenate([[0.0], np.cumsum(back)])
    busy = _mean_busy(area, weight, early, times, np.maximum(speed, 0.0))
    return float(weight @ np.where(area > 0, busy - instance.duration / 2, early))


@compiled
def _mean_busy(area: Floats, weight: Floats, early: Floats, times: Floats, speed: Floats) -> Floats:
    """Mean busy times [s] of jobs on one machine whose speed changes at `times`: always the one that weighs most."""
    jobs = len(area)
    rate = np.empty(jobs)
    for job in range(jobs):
        rate[job] = -weight[job] / area[job] if area[job] > 0 else 0.0
    rank, arrivals = ranking(rate), ranking(early)
    place = np.empty(jobs, np.int64)
    for turn in range(jobs):
        place[rank[turn]] = turn
    waiting = np.zeros(jobs, np.bool_)  # by place
    left, busy = area.copy(), np.zeros(jobs)
    now, arrived, step, first, done = 0.0, 0, 0, jobs, 0
    for job in range(jobs):
        if area[job] <= 0:
            done += 1
    while done < jobs:
        while arrived < jobs and early[arrivals[arrived]] <= now:
            job = arrivals[arrived]
            if area[job] > 0:
                waiting[place[job]] = True
                first = min(first, place[job])
            arrived += 1
        while step + 1 < len(times) and times[step + 1] <= now:
            step += 1
        until = math.inf
        if arrived < jobs:
            until = early[arrivals[arrived]]
        if step + 1 < len(times):
            until = min(until, times[step + 1])
        while first < jobs and not waiting[first]:
            first += 1
        if first == jobs or speed[step] <= 0:
            now = until
            continue
        job = rank[first]
        end = min(until, now + left[job] / speed[step])
        share = (end - now) * speed[step]
        busy[job] += share * (now + end) / 2
        left[job] -= share
        if end < until or left[job] <= 1e-12 * area[job]:
            busy[job] /= area[job]
            waiting[first] = False
            done += 1
        now = end
    return busy
