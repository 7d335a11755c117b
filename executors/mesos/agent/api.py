"""The calls of executors and of operators.

References
----------
Apache Mesos, *Executor HTTP API*; ``executor.proto`` and ``agent.proto`` in ``include/mesos/v1``.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Callable, Collection
from typing import Any

from asa.web.errors import HTTPError
from executors.cgroup.group import GroupUsage
from executors.mesos.agent import records, tasks
from executors.mesos.agent.state import (
    AgentCore,
    AgentExecutor,
    AgentTask,
    ContainerState,
    SignalContainer,
)
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import (
    VERSION,
    base64_of,
    field,
    identity,
    message,
    nanoseconds,
    octets,
    redacted,
    value_of,
)
from executors.mesos.resources import LEAST_CPUS

_log = logging.getLogger(__name__)

HEARTBEAT_S = 1800.0
"""How often the agent sends a heartbeat to an executor [s]; Mesos' default."""
PENDING_MOST = 1000
"""How many updates of one task may wait for their acknowledgement."""
DATA_MOST = 4 << 20
"""How much data an update or a message may carry [bytes]."""


def subscribe_executor(core: AgentCore, call: Message, stream: str) -> None:
    """An executor opens its stream, for the first time or again; raises `HTTPError` when it is not known."""
    executor = _known_executor(core, call)
    _log.info("executor %s of %s has subscribed", executor.id, executor.framework)
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
        records.keep(core, "executors", executor)
    framework = core.state.frameworks[executor.framework]
    core.send(
        stream,
        message(
            "SUBSCRIBED",
            executor_info=records.executor_info(executor),
            framework_info=records.framework_info(framework),
            agent_info=records.agent_info(core.state, core.options),
            container_id=identity(executor.container),
        ),
    )
    for report in reports:
        try:
            _take_update(core, executor, report)
        except (HTTPError, BadMessage) as error:
            _log.warning("an update of executor %s makes no sense: %s", executor.id, error)
    _catch_up(core, executor, listed)


def _catch_up(core: AgentCore, executor: AgentExecutor, listed: Collection[str]) -> None:
    """Send an executor again what it may not have received.

    A task that it does not list, and never reported on, did not reach it. If it was to be killed
    meanwhile, it is not launched any more.
    """
    live = list(executor.tasks.values())
    missed = [task for task in live if task.id not in listed and not task.statuses]
    tasks.deliver_tasks(core, executor, [task for task in missed if task.verdict is None])
    for task in live:
        if task.verdict is None or task.over:
            continue
        if task in missed:
            tasks.kill_undelivered(core, task)
        else:
            core.send(executor.stream, message("KILL", task_id=identity(task.id)))


def executor_call(core: AgentCore, item: Message) -> None:
    """Any other call of an executor; raises `HTTPError`, or `BadMessage`, for what makes no sense."""
    executor = _known_executor(core, item)
    if executor.stream is None:
        raise HTTPError(403, "Executor is not subscribed")
    kind = field(item, "type", str)
    if kind == "UPDATE":
        _take_update(core, executor, field(item, "update", dict))
    elif kind == "MESSAGE":
        _check_data(octets(item, "message.data"))
        data = field(item, "message.data", str)
        ids = {"framework_id": identity(executor.framework), "executor_id": identity(executor.id)}
        core.send_to_master("MESSAGE", **ids, data=data)
    elif kind != "HEARTBEAT":
        raise HTTPError(400, f"{kind!r:.80} is no call of an executor: expected UPDATE, MESSAGE or HEARTBEAT")


def _known_executor(core: AgentCore, item: Message) -> AgentExecutor:
    framework = core.state.frameworks.get(value_of(item, "framework_id"))
    if framework is None:
        raise HTTPError(400, "Framework cannot be found")
    executor = framework.executors.get(value_of(item, "executor_id"))
    if executor is None:
        raise HTTPError(400, "Executor cannot be found")
    return executor


