"""The operator API: calls of ``POST /api/v1`` that look at the pool, and those that change it.

References
----------
Apache Mesos, *Operator HTTP API*, ``include/mesos/v1/master/master.proto``, ``docs/roles.md`` and
``docs/quota.md``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import agents, frameworks, offers, views
from executors.mesos.master.allocator import RoleUsage
from executors.mesos.master.core import Core, keep_roles
from executors.mesos.master.frameworks import wrong_role
from executors.mesos.master.state import MasterState
from executors.mesos.messages import VERSION, field, identity, value_of
from executors.mesos.resources import LARGEST, NONE, THOUSAND, Resources, to_json

_log = logging.getLogger(__name__)


def operate(core: Core, call: Message) -> Message | None:
    """Carry out a call of an operator: the answer, None for an empty one.

    Raises `HTTPError` when it is no call, is not allowed now, or not supported.
    """
    kind = field(call, "type", str)
    if look := QUERIES.get(kind):
        return {"type": kind, kind.lower(): look(core.state, core.now)}
    if kind not in _COMMANDS:
        raise HTTPError(501, f"call {kind!r:.100} is not supported here: docs/mesos.md says which are")
    _COMMANDS[kind](core, field(call, kind.lower(), dict))
    return None


def needs_write(call: Message) -> bool:
    """Whether a call takes more than the right to look; one that is not known does.

    >>> needs_write({"type": "GET_STATE"}), needs_write({"type": "TEARDOWN"}), needs_write({})
    (False, True, True)
    """
    kind = call.get("type")
    return not isinstance(kind, str) or (kind not in QUERIES and kind != "SUBSCRIBE")


def _flags(state: MasterState, now: float) -> Message:
    """What the master was started with, under Mesos' names. Nothing in it is secret."""
    options = state.options
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
    return {"flags": [{"name": name, "value": value} for name, value in found.items()]}


def _metrics(state: MasterState, now: float) -> Message:
    return {"metrics": [{"name": name, "value": value} for name, value in views.metrics(state, now).items()]}


def _unavailability(state: MasterState, now: float) -> Message:
    """Which agents end, and when: a call of our own, since the v1 API says that in offers only."""
    ending = ((agent.id, agent.unavailability) for agent in state.agents.values() if agent.unavailability is not None)
    return {"agents": [{"agent_id": identity(id), "unavailability": unavailability} for id, unavailability in ending]}


def _master(state: MasterState, now: float) -> Message:
    return {"master_info": views.master(state), "start_time": state.started, "elected_time": state.started}


def _teardown(core: Core, payload: Message) -> None:
    framework_id = value_of(payload, "framework_id")
    framework = core.state.frameworks.get(framework_id)
    if framework is None:
        raise HTTPError(400, f"framework {framework_id!r:.100} is not known")
    frameworks.remove(core, framework, "Framework was torn down by an operator")


def _mark_agent_gone(core: Core, payload: Message) -> None:
    agent_id, state = value_of(payload, "agent_id"), core.state
    if agent_id in state.gone:
        return
    if not any(agent_id in group for group in (state.agents, state.recovered, state.unreachable)):
        raise HTTPError(404, f"agent {agent_id!r:.100} is not known")
    agents.remove(core, agent_id, gone=True, orphaned=field(payload, "orphaned", bool, False))


# ---------------------------------------------------------------------- roles


def _roles(state: MasterState) -> Message:
    """All roles that a framework is in, or that an operator has given a quota, by name."""
    frameworks: dict[str, list[Message]] = defaultdict(list)
    for framework in state.frameworks.values():
        for name in framework.roles:
            frameworks[name].append(identity(framework.id))
    held: dict[str, Resources] = defaultdict(lambda: NONE)
    for agent in state.agents.values():
        taken = views.taken((*agent.tasks.values(), *agent.executors.values()))
        for name, resources in (*taken.items(), *views.offered(agent.offers.values()).items()):
            held[name] += resources
    names = sorted({*frameworks, *held, *state.quota})
    return {
        "roles": [
            {
                "name": name,
                "weight": 1.0,
                "frameworks": frameworks[name],
                "resources": to_json(held[name]),
            }
            for name in names
        ]
    }


