"""What operators see of the state, as ``include/mesos/v1/master/master.proto`` has it. Reads, never changes.

Secrets are left out: who may look at the pool need not know what its tasks are told in confidence.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping

from executors.mesos.codec import Message
from executors.mesos.master.framework_info import own_info
from executors.mesos.master.redaction import redacted
from executors.mesos.master.state import Agent, Executor, Framework, Offer, State, Task
from executors.mesos.messages import TERMINAL, VERSION, identity, message, nanoseconds
from executors.mesos.resources import NONE, Kind, Resources, to_json

CAPABILITIES = [{"type": "AGENT_DRAINING"}, {"type": "QUOTA_V2"}]
"""What this master can do beyond what every master can."""

_OF_A_TASK = ("labels", "discovery", "container", "health_check", "kill_policy", "limits")


def state(state: State) -> Message:
    """The answer to GET_STATE, and the first thing that a subscriber is told."""
    return {
        "get_tasks": tasks(state),
        "get_executors": executors(state),
        "get_frameworks": frameworks(state),
        "get_agents": agents(state),
    }


def tasks(state: State) -> Message:
    """The answer to GET_TASKS. None is ever pending or an orphan here."""
    ended = [one for f in state.frameworks.values() for one in f.completed]
    ended += [one for f in state.completed.values() for one in (*f.completed, *f.tasks.values())]
    return {
        "pending_tasks": [],
        "tasks": [task(one) for f in state.frameworks.values() for one in f.tasks.values()],
        "unreachable_tasks": [task(one) for f in state.frameworks.values() for one in f.unreachable.values()],
        "completed_tasks": [task(one) for one in ended],
        "orphan_tasks": [],
    }


def executors(state: State) -> Message:
    """The answer to GET_EXECUTORS."""
    found = [executor(one) for agent in state.agents.values() for one in agent.executors.values()]
    return {"executors": found, "orphan_executors": []}


def frameworks(state: State) -> Message:
    """The answer to GET_FRAMEWORKS."""
    by_framework = defaultdict(list)
    for agent in state.agents.values():
        for one in agent.executors.values():
            by_framework[one.framework].append(one)
    return {
        "frameworks": [_framework(f, state, by_framework[f.id]) for f in state.frameworks.values()],
        "completed_frameworks": [_framework(f, state, ()) for f in state.completed.values()],
        "recovered_frameworks": [],
    }


def agents(state: State) -> Message:
    """The answer to GET_AGENTS."""
    return {
        "agents": [agent(one, state) for one in state.agents.values()],
        "recovered_agents": [one.info for one in state.recovered.values()],
    }


def task(t: Task) -> Message:
    """A ``Task``: what became of a TaskInfo; the command is not in it."""
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
    if name := user(t.info):
        found["user"] = name
    return found | {name: redacted(t.info[name]) for name in _OF_A_TASK if name in t.info}


def executor(e: Executor) -> Message:
    """An executor of GET_EXECUTORS."""
    own = {
        "executor_id": identity(e.id),
        "framework_id": identity(e.framework),
        "resources": to_json(e.resources, e.role),
    }
    return {"executor_info": redacted(e.info) | own, "agent_id": identity(e.agent)}


def framework(f: Framework, state: State) -> Message:
    """A framework of GET_FRAMEWORKS."""
    keys = (agent.executors.values() for agent in state.agents.values())
    return _framework(f, state, [one for group in keys for one in group if one.framework == f.id])


def _framework(f: Framework, state: State, running: Iterable[Executor]) -> Message:
    completed = f.id in state.completed
    found = {
        "framework_info": own_info(f.info),
        "active": f.active and f.stream is not None and not completed,
        "connected": f.stream is not None,
        "recovered": recovered(f, state),
        "registered_time": nanoseconds(f.registered),
        "offers": [offer(one, state) for one in f.offers.values() if not one.inverse],
        "inverse_offers": [inverse_offer(one, state) for one in f.offers.values() if one.inverse],
        "allocated_resources": _by_role(taken((*f.tasks.values(), *running))),
        "offered_resources": _by_role(offered(f.offers.values())),
    }
    if f.reregistered is not None:
        found["reregistered_time"] = nanoseconds(f.reregistered)
    if completed and f.disconnected is not None:
        found["unregistered_time"] = nanoseconds(f.disconnected)
    return found


def recovered(f: Framework, state: State) -> bool:
    """Whether it is known only from before the master's restart, and not back yet."""
    return f.id in state.frameworks and f.stream is None and max(f.registered, f.reregistered or 0.0) < state.started


