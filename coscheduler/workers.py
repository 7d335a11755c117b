"""Tasks in worker processes of one node: the crew of the `local` executor, without a driver and a supervisor."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from executors.crew import Crew
from executors.wakeup import wakeup
from executors.wire import Hello, Order, Outcome, Report, Welcome

LOOK_S = 0.25
"""How long it takes at most [s] until `Workers` looks up from what it waits for."""

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Workers:
    """Runs orders in up to so many processes, and waits; a signal that asks for the end interrupts both.

    Workers are forked from this process: what it has imported they need not import again, which would take long on a
    fraction of a core. Each has a session of its own, and whatever is in it ends with `close`, or, when this process is
    killed, soon after. To be used as a context manager, in the main thread.

    Parameters
    ----------
    cores
        Whole cores of this node that may be used; at least 1.
    values
        Directory (0700) for results that are longer than `asa.log.values.INLINE_MOST`.

    Raises
    ------
    KeyboardInterrupt
        From `run` and `rest`, after SIGTERM, SIGINT or SIGHUP.
    """

    def __init__(self, cores: int, values: Path) -> None:
        self._cores, self._values = cores, values
        self._selector, self._woken = selectors.DefaultSelector(), ExitStack()
        self._crew: Crew | None = None
        self._outcomes: list[Outcome] = []
        self._told: int | None = None

    def __enter__(self) -> Self:
        signals = self._woken.enter_context(wakeup((*_STOPS, signal.SIGCHLD), self._heed))
        self._selector.register(signals, selectors.EVENT_READ, lambda mask: self._signalled(signals))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._crew is not None:
            self._crew.close()
        self._selector.close()
        self._woken.close()

    def run(
        self, orders: Sequence[Order], look: Callable[[], None], retries: int = 0
    ) -> Iterator[tuple[Order, Outcome]]:
        """Run orders of one stage, in order; yields each with its outcome as soon as that is known.

        Parameters
        ----------
        orders
            At least one, all of the same needs.
        look
            Called from time to time; what it raises ends the orders that run.
        retries
            How often an order that failed is tried again.
        """
        crew = self._crew = self._crew or self._hire()
        # The crew gives back what it cannot start soon, as to a driver that may know of a better place: it gets no more
        # than it can start at once.
        room = max(1, self._cores // max(1, orders[0].cores))
        waiting, running, left = deque(orders), dict[int, Order](), {order.ticket: retries for order in orders}
        while waiting or running:
            while waiting and len(running) < room:
                order = waiting.popleft()
                running[order.ticket] = order
                crew.accept([order])
            self._turn(crew)
            outcomes, self._outcomes = self._outcomes, []
            for outcome in outcomes:
                order = running.pop(outcome.ticket)
                if outcome.value is None and left[order.ticket]:
                    left[order.ticket] -= 1
                    waiting.append(order)
                else:
                    yield order, outcome
            look()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long [s], or until something happens."""
        for key, mask in self._selector.select(seconds):
            key.data(mask)
        self._stop_if_told()

    def _turn(self, crew: Crew) -> None:
        soon = crew.advance()
        if not self._outcomes:
            self.rest(LOOK_S if soon is None else min(LOOK_S, soon))
            crew.advance()
            crew.relay()

    def _hire(self) -> Crew:
        hello = Hello("", socket.gethostname(), os.getpid(), self._cores, memory=0, gpus=0)
        welcome = Welcome("", {}, str(self._values), os.getcwd(), tuple(sys.path), LOOK_S)
        return Crew(hello, welcome, self._selector, self._report)

    def _report(self, report: Report) -> None:
        assert not report.returned, "it is given no more than it can start"
        self._outcomes += report.outcomes

    def _heed(self, number: int, frame: object) -> None:
        if number in _STOPS:
            self._told = number

    def _signalled(self, signals: socket.socket) -> None:
        signals.recv(4096)
        if self._crew is not None and self._told is None:
            self._crew.reap()

    def _stop_if_told(self) -> None:
        if self._told is not None:
            raise KeyboardInterrupt(f"told to end by signal {self._told} ({signal.strsignal(self._told)})")
