"""The agent's state as messages, for master and operators, and as rows of its journal, which outlive a restart.

=============  ================================  ==========================================================
table          key                               row
=============  ================================  ==========================================================
agent          ``id``                            the agent's id
frameworks     its id                            FrameworkInfo, and whether it is over
executors      framework and executor id         what a custom executor is
tasks          framework and task id             what was launched
updates        framework and task id             where the task stands, and what is to be acknowledged
instances      container id                      containers that have not ended
=============  ================================  ==========================================================
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable

from executors.mesos.agent.state import (
    ACKNOWLEDGED_MOST,
    AgentCore,
    AgentExecutor,
    AgentFramework,
    AgentOptions,
    AgentState,
    AgentTask,
    ContainerState,
    TaskEnd,
)
from executors.mesos.codec import Message
from executors.mesos.effects import KeepRow
from executors.mesos.messages import field, identity, message, nanoseconds
from executors.mesos.resources import to_json


def agent_info(state: AgentState, options: AgentOptions) -> Message:
    """Mesos' AgentInfo."""
    info = {
        "hostname": options.hostname,
        "port": options.port,
        "resources": to_json(options.resources),
        "attributes": list(options.attributes),
    }
    return info if state.id is None else info | {"id": identity(state.id)}


def framework_info(framework: AgentFramework) -> Message:
    """Mesos' FrameworkInfo."""
    return framework.info | {"id": identity(framework.id)}


def executor_info(executor: AgentExecutor) -> Message:
    """Mesos' ExecutorInfo."""
    return executor.info | {
        "executor_id": identity(executor.id),
        "framework_id": identity(executor.framework),
    }


def container_status(container: ContainerState) -> Message:
    """Mesos' ContainerStatus."""
    process = {} if container.pid is None else {"executor_pid": container.pid}
    return {"container_id": identity(container.id)} | process


def redacted(info: Message) -> Message:
    """An ExecutorInfo or TaskInfo without the secrets in its environment.

    >>> secret = {"name": "KEY", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": "a2V5"}}}
    >>> redacted({"command": {"environment": {"variables": [secret]}}})
    {'command': {'environment': {'variables': [{'name': 'KEY', 'type': 'SECRET'}]}}}
    """
    if not field(info, "command.environment.variables", list, []):
        return info
    environment = info["command"]["environment"]
    given = [item for item in environment["variables"] if isinstance(item, dict)]
    variables = [{name: value for name, value in item.items() if name != "secret"} for item in given]
    return info | {"command": info["command"] | {"environment": environment | {"variables": variables}}}


def task_message(task: AgentTask, agent_id: str | None) -> Message:
    """Mesos' Task."""
    found: Message = {
        "name": name if isinstance(name := task.info.get("name"), str) else task.id,
        "task_id": identity(task.id),
        "framework_id": identity(task.framework),
        "agent_id": identity(agent_id or ""),
        "state": task.state,
        "resources": task.info.get("resources", []),
        "statuses": list(task.statuses),
    }
    if task.executor is not None:
        found["executor_id"] = identity(task.executor)
    if task.pending:
        found |= {"status_update_state": task.pending[0]["state"], "status_update_uuid": task.pending[0]["uuid"]}
    return found | {name: task.info[name] for name in ("labels", "discovery", "limits") if name in task.info}


def registration(state: AgentState, options: AgentOptions, version: str) -> Message:
    """The item with which the agent registers: what it is, and all that is here."""
    frameworks = [framework for framework in state.frameworks.values() if not framework.over]
    executors = [executor for framework in frameworks for executor in framework.executors.values()]
    tasks = [item for framework in frameworks for item in framework.tasks.values()]
    more: Message = {} if options.ends is None else {"unavailability": unavailability(options.ends)}
    if options.ip is not None:
        more["ip"] = options.ip
    return message(
        "REGISTER",
        agent_info=agent_info(state, options),
        version=version,
        frameworks=[framework_info(framework) for framework in frameworks],
        tls=options.tls,
        executors=[{"framework_id": identity(e.framework), "executor_info": executor_info(e)} for e in executors],
        tasks=[task_message(item, state.id) | {"task_info": _without_data(item.info)} for item in tasks],
        **more,
    )


def _without_data(info: Message) -> Message:
    """What a task's executor alone can read may be large, and there may be many tasks."""
    return {name: value for name, value in info.items() if name != "data"}


def unavailability(ends: float) -> Message:
    """Mesos' Unavailability: from then on [s since the epoch]; without a duration it lasts for ever."""
    return {"start": nanoseconds(ends)}


TABLES = ("agent", "frameworks", "executors", "tasks", "updates", "instances")
"""In the order in which rows must be read: what belongs to something comes after it."""
_UNLIMITED = "Infinity"
_ABSENT: Message = {"task": None, "cpus": None, "memory": None}  # a journal need not keep what is null


def row_key(framework: str, item: str) -> str:
    """The key of what has an id within a framework; ids may hold any character.

    >>> row_key("F1", "t/1")
    '["F1", "t/1"]'
    """
    return json.dumps([framework, item])


def keep_agent(core: AgentCore) -> None:
    """Remember the agent's id, or that it has none any more."""
    core.keep("agent", "id", None if core.state.id is None else {"id": core.state.id})


