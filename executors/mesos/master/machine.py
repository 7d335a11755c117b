"""The master's state machine: calls, what agents say, and the time go in, effects come out. No I/O.

Nothing is half done: a call is refused before it changes anything, or carried out. Resources that become free are
allocated before the call that freed them ends, so offers are events like all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import Effect, KeepRow
from executors.mesos.master import agents, frameworks, launch, offers, operator, tasks, views
from executors.mesos.master.allocator import RoleUsage, allocate, revisited
from executors.mesos.master.core import Core, restore
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState
from executors.mesos.messages import field, identity, message, value_of


class Master:
    """All frameworks and agents of one pool. Ids of frameworks, agents and offers begin with its own `id`."""

    def __init__(self, id: str, options: MasterOptions, now: float, rows: Iterable[KeepRow] = ()) -> None:
        self.core = Core(MasterState(id, options, now), now=now)
        self._allocate_at = now + options.allocate_s
        _restore(self.core, rows)

    @property
    def state(self) -> MasterState:
        """What it knows; to be read only."""
        return self.core.state

    def subscribe(self, call: Message, principal: str | None, stream: str, now: float) -> list[Effect]:
        """A scheduler's SUBSCRIBE; `stream` is the id of its stream, which must be open.

        Raises `HTTPError` when the stream should not be opened at all.
        """
        core = self._at(now)
        frameworks.subscribe(core, call, principal, stream)
        core.state.arrivals += 1
        return self._effects()

    def call(self, call: Message, principal: str | None, stream: str | None, now: float) -> list[Effect]:
        """Any other call of a scheduler; `stream` is the Mesos-Stream-Id that it came with.

        Raises `HTTPError` when it is none, or not this scheduler's to make.
        """
        core = self._at(now)
        kind = field(call, "type", str)
        if kind not in CALLS:
            raise HTTPError(400 if kind == "SUBSCRIBE" else 501, f"call {kind!r:.50} is not supported here")
        framework = self._caller(call, principal, stream)
        CALLS[kind](core, framework, field(call, kind.lower(), dict, {}))
        return self._effects()

    def register(self, item: Message, stream: str, now: float) -> list[Effect]:
        """An agent's REGISTER; `stream` is the id of its stream, which must be open. Raises `HTTPError` when it is
        malformed.
        """
        core = self._at(now)
        agents.register(core, field(item, "register", dict), stream)
        return self._effects()

    def from_agent(self, stream: str, said: Iterable[Message], now: float) -> tuple[list[Effect], Exception | None]:
        """What an agent says at once, item by item; what all of it has freed is allocated together.

        Returns
        -------
        list of Effect
        Exception or None
            Why an item was not taken, the last such: 400 when it is malformed, 403 when the agent is not registered.
            What came with it is not to blame, and is carried out.
        """
        problem: Exception | None = None
        for item in said:
            try:
                core = self._at(now)
                _from_agent(core, self._agent_of(stream), item)
            except Exception as error:
                problem = error
        return self._effects(), problem

    def watch(self, stream: str, now: float) -> list[Effect]:
        core = self._at(now)
        interval = core.state.options.heartbeat_s
        subscribed = message("SUBSCRIBED", get_state=views.state(core.state), heartbeat_interval_seconds=interval)
        core.send(stream, subscribed)
        core.send(stream, message("HEARTBEAT"))
        core.state.streams[stream] = ("operator", "")
        core.state.operators.add(stream)
        return self._effects()

    def operate(self, call: Message, now: float) -> tuple[Message | None, list[Effect]]:
        """Any other call of an operator: the answer, if there is one; raises `HTTPError` when it cannot be done."""
        core = self._at(now)
        answer = operator.operate(core, call)
        if operator.needs_write(call):  # whatever it has changed: such calls are rare
            turns, core.usage = core.usage.turns, RoleUsage.of(core.state)
            core.usage.turns = turns
            self._allocate(None)
        return answer, self._effects()

    def closed(self, stream: str, now: float) -> list[Effect]:
        """A stream is closed: a framework's, an agent's or an operator's."""
        core = self._at(now)
        kind, id = core.state.streams.pop(stream, ("", ""))
        core.state.operators.discard(stream)
        if kind == "framework":
            frameworks.disconnected(core, core.state.frameworks[id])
        elif kind == "agent":
            agents.disconnected(core, core.state.agents[id])
        return self._effects()

    def wake(self, now: float) -> list[Effect]:
        core = self._at(now)
        for what, *ids in core.timers.expired(now):
            _DUE[what](core, *ids)
        offers.expire(core)
        if now >= self._allocate_at:
            self._allocate_at = now + core.state.options.allocate_s
            agents_again = revisited(core.state, core.filters, now)
            if agents_again is None:
                self._allocate(None)
            else:
                core.dirty |= agents_again
        return self._effects()

    def due(self) -> float:
        """When to wake it next, at the latest [s since the epoch]."""
        core = self.core
        offer = offers.oldest(core)
        return min(core.timers.due(), self._allocate_at, math.inf if offer is None else offers.deadline(core, offer))

    def _at(self, now: float) -> Core:
        self.core.now = now
        return self.core

    def _effects(self) -> list[Effect]:
        core = self.core
        while core.emptied:
            agent = core.state.agents.get(core.emptied.pop())
            if agent is not None:
                agents.drained(core, agent)
        if core.dirty:
            self._allocate(core.dirty)
        return core.take_effects()

    def _allocate(self, names: set[str] | None) -> None:
        core = self.core
        grants = allocate(core.state, core.filters, core.now, names, core.usage)
        core.dirty = set()
        offers.make(core, grants)

    def _agent_of(self, stream: str) -> AgentRecord:
        kind, agent_id = self.core.state.streams.get(stream, ("", ""))
        if kind != "agent":
            raise HTTPError(403, "this stream is not an agent's, or not any more: register first")
        agent = self.core.state.agents[agent_id]
        agent.unanswered = 0
        return agent

    def _caller(self, call: Message, principal: str | None, stream: str | None) -> FrameworkRecord:
        framework = self.core.state.frameworks.get(value_of(call, "framework_id"))
        if framework is None:
            raise HTTPError(400, "Framework cannot be found")
        if principal is not None and framework.principal not in (None, principal):
            raise HTTPError(400, f"framework {framework.id!r} belongs to another principal")
        if framework.stream is None:
            raise HTTPError(403, "Framework is not subscribed")
        if stream != framework.stream:
            raise HTTPError(400, "The stream ID in the 'Mesos-Stream-Id' header is not that of this framework's stream")
        return framework


