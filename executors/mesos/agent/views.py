"""What the agent's machine holds, as messages: for the master when the agent registers, and for operators."""

from __future__ import annotations

from executors.mesos.agent.options import Options
from executors.mesos.agent.state import Executor, Framework, State, Task
from executors.mesos.codec import Message
from executors.mesos.messages import field, identity, message, nanoseconds
from executors.mesos.resources import to_json


def agent_info(state: State, options: Options) -> Message:
    """Mesos' AgentInfo."""
    info = {
        "hostname": options.hostname,
        "port": options.port,
        "resources": to_json(options.resources),
        "attributes": list(options.attributes),
    }
    return info if state.id is None else info | {"id": identity(state.id)}


def framework_info(framework: Framework) -> Message:
    """Mesos' FrameworkInfo."""
    return framework.info | {"id": identity(framework.id)}


def executor_info(executor: Executor) -> Message:
    """Mesos' ExecutorInfo."""
    return executor.info | {
        "executor_id": identity(executor.id),
        "framework_id": identity(executor.framework),
    }


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


def task(task: Task, agent_id: str | None) -> Message:
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


def registration(state: State, options: Options, version: str) -> Message:
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
        tasks=[task(item, state.id) | {"task_info": _without_data(item.info)} for item in tasks],
        **more,
    )


def _without_data(info: Message) -> Message:
    """What a task's executor alone can read may be large, and there may be many tasks."""
    return {name: value for name, value in info.items() if name != "data"}


def unavailability(ends: float) -> Message:
    """Mesos' Unavailability: from then on [s since the epoch]; without a duration it lasts for ever."""
    return {"start": nanoseconds(ends)}
