"""Agents, frameworks and tasks in the older, plainer form: ids are texts, resources are amounts by name.

References
----------
Apache Mesos, ``src/common/http.cpp`` and ``src/master/readonly_handler.cpp``, whose field names are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from executors.mesos.amounts import amounts, as_text
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import views
from executors.mesos.master.redaction import redacted
from executors.mesos.master.state import Agent, Executor, Framework, Offer, State, Task
from executors.mesos.messages import VERSION, field
from executors.mesos.resources import NONE, Resources, to_json

_WORDS = "STAGING STARTING RUNNING KILLING FINISHED KILLED FAILED LOST ERROR UNREACHABLE"
STATES = tuple(f"TASK_{word}" for word in _WORDS.split())
"""States in which tasks are counted."""


def task(t: Task) -> Message:
    """A task. Like Mesos' own, one without an executor has an empty ``executor_id``."""
    found = {
        "id": t.id,
        "name": t.info.get("name", ""),
        "framework_id": t.framework,
        "executor_id": t.executor or "",
        "slave_id": t.agent,
        "state": t.state,
        "resources": amounts(t.resources),
        "role": t.role,
        "statuses": [_status(one) for one in t.statuses],
    }
    if isinstance(t.info.get("limits"), dict):
        found["limits"] = {name: _limit(one) for name, one in t.info["limits"].items()}
    if "labels" in t.info:
        found["labels"] = _labels(t.info["labels"])
    if user := views.user(t.info):
        found["user"] = user
    return found | {
        name: redacted(t.info[name]) for name in ("discovery", "container", "health_check") if name in t.info
    }


def tasks(f: Framework) -> Iterator[Task]:
    """All tasks of a framework, whatever became of them."""
    yield from f.tasks.values()
    yield from f.unreachable.values()
    yield from f.completed


def executor(e: Executor) -> Message:
    """An executor."""
    info = redacted(e.info)
    found = {
        "executor_id": e.id,
        "name": info.get("name", ""),
        "framework_id": e.framework,
        "slave_id": e.agent,
        "resources": amounts(e.resources),
        "role": e.role,
        "type": info.get("type", "CUSTOM"),
        "command": _command(info.get("command", {})),
    }
    return found | ({"labels": _labels(info["labels"])} if "labels" in info else {})


def agent_info(a: Agent) -> Message:
    """What is known even of an agent that is not back yet."""
    attributes = {}
    listed = a.info.get("attributes")
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            attributes[item["name"]] = _attribute(item)
    return {"id": a.id, "hostname": a.hostname, "port": a.info.get("port", 5051), "attributes": attributes}


def agent(a: Agent) -> Message:
    """An agent."""
    found = agent_info(a) | {
        "pid": views.pid(a),
        "registered_time": a.registered,
        "resources": amounts(a.total),
        "used_resources": amounts(a.used),
        "offered_resources": amounts(a.offered),
        "reserved_resources": {role: amounts(a.total.reserved(role)) for role in _reserving(a)},
        "unreserved_resources": amounts(a.total.unreserved()),
        "active": a.active and a.stream is not None,
        "deactivated": not a.active,
        "version": a.version or VERSION,
        "capabilities": [],
    }
    if a.reregistered is not None:
        found["reregistered_time"] = a.reregistered
    if a.unavailability is not None:  # an extension; the v1 API has no field for it but in offers
        found["unavailability"] = a.unavailability
    if a.drain is not None:
        found["drain_info"] = views.drain_info(a.drain, drained=not a.tasks)
    return found


def in_full(a: Agent) -> Message:
    """An agent's resources once more, as messages have them."""
    return {
        "reserved_resources_full": {role: to_json(a.total.reserved(role)) for role in _reserving(a)},
        "unreserved_resources_full": to_json(a.total.unreserved()),
        "used_resources_full": to_json(a.used),
        "offered_resources_full": to_json(a.offered),
    }


