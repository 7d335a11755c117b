"""Time as an argument: the wall clock, and a clock that is moved by hand.

Everything that waits in ASA waits through the `Clock` port, so the same code runs in real and in virtual time.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol


class Joinable(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None: ...


def start_thread(call: Callable[[], None], name: str) -> Joinable:
    """Run it in a thread, which ends with the process."""
    thread = threading.Thread(target=copy_context().run, args=(call,), name=name, daemon=True)
    thread.start()
    return thread


def steady_time() -> float:
    """A time that never jumps, and goes on while the machine sleeps [s]."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The wall clock, but it never goes back; times are seconds since the epoch [s].

    When the machine's time is set back, this one goes on as before: no wait grows by as much.

    Parameters
    ----------
    wall, steady
        The machine's time [s since the epoch], and one that never jumps [s].

    Examples
    --------
    >>> wall, steady = [100.0], [0.0]
    >>> clock = SystemClock(lambda: wall[0], lambda: steady[0])
    >>> clock.now()
    100.0
    >>> wall[0], steady[0] = 40.0, 1.0
    >>> clock.now()
    101.0
    >>> wall[0], steady[0] = 500.0, 2.0
    >>> clock.now()
    500.0
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = steady_time) -> None:
        self._wall, self._steady, self._offset = wall, steady, -math.inf

    def now(self) -> float:
        steady = self._steady()
        self._offset = max(self._offset, self._wall() - steady)
        return steady + self._offset

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        remaining = until - self.now()
        return signal.wait(None if remaining == math.inf else max(0.0, remaining))


class ManualClock:
    """Virtual time: waiting runs the callbacks that were due in between, in order of time, and takes no real time.

    Examples
    --------
    >>> clock, signal = ManualClock(), threading.Event()
    >>> clock.call_at(5.0, signal.set)
    >>> clock.wait(signal, until=60.0), clock.now()
    (True, 5.0)
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (max(when, self._now), next(self._order), call))

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        """Raises `RuntimeError` when nothing is due any more and `until` is infinite: the wait would never end."""
        while not signal.is_set():
            if not self._calls or self._calls[0][0] > until:
                if until == math.inf:
                    raise RuntimeError("virtual time has no event left to wait for: the program would hang")
                self._now = max(self._now, until)
                return False
            self._now, _, call = heapq.heappop(self._calls)
            call()
        return True
