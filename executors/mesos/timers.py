"""Deadlines by name, of which the next is wanted often and most are taken back."""

from __future__ import annotations

import heapq
import math

Key = tuple[str, ...]
"""What is due, and for whom: ``("retry", framework, task)``."""


class Timers:
    """When what is due.

    Examples
    --------
    >>> timers = Timers()
    >>> timers.at(("lease", "c1"), 5.0)
    >>> timers.due(), timers.expired(4.0), timers.expired(5.0), timers.due()
    (5.0, [], [('lease', 'c1')], inf)
    """

    def __init__(self) -> None:
        self._when: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def at(self, key: Key, when: float) -> None:
        """`key` is due then [s since the epoch], instead of when it was due before."""
        if self._when.get(key) != when:
            self._when[key] = when
            heapq.heappush(self._heap, (when, key))
            if len(self._heap) > 64 + 4 * len(self._when):  # most are taken back long before they are due
                self._heap = [(when, key) for key, when in self._when.items()]
                heapq.heapify(self._heap)

    def cancel(self, *key: str) -> None:
        """It is not due any more; nor need it have been."""
        self._when.pop(key, None)

    def due(self) -> float:
        """When the next is due [s since the epoch]; infinite when none is."""
        while self._heap and self._when.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def expired(self, now: float) -> list[Key]:
        """Those that are due, in order; they are forgotten here."""
        found = []
        while self.due() <= now:
            _, key = heapq.heappop(self._heap)
            del self._when[key]
            found.append(key)
        return found
