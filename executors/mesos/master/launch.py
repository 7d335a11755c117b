"""ACCEPT: a framework takes offers, and says what is to be done with them.

All that is malformed is found before anything changes; what cannot be done is answered task by task.

References
----------
Apache Mesos, ``src/master/validation.cpp``: what a task must be to be launched on an offer.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import Any, NamedTuple

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import offers, tasks
from executors.mesos.master.core import Core, keep_executor
from executors.mesos.master.frameworks import wrong_id
from executors.mesos.master.state import AgentRecord, ExecutorRecord, FrameworkRecord, Offer, TaskRecord
from executors.mesos.messages import field, identity, message, task_status, value_of, values
from executors.mesos.resources import NONE, Resources, parse, to_json

_log = logging.getLogger(__name__)


def accept(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """Carry out the operations on the offers, in order; what is left of these is declined.

    Raises `BadMessage` when the call is malformed.
    """
    names = values(field(call, "offer_ids", list, []), "offer_ids")
    infos = [info for item in field(call, "operations", list, []) for info in _infos(item)]
    refuse_s = offers.refusal(call)
    taken = [framework.offers[name] for name in dict.fromkeys(names) if name in framework.offers]
    if wrong := _wrong(framework, names, taken):
        for offer in taken:  # they are used up all the same
            offers.remove(core, offer)
        for info in infos:
            state, text = tasks.state_for(framework, "TASK_DROPPED"), "Invalid offers: " + wrong
            _refuse(core, framework, info, state, "REASON_INVALID_OFFERS", text=text)
        return
    agent, role = core.state.agents[taken[0].agent], taken[0].role
    for offer in taken:
        offers.remove(core, offer)
    rest = sum((offer.resources for offer in taken), start=NONE)
    site = LaunchSite(framework, agent, role, core.state.options.user)
    offers.refuse(core, taken[0], _launch(core, site, infos, rest), refuse_s)


def _infos(item: Any) -> list[Message]:
    """The tasks of an operation, with ids by which they can be answered.

    None is as good as an empty list: JSON made from .proto files leaves these out.
    """
    operation: Message = field({"operations": item}, "operations", dict)
    kind = field(operation, "type", str)
    if kind != "LAUNCH":
        text = f"operation {kind:.50} is not supported: there are no task groups, reservations, volumes and disks here"
        raise HTTPError(501, text)
    found: list[Message] = field(field(operation, "launch", dict), "task_infos", list, [])
    for info in found:
        value_of({"task_infos": info}, "task_infos.task_id")
        value_of(info, "agent_id")
    return found


def _wrong(framework: FrameworkRecord, names: list[str], taken: list[Offer]) -> str | None:
    if not names:
        return "No offers specified"
    if len(set(names)) < len(names):
        return "Duplicate offers in offer list"
    for name in names:
        if name not in framework.offers:
            return f"Offer {name:.100} is no longer valid"
    if len({offer.agent for offer in taken}) > 1:
        return "Aggregated offers must belong to one single agent"
    if len({offer.role for offer in taken}) > 1:
        return "Aggregated offers must be allocated to the same role"
    return None


def _launch(core: Core, site: LaunchSite, infos: list[Message], rest: Resources) -> Resources:
    launches: list[CheckedLaunch] = []
    for info in infos:
        try:
            launch = checked_task(info, site)
            if not rest.covers(launch.takes):
                lacking = (name for name, amount in launch.takes if not rest.covers(Resources({name: amount})))
                raise BadMessage(f"Task uses more resources than available: {', '.join(sorted(lacking))}")
        except BadMessage as error:
            _refuse(core, site.framework, info, "TASK_ERROR", "REASON_TASK_INVALID", text=str(error))
            continue
        rest -= launch.takes
        _start(core, site, launch)
        launches.append(launch)
    for executor, group in groupby(launches, lambda launch: launch.task.executor):
        infos = [launch.info for launch in group]
        payload: Message = {"framework_info": site.framework.info, "tasks": infos}
        if executor is not None:
            payload["executor_info"] = infos[0]["executor"]
        core.send(site.agent.stream, message("RUN", **payload))
    return rest


def _start(core: Core, site: LaunchSite, launch: CheckedLaunch) -> None:
    executor: ExecutorRecord | None = launch.executor
    if executor is not None:
        site.agent.executors[executor.framework, executor.id] = executor
        core.take(site.agent, executor.framework, executor.role, executor.resources)
        keep_executor(core, executor)
    tasks.add(core, site.framework, site.agent, launch.task)


def _refuse(core: Core, framework: FrameworkRecord, info: Message, state: str, reason: str, *, text: str) -> None:
    """A task that never came to be."""
    _log.info("task %s of %s is refused (%s): %s", value_of(info, "task_id"), framework.id, reason, text)
    status = task_status(
        value_of(info, "task_id"),
        state,
        core.now,
        source="SOURCE_MASTER",
        agent_id=value_of(info, "agent_id"),
        reason=reason,
        text=text,
    )
    core.send(framework.stream, message("UPDATE", status=status | _executor_of(info)))


def _executor_of(info: Message) -> Message:
    executor = info.get("executor")
    if isinstance(executor, dict) and isinstance(executor.get("executor_id"), dict):
        return {"executor_id": identity(str(executor["executor_id"].get("value", "")))}
    return {}


# ---------------------------------------------------------------------- validation


class LaunchSite(NamedTuple):
    """Where a task is to be launched: by whom, on which agent, and in which role the offer was made.

    `user` is the only one whose tasks are run, None for any.
    """

    framework: FrameworkRecord
    agent: AgentRecord
    role: str
    user: str | None


class CheckedLaunch(NamedTuple):
    """A task that may be launched; `executor` is one that has to be started for it, None if it runs or there is none.

    `info` is the TaskInfo for the agent, its resources in the form and with the role that they have here.
    """

    info: Message
    task: TaskRecord
    executor: ExecutorRecord | None

    @property
    def takes(self) -> Resources:
        return self.task.resources + (NONE if self.executor is None else self.executor.resources)


def checked_task(info: Message, site: LaunchSite) -> CheckedLaunch:
    """A task of a LAUNCH; raises `BadMessage` when it may not be launched, with a text for the framework."""
    if ("command" in info) == ("executor" in info):
        raise BadMessage("Task should have exactly one of 'command' and 'executor'")
    executor, new = None, None
    if "executor" in info:
        executor = checked_executor(field(info, "executor", dict), site)
        known = site.agent.executors.get((site.framework.id, executor.id))
        new = executor if known is None else None
        if known is not None and known.info != executor.info:
            raise BadMessage(f"Executor {executor.id!r} runs already, as another one: use another 'executor_id'")
        info = info | {"executor": executor.info}
    else:
        _check_command(field(info, "command", dict), site)
    return _task_launch(info, site, executor, new)


def checked_executor(info: Message, site: LaunchSite) -> ExecutorRecord:
    """An executor as it would be started; raises `BadMessage` when it is malformed, or another framework's."""
    executor_id = value_of(info, "executor_id")
    if reason := wrong_id(executor_id):
        raise BadMessage(f"ExecutorID {reason}")
    owner = value_of(info, "framework_id") if "framework_id" in info else site.framework.id
    if owner != site.framework.id:
        raise BadMessage(f"ExecutorInfo has framework {owner!r:.100}, expected {site.framework.id!r}")
    kind = field(info, "type", str, "CUSTOM")
    if kind not in ("CUSTOM", "UNKNOWN"):
        raise BadMessage(f"ExecutorInfo has type {kind!r:.50}, expected CUSTOM")
    _check_command(field(info, "command", dict), site)
    resources = _resources(info, site.role)
    own = {"framework_id": identity(owner), "resources": to_json(resources, site.role)}
    return ExecutorRecord(executor_id, owner, site.agent.id, info | own, resources, site.role)


