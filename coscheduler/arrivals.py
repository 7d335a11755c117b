"""Jobs that are still to come."""

from __future__ import annotations

import math
from collections.abc import Iterable

from coscheduler.ledger import Ledger
from coscheduler.nouns import WaitingJob


class Arrivals:
    """Submits jobs at the times they say, in either world.

    Parameters
    ----------
    jobs
        In the order in which those of the same moment join the queue.
    ledger
        Where they wait.
    """

    def __init__(self, jobs: Iterable[WaitingJob], ledger: Ledger) -> None:
        self._coming = sorted(jobs, key=lambda job: job.submitted)[::-1]
        self._ledger = ledger

    @property
    def next(self) -> float:
        """When the next one is submitted [s]; infinite when all were."""
        return self._coming[-1].submitted if self._coming else math.inf

    def submit(self, now: float) -> bool:
        """Those whose time has come join the queue; whether there were any."""
        before = len(self._coming)
        while self.next <= now:
            self._ledger.submit(self._coming.pop())
        return len(self._coming) < before
