"""Who calls `JobWatch.step` whenever it is due.

On real clocks a thread of its own, so that a controller that does not answer holds up no task; in virtual time the
clock.
"""

from __future__ import annotations

import math
import threading
from functools import partial

from asa.allocations.watch import JobWatch
from asa.core.errors import BackendError
from asa.core.ports import Clock, VirtualClock


class WatchThread:
    """Calls `JobWatch.step` whenever it is due, until closed."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._signal, self._closing = clock, threading.Event(), False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something new to do."""
        self._signal.set()

    def start(self, watch: JobWatch) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, args=(watch,), name="asa-job-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the step that is going on, if it ends within a few seconds."""
        self._closing = True
        self._signal.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self, watch: JobWatch) -> None:
        until = -math.inf
        while not self._closing:
            self._clock.wait(self._signal, until)
            self._signal.clear()
            until = watch.step()


class WatchCalls:
    """Has a clock in virtual time call `JobWatch.step` whenever it is due, until closed. Needs no thread.

    Raises
    ------
    BackendError
        From whoever waits, when a step fails: in virtual time nothing gets better by waiting.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._due = clock, math.inf
        self._watch: JobWatch | None = None

    def wake(self) -> None:
        """There is something new to do."""
        self._come_at(self._clock.now())

    def start(self, watch: JobWatch) -> None:
        """Begin."""
        self._watch = watch
        self.wake()

    def close(self) -> None:
        """Call no more."""
        self._watch = None

    def _come_at(self, when: float) -> None:
        if when < self._due:
            self._due = when
            self._clock.call_at(when, partial(self._step, when))

    def _step(self, when: float) -> None:
        if self._watch is not None and when == self._due:  # else it was called earlier, and has set another time
            self._due = math.inf
            due = self._watch.step()
            if self._watch.trouble:
                raise BackendError(self._watch.trouble)
            self._come_at(due)
