"""Agents on the master: they register with what runs on them, are pinged, lost, drained, given up.

An agent is in exactly one of the groups of `MasterState`; what moves it::

    from         to            when
    (none)       agents        REGISTER without an id, or with one that is not known (`register`)
    agents       recovered     the master is restarted (`core.restore`)
    recovered    agents        REGISTER (`register`)
    recovered    unreachable   not back within `agent_reregister_s` (`expire_recovered`)
    agents       unreachable   `pings` pings without an answer (`ping`)
    unreachable  agents        REGISTER: its tasks are back (`register`, `adopt`)
    any          gone          MARK_AGENT_GONE, drained with `mark_gone`, UNREGISTER (`remove`); never comes back

References
----------
Apache Mesos, ``docs/maintenance.md``, section "Automatic Node Draining".
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import frameworks, offers, tasks, views
from executors.mesos.master.core import (
    Core,
    drop_executor,
    keep_agent,
    keep_away,
    keep_executor,
    keep_framework,
    keep_task,
    number,
)
from executors.mesos.master.frameworks import adopted_info, wrong_id, wrong_role
from executors.mesos.master.state import AgentRecord, ExecutorRecord, FrameworkRecord, TaskRecord
from executors.mesos.messages import (
    TERMINAL,
    base64_of,
    field,
    identity,
    message,
    nanoseconds,
    octets,
    value_of,
)
from executors.mesos.resources import NONE, Resources, parse, to_json

AWAY_MOST = 10_000
"""How many unreachable agents, and how many that are gone, are remembered."""
LONGEST_S = 365 * 86400.0
"""Longest grace period that is taken [s]."""

_SECONDS = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")
_log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Framework id, and the id of a task or executor."""


