"""Calls of operators on an agent: what is here, what it uses, and what may be changed."""

from __future__ import annotations

import math
from collections.abc import Callable

from asa.web.errors import HTTPError
from executors.cgroup.group import Usage
from executors.mesos.agent import instances, leases, views
from executors.mesos.agent.core import Core
from executors.mesos.agent.metrics import metrics
from executors.mesos.agent.state import Instance
from executors.mesos.codec import Message
from executors.mesos.messages import VERSION, field, identity, message, nanoseconds, value_of
from executors.mesos.resources import LEAST_CPUS

LEASE_MOST_S = 86400.0
"""For how long another CPU limit or weight can be had at most, unless it is asked for again [s]."""
WRITES = frozenset({"KILL_CONTAINER", "ASA_UPDATE_LIMITS"})
"""Calls that change something."""

Use = Callable[[str], Usage | None]


def needs_write(call: Message) -> bool:
    """Whether an operator must be one who may change things."""
    kind = call.get("type")
    return isinstance(kind, str) and kind in WRITES


def operate(core: Core, call: Message, usage: Use) -> Message | None:
    """The answer to a call, None for an empty one.

    Parameters
    ----------
    usage
        What a container has used; None when nobody knows.

    Raises
    ------
    HTTPError
        When it is not supported (501), or is about a container that is not here (404).
    BadMessage
        When it is no call.
    """
    kind: str = field(call, "type", str)
    if kind in _VIEWS:
        return message(kind, **_VIEWS[kind](core))
    if kind == "GET_CONTAINERS":
        return message(kind, containers=[_container(core, item, usage) for item in core.state.instances.values()])
    if kind == "KILL_CONTAINER":
        instances.stop(core, _instance(core, value_of(call, "kill_container.container_id")).id, 0.0)
        return None
    if kind == "ASA_UPDATE_LIMITS":
        return _update_limits(core, field(call, "asa_update_limits", dict))
    raise HTTPError(501, f"{kind!r:.80} is not supported by this agent")


def _update_limits(core: Core, asked: Message) -> Message:
    instance = _instance(core, value_of(asked, "container_id"))
    limit, request = _cores(core, asked, "limits", "a limit"), _cores(core, asked, "requests", "a request")
    seconds: float | None = field(asked, "lease_seconds", float, None)
    if limit is None and request is None:
        raise HTTPError(400, "expected 'limits.cpus.value', 'requests.cpus.value' or both: nothing is to be changed")
    if seconds is None:
        leases.settle(core, instance, limit, request)
    elif not 0 <= seconds <= LEASE_MOST_S:
        raise HTTPError(400, f"expected 'lease_seconds' to be from 0 to {LEASE_MOST_S:g}, found {seconds:g}")
    elif seconds == 0:
        leases.give_back(core, instance, limit=limit is not None, request=request is not None)
    else:
        leases.lend(core, instance, limit, request, seconds)
    answer: Message = {
        "container_id": identity(instance.id),
        "limits": {"cpus": {"value": "Infinity" if instance.limit is None else instance.limit}},
        "requests": {"cpus": {"value": instance.weight}},
    }
    until = {} if seconds is None else {"until": nanoseconds(core.now + seconds)}
    return message("ASA_UPDATE_LIMITS", **answer, **until)


def _cores(core: Core, asked: Message, name: str, what: str) -> float | None:
    """Cores that are asked for under this name, infinite for no limit; None when nothing is said of them."""
    if name not in asked:
        return None
    cpus: float = field(asked, f"{name}.cpus.value", float)
    most = max(core.options.resources.scalar("cpus"), LEAST_CPUS)
    if not LEAST_CPUS <= cpus <= most and (name != "limits" or cpus != math.inf):
        raise HTTPError(400, f"expected {what} from {LEAST_CPUS} to the {most:g} cores of this node, found {cpus:g}")
    return cpus


def _instance(core: Core, container_id: str) -> Instance:
    instance = core.state.instances.get(container_id)
    if instance is None:
        raise HTTPError(404, f"Container {container_id!r:.80} cannot be found")
    return instance


def _container(core: Core, instance: Instance, usage: Use) -> Message:
    status: Message = {"container_id": identity(instance.id)}
    if instance.pid is not None:
        status["executor_pid"] = instance.pid
    executor = core.state.executor(instance.framework, instance.executor)
    name = "" if executor is None else executor.info.get("name", "")
    return {
        "framework_id": identity(instance.framework),
        "executor_id": identity(instance.executor),
        "executor_name": name if isinstance(name, str) else "",
        "container_id": identity(instance.id),
        "container_status": status,
        "resource_statistics": _statistics(core, instance, usage(instance.id)),
    }


def _statistics(core: Core, instance: Instance, used: Usage | None) -> Message:
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
        }
    return {name: value for name, value in found.items() if value is not None}


def _health(core: Core) -> Message:
    return {"healthy": True}


def _version(core: Core) -> Message:
    return {"version_info": {"version": VERSION}}


def _flags(core: Core) -> Message:
    options = core.options
    flags = {
        "hostname": options.hostname,
        "port": str(options.port),
        "executor_registration_timeout": f"{options.registration_s:g}secs",
        "executor_shutdown_grace_period": f"{options.grace_s:g}secs",
        "recovery_timeout": f"{options.recovery_s:g}secs",
        "cgroups_enable_cfs": str(options.quotas).lower(),
        "sandbox_directory": options.directory,
    }
    return {"flags": [{"name": name, "value": value} for name, value in flags.items()]}


def _agent(core: Core) -> Message:
    return {"agent_info": views.agent_info(core.state, core.options)}


def _frameworks(core: Core) -> Message:
    found = [{"framework_info": views.framework_info(item)} for item in core.state.frameworks.values()]
    return {"frameworks": found, "completed_frameworks": []}


def _executors(core: Core) -> Message:
    found = [
        {"executor_info": views.redacted(views.executor_info(executor))}
        for framework in core.state.frameworks.values()
        for executor in framework.executors.values()
    ]
    return {"executors": found, "completed_executors": []}


def _tasks(core: Core) -> Message:
    found: dict[str, list[Message]] = {"queued_tasks": [], "launched_tasks": [], "terminated_tasks": []}
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            where = "terminated" if task.over else "queued" if task.state == "TASK_STAGING" else "launched"
            found[f"{where}_tasks"].append(views.task(task, core.state.id))
    return {"pending_tasks": [], **found, "completed_tasks": list(core.state.completed)}


def _state(core: Core) -> Message:
    return {"get_tasks": _tasks(core), "get_executors": _executors(core), "get_frameworks": _frameworks(core)}


def _metrics(core: Core) -> Message:
    found = metrics(core.state, core.options, core.now)
    return {"metrics": [{"name": name, "value": value} for name, value in sorted(found.items())]}


_VIEWS: dict[str, Callable[[Core], Message]] = {
    "GET_HEALTH": _health,
    "GET_VERSION": _version,
    "GET_FLAGS": _flags,
    "GET_AGENT": _agent,
    "GET_FRAMEWORKS": _frameworks,
    "GET_EXECUTORS": _executors,
    "GET_TASKS": _tasks,
    "GET_STATE": _state,
    "GET_METRICS": _metrics,
}