def _take_update(core: AgentCore, executor: AgentExecutor, report: Any) -> None:
    """An update from an executor. It may come twice, or late: one that is of no use is acknowledged at once."""
    status = field({"update": report}, "update.status", dict)
    task_id, uuid = check_status(status, executor.id)
    _check_data(octets(status, "data", b""))
    task = core.state.task(executor.framework, task_id)
    again = None if task is None else tasks.known_update(task, uuid)
    if again == "pending":
        return
    if task is None or task.executor != executor.id or task.over or again is not None:
        send_acknowledged(core, executor, task_id, field(status, "uuid", str))
        return
    if len(task.pending) >= PENDING_MOST:
        raise HTTPError(429, f"{PENDING_MOST} updates of task {task_id!r} are not acknowledged yet: wait")
    instance = core.state.instances.get(executor.container)
    tasks.add_update(core, task, complete_status(status, task, uuid, core.now, core.state.id or "", instance=instance))
    if task.over:
        tasks.settle_task(core, task)


def send_acknowledged(core: AgentCore, executor: AgentExecutor, task_id: str, uuid: str) -> None:
    """Acknowledge an update to the executor that has sent it."""
    core.send(executor.stream, message("ACKNOWLEDGED", task_id=identity(task_id), uuid=uuid))


def stream_closed(core: AgentCore, stream: str) -> None:
    """An executor's stream broke: it may come back."""
    core.timers.cancel("heartbeat", stream)
    ids = core.state.streams.pop(stream, None)
    executor = None if ids is None else core.state.executor(*ids)
    if executor is None or executor.stream != stream:
        return
    executor.stream = None
    _log.info("the stream of executor %s of %s is closed", executor.id, executor.framework)
    if executor.verdict is None:
        core.timers.at(("return", executor.framework, executor.id), core.now + core.options.recovery_s)


def send_heartbeat(core: AgentCore, stream: str) -> None:
    """It is time for a heartbeat."""
    core.send(stream, message("HEARTBEAT"))
    core.timers.at(("heartbeat", stream), core.now + HEARTBEAT_S)


def _check_data(data: bytes) -> None:
    if len(data) > DATA_MOST:
        raise HTTPError(413, f"expected at most {DATA_MOST} bytes of data, found {len(data)}: pass the path of a file")