class ReportedTask(NamedTuple):
    """A task as its agent knows it. `role` is the one that its resources are allocated to, if it is known.

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
class AgentReport:
    """What an agent says that it has, checked."""

    frameworks: dict[str, Message]
    executors: dict[Key, tuple[Message, Resources, str | None]]
    tasks: dict[Key, ReportedTask]


class Registration(NamedTuple):
    """What an agent says of itself, checked; `id` is None for a new one."""

    id: str | None
    info: Message
    own: Resources
    version: str
    ip: str | None
    tls: bool
    until: Message | None
    report: AgentReport


# ---------------------------------------------------------------------- they register


def register(core: Core, item: Message, stream: str) -> None:
    """REGISTER: a new agent, or one that comes back and reports what it has; one that was given up has to go.

    Raises `BadMessage` when it is malformed, and `HTTPError` (409) while another agent offers the same node; nothing
    has changed then.
    """
    claim = _checked(item)
    _check_single(core, claim)
    if claim.id in core.state.gone:
        _log.info("agent %s was given up: it is refused", claim.id)
        core.send(stream, message("SHUTDOWN", message="this agent was given up: it may come back under a new id only"))
        core.close(stream)
        return
    agent_id = claim.id or _new_id(core)
    is_listed = agent_id in core.state.agents
    agent = _returning(core, agent_id)
    core.state.arrivals += 1
    if agent is None:
        agent = core.state.recovered[agent_id] = AgentRecord(agent_id, claim.info, claim.own, core.now)
    else:
        agent.reregistered = core.now
    agent.info, agent.version = claim.info | {"id": identity(agent_id)}, claim.version
    agent.ip, agent.tls = claim.ip, claim.tls
    agent.total, agent.unavailability = claim.own, claim.until or agent.unavailability
    _welcome(core, agent, stream)
    adopt(core, agent, claim.report)
    _join(core, agent)
    _log.info("agent %s on %s is %s, with %d tasks", agent.id, agent.hostname, _how(agent), len(agent.tasks))
    if core.state.operators and not is_listed:
        core.publish(message("AGENT_ADDED", agent=views.agent(agent, core.state)))
    go_on_draining(core, agent)


def _check_single(core: Core, claim: Registration) -> None:
    """Agents of several allocations on one node differ in their attributes, which name the allocation."""
    for agent in core.state.agents.values():
        if agent.stream is None or agent.id == claim.id or agent.hostname != claim.info["hostname"]:
            continue
        if agent.info.get("attributes", []) == claim.info.get("attributes", []):
            raise HTTPError(
                409,
                f"agent {agent.id} has this name and these attributes, {agent.hostname!r:.100}, and is connected: the "
                "node would be offered twice. Stop that one first, or give this one another --name or --attribute",
            )


def _how(agent: AgentRecord) -> str:
    return "registered" if agent.reregistered is None else "back"


def _checked(item: Message) -> Registration:
    info = field(item, "agent_info", dict)
    field(info, "hostname", str), field(info, "port", int, 0), field(info, "attributes", list, [])
    agent_id = value_of(info, "id") if "id" in info else None
    if agent_id is not None and (reason := wrong_id(agent_id)):
        raise BadMessage(f"the agent's id {reason}")
    return Registration(
        agent_id,
        info,
        parse(field(info, "resources", list)),
        field(item, "version", str, ""),
        field(item, "ip", str, None),
        field(item, "tls", bool, False),
        unavailability_of(item["unavailability"]) if "unavailability" in item else None,
        reported(item),
    )


def _welcome(core: Core, agent: AgentRecord, stream: str) -> None:
    agent.stream = stream
    core.state.streams[stream] = ("agent", agent.id)
    known, options = identity(agent.id), core.state.options
    core.send(stream, message("REGISTERED", agent_id=known, ping_s=options.ping_s, pings=options.pings))


def _new_id(core: Core) -> str:
    state = core.state
    while True:  # agents bring ids from a master that has forgotten them
        id = f"{state.id}-S{number(core, 'agent')}"
        if not any(id in known for known in (state.agents, state.recovered, state.unreachable, state.gone)):
            return id


def _returning(core: Core, agent_id: str) -> AgentRecord | None:
    """What is known of an agent that comes back; until it has reported what it has, it is among the recovered ones."""
    state = core.state
    if (agent := state.agents.get(agent_id)) is not None:
        core.close(agent.stream)
        for offer in list(agent.offers.values()):
            offers.rescind(core, offer)
        core.usage.left(agent)
        state.recovered[agent_id] = state.agents.pop(agent_id)
    elif (agent := state.away.pop(agent_id, None)) is not None:
        state.recovered[agent_id] = agent
    if state.unreachable.pop(agent_id, None) is not None:
        keep_away(core, "unreachable", agent_id, None)
    return state.recovered.get(agent_id)


def _join(core: Core, agent: AgentRecord) -> None:
    core.state.agents[agent.id] = core.state.recovered.pop(agent.id)
    core.usage.joined(agent)
    core.dirty.add(agent.id)
    keep_agent(core, agent)
    watch(core, agent)


# ---------------------------------------------------------------------- what they report is adopted


def reported(item: Message) -> AgentReport:
    """The contents of a REGISTER; raises `BadMessage` when something is malformed."""
    infos = {_id(info, "id"): adopted_info(info) for info in field(item, "frameworks", list, [])}
    executors = {}
    for one in field(item, "executors", list, []):
        info = field({"executors": one}, "executors.executor_info", dict)
        executors[_id(one, "framework_id"), _id(info, "executor_id")] = info, *_resources(info)
    found = {(_id(one, "framework_id"), _id(one, "task_id")): _task(one) for one in field(item, "tasks", list, [])}
    return AgentReport(infos, executors, found)


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


def _task(one: Message) -> ReportedTask:
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
    return ReportedTask(state, executor, info, *_resources(one), statuses, uuid)


def adopt(core: Core, agent: AgentRecord, report: AgentReport) -> None:
    """Take over what the agent has and the master does not know, give up what only the master knows."""
    for framework_id in {*report.frameworks, *(key[0] for key in (*report.executors, *report.tasks))}:
        _adopt_framework(core, agent, framework_id, report.frameworks.get(framework_id))
    for key, executor in list(agent.executors.items()):
        if key not in report.executors:
            del agent.executors[key]
            core.give_back(agent, executor.framework, executor.role, executor.resources)
            drop_executor(core, executor)
    for key, (info, resources, role) in report.executors.items():
        if key not in agent.executors:
            role = role or _role(core, key[0])
            info = info | {"resources": to_json(resources, role)}
            executor = agent.executors[key] = ExecutorRecord(key[1], key[0], agent.id, info, resources, role)
            core.take(agent, key[0], role, resources)
            keep_executor(core, executor)
    for task in core.state.unreachable_tasks.pop(agent.id, []):
        _bring_back(core, agent, task, task.key in report.tasks)
    for key, task in list(agent.tasks.items()):
        if key not in report.tasks:
            _drop_missing(core, agent, task)
    for key, one in report.tasks.items():
        if framework := core.state.frameworks.get(key[0]):
            _merge(core, framework, agent, key, one)
        elif key not in agent.tasks and one.state not in TERMINAL:
            tasks.hold_orphan(core, agent, _adopted(core, agent, key, one))


def _adopt_framework(core: Core, agent: AgentRecord, framework_id: str, info: Message | None) -> None:
    if framework_id in core.state.frameworks:
        return
    if framework_id in core.state.completed or info is None:
        core.send(agent.stream, message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework_id)))
        return
    framework = FrameworkRecord(framework_id, info, frozenset(info["roles"]), core.now, info.get("principal"))
    framework.disconnected = core.now
    core.state.frameworks[framework_id] = framework
    keep_framework(core, framework)
    frameworks.await_return(core, framework)


def _bring_back(core: Core, agent: AgentRecord, task: TaskRecord, is_there: bool) -> None:
    """A task of an agent that was unreachable. Frameworks that are not PARTITION_AWARE take it for lost."""
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


def _drop_missing(core: Core, agent: AgentRecord, task: TaskRecord) -> None:
    """The agent does not have it: it never got there, or has ended without a trace."""
    framework = core.state.frameworks.get(task.framework)
    if framework is None:
        tasks.free_orphan(core, agent, task)
    elif framework.tasks.get(task.id) is not task:
        tasks.change_state(core, agent, task, "TASK_LOST")
        agent.tasks.pop(task.key, None)
    elif task.state in TERMINAL:
        tasks.end(core, framework, task, task.state, "REASON_RECONCILIATION", text="Agent does not know it any more")
    else:
        state = tasks.state_for(framework, "TASK_DROPPED" if task.state == "TASK_STAGING" else "TASK_GONE")
        tasks.end(core, framework, task, state, "REASON_RECONCILIATION", text="Agent does not have this task")


def _merge(core: Core, framework: FrameworkRecord, agent: AgentRecord, key: Key, one: ReportedTask) -> None:
    task = agent.tasks.get(key)
    was_away = task is not None and task.state == "TASK_UNREACHABLE"
    if task is None:
        if one.state in TERMINAL and one.uuid and tasks.was_acknowledged(framework, agent, None, key[1], one.uuid):
            return  # its end was acknowledged while the agent was away
        task = _adopted(core, agent, key, one)
        if framework.tasks.setdefault(task.id, task) is task:
            tasks.add(core, framework, agent, task)
        else:
            agent.tasks[key] = task
            if task.state not in TERMINAL:
                core.take(agent, task.framework, task.role, task.resources)
    elif one.state in TERMINAL:
        tasks.change_state(core, agent, task, one.state)
    elif task.state not in TERMINAL:
        tasks.set_state(task, one.state)
    task.end_sent |= bool(one.statuses) and one.statuses[-1]["state"] in TERMINAL
    if one.uuid is None and task.state not in TERMINAL:
        task.unacknowledged = task.pending = None
    is_stranger = framework.tasks.get(task.id) is not task
    if task.state not in TERMINAL and (is_stranger or (was_away and not framework.can("PARTITION_AWARE"))):
        tasks.kill(core, task, None)
    elif task.state not in TERMINAL and task.kill is not None:
        core.send(agent.stream, message("KILL", **task.kill))
        task.kill = None
    if was_away and not is_stranger and framework.can("PARTITION_AWARE") and not tasks.is_ending(task):
        state = tasks.sent_state(task)
        tasks.send_status(
            core, framework, task, tasks.status_of(core, task, state, "REASON_AGENT_REREGISTERED", "Agent is back")
        )
    if not is_stranger:
        keep_task(core, task)


def _role(core: Core, framework_id: str) -> str:
    """What stands for a role that is not known."""
    framework = core.state.frameworks.get(framework_id) or core.state.completed.get(framework_id)
    return min(framework.roles if framework else (), default="*")


def _adopted(core: Core, agent: AgentRecord, key: Key, one: ReportedTask) -> TaskRecord:
    role = one.role or _role(core, key[0])
    task = TaskRecord(
        id=key[1],
        framework=key[0],
        agent=agent.id,
        executor=one.executor,
        info=one.info | {"resources": to_json(one.resources, role)},
        resources=one.resources,
        role=role,
        state=one.state,
        unacknowledged=one.uuid,
    )
    for status in one.statuses:
        tasks.remember(task, status)
    return task


# ---------------------------------------------------------------------- they are pinged, and lost


def disconnected(core: Core, agent: AgentRecord) -> None:
    """Its stream is gone: it is offered no more, and lost unless it comes back before its pings are used up."""
    _log.info("agent %s is disconnected", agent.id)
    agent.stream = None
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)


def watch(core: Core, agent: AgentRecord) -> None:
    """Begin to ping an agent. Those that register together, as after a restart of the master, are pinged in turn."""
    agent.unanswered = 0
    wait_s = core.state.options.ping_s * (0.5 + 0.5 * (len(core.state.agents) * 0.618034 % 1))
    core.timers.at(("agent", agent.id), core.now + wait_s)


def ping(core: Core, agent_id: str) -> None:
    """Ask an agent whether it is there, or give it up."""
    agent = core.state.agents.get(agent_id)
    if agent is None:
        return
    if agent.unanswered >= core.state.options.pings:
        remove(core, agent_id, gone=False)
        return
    agent.unanswered += 1
    core.send(agent.stream, message("PING"))
    core.timers.at(("agent", agent_id), core.now + core.state.options.ping_s)


def expire_recovered(core: Core) -> None:
    """Agents that did not come back after the master's restart are unreachable."""
    for agent_id in list(core.state.recovered):
        remove(core, agent_id, gone=False)


