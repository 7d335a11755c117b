"""ACCEPT: a framework takes offers, and says what is to be done with them.

All that is malformed is found before anything changes; what cannot be done is told task by task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import feedback, offers, operations, rows, tasks
from executors.mesos.master.core import Core
from executors.mesos.master.state import Executor, Framework, Offer
from executors.mesos.master.validation import Ground, Launch, checked_group, checked_task
from executors.mesos.messages import field, identity, message, task_status, value_of, values
from executors.mesos.resources import NONE, Resources


def accept(core: Core, framework: Framework, call: Message) -> None:
    """Carry out the operations on the offers, in order; what is left of these is declined.

    Raises
    ------
    BadMessage
        When the call has not the shape of one.
    """
    names = values(field(call, "offer_ids", list, []), "offer_ids")
    todo = [_checked(item) for item in field(call, "operations", list, [])]
    refuse_s = offers.refusal(call)
    taken = [framework.offers[name] for name in dict.fromkeys(names) if _is_held(framework, name)]
    if wrong := _wrong(framework, names, taken):
        for offer in taken:  # they are used up all the same
            offers.remove(core, offer)
        for operation in todo:
            _drop(core, framework, operation, wrong)
        return
    agent, role = core.state.agents[taken[0].agent], taken[0].role
    for offer in taken:
        offers.remove(core, offer)
    rest = sum((offer.resources for offer in taken), start=NONE)
    ground = Ground(framework, agent, role, core.state.options.user)
    for operation in todo:
        if operation["type"] == "LAUNCH":
            rest = _launch(core, ground, _infos(operation), rest)
        elif operation["type"] == "LAUNCH_GROUP":
            rest = _launch_group(core, ground, operation["launch_group"]["executor"], _infos(operation), rest)
        else:
            rest = operations.apply(core, framework, agent, operation, rest, role=role)
    offers.refuse(core, taken[0], rest, refuse_s)
    if agent.unavailability is not None:
        offers.ask_back(core, agent, [framework])


def _checked(item: Any) -> Message:
    """An operation of which the parts that are needed to answer are there."""
    operation: Message = field({"operations": item}, "operations", dict)
    kind = field(operation, "type", str)
    if "id" in operation:
        value_of(operation, "id")
    if kind == "LAUNCH_GROUP":
        field(operation, "launch_group.executor", dict)
    for info in _infos(operation):
        value_of({"task_infos": info}, "task_infos.task_id")
        value_of(info, "agent_id")
    return operation


def _infos(operation: Message) -> list[Any]:
    """The tasks of a launch. None is as good as an empty list: JSON made from .proto files leaves these out."""
    found: list[Any] = []
    if operation["type"] == "LAUNCH":
        found = field(field(operation, "launch", dict), "task_infos", list, [])
    elif operation["type"] == "LAUNCH_GROUP":
        found = field(field(operation, "launch_group.task_group", dict), "tasks", list, [])
    return found


def _is_held(framework: Framework, name: str) -> bool:
    return name in framework.offers and not framework.offers[name].inverse


def _wrong(framework: Framework, names: list[str], taken: list[Offer]) -> str | None:
    """What is wrong with the offers, if anything is."""
    if not names:
        return "No offers specified"
    if len(set(names)) < len(names):
        return "Duplicate offers in offer list"
    for name in names:
        if not _is_held(framework, name):
            return f"Offer {name:.100} is no longer valid"
    if len({offer.agent for offer in taken}) > 1:
        return "Aggregated offers must belong to one single agent"
    if len({offer.role for offer in taken}) > 1:
        return "Aggregated offers must be allocated to the same role"
    return None


def _drop(core: Core, framework: Framework, operation: Message, wrong: str) -> None:
    infos, text = _infos(operation), "Invalid offers: " + wrong
    for info in infos:
        _refuse(core, framework, info, tasks.worded(framework, "TASK_DROPPED"), "REASON_INVALID_OFFERS", text=text)
    if not infos:
        feedback.failed(core, framework, None, operation, text)


def _launch(core: Core, ground: Ground, infos: list[Message], rest: Resources) -> Resources:
    launches: list[Launch] = []
    for info in infos:
        try:
            launch = checked_task(info, ground)
            _check_fits(launch.takes, rest)
        except BadMessage as error:
            _refuse(core, ground.framework, info, "TASK_ERROR", "REASON_TASK_INVALID", text=str(error))
            continue
        rest -= launch.takes
        _start(core, ground, launch)
        launches.append(launch)
    for executor, group in _by_executor(launches):
        _run(core, ground, executor, group, is_group=False)
    return rest


def _launch_group(core: Core, ground: Ground, executor: Message, infos: list[Message], rest: Resources) -> Resources:
    try:
        launches = checked_group(infos, executor, ground)
        takes = sum((launch.takes for launch in launches), start=NONE)
        _check_fits(takes, rest)
    except BadMessage as error:
        for info in infos:
            _refuse(core, ground.framework, info, "TASK_ERROR", "REASON_TASK_GROUP_INVALID", text=str(error))
        return rest
    for launch in launches:
        _start(core, ground, launch)
    owner = ground.agent.executors[ground.framework.id, launches[0].task.executor or ""]
    _run(core, ground, owner.info, [launch.info for launch in launches], is_group=True)
    return rest - takes


def _check_fits(takes: Resources, rest: Resources) -> None:
    if not rest.covers(takes):
        names = ", ".join(sorted({kind.name for kind, _ in takes if not rest.covers(_only(takes, kind.name))}))
        raise BadMessage(f"Task uses more resources than available: {names}")


def _only(resources: Resources, name: str) -> Resources:
    return Resources({kind: amount for kind, amount in resources if kind.name == name})


def _start(core: Core, ground: Ground, launch: Launch) -> None:
    executor: Executor | None = launch.executor
    if executor is not None:
        ground.agent.executors[executor.framework, executor.id] = executor
        core.take(ground.agent, executor.framework, executor.role, executor.resources)
        rows.keep_executor(core, executor)
    tasks.add(core, ground.framework, ground.agent, launch.task)


def _by_executor(launches: list[Launch]) -> Iterator[tuple[Message | None, list[Message]]]:
    """TaskInfos in order, those of one executor that follow one another together."""
    group: list[Message] = []
    executor: str | None = None
    for launch in launches:
        if group and launch.task.executor != executor:
            yield group[0].get("executor"), group
            group = []
        group.append(launch.info)
        executor = launch.task.executor
    if group:
        yield group[0].get("executor"), group


def _run(core: Core, ground: Ground, executor: Message | None, infos: list[Message], *, is_group: bool) -> None:
    payload: Message = {"framework_info": ground.framework.info, "tasks": infos, "group": is_group}
    if executor is not None:
        payload["executor_info"] = executor
    core.send(ground.agent.stream, message("RUN", **payload))
    core.count("messages_launch_tasks", len(infos))


def _refuse(core: Core, framework: Framework, info: Message, state: str, reason: str, *, text: str) -> None:
    """A task that never came to be."""
    status = task_status(
        value_of(info, "task_id"),
        state,
        core.now,
        source="SOURCE_MASTER",
        agent_id=value_of(info, "agent_id"),
        reason=reason,
        text=text,
    )
    tasks.count(core, state)
    core.send(framework.stream, message("UPDATE", status=status | _executor_of(info)))


def _executor_of(info: Message) -> Message:
    executor = info.get("executor")
    if isinstance(executor, dict) and isinstance(executor.get("executor_id"), dict):
        return {"executor_id": identity(str(executor["executor_id"].get("value", "")))}
    return {}
