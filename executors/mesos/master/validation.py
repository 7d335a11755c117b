"""What a task must be to be launched on an offer.

References
----------
Apache Mesos, ``src/master/validation.cpp``.
"""

from __future__ import annotations

from typing import NamedTuple

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master.framework_info import wrong_id
from executors.mesos.master.state import Agent, Executor, Framework, Task
from executors.mesos.messages import field, identity, value_of
from executors.mesos.resources import NONE, Resources, parse, to_json


class Ground(NamedTuple):
    """Where a task is to be launched: by whom, on which agent, and in which role the offer was made.

    `user` is the only one whose tasks are run, None for any.
    """

    framework: Framework
    agent: Agent
    role: str
    user: str | None


class Launch(NamedTuple):
    """A task that may be launched; `executor` is one that has to be started for it, None if it runs or there is none.

    `info` is the TaskInfo for the agent, its resources in the form and with the role that they have here.
    """

    info: Message
    task: Task
    executor: Executor | None

    @property
    def takes(self) -> Resources:
        return self.task.resources + (NONE if self.executor is None else self.executor.resources)


def checked_task(info: Message, ground: Ground) -> Launch:
    """A task of a LAUNCH.

    Raises
    ------
    BadMessage
        When it may not be launched; the text goes to the framework.
    """
    if ("command" in info) == ("executor" in info):
        raise BadMessage("Task should have exactly one of 'command' and 'executor'")
    executor, new = None, None
    if "executor" in info:
        executor = checked_executor(field(info, "executor", dict), ground)
        known = ground.agent.executors.get((ground.framework.id, executor.id))
        new = executor if known is None else None
        if known is not None and known.info != executor.info:
            raise BadMessage(f"Executor {executor.id!r} runs already, as another one: use another 'executor_id'")
        info = info | {"executor": executor.info}
    else:
        _check_command(field(info, "command", dict), ground)
    return _launch(info, ground, executor, new)


def checked_group(infos: list[Message], executor: Message, ground: Ground) -> list[Launch]:
    """The tasks of a LAUNCH_GROUP.

    Raises
    ------
    BadMessage
        When one of them may not be launched: then none is.
    """
    if not infos:
        raise BadMessage("Task group should have tasks")
    one = checked_executor(executor, ground)
    known = ground.agent.executors.get((ground.framework.id, one.id))
    if known is not None and known.info != one.info:
        raise BadMessage(f"Executor {one.id!r} runs already, as another one: use another 'executor_id'")
    launches: list[Launch] = []
    seen = set[str]()
    for info in infos:
        if "executor" in info:
            raise BadMessage("Task of a group should not have an 'executor': the group has one")
        if "command" in info:
            _check_command(field(info, "command", dict), ground)
        elif field(one.info, "type", str, "CUSTOM") == "DEFAULT":
            raise BadMessage("Task of the default executor should have a 'command'")
        new = one if known is None and not launches else None
        launch = _launch(info, ground, one, new)
        if launch.task.id in seen:
            raise BadMessage(f"Task has duplicate ID: {launch.task.id!r}")
        seen.add(launch.task.id)
        launches.append(launch)
    return launches


def checked_executor(info: Message, ground: Ground) -> Executor:
    """An executor as it would be started.

    Raises
    ------
    BadMessage
        When it makes no sense, or is another framework's.
    """
    executor_id = value_of(info, "executor_id")
    if reason := wrong_id(executor_id):
        raise BadMessage(f"ExecutorID {reason}")
    owner = value_of(info, "framework_id") if "framework_id" in info else ground.framework.id
    if owner != ground.framework.id:
        raise BadMessage(f"ExecutorInfo has framework {owner!r:.100}, expected {ground.framework.id!r}")
    kind = field(info, "type", str, "CUSTOM")
    if kind not in ("CUSTOM", "DEFAULT", "UNKNOWN"):
        raise BadMessage(f"ExecutorInfo has type {kind!r:.50}, expected CUSTOM or DEFAULT")
    if kind == "DEFAULT" and "command" in info:
        raise BadMessage("ExecutorInfo of type DEFAULT should not have a 'command'")
    if kind != "DEFAULT":
        _check_command(field(info, "command", dict), ground)
    resources = _resources(info, ground.role, NONE)
    own = {"framework_id": identity(owner), "resources": to_json(resources, ground.role)}
    return Executor(executor_id, owner, ground.agent.id, info | own, resources, ground.role)


def _launch(info: Message, ground: Ground, executor: Executor | None, new: Executor | None) -> Launch:
    framework, agent = ground.framework, ground.agent
    task_id = value_of(info, "task_id")
    if reason := wrong_id(task_id):
        raise BadMessage(f"TaskID {reason}")
    away = framework.unreachable.get(task_id) if framework.can("PARTITION_AWARE") else None
    if task_id in framework.tasks or away is not None or (framework.id, task_id) in agent.tasks:
        raise BadMessage(f"Task has duplicate ID: {task_id!r}")
    if value_of(info, "agent_id") != agent.id:
        raise BadMessage(f"Task uses agent {info['agent_id']['value']!r:.100}, but the offer is for {agent.id!r}")
    resources = _resources(info, ground.role, NONE if executor is None else executor.resources)
    if not resources:
        raise BadMessage("Task uses no resources")
    _check_limits(info, resources)
    if field(info, "kill_policy.grace_period.nanoseconds", int, 0) < 0:
        raise BadMessage("Task's 'kill_policy.grace_period' must not be negative")
    info = info | {"resources": to_json(resources, ground.role)}
    kept = {name: item for name, item in info.items() if name != "data"}
    named = None if executor is None else executor.id
    return Launch(info, Task(task_id, framework.id, agent.id, named, kept, resources, ground.role), new)


def _resources(info: Message, role: str, others: Resources) -> Resources:
    items = field(info, "resources", list, [])
    found = parse(items)
    for item in items:
        given = field(item, "allocation_info.role", str, role) if "allocation_info" in item else role
        if given != role:
            raise BadMessage(f"Resources are allocated to role {given!r:.100}, but the offer is for {role!r}")
    together = found + others
    firm = {kind.name for kind, _ in together if not kind.revocable}
    if mixed := sorted(firm & {kind.name for kind, _ in together if kind.revocable}):
        raise BadMessage(f"Resources mix revocable and non-revocable {', '.join(mixed)}")
    return found


def _check_command(command: Message, ground: Ground) -> None:
    user = field(command, "user", str, ground.user)
    if user != ground.user and ground.user is not None:
        raise BadMessage(f"Task would run as user {user!r:.100}: this master runs tasks as {ground.user!r} only")


def _check_limits(info: Message, resources: Resources) -> None:
    for name in field(info, "limits", dict, {}):
        limit: float = field({"limits": info["limits"][name]}, "limits.value", float)
        if name not in ("cpus", "mem"):
            raise BadMessage(f"Task limits {name!r:.50}: only cpus and mem can be limited")
        if limit < resources.scalar(name):
            raise BadMessage(f"Task limits {name} to {limit:g}, less than the {resources.scalar(name):g} it requests")