def remove(
    core: Core, agent_id: str, *, gone: bool, state: str = "TASK_GONE_BY_OPERATOR", orphaned: bool = False
) -> None:
    """Give an agent up.

    Parameters
    ----------
    gone
        For good, and it has to go; otherwise it is unreachable and may come back, with its tasks.
    state
        What becomes of the tasks of one that is gone, for frameworks that are PARTITION_AWARE.
    orphaned
        Whether its allocation was not released, so that its job must not exit with 0.
    """
    known = core.state
    agent = known.agents.get(agent_id) or known.recovered.get(agent_id)
    lost = known.unreachable_tasks.pop(agent_id, [])
    if agent is not None:
        _leave(core, agent, "given up" if gone else "", orphaned=orphaned)
        lost = list(agent.tasks.values())
    _log.info("agent %s is %s, with %d tasks", agent_id, "gone" if gone else "unreachable", len(lost))
    core.filters.forget(agent_id)
    known.unreachable.pop(agent_id, None)
    if gone:
        _end_all(core, lost, state)
        known.away.pop(agent_id, None)
        known.gone[agent_id] = core.now
        core.keep("agents", agent_id, None)
        keep_away(core, "unreachable", agent_id, None)
    elif agent is not None:
        known.unreachable[agent_id] = core.now
        known.away[agent_id] = agent
        known.unreachable_tasks[agent_id] = [task for task in lost if _set_aside(core, task)]
        agent.tasks.clear()
        agent.executors.clear()
        agent.used = NONE
    known.recovered.pop(agent_id, None)
    keep_away(core, "gone" if gone else "unreachable", agent_id, core.now)
    _forget_oldest(core)
    if agent is not None:
        failure = message("FAILURE", agent_id=identity(agent_id))
        for framework in known.frameworks.values():
            core.send(framework.stream, failure)
        core.publish(message("AGENT_REMOVED", agent_id=identity(agent_id)))


