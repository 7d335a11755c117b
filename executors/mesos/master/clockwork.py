"""The machine that is served, and its time: it is woken when it has something to do."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Never, Protocol

from executors.mesos.codec import Message
from executors.mesos.commit import GroupCommit
from executors.mesos.effects import Effect
from executors.mesos.master.state import State

_SOONEST_S, _LATEST_S, _AGAIN_S = 0.001, 600.0, 1.0

_log = logging.getLogger(__name__)


class Machine(Protocol):
    """What the server needs of `executors.mesos.master.machine.Master`; any call may raise BadMessage or Refused."""

    @property
    def state(self) -> State: ...
    def subscribe(self, call: Message, principal: str | None, stream: str, now: float) -> list[Effect]: ...
    def call(self, call: Message, principal: str | None, stream: str | None, now: float) -> list[Effect]: ...
    def register(self, item: Message, stream: str, now: float) -> list[Effect]: ...
    def from_agent(self, stream: str, item: Any, now: float, *, more: bool = False) -> list[Effect]: ...
    def watch(self, stream: str, now: float) -> list[Effect]: ...
    def operate(self, call: Message, principal: str | None, now: float) -> tuple[Message | None, list[Effect]]: ...
    def closed(self, stream: str, now: float) -> list[Effect]: ...
    def wake(self, now: float) -> list[Effect]: ...
    def due(self) -> float: ...


class Clockwork:
    """Wakes a machine, with one timer. While the journal cannot be written, the machine sleeps.

    Parameters
    ----------
    machine
        What to wake.
    commit
        Carries out what it wants done then.
    """

    def __init__(self, machine: Machine, commit: GroupCommit[Never]) -> None:
        self._machine, self._commit = machine, commit
        self._loop = asyncio.get_running_loop()
        # The machine's clock may be set while the machine runs; people and programs count on time that goes on evenly.
        self._epoch = time.time() - time.monotonic()
        self._asking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings = 0.0
        self._stopped = False

    def now(self) -> float:
        """Seconds since the epoch, never backwards [s]."""
        return self._epoch + time.monotonic()

    def arm(self) -> None:
        """The machine has done something: ask it once, soon, when it wants to be woken."""
        if self._asking is None and not self._stopped:
            self._asking = self._loop.call_soon(self._ask)

    def stop(self) -> None:
        """Wake it no more."""
        self._stopped = True
        for handle in (self._asking, self._timer):
            if handle is not None:
                handle.cancel()

    def _ask(self) -> None:
        self._asking = None
        now = self.now()
        rings = min(max(self._machine.due(), now + _SOONEST_S), now + _LATEST_S)
        if self._timer is None or rings < self._rings:
            self._set(rings)

    def _set(self, rings: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = rings
        self._timer = self._loop.call_at(rings - self._epoch, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._commit.trouble is not None:
            self._set(self.now() + _AGAIN_S)
            return
        try:
            now = self.now()
            if self._machine.due() <= now:  # it may have put it off since
                self._commit.carry_out(self._machine.wake(now))
        except Exception:  # a fault of ours: who is connected is served all the same
            _log.exception("the master's timer failed")
            self._set(self.now() + _AGAIN_S)
        else:
            self.arm()
