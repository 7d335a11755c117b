"""Putting a workload on a machine: from columns to the engine's tables."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.simulator.machine import FAILED
from asa.lab.simulator.settings import Settings
from asa.lab.simulator.state import AFTER_ANY, ENDED, NONE, State, new_state


def load(workload: Workload, cluster: Cluster, settings: Settings) -> State:
    """The tables of an empty machine to which a workload is going to be submitted.

    Raises
    ------
    InvalidInput
        When the workload asks for resources or partitions that the machine does not have.
    """
    n = len(workload)
    demands = aligned(workload.demands, workload.resources, cluster)
    users = int(workload.user.max(initial=UNKNOWN)) + 1
    state = new_state(cluster, n, demands, users)
    world, jobs, fates = state.world[0], state.jobs[:n], state.fates[:n]
    for name in ("submit", "walltime", "units", "kind", "per_node", "user", "group", "name", "number"):
        jobs[name] = getattr(workload, name)
    jobs["cores"] = workload.cores
    jobs["partition"] = _partitions(workload, cluster)
    limit = np.where(np.isnan(workload.walltime), np.inf, workload.walltime)
    stop = limit if settings.overrun == "clip" else np.full(n, np.inf)
    jobs["estimate"] = np.minimum(workload.run, stop) if settings.predictor == "oracle" else limit
    for name in ("eligible", "accrue", "started", "planned"):
        jobs[name] = np.nan
    fates["run"], fates["stop"], fates["speed"], fates["ended"] = workload.run, stop, 1.0, np.nan
    fates["begin"], fates["event"], fates["held"], fates["children"] = -np.inf, NONE, NONE, NONE
    too_large = workload.units > most_units(cluster, demands, workload.kind, workload.per_node, jobs["partition"])
    fates["status"][too_large] = ENDED
    fates["outcome"][too_large] = FAILED
    world["jobs"] = world["arrivals"] = n
    world["placement"] = NONE if settings.native is None else settings.native
    world["regime"] = list(QueueRegime).index(QueueRegime(settings.model.regime))
    world["half_life"] = getattr(settings.model, "half_life_s", np.inf)
    world["keeps_nodes"], world["requeues"] = settings.keep_nodes, settings.node_failure == "requeue"
    world["one_by_one"] = settings.instant == "one-by-one"
    world["stops_often"] = settings.learner is not None
    world["now"] = workload.submit[0] if n else 0.0
    _count_slots(state, cluster, workload)
    return _tie(state, workload)


def aligned(demands: Ints, resources: tuple[str, ...], cluster: Cluster) -> Ints:
    """Demands with the cluster's columns. Memory is not counted where the cluster does not state it.

    Raises
    ------
    InvalidInput
        When anything else is asked for that the cluster does not have.
    """
    found = np.zeros((max(1, len(demands)), len(cluster.resources)), dtype=np.int64)
    for column, name in enumerate(resources):
        if name in cluster.resources:
            found[: len(demands), cluster.resources.index(name)] = demands[:, column]
        elif name != "memory" and demands[:, column].any():
            raise InvalidInput(
                f"jobs ask for {name!r}, but the cluster has {', '.join(cluster.resources)}: give its nodes {name!r}"
            )
    return found


def most_units(cluster: Cluster, demands: Ints, kind: Ints, per_node: Ints, partition: Ints) -> Ints:
    """How many units of each job the empty machine could run, shape (n,)."""
    most = np.zeros(len(kind), dtype=np.int64)
    groups, member = np.unique(np.stack([kind, per_node, partition]), axis=1, return_inverse=True)
    member = member.reshape(-1)
    nodes = list(cluster.partitions.values())
    for group, (k, cap, part) in enumerate(groups.T.tolist()):
        capacity = cluster.capacity[list(nodes[part])] if nodes else cluster.capacity
        needed = demands[k] > 0
        if not needed.any():
            raise InvalidInput(f"jobs of kind {k} ask for nothing: at least one resource expected")
        fitting = (capacity[:, needed] // demands[k][needed]).min(axis=1)
        most[member == group] = np.minimum(fitting, cap).sum() if cap else fitting.sum()
    return most


def _partitions(workload: Workload, cluster: Cluster) -> Ints:
    """The cluster's number of each job's partition; the first one where the job names none."""
    names = list(cluster.partitions)
    if not names:
        return np.zeros(len(workload), dtype=np.int64)
    codes = np.unique(workload.partition)
    rows = {int(code): int(np.argmax(workload.partition == code)) for code in codes}
    found = np.zeros(len(workload), dtype=np.int64)
    for code, row in rows.items():
        word = workload.label("partition", row)
        if word and word not in names:
            raise InvalidInput(
                f"job {int(workload.number[row])} asks for partition {word!r}: the cluster has {', '.join(names)}"
            )
        found[workload.partition == code] = names.index(word) if word else 0
    return found


def _count_slots(state: State, cluster: Cluster, workload: Workload) -> None:
    """Make it a machine of slots where one number tells what is free: equal nodes, and one kind of unit."""
    world = state.world[0]
    kinds = np.unique(workload.kind)
    plain = len(kinds) <= 1 and cluster.uniform and not cluster.partitions and not cluster.shareable
    need = state.demands[int(kinds[0]) if len(kinds) else 0]
    fitting = int((cluster.capacity[0][need > 0] // need[need > 0]).min()) if need.any() else 0
    limits = workload.per_node[workload.per_node > 0]
    if plain and fitting and (len(limits) == 0 or limits.min() >= fitting):
        world["kind"] = kinds[0] if len(kinds) else 0
        world["slots"] = world["free"] = fitting * cluster.nodes
    else:
        world["slots"] = NONE


def _tie(state: State, workload: Workload) -> State:
    """Let jobs wait for those they come after."""
    children = np.flatnonzero(workload.after != UNKNOWN)
    if not len(children):
        return state
    parents = workload.after[children]
    edges = np.zeros(len(children) + 16, state.edges.dtype)
    edges["child"][: len(children)], edges["think"][: len(children)] = children, workload.think[children]
    edges["kind"][: len(children)] = AFTER_ANY
    fates = state.fates
    for edge, parent in reversed(list(enumerate(parents.tolist()))):
        edges["next"][edge] = fates["children"][parent]
        fates["children"][parent] = edge
    done = fates["status"][parents] == ENDED  # refused: nobody waits for it
    fates["unmet"][children[~done]] = 1
    state.world[0]["edges"] = len(children)
    return state._replace(edges=edges)