def _restore(core: Core, kept: Iterable[KeepRow]) -> None:
    state = core.state
    restore(state, kept)
    for framework in state.frameworks.values():
        frameworks.await_return(core, framework)
    if state.recovered:
        core.timers.at(("recovered",), core.now + state.options.agent_reregister_s)


# ---------------------------------------------------------------------- calls of schedulers, but for SUBSCRIBE


CallHandler = Callable[[Core, FrameworkRecord, Message], None]
"""Takes the call's payload; raises `BadMessage` before it changes anything."""


def _teardown(core: Core, framework: FrameworkRecord, call: Message) -> None:
    frameworks.remove(core, framework, "")


def _kill(core: Core, framework: FrameworkRecord, call: Message) -> None:
    task_id = value_of(call, "task_id")
    agent_id = value_of(call, "agent_id") if "agent_id" in call else None
    kill_policy = field(call, "kill_policy", dict, None)
    task = framework.tasks.get(task_id) or framework.unreachable.get(task_id)
    if task is not None and agent_id in (None, task.agent):
        tasks.kill(core, task, kill_policy)
    if task is None or task.id not in framework.tasks or agent_id not in (None, task.agent):
        tasks.answer(core, framework, task_id, agent_id)


def _shutdown(core: Core, framework: FrameworkRecord, call: Message) -> None:
    executor_id, agent_id = value_of(call, "executor_id"), value_of(call, "agent_id")
    if agent := core.state.agents.get(agent_id):
        ids = {"framework_id": identity(framework.id), "executor_id": identity(executor_id)}
        core.send(agent.stream, message("SHUTDOWN_EXECUTOR", **ids))


def _message(core: Core, framework: FrameworkRecord, call: Message) -> None:
    executor_id, agent_id = value_of(call, "executor_id"), value_of(call, "agent_id")
    data = field(call, "data", str)
    if agent := core.state.agents.get(agent_id):
        ids = {"framework_id": identity(framework.id), "executor_id": identity(executor_id)}
        core.send(agent.stream, message("MESSAGE", **ids, data=data))


def _request(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """What a framework wishes for; Mesos' allocator does not listen, either."""


CALLS: dict[str, CallHandler] = {
    "TEARDOWN": _teardown,
    "ACCEPT": launch.accept,
    "DECLINE": offers.decline,
    "REVIVE": frameworks.revive,
    "SUPPRESS": frameworks.suppress,
    "KILL": _kill,
    "SHUTDOWN": _shutdown,
    "ACKNOWLEDGE": tasks.acknowledge,
    "RECONCILE": tasks.reconcile,
    "MESSAGE": _message,
    "REQUEST": _request,
    "UPDATE_FRAMEWORK": frameworks.update,
}


_DUE: dict[str, Callable[..., None]] = {
    "agent": agents.ping,
    "framework": frameworks.expire,
    "recovered": agents.expire_recovered,
}
"""What is looked at when a timer of that name is due, by ids."""


# ---------------------------------------------------------------------- what agents say (`agent_protocol`)


def _from_agent(core: Core, agent: AgentRecord, item: Message) -> None:
    """An item from a registered agent; raises `BadMessage` or `HTTPError` when it is malformed or unknown."""
    kind = field(item, "type", str)
    payload = field(item, kind.lower(), dict, {})
    if kind in ("UPDATE", "MESSAGE"):
        framework_id = value_of(payload, "framework_id")
        framework = core.state.frameworks.get(framework_id)
        if framework is None:
            if kind == "MESSAGE" or not tasks.ends_orphan(core, agent, framework_id, payload):
                core.send(agent.stream, message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework_id)))
        elif kind == "UPDATE":
            tasks.update(core, framework, agent, payload)
        else:
            said = {"agent_id": identity(agent.id), "executor_id": identity(value_of(payload, "executor_id"))}
            core.send(framework.stream, message("MESSAGE", **said, data=field(payload, "data", str, "")))
    elif kind == "EXITED_EXECUTOR":
        agents.exited(core, agent, payload)
    elif kind == "UNREGISTER":
        agents.remove(core, agent.id, gone=True, state="TASK_GONE")
    elif kind != "PONG":
        raise HTTPError(400, f"an agent does not say {kind!r:.50}")