def _leave(core: Core, agent: AgentRecord, text: str, *, orphaned: bool = False) -> None:
    if text:
        core.send(agent.stream, message("SHUTDOWN", message=text, **({"orphaned": True} if orphaned else {})))
    core.close(agent.stream)
    agent.stream = None
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)
    for executor in agent.executors.values():
        drop_executor(core, executor)
    if agent.id in core.state.agents:
        core.usage.left(agent)
        core.state.recovered[agent.id] = core.state.agents.pop(agent.id)
    core.dirty.discard(agent.id)


def _end_all(core: Core, lost: Iterable[TaskRecord], state: str) -> None:
    for task in lost:
        framework = core.state.frameworks.get(task.framework)
        if framework is None or task not in (framework.tasks.get(task.id), framework.unreachable.get(task.id)):
            continue
        if task.state in TERMINAL and tasks.sent_state(task) in TERMINAL:
            tasks.resend_end(core, framework, task)
            tasks.forget(core, framework, task)
        else:
            state = task.state if task.state in TERMINAL else state  # its last update can never come
            reason = "REASON_AGENT_REMOVED" + ("_BY_OPERATOR" if state == "TASK_GONE_BY_OPERATOR" else "")
            tasks.end(core, framework, task, tasks.state_for(framework, state), reason, text="Agent is gone")


