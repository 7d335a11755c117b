"""A machine's time: it is woken when it has something to do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

_SOONEST_S, _LATEST_S, AGAIN_S = 0.001, 600.0, 1.0

_log = logging.getLogger(__name__)


class Clockwork:
    """Wakes a machine, with one timer, at the time that `due` returns [s since the epoch]; `wall` is the computer's.

    Should `wake` raise, it is called again a second later.
    """

    def __init__(
        self, due: Callable[[], float], wake: Callable[[], object], wall: Callable[[], float] = time.time
    ) -> None:
        self._due, self._wake = due, wake
        self._loop = asyncio.get_running_loop()
        # The computer's clock may be set while the machine runs; people and programs count on time that goes on evenly.
        self._epoch = wall() - self._loop.time()
        self._asking: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._stopped = False

    def now(self) -> float:
        """Seconds since the epoch, never backwards [s]."""
        return self._epoch + self._loop.time()

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
        wakes_at = max(now + _SOONEST_S, min(now + _LATEST_S, self._due()))
        if self._timer is None or wakes_at < self._wakes_at:
            self._set(wakes_at)

    def _set(self, wakes_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = wakes_at
        self._timer = self._loop.call_at(wakes_at - self._epoch, self._wake_machine)

    def _wake_machine(self) -> None:
        self._timer = None
        try:
            if self._due() <= self.now():  # it may have been put off since
                self._wake()
        except Exception:  # a fault of ours: what else is asked of the machine is done all the same
            _log.exception("a machine's timer failed")
            self._set(self.now() + AGAIN_S)
        else:
            self.arm()
