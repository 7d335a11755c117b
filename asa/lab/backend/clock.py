"""The clock of a simulated machine: time passes while somebody waits, and everything that is due happens meanwhile."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

from asa.core.errors import Starved
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.served import Served
from asa.lab.simulator.state import Why


class EngineClock:
    """Virtual time of an engine, in which a dispatcher serves the queue. Deterministic; one thread waits at a time.

    Parameters
    ----------
    engine
        The machine.
    rule
        What starts jobs: a `Dispatcher`.
    notice
        Called at the very instant at which something happens to a watched job of the engine, which stands still
        meanwhile.

    Notes
    -----
    Of what is due at one instant, the machine's own events come first. Calls that are due at the same instant run all
    together, whether or not one of them sets the signal that is waited for.
    """

    def __init__(self, engine: Engine, rule: Any, notice: Callable[[], None] = lambda: None) -> None:
        self.engine, self._notice = engine, notice
        self._served = Served(engine, rule)
        self._order = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self.engine.now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Run `call` when virtual time reaches `when` [s], now if that is past; equal times as registered."""
        heapq.heappush(self._calls, (max(when, self.engine.now), next(self._order), call))

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        """Let time pass until `signal` is set or the time `until` [s] has come; True when the signal was set.

        Raises
        ------
        RuntimeError
            When nothing is due any more and `until` is infinite: the wait would never end.
        Starved
            When jobs wait on an idle machine, and nothing will happen any more.
        """
        while not signal.is_set():
            due = self._calls[0][0] if self._calls else math.inf
            if self._advance(min(due, until)):
                self._notice()
            elif due <= until and due < math.inf:
                while self._calls and self._calls[0][0] <= due:
                    heapq.heappop(self._calls)[2]()
                    if self.engine.state.world[0]["notice"]:  # it did something to a job: nobody asks before it is told
                        break
            elif until == math.inf:
                raise RuntimeError("virtual time has no event left to wait for: the program would hang")
            else:
                return False
        return True

    def _advance(self, until: float) -> bool:
        """Let the machine go on; True when it stopped before `until` [s] because of a watched job."""
        noticed = self._served.run(until, promise=True) is Why.NOTICE
        if not noticed:
            self._check_alive()
        return noticed

    def _check_alive(self) -> None:
        """Raise where the clock could only tick for ever."""
        world = self.engine.state.world[0]
        if self._served.due < math.inf:  # a window is open
            return
        if world["waiting"] and not world["running"] and not world["events"] and world["arrival"] == world["arrivals"]:
            self.engine.check_starved()
            raise Starved(f"{world['waiting']} jobs wait on an idle machine, and nothing will happen any more")