def agent(a: Agent, state: State) -> Message:
    """An agent of GET_AGENTS."""
    found = {
        "agent_info": a.info,
        "active": a.active and a.stream is not None,
        "deactivated": not a.active,
        "version": a.version or VERSION,
        "pid": pid(a),
        "registered_time": nanoseconds(a.registered),
        "total_resources": to_json(a.total),
        "allocated_resources": _by_role(taken((*a.tasks.values(), *a.executors.values()))),
        "offered_resources": _by_role(offered(a.offers.values())),
        "capabilities": [],
        "resource_providers": [],
    }
    if a.reregistered is not None:
        found["reregistered_time"] = nanoseconds(a.reregistered)
    if a.drain is not None:
        found["drain_info"] = drain_info(a.drain, drained=not a.tasks)
    return found


def drain_info(config: Message, *, drained: bool) -> Message:
    """A ``DrainInfo``. An agent that is drained gets no tasks, so none left is none for good."""
    return {"state": "DRAINED" if drained else "DRAINING", "config": config}


def pid(a: Agent) -> str:
    """Where an agent is, in the form that clients take apart: ``slave(1)@10.0.0.7:5051``."""
    return f"slave(1)@{a.ip or a.hostname}:{a.info.get('port', 5051)}"


def offer(o: Offer, state: State) -> Message:
    """An ``Offer``, as far as lookers-on need to know it."""
    holder = state.agents.get(o.agent)
    return {
        "id": identity(o.id),
        "framework_id": identity(o.framework),
        "agent_id": identity(o.agent),
        "hostname": "" if holder is None else holder.hostname,
        "allocation_info": {"role": o.role},
        "resources": to_json(o.resources, o.role),
    }


def inverse_offer(o: Offer, state: State) -> Message:
    """An ``InverseOffer``."""
    holder = state.agents.get(o.agent)
    unavailability = None if holder is None else holder.unavailability
    return {
        "id": identity(o.id),
        "framework_id": identity(o.framework),
        "agent_id": identity(o.agent),
        "unavailability": unavailability or {"start": nanoseconds(o.made)},
        "resources": to_json(o.resources),
    }


def master(state: State) -> Message:
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


def subscribed(everything: State) -> Message:
    """The first event of an operator's stream."""
    interval = everything.options.heartbeat_s
    return message("SUBSCRIBED", get_state=state(everything), heartbeat_interval_seconds=interval)


def task_added(t: Task) -> Message:
    """The event TASK_ADDED."""
    return message("TASK_ADDED", task=task(t))


def task_updated(t: Task, status: Message) -> Message:
    """The event TASK_UPDATED: a task's status has changed; what a status carries for its framework is left out."""
    shown = {name: item for name, item in status.items() if name != "data"}
    return message("TASK_UPDATED", framework_id=identity(t.framework), status=shown, state=t.state)


def agent_added(a: Agent, state: State) -> Message:
    """The event AGENT_ADDED."""
    return message("AGENT_ADDED", agent=agent(a, state))


def agent_removed(agent_id: str) -> Message:
    """The event AGENT_REMOVED."""
    return message("AGENT_REMOVED", agent_id=identity(agent_id))


def framework_added(f: Framework, state: State) -> Message:
    """The event FRAMEWORK_ADDED."""
    return message("FRAMEWORK_ADDED", framework=framework(f, state))


def framework_updated(f: Framework, state: State) -> Message:
    """The event FRAMEWORK_UPDATED."""
    return message("FRAMEWORK_UPDATED", framework=framework(f, state))


def framework_removed(f: Framework) -> Message:
    """The event FRAMEWORK_REMOVED."""
    return message("FRAMEWORK_REMOVED", framework_info=own_info(f.info))


def taken(items: Iterable[Task | Executor]) -> dict[str, Resources]:
    """What tasks that have not ended, and executors, take, by role."""
    return _sums(
        (item.role, item.resources)
        for item in items
        if not isinstance(item, Task) or (item.state not in TERMINAL and item.state != "TASK_UNREACHABLE")
    )


def offered(offers: Iterable[Offer]) -> dict[str, Resources]:
    """What is offered, by role."""
    return _sums((one.role, one.resources) for one in offers if not one.inverse)


def _sums(items: Iterable[tuple[str, Resources]]) -> dict[str, Resources]:
    """Resources by role. Thousands of tasks take scalars mostly: those are added in place."""
    scalars: dict[str, dict[Kind, int]] = {}
    others: dict[str, Resources] = {}
    for role, resources in items:
        counts = scalars.setdefault(role, {})
        for kind, amount in resources:
            if isinstance(amount, int):
                counts[kind] = counts.get(kind, 0) + amount
            else:
                others[role] = others.get(role, NONE) + Resources({kind: amount})
    return {role: Resources({**counts}) + others.get(role, NONE) for role, counts in scalars.items()}


def _by_role(resources: Mapping[str, Resources]) -> list[Message]:
    return [item for role, amount in resources.items() for item in to_json(amount, role)]


def user(info: Message) -> str | None:
    """As whom a TaskInfo asks to be run."""
    for holder in (info, info.get("executor", {})):
        command = holder.get("command", {}) if isinstance(holder, dict) else {}
        if isinstance(command, dict) and isinstance(command.get("user"), str):
            return str(command["user"])
    return None
