"""Agents that operators take out of service: deactivated ones get no tasks, drained ones lose those they have, too.

References
----------
Apache Mesos, ``docs/maintenance.md``, section "Automatic Node Draining".
"""

from __future__ import annotations

import math
import re

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import agents, offers, rows, schedule, tasks
from executors.mesos.master.core import Core
from executors.mesos.master.state import Agent
from executors.mesos.messages import TERMINAL, field, value_of

LONGEST_S = 365 * 86400.0
"""Longest grace period that is taken [s]."""

_SECONDS = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")


def drain(core: Core, payload: Message) -> None:
    """DRAIN_AGENT: it gets no tasks any more, and those it has are killed; if it is away, when it comes back.

    Raises
    ------
    BadMessage, HTTPError
        When the agent is not known.
    """
    agent = _known(core, payload)
    config: Message = {"mark_gone": field(payload, "mark_gone", bool, False)}
    grace = _grace(payload)
    if grace is not None:
        seconds, nanos = divmod(grace, 1_000_000_000)
        config["max_grace_period"] = {"seconds": seconds, "nanos": nanos}
    agent.drain = config
    _deactivate(core, agent)
    joined(core, agent)


def deactivate(core: Core, payload: Message) -> None:
    """DEACTIVATE_AGENT: it gets no tasks any more; those it has go on.

    Raises
    ------
    BadMessage, HTTPError
        When the agent is not known.
    """
    _deactivate(core, _known(core, payload))


def reactivate(core: Core, payload: Message) -> None:
    """REACTIVATE_AGENT: it gets tasks again.

    Raises
    ------
    BadMessage, HTTPError
        When the agent is not deactivated, or not drained yet.
    """
    agent = _known(core, payload)
    if agent.active:
        raise HTTPError(400, f"agent {agent.id} is not deactivated")
    if agent.drain is not None and agent.tasks:
        raise HTTPError(400, f"agent {agent.id} is still draining, {len(agent.tasks)} tasks are left: try again later")
    agent.active, agent.drain = True, None
    rows.keep_agent(core, agent)
    core.dirty.add(agent.id)


def joined(core: Core, agent: Agent) -> None:
    """An agent has registered: apply the maintenance schedule, and if it is draining, kill what still runs on it.

    On a machine that is down no agent may be: it has to go.
    """
    if agent.id not in core.state.agents:
        return
    if schedule.is_down(core.state, agent):
        agents.remove(core, agent.id, gone=True)
        return
    schedule.apply(core, agent)
    if agent.drain is not None:
        for task in list(agent.tasks.values()):
            if task.state not in TERMINAL:
                tasks.kill(core, task, _kill_policy(agent.drain, task.info))
        settled(core, agent)


def settled(core: Core, agent: Agent) -> None:
    """An agent may have lost its last task: if it is drained now and to be given up then, it is."""
    if agent.drain is None or agent.tasks or agent.id not in core.state.agents:
        return
    if agent.drain.get("mark_gone"):
        agents.remove(core, agent.id, gone=True)


def _known(core: Core, payload: Message) -> Agent:
    agent_id = value_of(payload, "agent_id")
    for group in (core.state.agents, core.state.recovered, core.state.away):
        if agent_id in group:
            return group[agent_id]
    raise HTTPError(400, f"agent {agent_id!r:.100} is not known")


def _deactivate(core: Core, agent: Agent) -> None:
    agent.active = False
    for offer in [offer for offer in agent.offers.values() if not offer.inverse]:
        offers.rescind(core, offer)
    rows.keep_agent(core, agent)


def _grace(payload: Message) -> int | None:
    """The longest grace period [ns]: a ``google.protobuf.Duration`` (``"5s"``), or a ``DurationInfo`` as elsewhere.

    >>> _grace({"max_grace_period": "1.5s"}), _grace({"max_grace_period": {"nanoseconds": 5}}), _grace({})
    (1500000000, 5, None)
    """
    given = payload.get("max_grace_period")
    if given is None:
        return None
    if isinstance(given, str):
        if not (match := _SECONDS.fullmatch(given)):
            raise BadMessage(f"expected 'max_grace_period' to be seconds like \"5s\", found {given!r:.50}")
        grace = round(float(match[1]) * 1e9)
    else:
        seconds = field(payload, "max_grace_period.seconds", int, 0)
        grace = seconds * 1_000_000_000 + field(payload, "max_grace_period.nanos", int, 0)
        grace += field(payload, "max_grace_period.nanoseconds", int, 0)
    if not 0 <= grace <= LONGEST_S * 1e9:
        raise BadMessage(f"expected 'max_grace_period' to be between 0 s and {LONGEST_S:.0f} s")
    return grace


def _kill_policy(config: Message, info: Message) -> Message | None:
    """The policy that overrides the task's own, if that may take longer than the agent's drain allows."""
    grace = _grace(config)
    if grace is None:
        return None
    try:
        own = field(info, "kill_policy.grace_period.nanoseconds", int, math.inf)
    except BadMessage:
        own = math.inf
    return {"grace_period": {"nanoseconds": min(grace, own)}}
