"""Status updates: one at a time for each task, in order, sent again until they are acknowledged."""

from __future__ import annotations

from executors.mesos.agent import rows
from executors.mesos.agent.core import Core
from executors.mesos.agent.state import Task
from executors.mesos.codec import Message
from executors.mesos.messages import TERMINAL, base64_of, identity, task_status

RETRY_S, RETRY_MOST_S = 10.0, 600.0
"""After how long an update that was not acknowledged is sent again [s], at first and at most; Mesos' defaults."""


def say(core: Core, task: Task, state: str, reason: str | None = None, text: str | None = None) -> None:
    """The agent itself says where a task stands."""
    more: Message = {}
    if task.container is not None and (instance := core.state.instances.get(task.container)) is not None:
        process = {} if instance.pid is None else {"executor_pid": instance.pid}
        more["container_status"] = {"container_id": identity(instance.id)} | process
    status = task_status(
        task.id,
        state,
        core.now,
        source="SOURCE_AGENT",
        agent_id=core.state.id,
        executor_id=task.executor_id,
        reason=reason,
        text=text,
        uuid=core.fresh(),
        **more,
    )
    add(core, task, status)


def add(core: Core, task: Task, status: Message) -> None:
    """Take a complete status of a task that is not over: keep it, and pass it on when its turn has come."""
    task.state = status["state"]
    task.statuses = [item for item in task.statuses if item["state"] != task.state]
    task.statuses.append({name: item for name, item in status.items() if name != "data"})
    if task.state in TERMINAL:
        core.count(task.state.lower().replace("task_", "tasks_", 1))
    if core.state.frameworks[task.framework].over:
        return
    task.pending.append(status)
    rows.keep_updates(core, task)
    if len(task.pending) == 1:
        send(core, task)


def acknowledge(core: Core, task: Task, uuid: str) -> Message | None:
    """The framework has acknowledged an update: the status if it was the one it was asked to, else None.

    Parameters
    ----------
    uuid
        In base64, as it was sent.
    """
    if not task.pending or task.pending[0]["uuid"] != uuid:
        return None
    status = task.pending.popleft()
    task.acknowledged.append(uuid)
    task.tries = 0
    core.timers.cancel("retry", task.framework, task.id)
    if task.pending or not task.over:
        rows.keep_updates(core, task, copied=True)
    if task.pending:
        send(core, task)
    return status


def send(core: Core, task: Task) -> None:
    """Send a task's first pending update, and again after a while; nothing before the agent has registered."""
    if not core.state.registered:
        return
    head = task.pending[0] | {"agent_id": identity(core.state.id or "")}
    core.up("UPDATE", framework_id=identity(task.framework), status=head, latest_state=task.state)
    wait = min(RETRY_S * 2**task.tries, RETRY_MOST_S)
    task.tries = min(task.tries + 1, 10)
    core.timers.at(("retry", task.framework, task.id), core.now + wait)


def resend(core: Core) -> None:
    """The master has just come back: send what it has not acknowledged, without waiting for the next turn."""
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            if task.pending:
                task.tries = 0
                send(core, task)


def retry(core: Core, framework_id: str, task_id: str) -> None:
    """It is time to send an update again."""
    task = core.state.task(framework_id, task_id)
    if task is not None and task.pending:
        send(core, task)


def known(task: Task, uuid: bytes) -> str | None:
    """Whether an update was taken before: ``"pending"``, or ``"acknowledged"``."""
    text = base64_of(uuid)
    if text in task.acknowledged:
        return "acknowledged"
    return "pending" if any(status["uuid"] == text for status in task.pending) else None
