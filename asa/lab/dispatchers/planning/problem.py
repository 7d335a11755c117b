"""An instance as tables, for what is compiled, and a plan made of what that has found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.dispatchers.planning.instance import Instance, Plan

MOST = 2.0**20
"""More units than any node holds: what it holds of a job that needs nothing of a resource."""


class Problem(NamedTuple):
    """What does not change while jobs are planned.

    `need` and `inverse` have shape (resources, sorts), `draws` (s, sorts), `most` (most units on a node) and `part`
    (sorts,), `members` (partitions, nodes); `sort`, `units`, `duration`, `weight` and `first` (where its rows begin)
    (n,). `back_at`, in order, and `back`, shape (k, 4) (first node, last node, units of each, row of `demands`) are
    what runs, and `drawn`, shape (k, s), what that takes of what is shared; `demands` has shape (kinds, resources).
    """

    need: Floats
    inverse: Floats
    draws: Floats
    most: Floats
    part: Ints
    members: Ints
    sort: Ints
    units: Ints
    duration: Floats
    weight: Floats
    first: Ints
    back_at: Floats
    back: Ints
    drawn: Ints
    demands: Ints


class Starts(NamedTuple):
    """When jobs start, and where.

    `start` (n,) is NaN for those that were not planned [s]. Of `node` and `given` (nodes, and units on each) a job has
    so many `rows` (n,), from its `Problem.first` on.
    """

    start: Floats
    rows: Ints
    node: Ints
    given: Ints


def problem(instance: Instance) -> Problem:
    """The same as tables; a second of a job's wait weighs one over its duration, as it adds to the slowdown."""
    need = np.ascontiguousarray(instance.need.T, dtype=np.float64)
    inverse = np.divide(1.0, need, out=np.zeros_like(need), where=need > 0)
    per_node = instance.sorts[:, 1].astype(np.float64)
    rows = np.minimum(instance.units, len(instance.capacity))
    return Problem(
        need,
        inverse,
        np.ascontiguousarray(instance.shared_demands[instance.sorts[:, 0]].T, dtype=np.float64),
        np.where(per_node > 0, per_node, MOST),
        np.ascontiguousarray(instance.sorts[:, 2]),
        np.ascontiguousarray(instance.members, dtype=np.int64),
        instance.sort,
        np.ascontiguousarray(instance.units, dtype=np.int64),
        instance.duration,
        1.0 / instance.duration,
        np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        instance.release_at,
        np.ascontiguousarray(instance.release, dtype=np.int64),
        instance.drawn,
        np.ascontiguousarray(instance.demands, dtype=np.int64),
    )


def starts(p: Problem) -> Starts:
    """Nothing is planned yet."""
    jobs, rows = len(p.sort), int(p.first[-1])
    return Starts(np.full(jobs, np.nan), np.zeros(jobs, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def plan_of(p: Problem, found: Starts) -> Plan:
    """A plan of what was found."""
    jobs = np.repeat(np.arange(len(found.start)), found.rows)
    used = np.arange(len(jobs)) - np.repeat(np.cumsum(found.rows) - found.rows, found.rows) + p.first[jobs]
    return Plan(found.start.copy(), np.column_stack([jobs, found.node[used], found.given[used]]))
