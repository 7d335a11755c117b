"""Nodes behind a pool's agents, and what each offers: offers are withheld until something is launched. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from coscheduler.real.machine import Node
from executors.mesos.codec import Message
from executors.mesos.offered import Need, Offered, all_of, offered
from executors.mesos.resources import NONE, Resources


class Allotment:
    """What the offers of one agent hold together; parts of it are taken, all of it is accepted.

    Parameters
    ----------
    offers
        At least one, all of the same agent.
    """

    def __init__(self, offers: tuple[Offered, ...]) -> None:
        self.ids = tuple(offer.id for offer in offers)
        self.agent = offers[0].agent
        self.left = replace(offers[0], resources=sum((offer.resources for offer in offers), start=NONE))

    def take(self, need: Need) -> Resources | None:
        """Take these amounts out of what is left; None when there is not enough."""
        taken = need.of(self.left.resources)
        if taken is not None:
            self.left = self.left.without(taken)
        return taken


@dataclass(slots=True)
class _Agent:
    node: Node | None = None  # None while it has not offered a whole core
    offers: dict[str, Offered] = field(default_factory=dict)


class Offers:
    """All agents that have offered something and were not lost since.

    A node is the most that its agent has offered at once: what is left after a launch does not change it, and one that
    was offered in part, because others still had the rest, becomes larger.
    """

    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are there, by name."""
        found = (agent.node for agent in self._agents.values() if agent.node is not None)
        return tuple(sorted(found, key=lambda node: node.name))

    def find(self, node: str) -> tuple[str, Node] | None:
        """The agent on a node, and the node; None when it is not there."""
        for name, agent in self._agents.items():
            if agent.node is not None and agent.node.name == node:
                return name, agent.node
        return None

    def offered(self, offer: Message, now: float) -> str:
        """Withhold an offer; returns its agent.

        Parameters
        ----------
        now
            When it came [s].

        Raises
        ------
        BadMessage
            When it is none.
        """
        found = offered(offer, now)
        agent = self._agents.setdefault(found.agent, _Agent())
        agent.offers[found.id] = found
        there = Allotment(tuple(agent.offers.values())).left
        if agent.node is None:
            agent.node = _node(there, self._name(there.hostname or there.agent))
        elif all_of(there.resources).cpus >= agent.node.cores + 1:
            agent.node = _node(there, agent.node.name)
        return found.agent

    def rescinded(self, offer: str) -> None:
        """An offer is void."""
        for agent in self._agents.values():
            agent.offers.pop(offer, None)

    def lost(self, agent: str) -> None:
        """An agent is gone, and its node with it."""
        self._agents.pop(agent, None)

    def void(self) -> None:
        """All offers are void, for the master has begun anew; nodes stay."""
        for agent in self._agents.values():
            agent.offers.clear()

    def look(self, agent: str) -> Allotment | None:
        """What an agent offers now; None for nothing."""
        known = self._agents.get(agent)
        return Allotment(tuple(known.offers.values())) if known is not None and known.offers else None

    def spent(self, allotment: Allotment) -> None:
        """These offers were accepted; what is left of them will be offered again."""
        for offer in allotment.ids:
            self.rescinded(offer)

    def _name(self, hostname: str) -> str:
        """The host's, with a number for the second agent there and others."""
        taken = {node.name for node in self.nodes}
        return next(name for name in _numbered(hostname) if name not in taken)


def _node(offer: Offered, name: str) -> Node | None:
    """None for less than a core."""
    there = all_of(offer.resources)
    return None if there.cpus < 1 else Node(name, int(there.cpus), there.memory, _speed(offer, there.cpus))


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _speed(offer: Offered, cpus: float) -> float:
    """Cores of the processor for each core that is offered; 1 where an agent does not say."""
    return 1.0 if offer.capacity is None else offer.capacity / cpus
