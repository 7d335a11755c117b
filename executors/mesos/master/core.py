"""What the parts of the master's machine share: the state, the time, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass, field

from executors.mesos.codec import Message
from executors.mesos.effects import Close, Copy, Effect, Keep, Send
from executors.mesos.master.filters import Filters
from executors.mesos.master.shares import Usage
from executors.mesos.master.state import Agent, State
from executors.mesos.resources import Resources
from executors.mesos.timers import Timers


@dataclass(eq=False)
class Core:
    """One call into the machine: parts change `state` and say what is to be done; `Master` takes it away.

    Parameters
    ----------
    now
        The time of this call [s since the epoch].
    effects
        What is to be done, in order.
    dirty
        Agents whose free resources have changed: they are allocated before the call ends.
    emptied
        Agents that are drained and have lost a task.
    usage
        Running totals of what registered agents have, and of what is used and offered of it.
    timers
        What is to be looked at later; what has become pointless is not taken back.
    """

    state: State
    filters: Filters = field(default_factory=Filters)
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    timers: Timers = field(default_factory=Timers)
    usage: Usage = field(default_factory=Usage)

    def send(self, stream: str | None, message: Message) -> None:
        """Say something on a stream; to None, who is not connected, nothing."""
        if stream is not None:
            self.effects.append(Send(stream, message))

    def close(self, stream: str | None) -> None:
        """End a stream and forget what it was."""
        if stream is not None:
            self.state.streams.pop(stream, None)
            self.effects.append(Close(stream))

    def keep(self, table: str, key: str, row: Message | None, *, copied: bool = False) -> None:
        """Write a row of the journal, or remove it; nothing waits for one that is `copied` (see `Copy`)."""
        self.effects.append((Copy if copied else Keep)(table, key, row))

    def publish(self, message: Message) -> None:
        """Tell all operators that have subscribed."""
        self.effects += [Send(stream, message) for stream in self.state.operators]

    def count(self, name: str, by: int = 1) -> None:
        """Add to a metric that only grows."""
        self.state.counters[name] = self.state.counters.get(name, 0) + by

    def take(self, agent: Agent, framework: str, role: str, resources: Resources) -> None:
        """A task or an executor uses these."""
        agent.used += resources
        if agent.id in self.state.agents:
            self.usage.took(framework, role, resources)

    def give_back(self, agent: Agent, framework: str, role: str, resources: Resources) -> None:
        """They are free again."""
        agent.used -= resources
        if agent.id in self.state.agents:
            self.usage.gave_back(framework, role, resources)
            self.dirty.add(agent.id)

    def taken(self) -> list[Effect]:
        """The effects so far, which are forgotten here."""
        effects, self.effects = self.effects, []
        return effects
