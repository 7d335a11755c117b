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
from dataclasses import fields
from typing import Any

from executors.mesos.agent.state import (
    ACKNOWLEDGED_MOST,
    AgentCore,
    AgentExecutor,
    AgentFramework,
    AgentOptions,
    AgentState,
    AgentTask,
    ContainerPhase,
    ContainerState,
    CpuShare,
    TaskEnd,
)
from executors.mesos.codec import Message
from executors.mesos.effects import KeepRow
from executors.mesos.messages import identity, message, nanoseconds
from executors.mesos.resources import to_json

KeptRecord = AgentFramework | AgentExecutor | AgentTask | ContainerState
"""What a row of the journal is kept of."""


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
    executors = [executor for framework in state.frameworks.values() for executor in framework.executors.values()]
    tasks = [item for framework in state.frameworks.values() for item in framework.tasks.values()]
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


_KEPT = {
    "frameworks": ("id", "info", "over"),
    "executors": ("framework", "id", "info", "container", "launched", "subscribed", "verdict"),
    "tasks": ("framework", "id", "executor", "info", "launched", "container"),  # which never change
    "updates": ("framework", "id", "state", "statuses", "pending", "acknowledged", "verdict"),
    "instances": tuple(each.name for each in fields(ContainerState)),
}
"""What is kept of each, in the order in which rows must be read: what belongs to something comes after it."""


def row_key(item: KeptRecord) -> str:
    """The key of a row: an id, within a framework with the framework's; ids may hold any character.

    >>> row_key(AgentTask("t/1", "F1", None, {}, 0.0)), row_key(AgentFramework("F1", {}))
    ('["F1", "t/1"]', 'F1')
    """
    return json.dumps([item.framework, item.id]) if isinstance(item, AgentExecutor | AgentTask) else item.id


def keep(core: AgentCore, table: str, item: KeptRecord, *, copied: bool = False) -> None:
    """Remember it as it is now; `copied` when the master would say again what has changed."""
    row = {name: _plain(getattr(item, name)) for name in _KEPT[table]}
    core.keep(table, row_key(item), row, copied=copied)


def forget(core: AgentCore, table: str, item: KeptRecord, *, copied: bool = False) -> None:
    """Its row is not needed any more."""
    core.keep(table, row_key(item), None, copied=copied)


def keep_agent(core: AgentCore) -> None:
    """Remember the agent's id."""
    core.keep("agent", "id", {"id": core.state.id})


def forget_task(core: AgentCore, task: AgentTask) -> None:
    """Its rows are not needed any more: its end was acknowledged, which the master would say again."""
    for table in ("updates", "tasks"):
        forget(core, table, task, copied=True)


def forget_all(core: AgentCore) -> None:
    """The agent has ended for good: another one that is started here is a new one."""
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            forget_task(core, task)
        for executor in framework.executors.values():
            forget(core, "executors", executor)
        forget(core, "frameworks", framework)
    for instance in core.state.instances.values():
        forget(core, "instances", instance)
    core.keep("agent", "id", None)


def restored(rows: Iterable[KeepRow], started: float) -> AgentState:
    """The state that these rows, each the last of its key, are of, at the agent's start; no executor is connected."""
    tables: dict[str, list[Message]] = {table: [] for table in ("agent", *_KEPT)}
    for table, _, row in rows:
        if row is not None and table in tables:
            tables[table].append(row)
    state = AgentState(started)
    for row in tables["agent"]:
        state.id = row["id"]
    for row in tables["frameworks"]:
        state.frameworks[row["id"]] = AgentFramework(**row)
    for row in tables["executors"]:
        executor = AgentExecutor(**row | {"verdict": _end(row)})
        state.frameworks[executor.framework].executors[executor.id] = executor
    for row in sorted(tables["tasks"], key=lambda row: float(row["launched"])):
        task = AgentTask(**_NO_EXECUTOR | row)
        state.frameworks[task.framework].tasks[task.id] = task
    for row in tables["updates"]:
        task = state.frameworks[row["framework"]].tasks[row["id"]]
        task.state, task.statuses, task.verdict = row["state"], row["statuses"], _end(row)
        task.pending = deque(row["pending"])
        task.acknowledged = deque(row["acknowledged"], maxlen=ACKNOWLEDGED_MOST)
    for framework in state.frameworks.values():
        for task in framework.tasks.values():
            if not task.over and (owner := framework.executors.get(task.executor or "")) is not None:
                owner.tasks[task.id] = task
    for row in tables["instances"]:
        more: Message = {"phase": ContainerPhase(row["phase"]), "gpus": tuple(row["gpus"])}
        for name in ("limits", "requests"):
            share: Message = {key: math.inf if item == _UNLIMITED else item for key, item in row[name].items()}
            more[name] = CpuShare(**share)
        state.instances[row["id"]] = ContainerState(**_NO_TASK | row | more)
    return state


_UNLIMITED = "Infinity"  # for which JSON has no number
_NO_EXECUTOR: Message = {"executor": None}
_NO_TASK: Message = {"task": None, "memory": None}


def _plain(found: Any) -> Any:
    """As JSON has it; a journal does not keep what is null."""
    if isinstance(found, TaskEnd):
        return found._asdict()
    if isinstance(found, CpuShare):
        return {name: _UNLIMITED if item == math.inf else item for name, item in vars(found).items()}
    if isinstance(found, ContainerPhase):
        return found.value
    return list(found) if isinstance(found, deque | tuple) else found


def _end(row: Message) -> TaskEnd | None:
    given: Message | None = row.get("verdict")
    return None if given is None else TaskEnd(given["event"], given.get("reason"), given["text"])
