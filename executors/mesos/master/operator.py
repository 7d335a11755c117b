"""The operator API: calls of ``POST /api/v1`` that look at the pool, and those that change it.

References
----------
Apache Mesos, *Operator HTTP API* and ``include/mesos/v1/master/master.proto``.
"""

from __future__ import annotations

from collections.abc import Callable

from asa.web.errors import HTTPError
from executors.mesos import verbosity
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import (
    agents,
    feedback,
    frameworks,
    maintenance,
    metrics,
    quota,
    reservations,
    roles,
    schedule,
    views,
)
from executors.mesos.master.core import Core
from executors.mesos.master.state import Options, State
from executors.mesos.messages import VERSION, field, value_of


def operate(core: Core, call: Message, principal: str | None) -> Message | None:
    """Carry out a call of an operator.

    Parameters
    ----------
    principal
        Who calls; None if nobody knows.

    Returns
    -------
    The response, or None for an empty one.

    Raises
    ------
    HTTPError
        When it is no call, is not allowed now, or not supported.
    """
    try:
        kind = field(call, "type", str)
        if look := _LOOKS.get(kind):
            return {"type": kind, kind.lower(): look(core.state, core.now)}
        if kind in _FILES:
            path: str = field(call, f"{kind.lower()}.path", str)
            raise HTTPError(404, f"there is no {path!r:.200}: {_NO_FILES}")
        if kind in _UNSUPPORTED:
            raise HTTPError(501, f"{kind} is not supported: {_UNSUPPORTED[kind]}")
        if kind not in _CHANGES:
            raise HTTPError(501, f"there is no call {kind!r:.100}")
        _CHANGES[kind](core, field(call, kind.lower(), dict), principal)
    except BadMessage as error:
        raise HTTPError(400, str(error)) from None
    return None


def needs_write(call: Message) -> bool:
    """Whether a call takes more than the right to look; one that is not known does.

    >>> needs_write({"type": "GET_STATE"}), needs_write({"type": "TEARDOWN"}), needs_write({})
    (False, True, True)
    """
    kind = call.get("type")
    return not isinstance(kind, str) or kind not in _READS


def flags(options: Options) -> dict[str, str]:
    """What the master was started with, under Mesos' names. Nothing in it is secret."""
    found = {
        "agent_ping_timeout": f"{options.ping_s:g}secs",
        "agent_reregister_timeout": f"{options.agent_reregister_s:g}secs",
        "allocation_interval": f"{options.allocate_s:g}secs",
        "hostname": options.hostname,
        "max_agent_ping_timeouts": str(options.pings),
        "port": str(options.port),
    }
    if options.offer_timeout_s is not None:
        found["offer_timeout"] = f"{options.offer_timeout_s:g}secs"
    return found


def _flags(state: State, now: float) -> Message:
    return {"flags": [{"name": name, "value": value} for name, value in flags(state.options).items()]}


def _metrics(state: State, now: float) -> Message:
    return {"metrics": [{"name": name, "value": value} for name, value in metrics.snapshot(state, now).items()]}


def _master(state: State, now: float) -> Message:
    return {"master_info": views.master(state), "start_time": state.started, "elected_time": state.started}


_LOOKS: dict[str, Callable[[State, float], Message]] = {
    "GET_HEALTH": lambda state, now: {"healthy": True},
    "GET_VERSION": lambda state, now: {"version_info": {"version": VERSION}},
    "GET_FLAGS": _flags,
    "GET_METRICS": _metrics,
    "GET_LOGGING_LEVEL": lambda state, now: {"level": state.verbosity.at(now)},
    "GET_STATE": lambda state, now: views.state(state),
    "GET_AGENTS": lambda state, now: views.agents(state),
    "GET_FRAMEWORKS": lambda state, now: views.frameworks(state),
    "GET_EXECUTORS": lambda state, now: views.executors(state),
    "GET_TASKS": lambda state, now: views.tasks(state),
    "GET_OPERATIONS": lambda state, now: feedback.view(state),
    "GET_ROLES": lambda state, now: roles.view(state),
    "GET_WEIGHTS": lambda state, now: roles.weights(state),
    "GET_QUOTA": lambda state, now: {"status": quota.status(state)},
    "GET_MASTER": _master,
    "GET_MAINTENANCE_STATUS": lambda state, now: schedule.status(state),
    "GET_MAINTENANCE_SCHEDULE": lambda state, now: schedule.schedule(state),
}


def _teardown(core: Core, payload: Message, principal: str | None) -> None:
    framework_id = value_of(payload, "framework_id")
    framework = core.state.frameworks.get(framework_id)
    if framework is None:
        raise HTTPError(400, f"framework {framework_id!r:.100} is not known")
    frameworks.remove(core, framework, "Framework was torn down by an operator")


def _mark_agent_gone(core: Core, payload: Message, principal: str | None) -> None:
    agent_id, state = value_of(payload, "agent_id"), core.state
    if agent_id in state.gone:
        return
    if not any(agent_id in group for group in (state.agents, state.recovered, state.unreachable)):
        raise HTTPError(404, f"agent {agent_id!r:.100} is not known")
    agents.remove(core, agent_id, gone=True)


def _set_logging_level(core: Core, payload: Message, principal: str | None) -> None:
    core.state.verbosity = verbosity.asked(payload, core.now)


_CHANGES: dict[str, Callable[[Core, Message, str | None], None]] = {
    "TEARDOWN": _teardown,
    "MARK_AGENT_GONE": _mark_agent_gone,
    "DRAIN_AGENT": lambda core, payload, principal: maintenance.drain(core, payload),
    "DEACTIVATE_AGENT": lambda core, payload, principal: maintenance.deactivate(core, payload),
    "REACTIVATE_AGENT": lambda core, payload, principal: maintenance.reactivate(core, payload),
    "UPDATE_MAINTENANCE_SCHEDULE": lambda core, payload, principal: schedule.update(core, payload),
    "START_MAINTENANCE": lambda core, payload, principal: schedule.start(core, payload),
    "STOP_MAINTENANCE": lambda core, payload, principal: schedule.stop(core, payload),
    "UPDATE_WEIGHTS": lambda core, payload, principal: roles.update_weights(core, payload),
    "UPDATE_QUOTA": lambda core, payload, principal: roles.update_quota(core, payload),
    "SET_QUOTA": lambda core, payload, principal: roles.set_quota(core, payload),
    "REMOVE_QUOTA": lambda core, payload, principal: roles.remove_quota(core, payload),
    "RESERVE_RESOURCES": reservations.reserve,
    "UNRESERVE_RESOURCES": reservations.unreserve,
    "SET_LOGGING_LEVEL": _set_logging_level,
}

_NO_VOLUMES = "there are no persistent volumes here"
_UNSUPPORTED = dict.fromkeys(("CREATE_VOLUMES", "DESTROY_VOLUMES", "GROW_VOLUME", "SHRINK_VOLUME"), _NO_VOLUMES)
_FILES = frozenset({"LIST_FILES", "READ_FILE"})
_NO_FILES = "the master has no files; ask the agent that a task runs on for those in its sandbox"

_READS = _LOOKS.keys() | _FILES | {"SUBSCRIBE"}
