"""Events on their way to the thread that drives a run."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from asa.core.event import Event


class Inbox:
    """Filled from any thread, emptied by the runner; `signal` is set while there is something in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self.signal = threading.Event()

    def post(self, events: Sequence[Event]) -> None:
        """Hand events over; returns at once."""
        with self._lock:
            self._events.extend(events)
        self.signal.set()

    def take(self) -> list[Event]:
        """All events that have come in since the last call."""
        with self._lock:
            self.signal.clear()
            events, self._events = self._events, []
        return events