def framework_summary(f: Framework, state: State, running: Iterable[Executor]) -> Message:
    """A framework, without what it runs."""
    here = f.id in state.frameworks
    return {
        "id": f.id,
        "name": f.info.get("name", ""),
        "used_resources": amounts(_used(f, running)),
        "offered_resources": amounts(_offered(f)),
        "capabilities": [item.get("type", "UNKNOWN") for item in f.info.get("capabilities", ())],
        "hostname": f.info.get("hostname", ""),
        "webui_url": f.info.get("webui_url", ""),
        "active": here and f.active and f.stream is not None,
        "connected": f.stream is not None,
        "recovered": views.recovered(f, state),
    }


def framework(f: Framework, state: State, running: Iterable[Executor]) -> Message:
    """A framework."""
    running = list(running)
    found = framework_summary(f, state, running)
    used, offered = _used(f, running), _offered(f)
    ended = f.disconnected if f.id in state.completed and f.disconnected is not None else 0.0
    found |= {
        "user": f.info.get("user", ""),
        "failover_timeout": f.info.get("failover_timeout", 0.0),
        "checkpoint": f.info.get("checkpoint", False),
        "registered_time": f.registered,
        "unregistered_time": ended,
        "resources": amounts(used + offered),
        "tasks": [task(one) for one in f.tasks.values()],
        "unreachable_tasks": [task(one) for one in f.unreachable.values()],
        "completed_tasks": [task(one) for one in f.completed],
        "offers": [offer(one) for one in f.offers.values() if not one.inverse],
        "executors": [executor(one) for one in running],
    }
    found |= {"roles": sorted(f.roles)} if f.can("MULTI_ROLE") else {"role": next(iter(f.roles), "*")}
    if f.principal is not None:
        found["principal"] = f.principal
    if f.reregistered is not None:
        found["reregistered_time"] = f.reregistered
    return found | ({"labels": _labels(f.info["labels"])} if "labels" in f.info else {})


def offer(o: Offer) -> Message:
    """An offer."""
    return {
        "id": o.id,
        "framework_id": o.framework,
        "allocation_info": {"role": o.role},
        "slave_id": o.agent,
        "resources": amounts(o.resources),
    }


def counted(found: Iterable[Task]) -> dict[str, int]:
    """How many tasks are in which state."""
    counts = Counter(one.state for one in found)
    return {state: counts[state] for state in STATES}


def _used(f: Framework, running: Iterable[Executor]) -> Resources:
    return sum(views.taken((*f.tasks.values(), *running)).values(), start=NONE)


def _offered(f: Framework) -> Resources:
    return sum(views.offered(f.offers.values()).values(), start=NONE)


def _status(status: Message) -> Message:
    found = {"state": status["state"], "timestamp": status.get("timestamp", 0.0)}
    if "labels" in status:
        found["labels"] = _labels(status["labels"])
    return found | {name: status[name] for name in ("container_status", "healthy") if name in status}


def _limit(limit: Any) -> Any:
    """The number, or the text ``Infinity``, since JSON has no number for that."""
    return limit.get("value", 0.0) if isinstance(limit, dict) else 0.0


def _labels(labels: Any) -> Any:
    return labels.get("labels", []) if isinstance(labels, dict) else []


def _command(command: Any) -> Message:
    """A command: what messages call its arguments is ``argv`` here."""
    if not isinstance(command, dict):
        return {}
    kept = {name: command[name] for name in ("shell", "value", "environment") if name in command}
    return kept | {"argv": command.get("arguments", []), "uris": command.get("uris", [])}


def _attribute(item: Message) -> Any:
    """The value of an attribute; one that is none is empty, since agents may say anything."""
    try:
        kind = field(item, "type", str, "TEXT")
        if kind == "SCALAR":
            return field(item, "scalar.value", float)
        if kind == "RANGES":
            pairs = ((field(one, "begin", int), field(one, "end", int)) for one in field(item, "ranges.range", list))
            return as_text(tuple(pairs))
        if kind == "SET":
            return as_text(frozenset(map(str, field(item, "set.item", list))))
        return field(item, "text.value", str)
    except BadMessage:
        return ""


def _reserving(a: Agent) -> list[str]:
    return sorted({kind.role for kind, _ in a.total.reserved()})
