"""Between futures and the runner: what stands where a workflow's plan, clock and log do in a run."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from asa.core.event import Event, TaskDone, TaskFailed
from asa.core.ports import Clock
from asa.integrations.book import CallBook
from asa.integrations.elastic import Elastic
from asa.log.events import EventLog
from asa.workflows.plan import Action, Expand


class Desk:
    """An `Elastic` plan whose calls are futures; satisfies `asa.workflows.runner.Decider`.

    Parameters
    ----------
    elastic
        Decides.
    book
        Has the futures.

    Attributes
    ----------
    closing
        Set from any thread: no more calls will come.
    """

    def __init__(self, elastic: Elastic, book: CallBook) -> None:
        self._elastic, self._book, self.closing = elastic, book, False
        self.pool, self.stages = elastic.pool, elastic.stages
        self._given_up = 0  # how many calls were so far

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left."""
        return self._elastic.closed

    @property
    def broken(self) -> str:
        """Why no allocation is of use, or ""."""
        return self._elastic.broken

    @property
    def busy(self) -> bool:
        """Whether something is to happen although nobody calls."""
        elastic = self._elastic
        return self.closing or elastic.unfinished > 0 or self._book.width() > elastic.width

    def on(self, event: Event) -> None:
        """Fold an event, and settle the futures that it is about."""
        self._elastic.on(event)
        if isinstance(event, TaskDone | TaskFailed):
            self._book.settle(event)
        for stage in self.stages.values():
            for index, reason in islice(stage.given_up.items(), self._given_up, None):
                self._book.give_up(index, reason)
            self._given_up = len(stage.given_up)

    def decide(self, now: float) -> list[Action]:
        """What should be done now. What users did since the last time is heard first: no event tells of it."""
        closing = self.closing  # before the width is looked at: no call comes once it is set
        if self._book.width() > self._elastic.width:
            return [Expand(self._elastic.spec.name)]
        for index in self._book.cancelled():
            self._elastic.withdraw(index, now)
        self._elastic.closing = closing
        return self._elastic.decide(now)

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]."""
        return self._elastic.wake_at(now)


class PatientClock:
    """A clock in virtual time that stands still while no call is to be waited for."""

    def __init__(self, clock: Clock, desk: Desk) -> None:
        self._clock, self._desk = clock, desk

    def now(self) -> float:
        """Virtual time [s]."""
        return self._clock.now()

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        """Let time pass until `signal` is set or the time `until` [s] has come; True when the signal was set."""
        return self._clock.wait(signal, until) if self._desk.busy else signal.wait()


class Ledger:
    """The event log, without what calls returned: nobody asks for that twice."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def append(self, events: Sequence[Event]) -> None:
        """Write these events."""
        self._log.append(
            [replace(event, value=None, path=None) if isinstance(event, TaskDone) else event for event in events]
        )
