"""RECONCILE: a framework asks where its tasks stand."""

from __future__ import annotations

from executors.mesos.codec import Message
from executors.mesos.master.core import Core
from executors.mesos.master.state import Framework, Task
from executors.mesos.master.tasks import told_state, worded
from executors.mesos.messages import field, message, nanoseconds, task_status, value_of

_KEPT = ("healthy", "container_status", "labels", "check_status")


def reconcile(core: Core, framework: Framework, call: Message) -> None:
    """Tell the latest state of these tasks, or, asked for none, of all.

    Raises
    ------
    BadMessage
        When the call has not the shape of one.
    """
    asked = []
    for item in field(call, "tasks", list, []):
        one = {"it": item}
        agent_id = value_of(one, "it.agent_id") if "agent_id" in field(one, "it", dict) else None
        asked.append((value_of(one, "it.task_id"), agent_id))
    if not asked:
        asked = [(task.id, task.agent) for task in (*framework.tasks.values(), *framework.unreachable.values())]
    for task_id, agent_id in dict.fromkeys(asked):
        tell(core, framework, task_id, agent_id)


def tell(core: Core, framework: Framework, task_id: str, agent_id: str | None) -> None:
    """Tell what is known of a task; nothing while its agent may still come back from before the master's restart."""
    task = framework.tasks.get(task_id)
    if task is not None:  # whichever agent is asked about
        if task.agent in core.state.agents:
            _send(core, framework, task_id, task.agent, told_state(task), text="Latest task state", task=task)
        return
    away = framework.unreachable.get(task_id)
    if away is not None:
        word = worded(framework, "TASK_UNREACHABLE")
        _send(core, framework, task_id, away.agent, word, text="Task is unreachable", task=away)
        return
    if agent_id in core.state.recovered or (agent_id is None and core.state.recovered):
        return
    state, text = _unknown(core, agent_id)
    _send(core, framework, task_id, agent_id, worded(framework, state), text=text)


def _unknown(core: Core, agent_id: str | None) -> tuple[str, str]:
    if agent_id in core.state.agents:
        return "TASK_GONE", "Task is not known to its agent"
    if agent_id in core.state.unreachable:
        return "TASK_UNREACHABLE", "Agent is unreachable"
    if agent_id in core.state.gone:
        return "TASK_GONE_BY_OPERATOR", "Agent is gone"
    return "TASK_UNKNOWN", "Task is unknown"


def _send(
    core: Core,
    framework: Framework,
    task_id: str,
    agent_id: str | None,
    state: str,
    *,
    text: str,
    task: Task | None = None,
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
