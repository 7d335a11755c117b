"""The executor API: what custom executors say to the agent.

References
----------
Apache Mesos, *Executor HTTP API* and ``include/mesos/v1/executor/executor.proto``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from asa.web.errors import HTTPError
from executors.mesos.agent import executors, rows, tasks, updates, views
from executors.mesos.agent.core import Core
from executors.mesos.agent.reports import checked, completed
from executors.mesos.agent.state import Executor
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field, identity, message, octets, value_of

HEARTBEAT_S = 1800.0
"""How often an executor hears from the agent at least [s]; Mesos' default."""
PENDING_MOST = 1000
"""How many updates of one task may wait for their acknowledgement."""
DATA_MOST = 4 << 20
"""How much data an update or a message may carry [bytes]."""


def subscribe(core: Core, call: Message, stream: str) -> None:
    """An executor opens its stream, for the first time or again; raises `HTTPError` when it is not known."""
    executor = _known(core, call)
    listed = {value_of(item, "task_id") for item in field(call, "subscribe.unacknowledged_tasks", list, [])}
    reports = field(call, "subscribe.unacknowledged_updates", list, [])
    if executor.verdict is not None:
        core.send(stream, message("SHUTDOWN"))
        core.close(stream)
        return
    core.close(executor.stream)
    executor.stream = stream
    core.state.streams[stream] = (executor.framework, executor.id)
    for what in ("register", "return"):
        core.timers.cancel(what, executor.framework, executor.id)
    core.timers.at(("heartbeat", stream), core.now + HEARTBEAT_S)
    if not executor.subscribed:
        executor.subscribed = True
        rows.keep_executor(core, executor)
    framework = core.state.frameworks[executor.framework]
    core.send(
        stream,
        message(
            "SUBSCRIBED",
            executor_info=views.executor_info(executor),
            framework_info=views.framework_info(framework),
            agent_info=views.agent_info(core.state, core.options),
            container_id=identity(executor.container),
        ),
    )
    for report in reports:
        try:
            _take(core, executor, report)
        except (HTTPError, BadMessage):
            core.count("invalid_status_updates")
    _catch_up(core, executor, listed)


def _catch_up(core: Core, executor: Executor, listed: Collection[str]) -> None:
    """Tell an executor what it may not have heard.

    A task that it does not list, and that it has never said a word of, did not reach it. If it was to be killed
    meanwhile, it is not launched any more, nor is the group that it belongs to.
    """
    live = list(executor.tasks.values())
    new = [t for t in live if t.id not in listed and not t.statuses]
    missed = [t for t in new if all(executor.tasks.get(name) in new for name in t.group)]
    killed = {name for task in missed if task.verdict is not None for name in (task.id, *task.group)}
    executors.deliver(core, executor, [task for task in missed if task.id not in killed])
    for task in missed:
        if task.id in killed:
            executors.give_up(core, task)
    for task in live:
        if not task.over and task.verdict is not None:
            core.send(executor.stream, message("KILL", task_id=identity(task.id)))


def call(core: Core, item: Message) -> None:
    """Any other call of an executor; raises `HTTPError`, or `BadMessage`, for what makes no sense."""
    executor = _known(core, item)
    if executor.stream is None:
        raise HTTPError(403, "Executor is not subscribed")
    kind = field(item, "type", str)
    if kind == "UPDATE":
        _take(core, executor, field(item, "update", dict))
    elif kind == "MESSAGE":
        _check_size(octets(item, "message.data"))
        data = field(item, "message.data", str)
        ids = {"framework_id": identity(executor.framework), "executor_id": identity(executor.id)}
        core.up("MESSAGE", **ids, data=data)
    elif kind != "HEARTBEAT":
        raise HTTPError(400, f"{kind!r:.80} is no call of an executor: expected UPDATE, MESSAGE or HEARTBEAT")


def _known(core: Core, item: Message) -> Executor:
    framework = core.state.frameworks.get(value_of(item, "framework_id"))
    if framework is None:
        raise HTTPError(400, "Framework cannot be found")
    executor = framework.executors.get(value_of(item, "executor_id"))
    if executor is None:
        raise HTTPError(400, "Executor cannot be found")
    return executor


def _take(core: Core, executor: Executor, report: Any) -> None:
    """An update from an executor. It may come twice, or late: one that is of no use is acknowledged at once."""
    status = field({"update": report}, "update.status", dict)
    task_id, uuid = checked(status, executor.id)
    _check_size(octets(status, "data", b""))
    task = core.state.task(executor.framework, task_id)
    again = None if task is None else updates.known(task, uuid)
    if again == "pending":
        return
    if task is None or task.executor != executor.id or task.over or again is not None:
        acknowledged(core, executor, task_id, field(status, "uuid", str))
        return
    if len(task.pending) >= PENDING_MOST:
        raise HTTPError(429, f"{PENDING_MOST} updates of task {task_id!r} are not acknowledged yet: wait")
    instance = core.state.instances.get(executor.container)
    updates.add(core, task, completed(status, task, uuid, core.now, core.state.id or "", instance=instance))
    core.count("valid_status_updates")
    if task.over:
        tasks.settle(core, task)


def acknowledged(core: Core, executor: Executor, task_id: str, uuid: str) -> None:
    """Tell an executor that an update of its task has arrived."""
    core.send(executor.stream, message("ACKNOWLEDGED", task_id=identity(task_id), uuid=uuid))


def closed(core: Core, stream: str) -> None:
    """An executor's stream broke: it may come back."""
    core.timers.cancel("heartbeat", stream)
    ids = core.state.streams.pop(stream, None)
    executor = None if ids is None else core.state.executor(*ids)
    if executor is None or executor.stream != stream:
        return
    executor.stream = None
    if executor.verdict is None:
        core.timers.at(("return", executor.framework, executor.id), core.now + core.options.recovery_s)


def heartbeat(core: Core, stream: str) -> None:
    """It is time to let an executor hear from us."""
    core.send(stream, message("HEARTBEAT"))
    core.timers.at(("heartbeat", stream), core.now + HEARTBEAT_S)


def _check_size(data: bytes) -> None:
    if len(data) > DATA_MOST:
        raise HTTPError(413, f"expected at most {DATA_MOST} bytes of data, found {len(data)}: pass the path of a file")