def _update_quota(core: Core, payload: Message) -> None:
    """UPDATE_QUOTA: the limits of each role that is named are replaced, by none if no amounts are named.

    Raises `BadMessage` when it is malformed, and `HTTPError` when a role is named twice or cannot have quota, when
    something is guaranteed, which Mesos itself has given up in favour of limits, and, without ``force``, when a role
    has more than its new limit.
    """
    force, found = field(payload, "force", bool, False), dict[str, dict[str, int]]()
    usage = RoleUsage.of(core.state)
    for offer in core.state.offers.values():  # they can be taken back
        usage.gave_back(offer.framework, offer.role, offer.resources)
    for config in field(payload, "quota_configs", list):
        role = field({"quota_config": config}, "quota_config.role", str)
        if reason := wrong_role(role):
            raise HTTPError(400, f"role {role!r:.100} {reason}")
        if role == "*":
            raise HTTPError(400, "role '*' cannot have quota: name another one")
        if role in found:
            raise HTTPError(400, f"role {role!r} is named twice: name it once")
        if any(_amounts(config, "guarantees").values()):
            raise HTTPError(501, "resources are not guaranteed here: give limits to other roles")
        found[role] = _amounts(config, "limits")
        held = usage.held.get((role,), {})
        for name, limit in found[role].items():
            if not force and held.get(name, 0) > limit:
                has, most = held[name] / THOUSAND, limit / THOUSAND
                raise HTTPError(400, f"role {role!r} has {has} {name}, more than {most}; use 'force'")
    _log.info("roles have limits: %s", found)
    quota = {role: limits for role, limits in core.state.quota.items() if role not in found}
    core.state.quota = quota | {role: limits for role, limits in found.items() if limits}
    keep_roles(core)
    _offer_anew(core)


def _amounts(config: Message, what: str) -> dict[str, int]:
    found = {}
    for name in field(config, what, dict, {}):
        number = field({what: config[what][name]}, f"{what}.value", float)  # a name may have dots
        if not 0 <= number * THOUSAND <= LARGEST:
            raise BadMessage(f"expected {what!r} of {name!r} to be between 0 and {LARGEST // THOUSAND}, not {number}")
        found[name] = round(number * THOUSAND)
    return found


def _quota(state: MasterState) -> Message:
    """A ``QuotaStatus``."""
    configs = [
        {"role": role, "guarantees": {}, "limits": {name: {"value": x / THOUSAND} for name, x in limits.items()}}
        for role, limits in sorted(state.quota.items())
    ]
    return {"infos": [], "configs": configs}


def _offer_anew(core: Core) -> None:
    """Take back all offers, so that the next allocation follows what has changed."""
    for offer in list(core.state.offers.values()):
        offers.rescind(core, offer)
    core.dirty.update(core.state.agents)


QUERIES: dict[str, Callable[[MasterState, float], Message]] = {
    "GET_HEALTH": lambda state, now: {"healthy": True},
    "GET_VERSION": lambda state, now: {"version_info": {"version": VERSION}},
    "GET_FLAGS": _flags,
    "GET_METRICS": _metrics,
    "GET_STATE": lambda state, now: views.state(state),
    "GET_AGENTS": lambda state, now: views.agents(state),
    "GET_FRAMEWORKS": lambda state, now: views.frameworks(state),
    "GET_EXECUTORS": lambda state, now: views.executors(state),
    "GET_TASKS": lambda state, now: views.tasks(state),
    "GET_ROLES": lambda state, now: _roles(state),
    "GET_QUOTA": lambda state, now: {"status": _quota(state)},
    "GET_MASTER": _master,
    "ASA_GET_UNAVAILABILITY": _unavailability,
}

_COMMANDS: dict[str, Callable[[Core, Message], None]] = {
    "TEARDOWN": _teardown,
    "MARK_AGENT_GONE": _mark_agent_gone,
    "DRAIN_AGENT": agents.drain,
    "DEACTIVATE_AGENT": agents.deactivate,
    "REACTIVATE_AGENT": agents.reactivate,
    "UPDATE_QUOTA": _update_quota,
}
