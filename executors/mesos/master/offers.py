"""Offers: resources of one agent that one framework may take until it is answered or rescinded."""

from __future__ import annotations

import ipaddress
import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from executors.mesos.codec import Message
from executors.mesos.master.allocator import Grant
from executors.mesos.master.core import Core, number
from executors.mesos.master.state import AgentRecord, FrameworkRecord, Offer
from executors.mesos.messages import field, identity, message, values
from executors.mesos.resources import Resources, to_json

REFUSE_S = 5.0
"""For how long what is declined is not offered again, unless the call says otherwise [s]; the default of Mesos."""
REFUSE_MOST_S = 365 * 86400.0


def make(core: Core, grants: Iterable[Grant]) -> None:
    """Offer what was allocated."""
    state = core.state
    made: dict[str, list[Message]] = defaultdict(list)
    for grant in grants:
        agent, framework = state.agents[grant.agent], state.frameworks[grant.framework]
        id = f"{state.id}-O{number(core, 'offer')}"
        offer = Offer(id, framework.id, agent.id, grant.role, grant.resources, core.now)
        agent.offered += offer.resources
        core.usage.took(framework.id, grant.role, offer.resources)
        state.offers[id] = agent.offers[id] = framework.offers[id] = offer
        made[framework.id].append(_described(offer, agent))
    most = state.options.offers_most
    for framework_id, offers in made.items():
        for at in range(0, len(offers), most):
            core.send(state.frameworks[framework_id].stream, message("OFFERS", offers=offers[at : at + most]))


def remove(core: Core, offer: Offer) -> None:
    """The offer is no more: its resources can be allocated again."""
    state = core.state
    agent = state.agents[offer.agent]
    del state.offers[offer.id], state.frameworks[offer.framework].offers[offer.id], agent.offers[offer.id]
    agent.offered -= offer.resources
    core.usage.gave_back(offer.framework, offer.role, offer.resources)
    core.dirty.add(agent.id)


def rescind(core: Core, offer: Offer) -> None:
    """Take an offer back, and inform its framework."""
    remove(core, offer)
    core.send(core.state.frameworks[offer.framework].stream, message("RESCIND", offer_id=identity(offer.id)))


def expire(core: Core) -> None:
    """Rescind offers that had no answer for too long."""
    while (offer := oldest(core)) is not None and core.now >= deadline(core, offer):
        rescind(core, offer)


def oldest(core: Core) -> Offer | None:
    """The offer that is rescinded next, if offers end at all."""
    if core.state.options.offer_timeout_s is None:
        return None
    return next(iter(core.state.offers.values()), None)


def deadline(core: Core, offer: Offer) -> float:
    """When it is rescinded [s since the epoch]."""
    timeout = core.state.options.offer_timeout_s
    return math.inf if timeout is None else offer.made + timeout


def decline(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """DECLINE: the framework does not want these, and nothing like them for a while. Unknown ones are passed over.

    At least until the next allocation: else each of several offers of one agent would come back by itself, at once, and
    what together would be enough for a task were never offered together.
    """
    refuse_s = refusal(call) or core.state.options.allocate_s
    for offer_id in values(field(call, "offer_ids", list, []), "offer_ids"):
        offer = framework.offers.get(offer_id)
        if offer is not None:
            remove(core, offer)
            refuse(core, offer, offer.resources, refuse_s)


def refusal(call: Message) -> float:
    """For how long a call refuses what it does not take [s].

    >>> refusal({}), refusal({"filters": {"refuse_seconds": -1}}), refusal({"filters": {"refuse_seconds": "Infinity"}})
    (5.0, 5.0, 31536000.0)
    """
    seconds: float = field(call, "filters.refuse_seconds", float, REFUSE_S) if "filters" in call else REFUSE_S
    return REFUSE_S if seconds < 0 else min(seconds, REFUSE_MOST_S)


def refuse(core: Core, offer: Offer, resources: Resources, refuse_s: float) -> None:
    """Do not offer these to the framework again for so long [s], and no shorter than until the next allocation."""
    if resources and refuse_s > 0:
        until = core.now + max(core.state.options.allocate_s, refuse_s)
        core.filters.refuse(offer.framework, offer.role, offer.agent, resources, until)


def _described(offer: Offer, agent: AgentRecord) -> Message:
    found = {
        "id": identity(offer.id),
        "framework_id": identity(offer.framework),
        "agent_id": identity(agent.id),
        "hostname": agent.hostname,
        "url": _url(agent),
        "allocation_info": {"role": offer.role},
        "resources": to_json(offer.resources, offer.role),
        "attributes": agent.info.get("attributes", []),
        "executor_ids": [identity(executor) for framework, executor in agent.executors if framework == offer.framework],
    }
    if agent.unavailability is not None:
        found["unavailability"] = agent.unavailability
    return found


def _url(agent: AgentRecord) -> Message:
    """Where the agent is. Some clients read `ip` and fail without it."""
    address = {"hostname": agent.hostname, "port": agent.info.get("port", 5051)}
    ip = agent.ip
    if ip is None:
        with suppress(ValueError):
            ip = str(ipaddress.ip_address(agent.hostname))
    if ip is not None:
        address["ip"] = ip
    return {"scheme": "https" if agent.tls else "http", "address": address, "path": "/slave(1)", "query": []}
