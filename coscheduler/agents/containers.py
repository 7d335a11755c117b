"""Containers of a framework: asked for, launched when their node offers, running, ended. No I/O; time is an argument.

Calls and events go in; decisions for a driver come out, and `news` collects what happened to containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from asa.core.errors import InvalidInput
from asa.core.units import MIB
from coscheduler.real.machine import ContainerEnded, ContainerEvent, ContainerProgram, ContainerStarted, SharedNode
from executors.mesos.codec import Message
from executors.mesos.framework import (
    Accept,
    Kill,
    Offered,
    Reconcile,
    TaskNeed,
    TaskProgram,
    all_of,
    parse_offer,
    task_info,
)
from executors.mesos.messages import TERMINAL, value_of
from executors.mesos.messages import field as field_of
from executors.mesos.resources import LEAST_CPUS, NONE, THOUSAND, Resources


class Allotment:
    """The offers of one agent together; parts of them are taken, all are accepted."""

    def __init__(self, offers: tuple[Offered, ...]) -> None:
        self.ids = tuple(offer.id for offer in offers)
        self.agent = offers[0].agent
        self.left = replace(offers[0], resources=sum((offer.resources for offer in offers), start=NONE))

    def take(self, need: TaskNeed) -> Resources | None:
        """Take these amounts out of what is left; None when there is not enough."""
        taken = need.of(self.left.resources)
        if taken is not None:
            self.left = self.left.without(taken)
        return taken


@dataclass(slots=True)
class _OfferingAgent:
    node: SharedNode | None = None  # None while it has not offered a whole core
    most: int = 0  # cores that it had when it was taken over
    offers: dict[str, Offered] = field(default_factory=dict)


class Offers:
    """Agents that have offered something and were not lost since.

    A node's size is the most that its agent has offered at once: a launch does not change it, and a node that was
    offered in part, because others still had the rest, becomes larger. One that was taken over becomes as large as it
    was, as far as what it offers, with what our containers there take, comes to that.
    """

    def __init__(self) -> None:
        self._agents: dict[str, _OfferingAgent] = {}

    @property
    def nodes(self) -> tuple[SharedNode, ...]:
        """The nodes that are there, by name."""
        found = (agent.node for agent in self._agents.values() if agent.node is not None)
        return tuple(sorted(found, key=lambda node: node.name))

    def find(self, node: str) -> tuple[str, SharedNode] | None:
        """The agent on a node, and the node; None when it is not there."""
        for name, agent in self._agents.items():
            if agent.node is not None and agent.node.name == node:
                return name, agent.node
        return None

    def take_over(self, node: SharedNode, cores: int) -> None:
        """A node that was this, and of which our containers have so many cores."""
        self._agents[node.agent] = _OfferingAgent(replace(node, cores=cores), node.cores)

    def offered(self, offer: Message, now: float, taken: Callable[[str], float] = lambda agent: 0.0) -> str:
        """Withhold an offer; returns its agent. `taken` says what our containers on an agent take."""
        found = parse_offer(offer, now)
        agent = self._agents.setdefault(found.agent, _OfferingAgent())
        agent.offers[found.id] = found
        there = Allotment(tuple(agent.offers.values())).left
        if agent.node is None:
            agent.node = _node(there, self._name(there.hostname or there.agent))
        elif (whole := int(all_of(there.resources).cpus + taken(found.agent) + _NEAR)) > agent.node.cores < agent.most:
            agent.node = replace(agent.node, cores=min(whole, agent.most))
        elif all_of(there.resources).cpus >= agent.node.cores + 1:
            agent.node = _node(there, agent.node.name)
        return found.agent

    def rescinded(self, offer: str) -> None:
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


def _node(offer: Offered, name: str) -> SharedNode | None:
    """None for less than a core."""
    there = all_of(offer.resources)
    if there.cpus < 1:
        return None
    return SharedNode(name, int(there.cpus), there.memory, _speed(offer, there.cpus), offer.agent)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _speed(offer: Offered, cpus: float) -> float:
    """Cores of the processor for each core that is offered; 1 where an agent does not say."""
    return 1.0 if offer.capacity is None else offer.capacity / cpus


_MEMORY_PARTS = 100


def need_of(node: SharedNode, request: float, limit: float) -> TaskNeed:
    """What the master counts of a node for a container: its request, in cores of the processor, and a little memory.

    It is rounded down, so that requests that fill a node fit, and is never more than the limit, which masters refuse.

    Examples
    --------
    >>> need_of(SharedNode("a", 1, 1 << 30, speed=0.25), request=0.9, limit=1.0)
    TaskNeed(cpus=0.225, memory=10485760, gpus=0)
    >>> need_of(SharedNode("a", 1, 1 << 30), request=0.9, limit=0.5).cpus
    0.5
    """
    cores = min(request * min(node.speed, 1.0), limit * node.speed)
    cpus = math.floor(cores * THOUSAND + 1e-6) / THOUSAND
    memory = node.memory // _MEMORY_PARTS // MIB * MIB
    return TaskNeed(max(cpus, LEAST_CPUS), memory or min(node.memory, MIB))


def command_task(
    name: str, offer: Offered, program: ContainerProgram, taken: Resources, limit: float | None
) -> Message:
    """The TaskInfo of a container.

    Parameters
    ----------
    limit
        Cores of the processor; infinite, or None, for no limit. Memory has none.
    """
    variables = tuple(program.environment.items())
    info = task_info(name, name, offer, TaskProgram(program.argv, variables), taken)
    most = "Infinity" if limit is None or math.isinf(limit) else limit
    return info | {"limits": {"cpus": {"value": most}, "mem": {"value": "Infinity"}}}


PATIENCE_S = 30.0
"""How long a container waits for its node to offer what it requests [s]."""

_NEAR = 0.001  # resources are counted in thousandths
_LOST = frozenset("TASK_" + word for word in ("LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR", "UNREACHABLE", "UNKNOWN"))
# A container that was ended for such a reason has done nothing wrong: its agent, or its framework, is no more.
_NOT_ITS_FAULT = frozenset(
    "REASON_" + word for word in ("AGENT_DRAINING", "AGENT_REMOVED", "AGENT_REMOVED_BY_OPERATOR", "FRAMEWORK_REMOVED")
)
# Its agent is no more, for all that the master says.
_AWAY = frozenset("TASK_" + word for word in ("UNREACHABLE", "UNKNOWN", "GONE_BY_OPERATOR"))
_KILLED = "terminated with signal Killed"  # how agents put it, those of Mesos too: no field says so


class ShareCall(NamedTuple):
    """What an agent shall give a container.

    Parameters
    ----------
    agent, id
        The agent, and the container's name there.
    request, limit
        Cores of the processor; a limit is infinite for none, and None to leave it as it is.
    until
        When that is over [s]; None for good.
    """

    agent: str
    id: str
    request: float
    limit: float | None
    until: float | None


class HoldCall(NamedTuple):
    """How much memory a container may have before it is held up [bytes], for so long [s]; None for any amount, and for
    good."""

    agent: str
    id: str
    memory: int | None
    lease_s: float | None = None


class SignalCall(NamedTuple):
    """A signal for a container."""

    agent: str
    id: str
    name: str


AgentDecision = Accept | Kill | Reconcile | ShareCall | HoldCall | SignalCall


@dataclass(slots=True)
class _AgentContainer:
    agent: str
    node: SharedNode
    program: ContainerProgram
    request: float
    limit: float
    asked: float
    launched: bool = False
    taken_over: bool = False
    asked_after: bool = False  # the master was asked about it, and has not answered yet
    stopped: bool = False
    id: str = ""  # the agent's name for it, once it runs
    shares: list[tuple[float, float | None, float | None]] = field(default_factory=list)  # for when it runs

    def share(self, request: float, limit: float | None, until: float | None) -> ShareCall:
        """The call, in cores of the processor."""
        speed = self.node.speed
        most = None if limit is None else math.inf if limit >= self.node.cores else max(limit * speed, LEAST_CPUS)
        return ShareCall(self.agent, self.id, max(request * speed, LEAST_CPUS), most, until)


class AgentContainers:
    """The containers that were asked for and have not ended, and the offers that they are launched with. With
    `takes_over`, others of this framework may run: they are ended."""

    def __init__(self, *, takes_over: bool = False) -> None:
        self._takes_over = takes_over
        self.offers = Offers()
        self.news: list[ContainerEvent] = []
        self._all: dict[str, _AgentContainer] = {}
        self._ended: set[str] = set()

    # ------------------------------------------------------- the co-scheduler

    def start(
        self, name: str, node: str, program: ContainerProgram, request: float, limit: float, *, now: float
    ) -> list[AgentDecision]:
        """Start a container, as `SharedMachine.start` has it.

        Raises `InvalidInput` when there is or was a container of this name, or request or limit are out of range.
        """
        if name in self._all or name in self._ended:
            raise InvalidInput(f"container {name!r} was started before: give each one a name of its own")
        found = self.offers.find(node)
        if found is None:
            self._end(name, f"node {node!r} is not there any more", lost=True)
            return []
        agent, there = found
        if not 0 < request <= there.cores or not limit > 0:
            raise InvalidInput(
                f"container {name!r} requests {request:g} cores with a limit of {limit:g}: expected a request of at "
                f"most the {there.cores} cores of node {node!r}, and a limit above 0"
            )
        self._all[name] = _AgentContainer(agent, there, program, request, limit, now)
        return self._launch(agent)

    def take_over(self, name: str, node: SharedNode, request: float) -> None:
        """A container that another co-scheduler has started on this node, with this request."""
        nothing = ContainerProgram((), {})
        self._all[name] = _AgentContainer(
            node.agent, node, nothing, request, float(node.cores), 0.0, launched=True, taken_over=True
        )

    def stop(self, name: str) -> list[AgentDecision]:
        """End a container; nothing happens when it has ended."""
        container = self._all.get(name)
        if container is None:
            return []
        container.stopped = True
        if container.launched:
            return [Kill(name, container.agent)]
        self._end(name)
        return []

    def share(self, name: str, request: float, limit: float, until: float | None) -> list[AgentDecision]:
        """Change what a container may have until then [s], or for good; one that does not run yet has it when it does.

        Raises `InvalidInput` when there was no container of this name.
        """
        container = self._all.get(name)
        if container is None:
            if name not in self._ended:
                raise InvalidInput(f"there is no container {name!r}: start it first")
            return []
        if container.id:
            return [container.share(request, limit, until)]
        # What was said before for the same time is void, and what is for good ends a lease, too.
        lasting = [each for each in container.shares if until is not None and each[2] is None]
        container.shares = [*lasting, (request, limit, until)]
        return []

    def hold_memory(self, name: str, memory: int | None, lease_s: float | None) -> list[AgentDecision]:
        container = self._all.get(name)
        there = container is not None and container.id
        return [HoldCall(container.agent, container.id, memory, lease_s)] if container is not None and there else []

    def signal(self, name: str, signal: str) -> list[AgentDecision]:
        container = self._all.get(name)
        return [SignalCall(container.agent, container.id, signal)] if container is not None and container.id else []

    def running(self) -> dict[str, str]:
        return {name: container.agent for name, container in self._all.items() if container.id}

    def left(self) -> list[str]:
        return list(self._all)

    # ------------------------------------------------------- the master

    def subscribed(self) -> list[AgentDecision]:
        """Subscribed, perhaps again: offers are void, and calls may have been lost."""
        self.offers.void()
        there = [(name, container) for name, container in self._all.items() if container.launched]
        for _, container in there:
            container.asked_after = True
        kills: list[AgentDecision] = [Kill(name, container.agent) for name, container in there if container.stopped]
        asked = [Reconcile(tuple((name, container.agent) for name, container in there))] if there else []
        return [*kills, *asked, *([Reconcile(())] if self._takes_over else [])]

    def offered(self, offers: Iterable[Message], now: float) -> list[AgentDecision]:
        """Withhold offers, and launch what has waited for them.

        A master that was started again does not answer for agents that are not back yet. One that offers something is
        back: its containers that were launched while there was no master are reconciled once more, or their ends would
        never be reported.
        """
        agents = dict.fromkeys(self.offers.offered(offer, now, self._taken) for offer in offers)
        silent = tuple((name, it.agent) for name, it in self._all.items() if it.asked_after and it.agent in agents)
        asked: list[AgentDecision] = [Reconcile(silent)] if silent else []
        return asked + [decision for agent in agents for decision in self._launch(agent)]

    def update(self, status: Message) -> list[AgentDecision]:
        name, state = value_of(status, "task_id"), field_of(status, "state", str)
        container = self._all.get(name)
        if container is None:
            alive = state not in TERMINAL and state not in _LOST
            return [Kill(name, value_of(status, "agent_id", ""))] if alive else []
        container.asked_after = False
        if state == "TASK_RUNNING":
            return self._runs(name, container, status)
        if state in TERMINAL or state in _LOST:
            return self._ends(name, container, state, status)
        return []

    def refused(self, call: Message, reason: str) -> None:
        """The master refuses a call: what it should have launched is not launched."""
        for operation in field_of(call, "accept.operations", list, []):
            for info in field_of(operation, "launch.task_infos", list, []):
                self._end(value_of(info, "task_id"), f"the master has refused it: {reason}")

    def lost(self, agent: str) -> None:
        """An agent is gone, with all that was on it."""
        self.offers.lost(agent)
        for name in [name for name, container in self._all.items() if container.agent == agent]:
            self._end(name, f"node {self._all[name].node.name!r} was lost", lost=True)

    def over(self, reason: str) -> None:
        """The framework is no more: nothing of it runs, and there are no nodes."""
        self.offers = Offers()
        for name in self.left():
            self._end(name, reason, lost=True)

    # ------------------------------------------------------- time

    def due(self) -> float:
        """When `wake` is to be called [s]; infinite for never."""
        waiting = (container.asked for container in self._all.values() if not container.launched)
        return min(waiting, default=math.inf) + PATIENCE_S

    def wake(self, now: float) -> None:
        """Fail those that have waited for too long."""
        for name, container in list(self._all.items()):
            if not container.launched and now >= container.asked + PATIENCE_S:
                there = self.offers.look(container.agent)
                cores = 0.0 if there is None else there.left.resources.scalar("cpus")
                self._end(
                    name,
                    f"node {container.node.name!r} did not offer {container.request:g} cores within {PATIENCE_S:g} s "
                    f"(it offers {cores:g}): start it where fewer cores are requested",
                )

    # ------------------------------------------------------- inside

    def _launch(self, agent: str) -> list[AgentDecision]:
        """Launch what waits for this agent, as far as it fits, at once: accepted offers are gone."""
        waiting = {name: item for name, item in self._all.items() if item.agent == agent and not item.launched}
        allotment = self.offers.look(agent) if waiting else None
        if allotment is None:
            return []
        tasks = [task for name, item in waiting.items() if (task := _task(name, item, allotment)) is not None]
        if not tasks:
            return []
        for task in tasks:
            self._all[value_of(task, "task_id")].launched = True
        self.offers.spent(allotment)
        return [Accept(allotment.ids, tuple(tasks))]

    def _runs(self, name: str, container: _AgentContainer, status: Message) -> list[AgentDecision]:
        if container.id:  # a repetition
            return []
        container.id = value_of(status, "container_status.container_id", name)
        self.news.append(ContainerStarted(name))
        shares = container.shares
        counted = need_of(container.node, container.request, container.limit).cpus
        if counted + _NEAR < container.request * container.node.speed:  # its weight follows what the master has counted
            shares = [(container.request, None, None), *shares]
        container.shares = []
        found: list[AgentDecision] = [container.share(*share) for share in shares]
        # What the one before has held back is let go: the next look at memory says anew what is.
        return [HoldCall(container.agent, container.id, None), *found] if container.taken_over else found

    def _taken(self, agent: str) -> float:
        """Cores of an agent that containers take, as the master counts them."""
        there = [item for item in self._all.values() if item.agent == agent and item.launched]
        return sum(need_of(item.node, item.request, item.limit).cpus for item in there)

    def _ends(self, name: str, container: _AgentContainer, state: str, status: Message) -> list[AgentDecision]:
        reason = field_of(status, "reason", str, "")
        again = not (container.stopped or container.taken_over)
        if reason == "REASON_INVALID_OFFERS" and again:  # rescinded while the call was on its way
            container.launched = False
            return self._launch(container.agent)
        lost = state in _LOST or reason in _NOT_ITS_FAULT
        lost |= container.taken_over and state == "TASK_KILLED" and not container.stopped  # by the one before
        ended: float | None = field_of(status, "timestamp", float, None) if container.taken_over and not lost else None
        text = field_of(status, "message", str, "") or state
        if state == "TASK_FINISHED" or (container.stopped and not lost):
            self._end(name, ended=ended)
        elif lost:
            self._end(name, f"node {container.node.name!r} or its agent was lost: {text}", lost=True)
            if container.taken_over and state in _AWAY:  # no message reports that agent as lost
                self.lost(container.agent)
        else:
            self._end(name, text, killed=text.endswith(_KILLED), ended=ended)
        return []

    def _end(
        self, name: str, problem: str = "", *, lost: bool = False, killed: bool = False, ended: float | None = None
    ) -> None:
        container = self._all.pop(name, None)
        if container is not None and container.stopped and not lost:
            problem = ""
        if name not in self._ended:
            self._ended.add(name)
            self.news.append(ContainerEnded(name, problem, lost, killed, ended))


def _task(name: str, container: _AgentContainer, allotment: Allotment) -> Message | None:
    taken = allotment.take(need_of(container.node, container.request, container.limit))
    if taken is None:
        return None
    return command_task(
        name, allotment.left, container.program, taken, container.share(container.request, container.limit, None).limit
    )
