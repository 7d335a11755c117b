"""Whether a plan keeps the laws of its machine; independent of those who make plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.dispatchers.planning.instance import Instance, QueuePlan


def violations(instance: Instance, plan: QueuePlan) -> list[str]:
    """Every law that a plan breaks, in words; empty when it keeps them all.

    The laws: every job starts, and not before now; it has as many units as it asked for, on nodes of its partition, at
    most `per_node` on each; and no node, nor what the machine has as a whole, gives more than there is at any time.

    Examples
    --------
    >>> from asa.lab.dispatchers.planning.instance import example
    >>> rows = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 1], [2, 1, 1]])
    >>> violations(example(), QueuePlan(np.array([0.0, 10.0, 0.0]), rows))
    ['node 1 is asked for 3 cores at 10 s: it has 2']
    """
    return [*_jobs(instance, plan), *_nodes(instance, plan), *_shared(instance, plan)]


def _jobs(instance: Instance, plan: QueuePlan) -> Iterator[str]:
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


def _nodes(instance: Instance, plan: QueuePlan) -> Iterator[str]:
    """What each node gives; running jobs have begun before now, and end before anybody starts then."""
    first, last, held, of = instance.release.T
    count, (job, node, units) = last - first + 1, plan.where.T
    where = np.concatenate([np.repeat(last - np.cumsum(count) + 1, count) + np.arange(count.sum()), node])
    since = np.concatenate([np.full(count.sum(), -1.0), plan.start[job]])
    until = np.concatenate([np.repeat(instance.release_at, count), plan.start[job] + instance.duration[job]])
    taken = np.concatenate([np.repeat(held, count), units])[:, None]
    taken = taken * instance.demands[np.concatenate([np.repeat(of, count), instance.kind[job]])]
    yield from _over("node {}", (where, since, until, taken), instance.capacity, instance.resources)


def _shared(instance: Instance, plan: QueuePlan) -> Iterator[str]:
    """The same of what the machine has as a whole: a job draws by the units that it asked for."""
    where = np.zeros(len(instance.release) + len(instance), dtype=np.int64)
    since = np.concatenate([np.full(len(instance.release), -1.0), plan.start])
    until = np.concatenate([instance.release_at, plan.start + instance.duration])
    taken = np.concatenate([instance.drawn, instance.units[:, None] * instance.shared_demands[instance.kind]])
    yield from _over("the machine", (where, since, until, taken), instance.shared[None, :], instance.shared_names)


Uses = tuple[Ints, Floats, Floats, Ints]
"""Where, since when, until when [s], and what is taken, shape (n, resources)."""


def _over(who: str, uses: Uses, has: Ints, names: Sequence[str]) -> Iterator[str]:
    """Where more is asked for than there is, `has` (places, resources), and when for the first time."""
    where, since, until, taken = uses
    place, at = np.concatenate([where, where]), np.concatenate([since, until])
    order = np.lexsort((np.arange(len(at)) < len(since), at, place))  # what ends then is free before others begin
    place, at = place[order], at[order]
    used = np.cumsum(np.concatenate([taken, -taken])[order], axis=0)  # which is 0 again behind each place
    wrong = np.flatnonzero((used > has[place]).any(axis=1))
    for each, row in zip(*np.unique(place[wrong], return_index=True), strict=True):
        asked, there = used[wrong[row]], has[each]
        k = int(np.argmax(asked > there))
        yield f"{who.format(each)} is asked for {asked[k]} {names[k]} at {at[wrong[row]]:g} s: it has {there[k]}"