def _task_launch(
    info: Message, site: LaunchSite, executor: ExecutorRecord | None, new: ExecutorRecord | None
) -> CheckedLaunch:
    framework, agent = site.framework, site.agent
    task_id = value_of(info, "task_id")
    if reason := wrong_id(task_id):
        raise BadMessage(f"TaskID {reason}")
    away = framework.unreachable.get(task_id) if framework.can("PARTITION_AWARE") else None
    if task_id in framework.tasks or away is not None or (framework.id, task_id) in agent.tasks:
        raise BadMessage(f"Task has duplicate ID: {task_id!r}")
    if value_of(info, "agent_id") != agent.id:
        raise BadMessage(f"Task uses agent {info['agent_id']['value']!r:.100}, but the offer is for {agent.id!r}")
    resources = _resources(info, site.role)
    if not resources:
        raise BadMessage("Task uses no resources")
    _check_limits(info, resources)
    for name in ("kill_policy.grace_period", "max_completion_time"):
        if field(info, f"{name}.nanoseconds", int, 0) < 0:
            raise BadMessage(f"Task's {name!r} must not be negative")
    info = info | {"resources": to_json(resources, site.role)}
    kept = {name: item for name, item in info.items() if name != "data"}
    named = None if executor is None else executor.id
    return CheckedLaunch(info, TaskRecord(task_id, framework.id, agent.id, named, kept, resources, site.role), new)


def _resources(info: Message, role: str) -> Resources:
    items = field(info, "resources", list, [])
    found = parse(items)
    for item in items:
        given = field(item, "allocation_info.role", str, role) if "allocation_info" in item else role
        if given != role:
            raise BadMessage(f"Resources are allocated to role {given!r:.100}, but the offer is for {role!r}")
    return found


def _check_command(command: Message, site: LaunchSite) -> None:
    user = field(command, "user", str, site.user)
    if user != site.user and site.user is not None:
        raise BadMessage(f"Task would run as user {user!r:.100}: this master runs tasks as {site.user!r} only")


def _check_limits(info: Message, resources: Resources) -> None:
    for name in field(info, "limits", dict, {}):
        limit: float = field({"limits": info["limits"][name]}, "limits.value", float)
        if name not in ("cpus", "mem"):
            raise BadMessage(f"Task limits {name!r:.50}: only cpus and mem can be limited")
        if limit < resources.scalar(name):
            raise BadMessage(f"Task limits {name} to {limit:g}, less than the {resources.scalar(name):g} it requests")
