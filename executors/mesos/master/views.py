"""What operators see of the state, as ``include/mesos/v1/master/master.proto`` has it. Reads, never changes.

Secrets are left out: who may look at the pool need not know its tasks' secrets. Metrics have the
names that Mesos gives them, so that what reads one master reads the other.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from executors.mesos.codec import Message
from executors.mesos.master.state import AgentRecord, ExecutorRecord, FrameworkRecord, MasterState, Offer, TaskRecord
from executors.mesos.messages import TERMINAL, VERSION, identity, message, nanoseconds, redacted
from executors.mesos.resources import NONE, Resources, to_json

CAPABILITIES = [{"type": "AGENT_DRAINING"}, {"type": "QUOTA_V2"}]
"""What this master can do beyond what every master can."""

_OF_A_TASK = ("labels", "discovery", "container", "health_check", "kill_policy", "limits")


def state(state: MasterState) -> Message:
    """The answer to GET_STATE, and the first record that a subscriber is sent."""
    return {
        "get_tasks": tasks(state),
        "get_executors": executors(state),
        "get_frameworks": frameworks(state),
        "get_agents": agents(state),
    }


def tasks(state: MasterState) -> Message:
    """The answer to GET_TASKS."""
    ended = [one for f in state.frameworks.values() for one in f.completed]
    ended += [one for f in state.completed.values() for one in (*f.completed, *f.tasks.values())]
    return {
        "tasks": [task(one) for f in state.frameworks.values() for one in f.tasks.values()],
        "unreachable_tasks": [task(one) for f in state.frameworks.values() for one in f.unreachable.values()],
        "completed_tasks": [task(one) for one in ended],
    }


def executors(state: MasterState) -> Message:
    """The answer to GET_EXECUTORS."""
    found = [executor(one) for agent in state.agents.values() for one in agent.executors.values()]
    return {"executors": found}


def frameworks(state: MasterState) -> Message:
    """The answer to GET_FRAMEWORKS."""
    by_framework = defaultdict(list)
    for agent in state.agents.values():
        for one in agent.executors.values():
            by_framework[one.framework].append(one)
    return {
        "frameworks": [_framework(f, state, by_framework[f.id]) for f in state.frameworks.values()],
        "completed_frameworks": [_framework(f, state, ()) for f in state.completed.values()],
    }


def agents(state: MasterState) -> Message:
    """The answer to GET_AGENTS."""
    return {
        "agents": [agent(one, state) for one in state.agents.values()],
        "recovered_agents": [one.info for one in state.recovered.values()],
    }


def task(t: TaskRecord) -> Message:
    """A ``TaskRecord``: what became of a TaskInfo; the command is not in it."""
    found = {
        "name": t.info.get("name", ""),
        "task_id": identity(t.id),
        "framework_id": identity(t.framework),
        "agent_id": identity(t.agent),
        "state": t.state,
        "resources": to_json(t.resources, t.role),
        "statuses": list(t.statuses),
    }
    if t.executor is not None:
        found["executor_id"] = identity(t.executor)
    if t.statuses:
        found["status_update_state"] = t.statuses[-1]["state"]
    if t.unacknowledged is not None:
        found["status_update_uuid"] = t.unacknowledged
    return found | {name: redacted(t.info[name]) for name in _OF_A_TASK if name in t.info}


def executor(e: ExecutorRecord) -> Message:
    """An executor of GET_EXECUTORS."""
    own = {
        "executor_id": identity(e.id),
        "framework_id": identity(e.framework),
        "resources": to_json(e.resources, e.role),
    }
    return {"executor_info": redacted(e.info) | own, "agent_id": identity(e.agent)}


def framework(f: FrameworkRecord, state: MasterState) -> Message:
    """A framework of GET_FRAMEWORKS."""
    keys = (agent.executors.values() for agent in state.agents.values())
    return _framework(f, state, [one for group in keys for one in group if one.framework == f.id])


def _framework(f: FrameworkRecord, state: MasterState, running: Iterable[ExecutorRecord]) -> Message:
    completed = f.id in state.completed
    found = {
        "framework_info": own_info(f.info),
        "active": f.stream is not None and not completed,
        "connected": f.stream is not None,
        # whether it is known only from before the master's restart, and not back yet
        "recovered": not completed and f.stream is None and max(f.registered, f.reregistered or 0.0) < state.started,
        "registered_time": nanoseconds(f.registered),
        "allocated_resources": _by_role(taken((*f.tasks.values(), *running))),
        "offered_resources": _by_role(offered(f.offers.values())),
    }
    if f.reregistered is not None:
        found["reregistered_time"] = nanoseconds(f.reregistered)
    if completed and f.disconnected is not None:
        found["unregistered_time"] = nanoseconds(f.disconnected)
    return found


def agent(a: AgentRecord, state: MasterState) -> Message:
    """An agent of GET_AGENTS."""
    found = {
        "agent_info": a.info,
        "active": a.active and a.stream is not None,
        "deactivated": not a.active,
        "version": a.version or VERSION,
        "pid": f"slave(1)@{a.ip or a.hostname}:{a.info.get('port', 5051)}",  # clients take it apart
        "registered_time": nanoseconds(a.registered),
        "total_resources": to_json(a.total),
        "allocated_resources": _by_role(taken((*a.tasks.values(), *a.executors.values()))),
        "offered_resources": _by_role(offered(a.offers.values())),
    }
    if a.reregistered is not None:
        found["reregistered_time"] = nanoseconds(a.reregistered)
    if a.drain is not None:
        # an agent that is drained gets no tasks, so once it has none it stays so
        found["drain_info"] = {"state": "DRAINING" if a.tasks else "DRAINED", "config": a.drain}
    return found


def master(state: MasterState) -> Message:
    """``MasterInfo``: where the master is and what it can do. Its `ip` is 0 where only a name is known."""
    options = state.options
    address: Message = {"hostname": options.hostname, "port": options.port}
    number = 0
    try:
        parsed = ipaddress.IPv4Address(options.hostname)
    except ValueError:
        pass
    else:
        number = int.from_bytes(parsed.packed, "little")  # the bytes in network order, read as this machine's integer
        address["ip"] = str(parsed)
    return {
        "id": state.id,
        "ip": number,
        "port": options.port,
        "pid": f"master@{options.hostname}:{options.port}",
        "hostname": options.hostname,
        "version": VERSION,
        "address": address,
        "capabilities": CAPABILITIES,
    }


def task_updated(t: TaskRecord, status: Message) -> Message:
    """The event TASK_UPDATED; what a status carries for its framework is left out."""
    shown = {name: item for name, item in status.items() if name != "data"}
    return message("TASK_UPDATED", framework_id=identity(t.framework), status=shown, state=t.state)


def taken(items: Iterable[TaskRecord | ExecutorRecord]) -> dict[str, Resources]:
    """What tasks that have not ended, and executors, take, by role."""
    return _sums(
        (item.role, item.resources)
        for item in items
        if not isinstance(item, TaskRecord) or (item.state not in TERMINAL and item.state != "TASK_UNREACHABLE")
    )


def offered(offers: Iterable[Offer]) -> dict[str, Resources]:
    """What is offered, by role."""
    return _sums((one.role, one.resources) for one in offers)


def _sums(items: Iterable[tuple[str, Resources]]) -> dict[str, Resources]:
    """Resources by role. Thousands of tasks take scalars mostly: those are added in place."""
    scalars: dict[str, dict[str, int]] = {}
    others: dict[str, Resources] = {}
    for role, resources in items:
        counts = scalars.setdefault(role, {})
        for name, amount in resources:
            if isinstance(amount, int):
                counts[name] = counts.get(name, 0) + amount
            else:
                others[role] = others.get(role, NONE) + Resources({name: amount})
    return {role: Resources({**counts}) + others.get(role, NONE) for role, counts in scalars.items()}


def _by_role(resources: Mapping[str, Resources]) -> list[Message]:
    return [item for role, amount in resources.items() for item in to_json(amount, role)]


def own_info(info: Message) -> Message:
    """As its scheduler would write it, who could subscribe with it: ``role`` or, with MULTI_ROLE, ``roles``.

    >>> own_info({"name": "x", "roles": ["*"]})
    {'name': 'x', 'role': '*'}
    """
    if any(item.get("type") == "MULTI_ROLE" for item in info.get("capabilities", ())):
        return info
    role = next(iter(info.get("roles", ())), "*")
    return {name: item for name, item in info.items() if name != "roles"} | {"role": role}


def metrics(state: MasterState, now: float) -> dict[str, float]:
    """How many agents, frameworks and tasks there are at a time [s since the epoch], and what agents have and use."""
    connected = [agent for agent in state.agents.values() if agent.stream is not None]
    subscribed = sum(framework.stream is not None for framework in state.frameworks.values())
    tasks = Counter(task.state for framework in state.frameworks.values() for task in framework.tasks.values())
    found = {
        "uptime_secs": max(0.0, now - state.started),
        "slaves_connected": len(connected),
        "slaves_active": sum(agent.active for agent in connected),
        "slaves_disconnected": len(state.agents) - len(connected),
        "slaves_unreachable": len(state.unreachable),
        "frameworks_connected": subscribed,
        "frameworks_disconnected": len(state.frameworks) - subscribed,
        "tasks_unreachable": sum(map(len, state.unreachable_tasks.values())),
        "outstanding_offers": len(state.offers),
    } | {f"tasks_{word}": tasks[f"TASK_{word.upper()}"] for word in ("staging", "starting", "running", "killing")}
    for name in ("cpus", "gpus", "mem"):  # name by name: agents may have others of one name and several types
        found |= {
            f"{name}_total": sum(agent.total.scalar(name) for agent in state.agents.values()),
            f"{name}_used": sum(agent.used.scalar(name) for agent in state.agents.values()),
        }
    return {f"master/{name}": float(value) for name, value in sorted(found.items())}
