"""Lists: in which order jobs are planned, by rules, and by trying for as long as there is time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import UnknownName
from asa.lab.dispatchers.planning.active import serial
from asa.lab.dispatchers.planning.instance import Instance, Plan
from asa.lab.dispatchers.planning.problem import plan_of, problem, starts
from asa.lab.dispatchers.planning.timeline import copied, future

Rule = Callable[[Instance], Floats]
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


RULES: Mapping[str, Rule] = {
    "dense": _dense,
    "sjf": lambda instance: instance.duration,
    "pcp": _pcp,
    "fcfs": lambda instance: 1 / (1 + instance.waited),
}
"""``dense``: those first that bring most for what they take, by duration^2 share: Smith's rule, by which weighted
completion times are least on one machine, for a weight of one over the duration. ``pcp``: PCP'20's priority, the
slowdown by now, then the duration, then what is taken for how long."""


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


LEAST_KEY = 1e-300
"""Keys that a search makes stay between this and its reciprocal."""


def order_of(key: Floats) -> Ints:
    """Jobs by their keys; of equal ones, those who have stood longer."""
    return np.argsort(key, kind="stable")


def improve(
    instance: Instance, key: Floats, *, seconds: float = math.inf, tries: int | None = None, seed: int = 0
) -> tuple[Plan, int]:
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
