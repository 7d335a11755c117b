"""What the parts of the agent's machine share: the state, the time, and what is to be done."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from executors.mesos.agent.effects import Effect, Up
from executors.mesos.agent.options import Options
from executors.mesos.agent.state import State
from executors.mesos.codec import Message
from executors.mesos.effects import Close, Copy, Keep, Send
from executors.mesos.messages import message
from executors.mesos.timers import Timers


@dataclass(eq=False)
class Core:
    """One call into the machine: parts change `state` and say what is to be done; `Agent` takes it away.

    Parameters
    ----------
    fresh
        Gives 16 bytes that nobody has had before.
    now
        The time of this call [s since the epoch].
    effects
        What is to be done, in order.
    """

    options: Options
    state: State
    fresh: Callable[[], bytes]
    now: float
    timers: Timers = field(default_factory=Timers)
    effects: list[Effect] = field(default_factory=list)

    def do(self, effect: Effect) -> None:
        """Have this done."""
        self.effects.append(effect)

    def send(self, stream: str | None, event: Message) -> None:
        """Say something to an executor; to one that is not connected, nothing."""
        if stream is not None:
            self.effects.append(Send(stream, event))

    def close(self, stream: str | None) -> None:
        """End an executor's stream and forget what it was."""
        if stream is not None:
            self.state.streams.pop(stream, None)
            self.timers.cancel("heartbeat", stream)
            self.effects.append(Close(stream))

    def up(self, kind: str, **payload: Any) -> None:
        """Say something to the master, if it knows us."""
        if self.state.registered:
            self.effects.append(Up(message(kind, **payload)))

    def keep(self, table: str, key: str, row: Message | None, *, copied: bool = False) -> None:
        """Write a row of the journal, or remove it; nothing waits for one that is `copied` (see `Copy`)."""
        self.effects.append((Copy if copied else Keep)(table, key, row))

    def new_id(self) -> str:
        """An id that nobody else has."""
        return str(uuid.UUID(bytes=self.fresh(), version=4))

    def count(self, name: str, by: int = 1) -> None:
        """Add to a metric that only grows."""
        self.state.counters[name] = self.state.counters.get(name, 0) + by

    def taken(self) -> list[Effect]:
        """The effects so far, which are forgotten here."""
        effects, self.effects = self.effects, []
        return effects
