"""Agents that register: for the first time, or again, with what runs on them."""

from __future__ import annotations

from typing import NamedTuple

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import adoption, agents, offers, rows, views
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import wrong_id
from executors.mesos.master.state import Agent
from executors.mesos.messages import field, identity, message, value_of
from executors.mesos.resources import Kind, Resources, parse


class Claim(NamedTuple):
    """What an agent says of itself, checked; `id` is None for a new one."""

    id: str | None
    info: Message
    own: Resources
    version: str
    ip: str | None
    tls: bool
    until: Message | None
    told: adoption.Told


def register(core: Core, item: Message, stream: str) -> Agent | None:
    """REGISTER: a new agent, or one that comes back and tells what it has. None when it is told to go.

    Raises
    ------
    BadMessage
        When it is malformed; nothing has changed then.
    """
    claim = _checked(item)
    if claim.id in core.state.gone:
        core.send(stream, message("SHUTDOWN", message="this agent was given up: it may come back under a new id only"))
        core.close(stream)
        return None
    agent_id = claim.id or _new_id(core)
    is_listed = agent_id in core.state.agents
    agent = _known(core, agent_id)
    core.count("slave_registrations" if agent is None else "slave_reregistrations")
    if agent is None:
        agent = core.state.recovered[agent_id] = Agent(agent_id, claim.info, claim.own, core.now)
    else:
        agent.reregistered = core.now
    agent.info, agent.version = claim.info | {"id": identity(agent_id)}, claim.version
    agent.ip, agent.tls = claim.ip, claim.tls
    agent.total = reserved_again(agent.total, claim.own)
    if claim.until not in (None, agent.unavailability):
        agent.unavailability = claim.until
        agent.answers.clear()
    _welcome(core, agent, stream)
    adoption.adopt(core, agent, claim.told)
    _join(core, agent)
    if core.state.operators and not is_listed:
        core.publish(views.agent_added(agent, core.state))
    return agent


def _checked(item: Message) -> Claim:
    info = field(item, "agent_info", dict)
    field(info, "hostname", str), field(info, "port", int, 0), field(info, "attributes", list, [])
    agent_id = value_of(info, "id") if "id" in info else None
    if agent_id is not None and (reason := wrong_id(agent_id)):
        raise BadMessage(f"the agent's id {reason}")
    return Claim(
        agent_id,
        info,
        parse(field(info, "resources", list)),
        field(item, "version", str, ""),
        field(item, "ip", str, None),
        field(item, "tls", bool, False),
        agents.unavailability_of(item["unavailability"]) if "unavailability" in item else None,
        adoption.told(item),
    )


def _welcome(core: Core, agent: Agent, stream: str) -> None:
    agent.stream = stream
    core.state.streams[stream] = ("agent", agent.id)
    known, options = identity(agent.id), core.state.options
    core.send(stream, message("REGISTERED", agent_id=known, ping_s=options.ping_s, pings=options.pings))


def _new_id(core: Core) -> str:
    state = core.state
    while True:  # agents bring ids from a master that has forgotten them
        id = f"{state.id}-S{rows.number(core, 'agent')}"
        if not any(id in known for known in (state.agents, state.recovered, state.unreachable, state.gone)):
            return id


def _known(core: Core, agent_id: str) -> Agent | None:
    """What is known of an agent that comes back; until it has told what it has, it is among the recovered ones."""
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
        rows.keep_away(core, "unreachable", agent_id, None)
    return state.recovered.get(agent_id)


def _join(core: Core, agent: Agent) -> None:
    core.state.agents[agent.id] = core.state.recovered.pop(agent.id)
    core.usage.joined(agent)
    core.dirty.add(agent.id)
    rows.keep_agent(core, agent)
    agents.ask_back(core, agent)
    agents.watch(core, agent)


def reserved_again(before: Resources, own: Resources) -> Resources:
    """What an agent has, by its own account, with those reservations made at run time that still fit.

    >>> from executors.mesos.resources import scalars
    >>> one = Resources({Kind("cpus", "hpc", dynamic=True): 1000})
    >>> reserved_again(one + scalars(cpus=1), scalars(cpus=4)) == one + scalars(cpus=3)
    True
    """
    found = own
    for kind, amount in before:
        plain = Resources({Kind(kind.name, revocable=kind.revocable): amount})
        if kind.dynamic and found.covers(plain):
            found = found - plain + Resources({kind: amount})
    return found
