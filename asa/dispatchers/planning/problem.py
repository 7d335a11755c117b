"""An instance as tables, for what is compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asa.core.cluster import Ints
from asa.core.workload import Floats
from asa.dispatchers.planning.instance import Instance, Plan

MOST = 2.0**20
"""More units than any node holds: what it holds of a job that needs nothing of a resource."""


class Problem(NamedTuple):
    """What does not change while jobs are planned.

    `need` and `inverse` have shape (resources, sorts), `most` (most units on a node) and `part` (sorts,), `members`
    (partitions, nodes); `sort`, `units`, `duration`, `weight` and `first` (where its rows begin) (n,). `back_at`, in
    order, and `back`, shape (k, 4) (first node, last node, units of each, row of `demands`) are what runs; `demands`
    has shape (kinds, resources).
    """

    need: Floats
    inverse: Floats
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
    demands: Ints


def problem(instance: Instance, weight: Floats | None = None) -> Problem:
    """The same as tables; `weight` of a second of each job's wait, one over its duration unless given."""
    need = np.ascontiguousarray(instance.need.T, dtype=np.float64)
    inverse = np.divide(1.0, need, out=np.zeros_like(need), where=need > 0)
    per_node = instance.sorts[:, 1].astype(np.float64)
    rows = np.minimum(instance.units, len(instance.capacity))
    return Problem(
        need,
        inverse,
        np.where(per_node > 0, per_node, MOST),
        np.ascontiguousarray(instance.sorts[:, 2]),
        np.ascontiguousarray(instance.members, dtype=np.int64),
        instance.sort,
        np.ascontiguousarray(instance.units, dtype=np.int64),
        instance.duration,
        1.0 / instance.duration if weight is None else weight,
        np.concatenate([[0], np.cumsum(rows)]).astype(np.int64),
        instance.release_at,
        np.ascontiguousarray(instance.release, dtype=np.int64),
        np.ascontiguousarray(instance.demands, dtype=np.int64),
    )


def plan_of(p: Problem, start: Floats, rows: Ints, node: Ints, given: Ints) -> Plan:
    """A plan from starts, and from the rows of `node` and `given` that jobs have used from their first one on."""
    jobs = np.repeat(np.arange(len(start)), rows)
    used = np.arange(len(jobs)) - np.repeat(np.cumsum(rows) - rows, rows) + p.first[jobs]
    return Plan(start.copy(), np.column_stack([jobs, node[used], given[used]]))
