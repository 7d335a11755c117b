"""Who else is in a pool that several runs share: what the master says, as far as runs must know it of one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from executors.mesos.borrowing import RUN
from executors.mesos.codec import Message
from executors.mesos.messages import field
from executors.mesos.operator import Operator
from executors.mesos.resources import parse

ALLOCATION, GRACE = "allocation", "grace"
"""Attributes of an agent: the key of the allocation that it belongs to; how long that outlives its driver [s]."""

_PREFIX = "asa "
_WAITS = "asa.waits"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A run's framework.

    Parameters
    ----------
    connected
        Whether the run has a driver.
    waits
        Whether it has tasks that wait for room.
    cores
        What it holds of the pool.
    """

    run: str
    connected: bool
    waits: bool
    cores: float


@dataclass(frozen=True, slots=True)
class Node:
    """An agent.

    Parameters
    ----------
    run, allocation
        Whose it is; "" for one that was started by hand.
    grace_s
        How long it outlives the run's driver [s].
    active
        False once nothing new is to run on it.
    used
        Cores that anybody's tasks hold.
    """

    agent: str
    run: str
    allocation: str
    grace_s: float
    active: bool
    used: float


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A pool at one time: runs by name, nodes by the agent's id."""

    runs: dict[str, Neighbour]
    nodes: dict[str, Node]


def look(operator: Operator) -> Neighbourhood:
    """Ask the master; raises as `Operator` does, and `BadMessage` when the answer makes no sense."""
    frameworks, agents = operator.get_frameworks(), operator.get_agents()
    runs = {found.run: found for item in frameworks if (found := _neighbour(item)) is not None}
    return Neighbourhood(runs, {found.agent: found for found in map(_node, agents)})


def name_of(run: str) -> str:
    """What a run's framework is called."""
    return _PREFIX + run


def labels(*, waits: bool) -> Message:
    """What a framework's info says to the neighbours."""
    return {"labels": [{"key": _WAITS, "value": "true"}] if waits else []}


def attribute(message: Message, name: str, default: str = "") -> str:
    """An attribute of an offer, or of an agent's info."""
    for item in field(message, "attributes", list, []):
        if field(item, "name", str, "") == name:
            found: Any = field(item, "text.value", str, default)
            return str(found)
    return default


def _neighbour(item: Message) -> Neighbour | None:
    name: str = field(item, "framework_info.name", str, "")
    if not name.startswith(_PREFIX):
        return None
    told = field(item, "framework_info.labels.labels", list, [])
    return Neighbour(
        run=name.removeprefix(_PREFIX),
        connected=field(item, "connected", bool, False),
        waits=any(field(label, "key", str, "") == _WAITS for label in told),
        cores=parse(field(item, "allocated_resources", list, [])).scalar("cpus"),
    )


def _node(item: Message) -> Node:
    info: Message = field(item, "agent_info", dict)
    return Node(
        agent=field(info, "id.value", str),
        run=attribute(info, RUN),
        allocation=attribute(info, ALLOCATION),
        grace_s=float(attribute(info, GRACE, "0") or 0),
        active=not field(item, "deactivated", bool, False),
        used=parse(field(item, "allocated_resources", list, [])).scalar("cpus"),
    )