def _set_aside(core: Core, task: TaskRecord) -> bool:
    """The task's agent is unreachable: whether it may come back with it."""
    framework = core.state.frameworks.get(task.framework)
    if framework is None or framework.tasks.get(task.id) is not task:
        return False
    del framework.tasks[task.id]
    framework.unreachable[task.id] = task
    if task.state not in TERMINAL:
        tasks.set_state(task, "TASK_UNREACHABLE")
    if tasks.sent_state(task) not in TERMINAL:  # its end is known here, perhaps, but only its agent has the update
        word, since = tasks.state_for(framework, "TASK_UNREACHABLE"), nanoseconds(core.now)
        text = "Agent is unreachable"
        status = tasks.status_of(core, task, word, "REASON_AGENT_REMOVED", text, unreachable_time=since)
        tasks.send_status(core, framework, task, status)
    else:
        tasks.resend_end(core, framework, task)
    keep_task(core, task)
    return True


def _forget_oldest(core: Core) -> None:
    while len(core.state.unreachable) > AWAY_MOST:
        remove(core, next(iter(core.state.unreachable)), gone=True)
    while len(core.state.gone) > AWAY_MOST:
        oldest = next(iter(core.state.gone))
        del core.state.gone[oldest]
        keep_away(core, "gone", oldest, None)


def unavailability_of(payload: Any) -> Message:
    """A checked Unavailability; without a duration it is for good.

    >>> unavailability_of({"start": {"nanoseconds": 5}})
    {'start': {'nanoseconds': 5}}
    """
    found = {"start": {"nanoseconds": field({"": payload}, ".start.nanoseconds", int)}}
    if "duration" in payload:
        found["duration"] = {"nanoseconds": field(payload, "duration.nanoseconds", int)}
    return found


def exited(core: Core, agent: AgentRecord, item: Message) -> None:
    """EXITED_EXECUTOR: what the executor took is free; its framework is informed."""
    framework_id, executor_id = value_of(item, "framework_id"), value_of(item, "executor_id")
    status = field(item, "status", int, 0)
    executor = agent.executors.pop((framework_id, executor_id), None)
    if executor is None:
        return
    _log.info("executor %s of %s on %s has ended, with status %d", executor_id, framework_id, agent.id, status)
    core.give_back(agent, framework_id, executor.role, executor.resources)
    drop_executor(core, executor)
    if framework := core.state.frameworks.get(framework_id):
        ids = {"agent_id": identity(agent.id), "executor_id": identity(executor_id)}
        core.send(framework.stream, message("FAILURE", **ids, status=status))


