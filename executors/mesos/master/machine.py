"""The master's state machine: calls, what agents say, and the time go in, effects come out. No I/O.

Nothing is half done: a call is refused before it changes anything, or carried out. Resources that become free are
allocated before the call that freed them ends, so offers are events like all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.effects import Effect, Keep
from executors.mesos.master import (
    agents,
    feedback,
    frameworks,
    items,
    maintenance,
    offers,
    operator,
    registration,
    rows,
    views,
)
from executors.mesos.master.allocator import allocate, revisited
from executors.mesos.master.calls import CALLS
from executors.mesos.master.core import Core
from executors.mesos.master.shares import Usage
from executors.mesos.master.state import Agent, Framework, Options, State
from executors.mesos.messages import field, message, value_of

_DUE: dict[str, Callable[..., None]] = {
    "agent": agents.ping,
    "framework": frameworks.expire,
    "operation": feedback.retry,
    "recovered": agents.expire_recovered,
}
"""What is looked at when a timer of that name is due, by ids."""


class Master:
    """All frameworks and agents of one pool.

    Parameters
    ----------
    id
        Nobody else's; ids of frameworks, agents and offers begin with it.
    now
        When the master is started [s since the epoch].
    rows
        What the journal has from before, in any order.
    """

    def __init__(self, id: str, options: Options, now: float, rows: Iterable[Keep] = ()) -> None:
        self._core = Core(State(id, options, now), now=now)
        self._allocate_at = now + options.allocate_s
        _restore(self._core, rows)

    @property
    def state(self) -> State:
        """What it knows; to be read only."""
        return self._core.state

    def subscribe(self, call: Message, principal: str | None, stream: str, now: float) -> list[Effect]:
        """A scheduler's SUBSCRIBE; `stream` is the id of its stream, which must be open.

        Raises
        ------
        HTTPError
            When the stream should not be opened at all.
        """
        with self._call(now) as core:
            frameworks.subscribe(core, call, principal, stream)
            core.count("messages_register_framework" if "framework_id" not in call else "messages_reregister_framework")
        return self._effects()

    def call(self, call: Message, principal: str | None, stream: str | None, now: float) -> list[Effect]:
        """Any other call of a scheduler; `stream` is the Mesos-Stream-Id that it came with.

        Raises
        ------
        HTTPError
            When it is none, or not this scheduler's to make.
        """
        with self._call(now) as core:
            kind = field(call, "type", str)
            if kind not in CALLS:
                raise HTTPError(400 if kind == "SUBSCRIBE" else 501, f"call {kind!r:.50} is not supported here")
            framework = self._caller(call, principal, stream)
            part, counter = CALLS[kind]
            part(core, framework, field(call, kind.lower(), dict, {}))
            if counter is not None:
                core.count("messages_" + counter)
        return self._effects()

    def register(self, item: Message, stream: str, now: float) -> list[Effect]:
        """An agent's REGISTER; `stream` is the id of its stream, which must be open.

        Raises
        ------
        HTTPError
            When it is malformed.
        """
        with self._call(now) as core:
            agent = registration.register(core, field(item, "register", dict), stream)
            if agent is not None:
                maintenance.joined(core, agent)
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
                with self._call(now) as core:
                    items.hear(core, self._agent_of(stream), item)
            except Exception as error:
                problem = error
        return self._effects(), problem

    def watch(self, stream: str, now: float) -> list[Effect]:
        """An operator's SUBSCRIBE."""
        with self._call(now) as core:
            core.send(stream, views.subscribed(core.state))
            core.send(stream, message("HEARTBEAT"))
            core.state.streams[stream] = ("operator", "")
            core.state.operators.add(stream)
        return self._effects()

    def operate(self, call: Message, principal: str | None, now: float) -> tuple[Message | None, list[Effect]]:
        """Any other call of an operator: the answer, if there is one.

        Raises
        ------
        HTTPError
            When it is none, or cannot be done.
        """
        with self._call(now) as core:
            answer = operator.operate(core, call, principal)
            if operator.needs_write(call):  # whatever it has changed: such calls are rare
                turns, core.usage = core.usage.turns, Usage.of(core.state)
                core.usage.turns = turns
                self._allocate(None)
        return answer, self._effects()

    def closed(self, stream: str, now: float) -> list[Effect]:
        """A stream is closed, whoever's it was."""
        with self._call(now) as core:
            kind, id = core.state.streams.pop(stream, ("", ""))
            core.state.operators.discard(stream)
            if kind == "framework":
                frameworks.disconnected(core, core.state.frameworks[id])
            elif kind == "agent":
                agents.disconnected(core, core.state.agents[id])
        return self._effects()

    def wake(self, now: float) -> list[Effect]:
        """Time has passed."""
        with self._call(now) as core:
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
        core = self._core
        offer = offers.oldest(core)
        return min(core.timers.due(), self._allocate_at, math.inf if offer is None else offers.deadline(core, offer))

    @contextmanager
    def _call(self, now: float) -> Iterator[Core]:
        self._core.now = now
        try:
            yield self._core
        except BadMessage as error:
            raise HTTPError(400, str(error)) from None

    def _effects(self) -> list[Effect]:
        core = self._core
        while core.emptied:
            agent = core.state.agents.get(core.emptied.pop())
            if agent is not None:
                maintenance.settled(core, agent)
        if core.dirty:
            self._allocate(core.dirty)
        return core.taken()

    def _allocate(self, names: set[str] | None) -> None:
        core = self._core
        grants = allocate(core.state, core.filters, core.now, names, core.usage)
        core.dirty = set()
        offers.make(core, grants)

    def _agent_of(self, stream: str) -> Agent:
        kind, agent_id = self._core.state.streams.get(stream, ("", ""))
        if kind != "agent":
            raise HTTPError(403, "this stream is not an agent's, or not any more: register first")
        agent = self._core.state.agents[agent_id]
        agent.unanswered = 0
        return agent

    def _caller(self, call: Message, principal: str | None, stream: str | None) -> Framework:
        framework = self._core.state.frameworks.get(value_of(call, "framework_id"))
        if framework is None:
            raise HTTPError(400, "Framework cannot be found")
        if principal is not None and framework.principal not in (None, principal):
            raise HTTPError(400, f"framework {framework.id!r} belongs to another principal")
        if framework.stream is None:
            raise HTTPError(403, "Framework is not subscribed")
        if stream != framework.stream:
            raise HTTPError(400, "The stream ID in the 'Mesos-Stream-Id' header is not that of this framework's stream")
        return framework


def _restore(core: Core, kept: Iterable[Keep]) -> None:
    state = core.state
    rows.restore(state, kept)
    for framework in state.frameworks.values():
        frameworks.await_return(core, framework)
        feedback.resume(core, framework)
    if state.recovered:
        core.timers.at(("recovered",), core.now + state.options.agent_reregister_s)
