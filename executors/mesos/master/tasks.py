"""Tasks on the master: what state they are in, what they take, what their framework is sent, also when it asks."""

from __future__ import annotations

import logging
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import views
from executors.mesos.master.core import Core, drop_task, keep_task
from executors.mesos.master.state import AgentRecord, FrameworkRecord, TaskRecord
from executors.mesos.messages import (
    TERMINAL,
    base64_of,
    field,
    identity,
    message,
    nanoseconds,
    octets,
    task_status,
    value_of,
)

_log = logging.getLogger(__name__)

STATUSES_MOST = 16
"""How many statuses of a task are remembered."""

_LIVE = frozenset({"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"})
TRANSITIONS: dict[str, frozenset[str]] = {
    "TASK_STAGING": _LIVE | TERMINAL | {"TASK_UNREACHABLE"},
    "TASK_STARTING": _LIVE | TERMINAL | {"TASK_UNREACHABLE"},
    "TASK_RUNNING": _LIVE | TERMINAL | {"TASK_UNREACHABLE"},
    "TASK_KILLING": _LIVE | TERMINAL | {"TASK_UNREACHABLE"},
    "TASK_UNREACHABLE": _LIVE | TERMINAL,
} | {state: frozenset() for state in TERMINAL}
"""State -> states that may follow: agents decide in which order a live task goes through its states; a task that has
ended never comes back to life; one whose agent is unreachable is as the agent says once that is back."""

STATES = _LIVE | TERMINAL
"""States that an agent may report."""

_KEPT = ("healthy", "container_status", "labels", "check_status")


def state_for(framework: FrameworkRecord, state: str) -> str:
    """A state in the words of the framework: one that is not PARTITION_AWARE knows TASK_LOST only."""
    return state if framework.can("PARTITION_AWARE") else "TASK_LOST"


def add(core: Core, framework: FrameworkRecord, agent: AgentRecord, task: TaskRecord) -> None:
    """A task was launched, or found."""
    _log.info("task %s of %s is on %s: %s", task.id, framework.id, agent.id, task.state)
    framework.tasks[task.id] = agent.tasks[task.key] = task
    if task.state not in TERMINAL:
        core.take(agent, task.framework, task.role, task.resources)
    keep_task(core, task, copied=True)
    if core.state.operators:
        core.publish(message("TASK_ADDED", task=views.task(task)))


def update(core: Core, framework: FrameworkRecord, agent: AgentRecord, item: Message) -> None:
    """A status update from an agent: passed on, as often as it comes, until it is acknowledged; raises `BadMessage`."""
    status = dict(field(item, "status", dict))
    task_id, uuid = value_of(status, "task_id"), octets(status, "uuid")
    state = field(status, "state", str)
    latest = field(item, "latest_state", str, state)
    if state not in STATES or latest not in STATES or len(uuid) != 16:
        raise BadMessage(f"expected a status of task {task_id!r} with a known state and a uuid of 16 bytes")
    status |= {"agent_id": identity(agent.id), "uuid": base64_of(uuid)}
    task, named = agent.tasks.get((framework.id, task_id)), framework.tasks.get(task_id)
    before = None if task is None else task.state
    if task is not None:
        change_state(core, agent, task, latest)
    if task is not named:  # the framework knows that it is lost, and has launched another one of this name
        if task is not None and state in TERMINAL:
            del agent.tasks[task.key]
            if agent.drain is not None:
                core.emptied.add(agent.id)
        _acknowledge(core, agent, framework.id, task_id, status["uuid"])
        return
    if was_acknowledged(framework, agent, task, task_id, status["uuid"]):
        _acknowledge(core, agent, framework.id, task_id, status["uuid"])
    else:
        if task is not None and task.unacknowledged != status["uuid"]:
            remember(task, status)
            if core.state.operators:
                core.publish(views.task_updated(task, status))
            task.unacknowledged, before = status["uuid"], None
        if task is not None:
            task.pending = status
        core.send(framework.stream, message("UPDATE", status=status))
    if task is not None and before != task.state:
        keep_task(core, task, copied=True)


def hold_orphan(core: Core, agent: AgentRecord, task: TaskRecord) -> None:
    """A task of a framework that is gone: until it has ended, its agent has less to offer."""
    agent.tasks[task.key] = task
    core.take(agent, task.framework, task.role, task.resources)


def ends_orphan(core: Core, agent: AgentRecord, framework_id: str, item: Message) -> bool:
    """Whether an update says that a task that has outlived its framework is over: what it took is free then."""
    task_id = value_of(item, "status.task_id")
    state = field(item, "latest_state", str, "") or field(item, "status.state", str)
    task = agent.tasks.get((framework_id, task_id)) if state in TERMINAL else None
    if task is not None:
        free_orphan(core, agent, task)
    return task is not None


