"""What a registering agent says runs on it, against what the master knows: both agree afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import frameworks, rows, tasks
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import adopted_info, wrong_id, wrong_role
from executors.mesos.master.state import Agent, Executor, Framework, Task
from executors.mesos.messages import TERMINAL, base64_of, field, identity, message, octets, value_of
from executors.mesos.resources import Resources, parse, to_json

Key = tuple[str, str]
"""Framework id, and the id of a task or executor."""


class Reported(NamedTuple):
    """A task as its agent knows it. `role` is the one that its resources are allocated to, if it was told.

    `statuses` are those that the agent has sent, up to the one that is to be acknowledged, whose `uuid` it is; None
    when all of them are.
    """

    state: str
    executor: str | None
    info: Message
    resources: Resources
    role: str | None
    statuses: list[Message]
    uuid: str | None


@dataclass(frozen=True)
class Told:
    """What an agent has told, checked."""

    frameworks: dict[str, Message]
    executors: dict[Key, tuple[Message, Resources, str | None]]
    tasks: dict[Key, Reported]


def told(item: Message) -> Told:
    """The contents of a REGISTER.

    Raises
    ------
    BadMessage
        When something is malformed.
    """
    infos = {_id(info, "id"): adopted_info(info) for info in field(item, "frameworks", list, [])}
    executors = {}
    for one in field(item, "executors", list, []):
        info = field({"executors": one}, "executors.executor_info", dict)
        executors[_id(one, "framework_id"), _id(info, "executor_id")] = info, *_resources(info)
    found = {(_id(one, "framework_id"), _id(one, "task_id")): _task(one) for one in field(item, "tasks", list, [])}
    return Told(infos, executors, found)


def _id(source: Any, name: str) -> str:
    text: str = value_of({"it": source}, f"it.{name}")
    if reason := wrong_id(text):
        raise BadMessage(f"{name!r} {reason}")
    return text


def _resources(source: Message) -> tuple[Resources, str | None]:
    """The resources of a message, and the role that they are allocated to."""
    items = field(source, "resources", list, [])
    resources = parse(items)
    for item in items:
        role = field(item, "allocation_info.role", str) if "allocation_info" in item else None
        if role is not None and not wrong_role(role):
            return resources, role
    return resources, None


def _task(one: Message) -> Reported:
    state = field(one, "state", str)
    if state not in tasks.STATES:
        raise BadMessage(f"expected the state of a task, found {state!r:.50}")
    uuid = base64_of(octets(one, "status_update_uuid")) if "status_update_uuid" in one else None
    statuses = []
    for status in field(one, "statuses", list, []):
        field({"statuses": status}, "statuses.state", str)
        statuses.append(status)
        if uuid is not None and status.get("uuid") == uuid:  # what is behind it was not sent yet
            break
    info = {name: item for name, item in field(one, "task_info", dict, {}).items() if name != "data"}
    executor = _id(one, "executor_id") if "executor_id" in one and "executor" in info else None
    info |= {"name": field(one, "name", str, ""), "task_id": one["task_id"]}
    return Reported(state, executor, info, *_resources(one), statuses, uuid)


def adopt(core: Core, agent: Agent, told: Told) -> None:
    """Take over what the agent has and the master does not know, give up what only the master knows."""
    for framework_id in {*told.frameworks, *(key[0] for key in (*told.executors, *told.tasks))}:
        _adopt_framework(core, agent, framework_id, told.frameworks.get(framework_id))
    for key, executor in list(agent.executors.items()):
        if key not in told.executors:
            del agent.executors[key]
            core.give_back(agent, executor.framework, executor.role, executor.resources)
            rows.drop_executor(core, executor)
    for key, (info, resources, role) in told.executors.items():
        if key not in agent.executors and (framework := core.state.frameworks.get(key[0])):
            role = role or min(framework.roles, default="*")
            info = info | {"resources": to_json(resources, role)}
            executor = agent.executors[key] = Executor(key[1], key[0], agent.id, info, resources, role)
            core.take(agent, framework.id, role, resources)
            rows.keep_executor(core, executor)
    for task in core.state.unreachable_tasks.pop(agent.id, []):
        _bring_back(core, agent, task, task.key in told.tasks)
    for key, task in list(agent.tasks.items()):
        if key not in told.tasks:
            _give_up(core, agent, task)
    for key, one in told.tasks.items():
        if framework := core.state.frameworks.get(key[0]):
            _agree(core, framework, agent, key, one)


def _adopt_framework(core: Core, agent: Agent, framework_id: str, info: Message | None) -> None:
    if framework_id in core.state.frameworks:
        return
    if framework_id in core.state.completed or info is None:
        core.send(agent.stream, message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework_id)))
        return
    framework = Framework(framework_id, info, frozenset(info["roles"]), core.now, info.get("principal"))
    framework.disconnected = core.now
    core.state.frameworks[framework_id] = framework
    rows.keep_framework(core, framework)
    frameworks.await_return(core, framework)


def _bring_back(core: Core, agent: Agent, task: Task, is_there: bool) -> None:
    """A task of an agent that was unreachable. Frameworks that cannot tell partitions apart take it for lost."""
    framework = core.state.frameworks[task.framework]  # those of one that is over are forgotten with it
    if framework.unreachable.get(task.id) is task:
        del framework.unreachable[task.id]
    if not is_there and not framework.can("PARTITION_AWARE"):
        tasks.forget(core, framework, task)
        return
    agent.tasks[task.key] = task
    framework.tasks.setdefault(task.id, task)
    if task.state not in TERMINAL:
        core.take(agent, task.framework, task.role, task.resources)


def _give_up(core: Core, agent: Agent, task: Task) -> None:
    """The agent does not have it: it never got there, or has ended without a trace."""
    framework = core.state.frameworks.get(task.framework)
    if framework is None or framework.tasks.get(task.id) is not task:
        tasks.settle(core, agent, task, "TASK_LOST")
        agent.tasks.pop(task.key, None)
    elif task.state in TERMINAL:
        tasks.end(core, framework, task, task.state, "REASON_RECONCILIATION", text="Agent does not know it any more")
    else:
        state = tasks.worded(framework, "TASK_DROPPED" if task.state == "TASK_STAGING" else "TASK_GONE")
        tasks.end(core, framework, task, state, "REASON_RECONCILIATION", text="Agent does not have this task")


def _agree(core: Core, framework: Framework, agent: Agent, key: Key, one: Reported) -> None:
    task = agent.tasks.get(key)
    was_away = task is not None and task.state == "TASK_UNREACHABLE"
    if task is None:
        if one.state in TERMINAL and one.uuid and tasks.is_told(framework, agent, None, key[1], one.uuid):
            return  # its end was acknowledged while the agent was away
        task = _adopted(framework, agent, key, one)
        if framework.tasks.setdefault(task.id, task) is task:
            tasks.add(core, framework, agent, task)
        else:
            agent.tasks[key] = task
            if task.state not in TERMINAL:
                core.take(agent, task.framework, task.role, task.resources)
    elif one.state in TERMINAL:
        tasks.settle(core, agent, task, one.state)
    elif task.state not in TERMINAL:
        task.state = one.state
    if one.uuid is None and task.state not in TERMINAL:
        task.unacknowledged = task.pending = None
    is_stranger = framework.tasks.get(task.id) is not task
    if task.state not in TERMINAL and (is_stranger or (was_away and not framework.can("PARTITION_AWARE"))):
        tasks.kill(core, task, None)
    elif task.state not in TERMINAL and task.kill is not None:
        core.send(agent.stream, message("KILL", **task.kill))
        task.kill = None
    if was_away and not is_stranger and framework.can("PARTITION_AWARE"):
        state = tasks.told_state(task)
        tasks.tell(core, framework, task, tasks.made(core, task, state, "REASON_AGENT_REREGISTERED", "Agent is back"))
    if not is_stranger:
        rows.keep_task(core, task)


def _adopted(framework: Framework, agent: Agent, key: Key, one: Reported) -> Task:
    role = one.role or min(framework.roles, default="*")
    task = Task(
        id=key[1],
        framework=framework.id,
        agent=agent.id,
        executor=one.executor,
        info=one.info | {"resources": to_json(one.resources, role)},
        resources=one.resources,
        role=role,
        state=one.state,
        unacknowledged=one.uuid,
    )
    for status in one.statuses:
        tasks.note(task, status)
    return task