# ---------------------------------------------------------------------- they are drained


def drain(core: Core, payload: Message) -> None:
    """DRAIN_AGENT: it gets no tasks any more, and those it has are killed; if it is away, when it comes back.

    Raises `BadMessage` or `HTTPError` when the agent is not known.
    """
    agent = _any_agent(core, payload)
    config: Message = {"mark_gone": field(payload, "mark_gone", bool, False)}
    if (grace := _grace(payload)) is not None:
        config["max_grace_period"] = {"nanoseconds": grace}
    agent.drain = config
    _log.info("agent %s is drained: %s", agent.id, config)
    _deactivate(core, agent)
    go_on_draining(core, agent)


def deactivate(core: Core, payload: Message) -> None:
    """DEACTIVATE_AGENT: it gets no tasks any more; those it has go on. Raises as `drain` does."""
    _deactivate(core, _any_agent(core, payload))


def reactivate(core: Core, payload: Message) -> None:
    """REACTIVATE_AGENT: it gets tasks again. Raises as `drain` does, also while it still drains."""
    agent = _any_agent(core, payload)
    if agent.active:
        raise HTTPError(400, f"agent {agent.id} is not deactivated")
    if agent.drain is not None and agent.tasks:
        raise HTTPError(400, f"agent {agent.id} is still draining, {len(agent.tasks)} tasks are left: try again later")
    _log.info("agent %s is active again", agent.id)
    agent.active, agent.drain = True, None
    keep_agent(core, agent)
    core.dirty.add(agent.id)


def go_on_draining(core: Core, agent: AgentRecord) -> None:
    """An agent that is drained is there, or is back: kill what still runs on it."""
    if agent.drain is not None and agent.id in core.state.agents:
        for task in list(agent.tasks.values()):
            if task.state not in TERMINAL:
                tasks.kill(core, task, _kill_policy(agent.drain, task.info))
        drained(core, agent)


def drained(core: Core, agent: AgentRecord) -> None:
    """An agent may have lost its last task: if it is drained now and to be given up then, it is."""
    if agent.drain is None or agent.tasks or agent.id not in core.state.agents:
        return
    if agent.drain.get("mark_gone"):
        remove(core, agent.id, gone=True)


def _any_agent(core: Core, payload: Message) -> AgentRecord:
    agent_id = value_of(payload, "agent_id")
    for group in (core.state.agents, core.state.recovered, core.state.away):
        if agent_id in group:
            return group[agent_id]
    raise HTTPError(400, f"agent {agent_id!r:.100} is not known")


def _deactivate(core: Core, agent: AgentRecord) -> None:
    _log.info("agent %s is not active any more", agent.id)
    agent.active = False
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)
    keep_agent(core, agent)


def _grace(payload: Message) -> int | None:
    """The longest grace period [ns], which comes as a ``google.protobuf.Duration``.

    >>> _grace({"max_grace_period": "1.5s"}), _grace({})
    (1500000000, None)
    """
    given: str | None = field(payload, "max_grace_period", str, None)
    if given is None:
        return None
    if not (match := _SECONDS.fullmatch(given)) or float(match[1]) > LONGEST_S:
        raise BadMessage(f'expected \'max_grace_period\' to be "0s" to "{LONGEST_S:.0f}s", found {given!r:.50}')
    return round(float(match[1]) * 1e9)


def _kill_policy(config: Message, info: Message) -> Message | None:
    """The policy that overrides the task's own, if that may take longer than the agent's drain allows."""
    grace: int | None = field(config, "max_grace_period.nanoseconds", int, None)
    if grace is None:
        return None
    try:
        own = field(info, "kill_policy.grace_period.nanoseconds", int, math.inf)
    except BadMessage:
        own = math.inf
    return {"grace_period": {"nanoseconds": min(grace, own)}}