def keep_framework(core: AgentCore, framework: AgentFramework) -> None:
    """Remember a framework as it is now."""
    core.keep("frameworks", framework.id, {"info": framework.info, "over": framework.over})


def keep_executor(core: AgentCore, executor: AgentExecutor) -> None:
    """Remember an executor as it is now."""
    row = {
        "framework": executor.framework,
        "id": executor.id,
        "info": executor.info,
        "container": executor.container,
        "launched": executor.launched,
        "subscribed": executor.subscribed,
        "verdict": _end_row(executor.verdict),
    }
    core.keep("executors", row_key(executor.framework, executor.id), row)


def keep_task(core: AgentCore, task: AgentTask) -> None:
    """Remember what was launched; it never changes."""
    row = {
        "framework": task.framework,
        "id": task.id,
        "executor": task.executor,
        "info": task.info,
        "launched": task.launched,
        "container": task.container,
        "group": list(task.group),
    }
    core.keep("tasks", row_key(task.framework, task.id), row)


def keep_updates(core: AgentCore, task: AgentTask, *, copied: bool = False) -> None:
    """Remember where a task stands; `copied` when the master would say again what has changed."""
    row = {
        "framework": task.framework,
        "id": task.id,
        "state": task.state,
        "statuses": list(task.statuses),
        "pending": list(task.pending),
        "acknowledged": list(task.acknowledged),
        "verdict": _end_row(task.verdict),
    }
    core.keep("updates", row_key(task.framework, task.id), row, copied=copied)


def keep_instance(core: AgentCore, instance: ContainerState) -> None:
    """Remember a container as it is now."""
    row = dict(vars(instance))
    if instance.lease == math.inf:
        row["lease"] = _UNLIMITED
    core.keep("instances", instance.id, row)


def forget_framework(core: AgentCore, framework: AgentFramework) -> None:
    """Its row is not needed any more."""
    core.keep("frameworks", framework.id, None)


def forget_executor(core: AgentCore, executor: AgentExecutor) -> None:
    """Its row is not needed any more."""
    core.keep("executors", row_key(executor.framework, executor.id), None)


def forget_task(core: AgentCore, task: AgentTask) -> None:
    """Its rows are not needed any more: its end was acknowledged, which the master would say again."""
    for table in ("updates", "tasks"):
        core.keep(table, row_key(task.framework, task.id), None, copied=True)


def forget_instance(core: AgentCore, instance: ContainerState) -> None:
    """Its row is not needed any more."""
    core.keep("instances", instance.id, None)


def forget_all(core: AgentCore) -> None:
    """The agent has ended for good: another one that is started here is a new one."""
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            forget_task(core, task)
        for executor in framework.executors.values():
            forget_executor(core, executor)
        forget_framework(core, framework)
    for instance in core.state.instances.values():
        forget_instance(core, instance)
    core.keep("agent", "id", None)


def restored(rows: Iterable[KeepRow], started: float) -> AgentState:
    """The state that these rows, each the last of its key, are of. Nobody is connected in it.

    Parameters
    ----------
    started
        When the agent was started again [s since the epoch].
    """
    tables: dict[str, list[tuple[str, Message]]] = {table: [] for table in TABLES}
    for table, name, row in rows:
        if row is not None and table in tables:
            tables[table].append((name, row))
    state = AgentState(started)
    for _, row in tables["agent"]:
        state.id = row["id"]
    for name, row in tables["frameworks"]:
        state.frameworks[name] = AgentFramework(name, row["info"], row["over"])
    for _, row in tables["executors"]:
        executor = AgentExecutor(**row | {"verdict": _end_of(row.get("verdict"))})
        state.frameworks[executor.framework].executors[executor.id] = executor
    for _, row in sorted(tables["tasks"], key=lambda item: float(item[1]["launched"])):
        given: Message = {"executor": None, "container": None} | row
        task = AgentTask(**given | {"group": tuple(row["group"])})
        state.frameworks[task.framework].tasks[task.id] = task
    for _, row in tables["updates"]:
        _restore_updates(state.frameworks[row["framework"]].tasks[row["id"]], row)
    for framework in state.frameworks.values():
        for task in framework.tasks.values():
            if not task.over and (owner := framework.executors.get(task.executor or "")) is not None:
                owner.tasks[task.id] = task
    for name, row in tables["instances"]:
        state.instances[name] = _restored_container(_ABSENT | row)
    return state


def _restored_container(row: Message) -> ContainerState:
    lease = math.inf if row.get("lease") == _UNLIMITED else row.get("lease")
    return ContainerState(**row | {"lease": lease, "gpus": tuple(row["gpus"])})


def _restore_updates(task: AgentTask, row: Message) -> None:
    task.state, task.statuses, task.verdict = row["state"], row["statuses"], _end_of(row.get("verdict"))
    task.pending = deque(row["pending"])
    task.acknowledged = deque(row["acknowledged"], maxlen=ACKNOWLEDGED_MOST)


def _end_row(verdict: TaskEnd | None) -> Message | None:
    return None if verdict is None else verdict._asdict()


def _end_of(row: Message | None) -> TaskEnd | None:
    return None if row is None else TaskEnd(row["event"], row.get("reason"), row["text"])