EXECUTOR_STATES = frozenset(
    "TASK_" + word
    for word in ("STARTING", "RUNNING", "KILLING", "FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "DROPPED", "GONE")
)
"""States that an executor may report; the others are reported by agent and master."""


def check_status(status: Message, executor_id: str) -> tuple[str, bytes]:
    """The task and the uuid of a status; raises `BadMessage` when it is none, or names another executor."""
    task_id, uuid = value_of(status, "task_id"), octets(status, "uuid")
    if len(uuid) != 16:
        raise BadMessage(f"expected 'uuid' to be of 16 bytes, found {len(uuid)}")
    state = field(status, "state", str)
    if state not in EXECUTOR_STATES:
        raise BadMessage(f"expected 'state' to be one that an executor can report, found {state!r:.80}")
    if field(status, "source", str, "SOURCE_EXECUTOR") != "SOURCE_EXECUTOR":
        raise BadMessage("expected 'source' to be SOURCE_EXECUTOR")
    if value_of(status, "executor_id", executor_id) != executor_id:
        raise BadMessage(f"expected 'executor_id' to be {executor_id!r}")
    field(status, "timestamp", float, 0.0), field(status, "message", str, ""), octets(status, "data", b"")
    return task_id, uuid


def complete_status(
    status: Message, task: AgentTask, uuid: bytes, now: float, agent_id: str, *, instance: ContainerState | None
) -> Message:
    """A checked status with everything in it that frameworks expect."""
    given: Message = {"timestamp": now} | status
    if instance is not None and "container_status" not in status:
        given["container_status"] = records.container_status(instance)
    return given | {
        "source": "SOURCE_EXECUTOR",
        "uuid": base64_of(uuid),
        "agent_id": identity(agent_id),
        "executor_id": identity(task.executor_id),
    }


LEASE_MOST_S = 86400.0
"""For how long another CPU limit or weight can be had at most, unless it is asked for again [s]."""

UsageOf = Callable[[str], GroupUsage | None]


def needs_write(call: Message) -> bool:
    """Whether an operator must be one who may change things."""
    kind = call.get("type")
    return isinstance(kind, str) and kind in _CHANGES


def operate(core: AgentCore, call: Message, usage: UsageOf) -> Message:
    """The answer to a call; `usage` returns what a container has used, None when unknown.

    Raises `HTTPError` when it is not supported (501), or about a container that is not here (404), and `BadMessage`
    when it is no call.
    """
    kind: str = field(call, "type", str)
    if kind in QUERIES:
        return message(kind, **QUERIES[kind](core))
    if kind == "GET_CONTAINERS":
        return message(
            kind, containers=[_container_message(core, item, usage) for item in core.state.instances.values()]
        )
    if kind in _CHANGES:
        return _CHANGES[kind](core, field(call, kind.lower(), dict))
    raise HTTPError(501, f"{kind!r:.80} is not supported by this agent")


def _update_limits(core: AgentCore, asked: Message) -> Message:
    instance = _known_container(core, value_of(asked, "container_id"))
    limit, request = _asked_cores(core, asked, "limits", "a limit"), _asked_cores(core, asked, "requests", "a request")
    seconds = _lease_seconds(asked)
    cores = {what: given for what, given in (("limit", limit), ("request", request)) if given is not None}
    if not cores:
        raise HTTPError(400, "expected 'limits.cpus.value', 'requests.cpus.value' or both: nothing is to be changed")
    tasks.change_cpus(core, instance, cores, seconds)
    answer: Message = {
        "container_id": identity(instance.id),
        "limits": {"cpus": {"value": "Infinity" if instance.limit is None else instance.limit}},
        "requests": {"cpus": {"value": instance.requests.now}},
    }
    until = {} if seconds is None else {"until": nanoseconds(core.now + seconds)}
    return message("ASA_UPDATE_LIMITS", **answer, **until)


def _hold_memory(core: AgentCore, asked: Message) -> Message:
    instance = _known_container(core, value_of(asked, "container_id"))
    memory: float = field(asked, "memory_bytes", float)
    if not memory > 0:
        raise HTTPError(400, f"expected 'memory_bytes' above 0, found {memory:g}")
    tasks.hold_memory(core, instance, None if math.isinf(memory) else int(memory), _lease_seconds(asked))
    return message("ASA_HOLD_MEMORY")


def _lease_seconds(asked: Message) -> float | None:
    """How long a change is to last [s]; None for good."""
    seconds: float | None = field(asked, "lease_seconds", float, None)
    if seconds is not None and not 0 <= seconds <= LEASE_MOST_S:
        raise HTTPError(400, f"expected 'lease_seconds' to be from 0 to {LEASE_MOST_S:g}, found {seconds:g}")
    return seconds


def _signal_container(core: AgentCore, asked: Message) -> Message:
    instance = _known_container(core, value_of(asked, "container_id"))
    name: str = field(asked, "signal", str)
    number = signal.Signals.__members__.get(f"SIG{name}")
    if number is None or number in (signal.SIGKILL, signal.SIGSTOP):
        raise HTTPError(
            400, f"expected 'signal' to be one that a program can handle, such as 'USR1', found {name!r:.80}"
        )
    core.add(SignalContainer(instance.id, number))
    return message("ASA_SIGNAL_CONTAINER")


_CHANGES: dict[str, Callable[[AgentCore, Message], Message]] = {
    "ASA_UPDATE_LIMITS": _update_limits,
    "ASA_HOLD_MEMORY": _hold_memory,
    "ASA_SIGNAL_CONTAINER": _signal_container,
}


def _asked_cores(core: AgentCore, asked: Message, name: str, what: str) -> float | None:
    """Cores that are asked for under this name, infinite for no limit; None when they are not named."""
    if name not in asked:
        return None
    cpus: float = field(asked, f"{name}.cpus.value", float)
    most = max(core.options.resources.scalar("cpus"), LEAST_CPUS)
    if not LEAST_CPUS <= cpus <= most and (name != "limits" or cpus != math.inf):
        raise HTTPError(400, f"expected {what} from {LEAST_CPUS} to the {most:g} cores of this node, found {cpus:g}")
    return cpus


def _known_container(core: AgentCore, container_id: str) -> ContainerState:
    instance = core.state.instances.get(container_id)
    if instance is None:
        raise HTTPError(404, f"Container {container_id!r:.80} cannot be found")
    return instance


def _container_message(core: AgentCore, instance: ContainerState, usage: UsageOf) -> Message:
    executor = core.state.executor(instance.framework, instance.executor)
    name = "" if executor is None else executor.info.get("name", "")
    return {
        "framework_id": identity(instance.framework),
        "executor_id": identity(instance.executor),
        "executor_name": name if isinstance(name, str) else "",
        "container_id": identity(instance.id),
        "container_status": records.container_status(instance),
        "resource_statistics": _statistics(core, instance, usage(instance.id)),
    }


def _statistics(core: AgentCore, instance: ContainerState, used: GroupUsage | None) -> Message:
    found = {
        "timestamp": core.now,
        "cpus_limit": instance.limit,
        "mem_limit_bytes": instance.memory,
    }
    if used is not None:
        found |= {
            "cpus_user_time_secs": used.user_s,
            "cpus_system_time_secs": used.system_s,
            "cpus_nr_periods": used.periods,
            "cpus_nr_throttled": used.throttled,
            "cpus_throttled_time_secs": used.throttled_s,
            "mem_rss_bytes": used.memory,
            "mem_limit_bytes": used.memory_limit or instance.memory,
            "processes": used.processes,
            "threads": used.threads,
            "asa_memory_stalled_secs": used.stalled_s,
            "asa_cpus_waited_secs": used.waited_s,
            "asa_node_available_bytes": used.available,
        }
    return {name: value for name, value in found.items() if value is not None}


def _frameworks(core: AgentCore) -> Message:
    found = [{"framework_info": records.framework_info(item)} for item in core.state.frameworks.values()]
    return {"frameworks": found, "completed_frameworks": []}


def _executors(core: AgentCore) -> Message:
    found = [
        {"executor_info": redacted(records.executor_info(executor))}
        for framework in core.state.frameworks.values()
        for executor in framework.executors.values()
    ]
    return {"executors": found, "completed_executors": []}


def _tasks(core: AgentCore) -> Message:
    found: dict[str, list[Message]] = {"queued_tasks": [], "launched_tasks": [], "terminated_tasks": []}
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            where = "terminated" if task.over else "queued" if task.state == "TASK_STAGING" else "launched"
            found[f"{where}_tasks"].append(records.task_message(task, core.state.id))
    return {**found, "completed_tasks": list(core.state.completed)}


def _state(core: AgentCore) -> Message:
    return {"get_tasks": _tasks(core), "get_executors": _executors(core), "get_frameworks": _frameworks(core)}


QUERIES: dict[str, Callable[[AgentCore], Message]] = {
    "GET_HEALTH": lambda core: {"healthy": True},
    "GET_VERSION": lambda core: {"version_info": {"version": VERSION}},
    "GET_FRAMEWORKS": _frameworks,
    "GET_EXECUTORS": _executors,
    "GET_TASKS": _tasks,
    "GET_STATE": _state,
}
