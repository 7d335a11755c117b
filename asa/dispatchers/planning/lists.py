"""Lists: in which order jobs are planned, by rules, and by trying for as long as there is time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from asa.core.cluster import Ints
from asa.core.errors import UnknownName
from asa.core.workload import Floats
from asa.dispatchers.planning.active import Timeline, serial, starts, timeline
from asa.dispatchers.planning.instance import Instance, Plan
from asa.dispatchers.planning.problem import plan_of, problem

Rule = Callable[[Instance], Floats]
"""Keys of the waiting jobs, shape (n,), at least 0; the lowest is first."""


def share(instance: Instance) -> Floats:
    """What each job takes of the machine: the sum over resources of its parts of all there is, shape (n,)."""
    total = np.maximum(instance.capacity.sum(axis=0), 1)
    found: Floats = (instance.units[:, None] * instance.demands[instance.kind] / total).sum(axis=1)
    return found


def _dense(instance: Instance) -> Floats:
    return np.asarray(instance.duration**1.25 * share(instance) ** 0.5)


def _pcp(instance: Instance) -> Floats:
    slowdown = (instance.waited + instance.duration) / instance.duration
    rank = np.lexsort((instance.duration * share(instance), instance.duration, -slowdown))
    return np.argsort(rank).astype(np.float64)


RULES: Mapping[str, Rule] = {
    "dense": _dense,
    "sjf": lambda instance: instance.duration,
    "pcp": _pcp,
    "fcfs": lambda instance: 1 / (1 + instance.waited),
}
"""``dense``: those first that bring most for what they take, by duration^1.25 share^0.5; near Smith's rule, by which
weighted completion times are least on one machine. ``pcp``: PCP'20's priority, the slowdown by now, then the duration,
then what is taken for how long."""


def keys(instance: Instance, rule: str) -> Floats:
    """Keys of the waiting jobs by a rule, shape (n,).

    Raises
    ------
    UnknownName
        When there is no such rule.
    """
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES)
    return RULES[rule](instance)


def order_of(key: Floats) -> Ints:
    """Jobs by their keys; of equal ones, those who have stood longer."""
    return np.argsort(key, kind="stable")


def improve(
    instance: Instance, key: Floats, *, seconds: float = math.inf, tries: int | None = None, seed: int = 0
) -> tuple[Plan, int]:
    """Search for keys that make a better active plan; the best one, and how many were tried.

    In turn, one job is moved forward, drawn by what its wait adds to all slowdowns, or the keys of some are shaken.
    What is not worse is kept. With `tries` and without `seconds` the result is always the same.
    """
    began, p, empty = time.perf_counter(), problem(instance), timeline(instance)
    draw, found, best = np.random.default_rng(seed), starts(p), starts(p)
    jobs, tried, cost = len(instance), 0, math.inf
    trial, key = key.astype(np.float64), key.astype(np.float64)
    while tries is None or tried <= tries:
        serial(p, _copy(empty), order_of(trial), found)
        reached = float(np.nansum(p.weight * found.start))  # NaN where nodes that a job needs are down
        if reached <= cost:
            cost, key = reached, trial
            for column, kept in zip(found, best, strict=True):
                kept[:] = column
        if cost <= 0 or jobs < 2 or (tried and time.perf_counter() - began >= seconds):
            break
        trial, tried = key.copy(), tried + 1
        harm = np.nan_to_num(p.weight * best.start)
        if tried % 2:
            job = int(np.searchsorted(np.cumsum(harm), draw.random() * harm.sum(), side="right"))
            trial[min(job, jobs - 1)] *= math.exp(-abs(draw.normal()))
        else:
            shaken = draw.random(jobs) < max(2 / jobs, 0.02)
            trial[shaken] *= np.exp(draw.normal(0.0, 0.7, int(shaken.sum())))
    return plan_of(p, best.start, best.rows, best.node, best.given), tried


def _copy(t: Timeline) -> Timeline:
    return Timeline(t.since.copy(), t.free.copy(), t.used.copy(), t.hold)
