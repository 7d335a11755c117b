"""Reservations that operators make and undo; frameworks have RESERVE and UNRESERVE for it, in ACCEPT.

References
----------
Apache Mesos, ``docs/reservation.md``.
"""

from __future__ import annotations

from typing import Any

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import offers, rows
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import wrong_role
from executors.mesos.master.state import Agent
from executors.mesos.messages import field, value_of
from executors.mesos.resources import NONE, Kind, Resources, parse


def reserve(core: Core, payload: Message, principal: str | None) -> None:
    """RESERVE_RESOURCES: what nobody uses on an agent is for one role from now on. Offers that are in the way end.

    Raises
    ------
    BadMessage, HTTPError
        When the agent is not known, does not have as much that is neither used nor reserved, or the resources say
        nothing about a reservation, or that somebody else has made it.
    """
    agent = _known(core, payload)
    wanted = _reserved(field(payload, "resources", list), principal)
    if any(kind.role != "*" for kind, _ in parse(field(payload, "source", list, []))):
        raise HTTPError(501, "only what is not reserved can be reserved: unreserve it first")
    _exchange(core, agent, wanted.unspecific(), wanted)


def unreserve(core: Core, payload: Message, principal: str | None) -> None:
    """UNRESERVE_RESOURCES: what is reserved on an agent, and not used, any role may have from now on.

    Raises
    ------
    BadMessage, HTTPError
        When the agent is not known, or does not have as much that is reserved so and not used.
    """
    agent = _known(core, payload)
    given = _reserved(field(payload, "resources", list), None)
    held = sum((Resources({_held(agent, kind): amount}) for kind, amount in given), start=NONE)
    _exchange(core, agent, held, held.unspecific())


def _exchange(core: Core, agent: Agent, old: Resources, new: Resources) -> None:
    """Have `new` instead of `old` on an agent."""
    if not (agent.total - agent.used).covers(old):
        raise HTTPError(409, f"agent {agent.id} does not have this much that is unused: {_text(old)}")
    for offer in [offer for offer in agent.offers.values() if not offer.inverse]:
        if agent.free.covers(old):
            break
        if any(kind in offer.resources.amounts for kind, _ in old):
            offers.rescind(core, offer)
    before, agent.total = agent.total, agent.total - old + new
    core.usage.resized(before, agent.total)
    rows.keep_agent(core, agent)
    core.dirty.add(agent.id)


def _known(core: Core, payload: Message) -> Agent:
    agent_id = value_of(payload, "agent_id")
    if agent_id not in core.state.agents:
        raise HTTPError(400, f"agent {agent_id:.100} is not registered")
    return core.state.agents[agent_id]


def _reserved(items: list[Any], principal: str | None) -> Resources:
    """Resources that are all reserved at run time; those that do not say by whom, by this principal."""
    found = NONE
    for kind, amount in parse(items):
        if not kind.dynamic:
            raise BadMessage(f"expected resource {kind.name!r:.50} to have a dynamic reservation for a role")
        if reason := wrong_role(kind.role):
            raise BadMessage(f"role {kind.role!r:.100} {reason}")
        if principal is not None and kind.principal not in ("", principal):
            raise HTTPError(403, f"a reservation by {kind.principal!r:.100} cannot be made by {principal!r}")
        found += Resources({kind._replace(principal=kind.principal or principal or ""): amount})
    if not found:
        raise BadMessage("expected 'resources' to name some, found none")
    return found


def _held(agent: Agent, given: Kind) -> Kind:
    """The kind that an agent has, where the given one does not say who has reserved it."""
    for kind, _ in agent.total:
        if kind == given or (not given.principal and kind._replace(principal="") == given):
            return kind
    return given


def _text(resources: Resources) -> str:
    return ", ".join(f"{kind.name} of role {kind.role!r:.50}" for kind, _ in resources)