def free_orphan(core: Core, agent: AgentRecord, task: TaskRecord) -> None:
    """A task that has outlived its framework is over."""
    del agent.tasks[task.key]
    if task.state not in TERMINAL:
        core.give_back(agent, task.framework, task.role, task.resources)
    if agent.drain is not None:
        core.emptied.add(agent.id)


def was_acknowledged(
    framework: FrameworkRecord, agent: AgentRecord, task: TaskRecord | None, task_id: str, uuid: str
) -> bool:
    """Whether an update has been acknowledged, and that was lost on the way to the agent; or is older than the end."""
    if task is None:
        ended = [one for one in framework.completed if one.id == task_id and one.agent == agent.id]
        return any(status.get("uuid") == uuid for one in ended for status in one.statuses)
    if uuid == task.unacknowledged or not task.statuses:
        return False
    return task.statuses[-1]["state"] in TERMINAL or any(status.get("uuid") == uuid for status in task.statuses)


def acknowledge(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """ACKNOWLEDGE: the framework has taken note of an update; of the last one, the task is over.

    An agent that is away sends the update again when it is back, and is answered then.
    """
    agent_id, task_id = value_of(call, "agent_id"), value_of(call, "task_id")
    number = octets(call, "uuid")
    if len(number) != 16:
        raise BadMessage("expected 'uuid' to be 16 bytes")
    uuid = base64_of(number)
    task = framework.tasks.get(task_id)
    if task is not None and task.agent == agent_id and task.unacknowledged == uuid:
        task.unacknowledged = task.pending = None
        if task.statuses[-1]["state"] in TERMINAL:
            forget(core, framework, task)
    if (agent := core.state.agents.get(agent_id)) is not None:
        _acknowledge(core, agent, framework.id, task_id, uuid)


def kill(core: Core, task: TaskRecord, kill_policy: Message | None) -> None:
    """Have a task killed; an agent that is away is sent this when it comes back."""
    payload: dict[str, Any] = {"framework_id": identity(task.framework), "task_id": identity(task.id)}
    if kill_policy is not None:
        payload["kill_policy"] = kill_policy
    _log.info("task %s of %s on %s is to be killed", task.id, task.framework, task.agent)
    agent = agent_of(core, task)
    if agent is not None and agent.stream is not None:
        core.send(agent.stream, message("KILL", **payload))
    elif task.kill != payload:
        task.kill = payload
        framework = core.state.frameworks.get(task.framework)
        if framework is not None and _named(framework, task.id) is task:
            keep_task(core, task)


def change_state(core: Core, agent: AgentRecord, task: TaskRecord, state: str) -> None:
    """The task is in this state now. One that has ended takes nothing any more, and never comes back to life."""
    if state not in TRANSITIONS[task.state]:
        return
    set_state(task, state)
    if state in TERMINAL:
        core.give_back(agent, task.framework, task.role, task.resources)


def set_state(task: TaskRecord, state: str) -> None:
    """The task is in this state now."""
    if task.state != state:
        _log.info("task %s of %s on %s: %s -> %s", task.id, task.framework, task.agent, task.state, state)
    task.state = state


def end(
    core: Core, framework: FrameworkRecord, task: TaskRecord, state: str, reason: str, *, text: str, **more: Any
) -> None:
    """The master finds that a task is over, and sends that, once."""
    if (agent := agent_of(core, task)) is not None:
        change_state(core, agent, task, state)
    else:
        set_state(task, state)
    status = status_of(core, task, state, reason, text, **more)
    remember(task, status)
    send_status(core, framework, task, status)
    forget(core, framework, task)


def send_status(core: Core, framework: FrameworkRecord, task: TaskRecord, status: Message) -> None:
    """Send a status of the master's own to the framework, and to operators."""
    if core.state.operators:
        core.publish(views.task_updated(task, status))
    core.send(framework.stream, message("UPDATE", status=status))


def resend_end(core: Core, framework: FrameworkRecord, task: TaskRecord) -> None:
    """Send once more the end of a task that was not acknowledged: its agent, which would, is not there."""
    send_status(core, framework, task, {name: item for name, item in task.statuses[-1].items() if name != "uuid"})


def forget(core: Core, framework: FrameworkRecord, task: TaskRecord) -> None:
    """The task is over and its framework knows."""
    for known in (framework.tasks, framework.unreachable):
        if known.get(task.id) is task:
            del known[task.id]
    framework.completed.append(task)
    task.unacknowledged = task.pending = None
    if (agent := agent_of(core, task)) is not None:
        agent.tasks.pop(task.key, None)
        if agent.drain is not None:
            core.emptied.add(agent.id)
    if (namesake := _named(framework, task.id)) is None:
        drop_task(core, task)
    else:
        keep_task(core, namesake)


def _named(framework: FrameworkRecord, task_id: str) -> TaskRecord | None:
    """Whose row it is: when a task was lost, another one may have been launched under its name."""
    return framework.tasks.get(task_id) or framework.unreachable.get(task_id)


def agent_of(core: Core, task: TaskRecord) -> AgentRecord | None:
    """The task's agent, unless that is given up."""
    return core.state.agents.get(task.agent) or core.state.recovered.get(task.agent)


def status_of(core: Core, task: TaskRecord, state: str, reason: str, text: str, **more: Any) -> Message:
    """A status that the master makes: it has no uuid and needs no acknowledgement."""
    return task_status(
        task.id,
        state,
        core.now,
        source="SOURCE_MASTER",
        agent_id=task.agent,
        executor_id=task.executor or task.id,
        reason=reason,
        text=text,
        **more,
    )


def is_ending(task: TaskRecord) -> bool:
    """Whether its agent sends its end, which it had sent before, to an earlier master perhaps."""
    return task.end_sent and sent_state(task) not in TERMINAL


def sent_state(task: TaskRecord) -> str:
    """The state that its framework was sent last: what its agent has not sent yet comes first."""
    if task.statuses:
        return str(task.statuses[-1]["state"])
    return "TASK_STAGING" if task.state in TERMINAL else task.state


def remember(task: TaskRecord, status: Message) -> None:
    """Remember a status; of several in a row with one state, the last."""
    kept = {name: item for name, item in status.items() if name != "data"}
    before = task.statuses
    if before and before[-1]["state"] == kept["state"]:
        before = before[:-1]
    task.statuses = [*before[1 - STATUSES_MOST :], kept]


def _acknowledge(core: Core, agent: AgentRecord, framework_id: str, task_id: str, uuid: str) -> None:
    payload = {"framework_id": identity(framework_id), "task_id": identity(task_id), "uuid": uuid}
    core.send(agent.stream, message("ACKNOWLEDGE", **payload))


# ---------------------------------------------------------------------- RECONCILE


def reconcile(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """RECONCILE: send the latest state of these tasks or, when none is named, of all; raises `BadMessage`."""
    asked = []
    for item in field(call, "tasks", list, []):
        one = {"it": item}
        agent_id = value_of(one, "it.agent_id") if "agent_id" in field(one, "it", dict) else None
        asked.append((value_of(one, "it.task_id"), agent_id))
    if not asked:
        asked = [(task.id, task.agent) for task in (*framework.tasks.values(), *framework.unreachable.values())]
    for task_id, agent_id in dict.fromkeys(asked):
        answer(core, framework, task_id, agent_id)


def answer(core: Core, framework: FrameworkRecord, task_id: str, agent_id: str | None) -> None:
    """Send what is known of a task; nothing while its agent may still come back from before the master's restart.

    Nor while its end is on the way, as an earlier master has perhaps passed it on already.
    """
    task = framework.tasks.get(task_id)
    if task is not None:  # whichever agent is asked about
        if task.agent in core.state.agents and not is_ending(task):
            _answer(core, framework, task_id, task.agent, sent_state(task), text="Latest task state", task=task)
        return
    away = framework.unreachable.get(task_id)
    if away is not None:
        over = sent_state(away) in TERMINAL
        word = sent_state(away) if over else state_for(framework, "TASK_UNREACHABLE")
        text = "Latest task state" if over else "Task is unreachable"
        _answer(core, framework, task_id, away.agent, word, text=text, task=away)
        return
    if agent_id in core.state.recovered or (agent_id is None and core.state.recovered):
        return
    state, text = _unknown(core, agent_id)
    _answer(core, framework, task_id, agent_id, state_for(framework, state), text=text)


def _unknown(core: Core, agent_id: str | None) -> tuple[str, str]:
    if agent_id in core.state.agents:
        return "TASK_GONE", "Task is not known to its agent"
    if agent_id in core.state.unreachable:
        return "TASK_UNREACHABLE", "Agent is unreachable"
    if agent_id in core.state.gone:
        return "TASK_GONE_BY_OPERATOR", "Agent is gone"
    return "TASK_UNKNOWN", "Task is unknown"


def _answer(
    core: Core,
    framework: FrameworkRecord,
    task_id: str,
    agent_id: str | None,
    state: str,
    *,
    text: str,
    task: TaskRecord | None = None,
) -> None:
    more: Message = {}
    if task is not None and task.statuses:
        more = {name: task.statuses[-1][name] for name in _KEPT if name in task.statuses[-1]}
    if agent_id in core.state.unreachable:
        more |= {"unreachable_time": nanoseconds(core.state.unreachable[agent_id])}
    status = task_status(
        task_id,
        state,
        core.now,
        source="SOURCE_MASTER",
        agent_id=agent_id,
        executor_id=None if task is None else task.executor or task.id,
        reason="REASON_RECONCILIATION",
        text=f"Reconciliation: {text}",
        **more,
    )
    core.send(framework.stream, message("UPDATE", status=status))
