"""What of the master's state is durable, as rows of the journal: written when it changes, read back after a restart.

Offers, filters and streams are not: clients get new ones. A status update that was not acknowledged is kept by its
agent, which sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from executors.mesos.codec import Message
from executors.mesos.effects import Keep
from executors.mesos.master.core import Core
from executors.mesos.master.state import Agent, Executor, Framework, Operation, State, Task
from executors.mesos.messages import TERMINAL
from executors.mesos.resources import parse, to_json

BLOCK = {"offer": 1000, "operation": 1000}
"""How many numbers of a kind one row reserves: those given since the last row are skipped after a restart."""


def number(core: Core, kind: str) -> int:
    """A number that was never given before: of an ``agent``, a ``framework``, an ``offer`` or an ``operation``."""
    serial, block = core.state.serial, BLOCK.get(kind, 1)
    last = serial.get(kind, 0)
    if last % block == 0:
        core.keep("serial", kind, {"last": last + block})
    serial[kind] = last + 1
    return last + 1


def keep_framework(core: Core, framework: Framework) -> None:
    """One that is known, or was removed and may not come back."""
    row = {
        "info": framework.info,
        "principal": framework.principal,
        "suppressed": sorted(framework.suppressed),
        "active": framework.active,
        "registered": framework.registered,
        "reregistered": framework.reregistered,
        "disconnected": framework.disconnected,
        "removed": framework.id in core.state.completed,
    }
    core.keep("frameworks", framework.id, row)


def keep_agent(core: Core, agent: Agent) -> None:
    """An agent with its reservations, and what operators decided about it."""
    row = {
        "info": agent.info,
        "total": to_json(agent.total),
        "registered": agent.registered,
        "reregistered": agent.reregistered,
        "version": agent.version,
        "active": agent.active,
        "drain": agent.drain,
        "unavailability": agent.unavailability,
        "ip": agent.ip,
        "tls": agent.tls,
    }
    core.keep("agents", agent.id, row)


def keep_task(core: Core, task: Task, *, copied: bool = False) -> None:
    """A task as it stands; `copied` when its agent has that too, or is told it now."""
    row = {
        "id": task.id,
        "framework": task.framework,
        "agent": task.agent,
        "executor": task.executor,
        "info": task.info,
        "role": task.role,
        "state": task.state,
        "statuses": task.statuses,
        "kill": task.kill,
    }
    core.keep("tasks", _task_key(task), row, copied=copied)


def drop_task(core: Core, task: Task) -> None:
    """A task whose end was acknowledged, or needs no acknowledgement."""
    core.keep("tasks", _task_key(task), None)


def keep_executor(core: Core, executor: Executor) -> None:
    """An executor that runs or was told to: its agent knows."""
    row = {
        "id": executor.id,
        "framework": executor.framework,
        "agent": executor.agent,
        "info": executor.info,
        "role": executor.role,
    }
    core.keep("executors", _executor_key(executor), row, copied=True)


def drop_executor(core: Core, executor: Executor) -> None:
    """An executor that has ended."""
    core.keep("executors", _executor_key(executor), None)


def keep_operation(core: Core, framework: Framework, operation: Operation) -> None:
    """An operation that its framework has not acknowledged yet."""
    core.keep("operations", _operation_key(framework, operation), operation.described)


def drop_operation(core: Core, framework: Framework, operation: Operation) -> None:
    """An operation that was acknowledged, or of which nobody needs to hear any more."""
    core.keep("operations", _operation_key(framework, operation), None)


def keep_roles(core: Core) -> None:
    """Weights, quota and guarantees."""
    state = core.state
    core.keep("roles", "all", {"weights": state.weights, "quota": state.quota, "guarantees": state.guarantees})


def keep_maintenance(core: Core) -> None:
    """The maintenance schedule, and which machines of it are down."""
    core.keep("maintenance", "schedule", {"windows": core.state.windows, "down": sorted(core.state.down)})


def keep_away(core: Core, table: str, agent_id: str, since: float | None) -> None:
    """That an agent is ``unreachable`` or ``gone``, and since when [s since the epoch]; None when it is no longer."""
    core.keep(table, agent_id, None if since is None else {"since": since})


def restore(state: State, rows: Iterable[Keep]) -> None:
    """Fill a new state: all frameworks are disconnected, agents are `recovered` until they come back.

    What was None in a row may be missing from it, as nulls are in messages.
    """
    tables: dict[str, list[tuple[str, Message]]] = {}
    for keep in rows:
        if keep.row is not None:
            tables.setdefault(keep.table, []).append((keep.key, keep.row))
    for table, read in _READERS.items():  # in this order: tasks need their frameworks and agents
        for key, row in tables.get(table, ()):
            read(state, key, row)


def _serial(state: State, key: str, row: Message) -> None:
    state.serial[key] = row["last"]


def _roles(state: State, key: str, row: Message) -> None:
    state.weights, state.quota, state.guarantees = row["weights"], row["quota"], row["guarantees"]


def _maintenance(state: State, key: str, row: Message) -> None:
    state.windows, state.down = row["windows"], {(hostname, ip) for hostname, ip in row["down"]}


def _framework(state: State, key: str, row: Message) -> None:
    framework = Framework(
        id=key,
        info=row["info"],
        roles=frozenset(row["info"]["roles"]),
        registered=row["registered"],
        principal=row.get("principal"),
        suppressed=set(row["suppressed"]),
        active=row["active"],
        reregistered=row.get("reregistered"),
        disconnected=row.get("disconnected") or state.started,
    )
    (state.completed if row["removed"] else state.frameworks)[key] = framework


def _agent(state: State, key: str, row: Message) -> None:
    (state.away if key in state.unreachable else state.recovered)[key] = Agent(
        id=key,
        info=row["info"],
        total=parse(row["total"]),
        registered=row["registered"],
        reregistered=row.get("reregistered"),
        version=row["version"],
        active=row["active"],
        drain=row.get("drain"),
        unavailability=row.get("unavailability"),
        ip=row.get("ip"),
        tls=row["tls"],
    )


def _unreachable(state: State, key: str, row: Message) -> None:
    state.unreachable[key] = row["since"]


def _gone(state: State, key: str, row: Message) -> None:
    state.gone[key] = row["since"]


def _executor(state: State, key: str, row: Message) -> None:
    if agent := state.recovered.get(row["agent"]):
        executor = Executor(
            row["id"], row["framework"], agent.id, row["info"], parse(row["info"]["resources"]), row["role"]
        )
        agent.executors[executor.framework, executor.id] = executor
        agent.used += executor.resources


def _task(state: State, key: str, row: Message) -> None:
    task = Task(
        id=row["id"],
        framework=row["framework"],
        agent=row["agent"],
        executor=row.get("executor"),
        info=row["info"],
        resources=parse(row["info"]["resources"]),
        role=row["role"],
        state=row["state"],
        statuses=row["statuses"],
        # whether it was acknowledged is not written down, so that an acknowledgement costs no write: assume it was not
        unacknowledged=row["statuses"][-1].get("uuid") if row["statuses"] else None,
        kill=row.get("kill"),
    )
    framework = state.frameworks.get(task.framework)
    if framework is None:
        return
    if agent := state.recovered.get(task.agent):
        framework.tasks[task.id] = agent.tasks[task.key] = task
        if task.state not in TERMINAL:
            agent.used += task.resources
    elif task.agent in state.unreachable:
        framework.unreachable[task.id] = task
        state.unreachable_tasks.setdefault(task.agent, []).append(task)


def _operation(state: State, key: str, row: Message) -> None:
    framework_id, operation_id = key.split(" ", 1)
    if framework := state.frameworks.get(framework_id):
        framework.operations[operation_id] = Operation(operation_id, row, state.started)


_READERS: dict[str, Callable[[State, str, Any], None]] = {
    "serial": _serial,
    "roles": _roles,
    "maintenance": _maintenance,
    "frameworks": _framework,
    "unreachable": _unreachable,
    "agents": _agent,
    "gone": _gone,
    "executors": _executor,
    "tasks": _task,
    "operations": _operation,
}


def _task_key(task: Task) -> str:
    return f"{task.framework} {task.id}"  # neither has a space in it


def _operation_key(framework: Framework, operation: Operation) -> str:
    return f"{framework.id} {operation.id}"


def _executor_key(executor: Executor) -> str:
    return f"{executor.agent} {executor.framework} {executor.id}"
