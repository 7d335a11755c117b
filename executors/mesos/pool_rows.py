"""What ``asa pool`` shows: rows made of what the master and its agents say.

They raise `BadMessage` when that makes no sense, and as `Operator` does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from asa.core.errors import BackendError
from executors.mesos.codec import Message
from executors.mesos.messages import attribute, field
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from executors.mesos.resources import Resources, parse

Row = dict[str, Any]

_GIB = 1024  # of the MiB in which Mesos counts memory


def nodes(operator: Operator) -> list[Row]:
    """The nodes of all allocations."""
    ends = operator.ends()
    return [_node(agent, ends) for agent in operator.get_agents()]


def _node(agent: Message, ends: Mapping[str, float]) -> Row:
    own, info = field(agent, "agent_info.id.value", str), field(agent, "agent_info", dict)
    total, used = _resources(agent, "total_resources"), _resources(agent, "allocated_resources")
    return {
        "node": field(agent, "agent_info.hostname", str, ""),
        "agent": own,
        "allocation": attribute(info, "slurm_job_id") or attribute(info, "allocation") or None,
        "state": _state(agent),
        "cores": total.scalar("cpus"),
        "used": used.scalar("cpus"),
        "memory_gib": total.scalar("mem") / _GIB,
        "ends_in_s": round(ends[own] - time.time(), 1) if math.isfinite(ends.get(own, math.inf)) else None,
    }


def _state(agent: Message) -> str:
    draining: str = field(agent, "drain_info.state", str, "")
    if draining:
        return draining.lower()
    if field(agent, "deactivated", bool, False):
        return "deactivated"
    return "active" if field(agent, "active", bool, True) else "disconnected"


def allocations(operator: Operator) -> list[Row]:
    """The allocations that the nodes belong to."""
    found: dict[str, Row] = {}
    for node in nodes(operator):
        name = node["allocation"] or "-"
        row = found.setdefault(name, {"allocation": name, "nodes": 0, "cores": 0.0, "used": 0.0, "ends_in_s": None})
        for part in ("cores", "used"):
            row[part] += node[part]
        row["nodes"] += 1
        row["ends_in_s"] = min((s for s in (row["ends_in_s"], node["ends_in_s"]) if s is not None), default=None)
    return list(found.values())


def containers_in(directory: Path) -> list[Row]:
    """What runs on the nodes of the pool in this directory."""
    with Operator(PoolDirectory(directory), READER) as operator:
        return containers(operator)


def containers(operator: Operator) -> list[Row]:
    """What runs on the nodes, and how much it was throttled; a node that does not answer is a row too."""
    rows: list[Row] = []
    for agent in operator.get_agents():
        node, own = field(agent, "agent_info.hostname", str, ""), field(agent, "agent_info.id.value", str)
        try:
            rows += [_container(node, own, item) for item in operator.containers(own)]
        except BackendError:  # perhaps it has just gone: the others are shown nevertheless
            rows.append(_container(node, own, {}) | {"state": "no answer"})
    return rows


def _container(node: str, agent: str, item: Message) -> Row:
    def number(name: str) -> float | None:
        found: float | None = field(item, f"resource_statistics.{name}", float, None)
        return found

    used = [number(f"cpus_{mode}_time_secs") for mode in ("user", "system")]
    memory = number("mem_rss_bytes")
    return {
        "node": node,
        "agent": agent,
        "container": field(item, "container_id.value", str, None),
        "framework": field(item, "framework_id.value", str, None),
        "executor": field(item, "executor_id.value", str, None),
        "state": "running",
        "limit_cores": number("cpus_limit"),
        "cpu_s": None if None in used else sum(part for part in used if part is not None),
        "periods": number("cpus_nr_periods"),
        "throttled": number("cpus_nr_throttled"),
        "throttled_s": number("cpus_throttled_time_secs"),
        "memory_mib": None if memory is None else memory / 2**20,
    }


def frameworks(operator: Operator) -> list[Row]:
    """Who takes the pool's resources."""
    tasks = field(operator.get_state(), "get_tasks.tasks", list, [])
    return [_framework(item, tasks) for item in operator.get_frameworks()]


def _framework(item: Message, tasks: Iterable[Message]) -> Row:
    own = field(item, "framework_info.id.value", str)
    roles = field(item, "framework_info.roles", list, None) or [field(item, "framework_info.role", str, "*")]
    return {
        "framework": own,
        "name": field(item, "framework_info.name", str, ""),
        "roles": ",".join(map(str, roles)),
        "state": "connected" if field(item, "connected", bool, False) else "disconnected",
        "tasks": sum(field(task, "framework_id.value", str, "") == own for task in tasks),
        "cores": _resources(item, "allocated_resources").scalar("cpus"),
    }


def quota(operator: Operator) -> list[Row]:
    """Quotas of roles."""
    rows = []
    for item in operator.quota():
        limits = field(item, "limits", dict, {}).items()
        amounts = " ".join(f"{name}={field(value, 'value', float):g}" for name, value in limits)
        rows.append({"role": field(item, "role", str), "limits": amounts or None})
    return rows


def _resources(item: Message, name: str) -> Resources:
    return parse(field(item, name, list, []))
