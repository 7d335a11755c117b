"""Whether a plan keeps the laws of its machine; independent of those who make plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from asa.core.cluster import Ints
from asa.dispatchers.planning.instance import Instance, Plan


def violations(instance: Instance, plan: Plan) -> list[str]:
    """Every law that a plan breaks, in words; empty when it keeps them all.

    The laws: every job starts, and not before now; it has as many units as it asked for, on nodes of its partition, at
    most `per_node` on each; and no node, nor what the machine has as a whole, gives more than there is at any time.

    Examples
    --------
    >>> from asa.dispatchers.planning.instance import example
    >>> violations(example(), Plan(np.array([0.0, 10.0, 0.0]), np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1], [2, 1, 1]])))
    ['node 1 is asked for 3 cores at 10 s: it has 2']
    """
    return [*_jobs(instance, plan), *_nodes(instance, plan), *_shared(instance, plan)]


def _jobs(instance: Instance, plan: Plan) -> Iterator[str]:
    held = np.zeros((len(instance), len(instance.capacity)), dtype=np.int64)
    for job, node, units in plan.where.tolist():
        held[job, node] += units
        if units < 1:
            yield f"job {instance.names[job]!r} has {units} units on node {node}"
        if not instance.members[instance.partition[job], node]:
            yield f"job {instance.names[job]!r} is on node {node}, which is not of its partition"
    for job, name in enumerate(instance.names):
        if not plan.start[job] >= 0:
            yield f"job {name!r} starts at {plan.start[job]:g} s: at least 0 expected"
        if held[job].sum() != instance.units[job]:
            yield f"job {name!r} has {held[job].sum()} units on its nodes: it asked for {instance.units[job]}"
        limit = instance.per_node[job]
        if limit and held[job].max() > limit:
            yield f"job {name!r} has {held[job].max()} units on a node: {limit} at most"


Change = tuple[float, int, int, int]
"""When something begins (1) or ends (0), and units, negative at the end, of which kind."""


def _nodes(instance: Instance, plan: Plan) -> Iterator[str]:
    """What each node gives, at every start; running jobs have begun before, and end before anybody starts then."""
    given: dict[int, list[Change]] = {}
    for at, (first, last, units, kind) in zip(instance.release_at.tolist(), instance.release.tolist(), strict=True):
        for node in range(first, last + 1):
            given.setdefault(node, []).extend(_use(-1.0, at, units, kind))
    for job, node, units in plan.where.tolist():
        start, kind = float(plan.start[job]), int(instance.kind[job])
        given.setdefault(node, []).extend(_use(start, start + instance.duration[job], units, kind))
    for node, changes in sorted(given.items()):
        yield from _over(f"node {node}", changes, instance.demands, instance.capacity[node], instance.resources)


def _shared(instance: Instance, plan: Plan) -> Iterator[str]:
    """The same of what the machine has as a whole: a job draws by the units that it asked for."""
    changes: list[Change] = []
    for at, (first, last, units, kind) in zip(instance.release_at.tolist(), instance.release.tolist(), strict=True):
        changes += _use(-1.0, at, units * (last - first + 1), kind)
    for job, start in enumerate(plan.start.tolist()):
        changes += _use(start, start + instance.duration[job], int(instance.units[job]), int(instance.kind[job]))
    yield from _over("the machine", changes, instance.shared_demands, instance.shared, instance.shared_names)


def _use(start: float, end: float, units: int, kind: int) -> list[Change]:
    return [(start, 1, units, kind), (end, 0, -units, kind)]


def _over(who: str, changes: list[Change], demands: Ints, has: Ints, names: Sequence[str]) -> Iterator[str]:
    """When more is asked for than there is, for the first time."""
    used = np.zeros(len(names), dtype=np.int64)
    for at, _, units, kind in sorted(changes):
        used += units * demands[kind]
        if len(over := np.flatnonzero(used > has)):
            yield f"{who} is asked for {used[over[0]]} {names[over[0]]} at {at:g} s: it has {has[over[0]]}"
            return
