"""What looking at a queue again and again tells: which jobs came, started and ended, and how much they used."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import JobKey
from asa.core.errors import InvalidInput
from asa.lab.forecast.lifetable import LifeTable
from asa.lab.forecast.visible import Visible

GAP_S = 7200.0
"""After so long without a look [s] it is not known any more which jobs came."""

ARRIVALS = 1500
"""Submissions that are remembered."""

JOBS = 2000
"""Jobs of the last look that are remembered, waiting and running each.

Of the others it is not known later that they are not new. So nobody new is then seen among the running jobs.
"""


class Sightings:
    """What was seen of a queue, look by look.

    Attributes
    ----------
    table
        How much of their wall times jobs use.
    """

    def __init__(self) -> None:
        self.table = LifeTable()
        self._at = -math.inf  # the last look
        self._since = math.inf  # all that came since is in the list
        self._all = True  # whether all jobs of the last look are remembered
        self._waiting: dict[JobKey, float] = {}  # wall times [s]
        self._running: dict[JobKey, tuple[float, float]] = {}  # starts and wall times [s]
        self._came: deque[tuple[float, int, float]] = deque(maxlen=ARRIVALS)  # when, cores, wall time [s]

    def see(self, seen: Visible) -> None:
        """Look once more; a look that is not newer than the last one tells nothing."""
        if seen.now <= self._at:
            return
        started, walltime = self._ages(seen)
        running = {
            key: (start, asked)
            for key, start, asked in zip(seen.running, started.tolist(), walltime.tolist(), strict=True)
        }
        waiting = dict(zip(seen.waiting, seen.walltime_s.tolist(), strict=True))
        self._learn(seen.now, running, waiting)
        self._remember(seen, running)
        self._at = seen.now
        self._running = dict(list(running.items())[:JOBS])
        self._waiting = dict(list(waiting.items())[:JOBS])
        self._all = max(len(running), len(waiting)) <= JOBS

    def used(self, seen: Visible) -> tuple[Floats, Floats]:
        """Share of its wall time that each running job has used, in [0, 1], and that wall time [s]; shape (r,) each.

        Of a job that has run since before the first look nothing is known but its end: at any moment, a job has on
        average used half of its wall time.
        """
        started, walltime = self._ages(seen)
        elapsed = np.where(np.isnan(started), seen.left_s, np.maximum(seen.now - started, 0.0))
        walltime = np.where(np.isnan(started), 2 * seen.left_s, walltime)
        return np.minimum(elapsed / walltime, 1.0), walltime

    def recent(self) -> tuple[Floats, float]:
        """Submissions seen without a gap, shape (n, 3): when [s], cores, wall time [s]; and since when [s]."""
        return np.array(self._came, dtype=np.float64).reshape(-1, 3), self._since

    @property
    def at(self) -> float:
        """Time of the last look [s]."""
        return self._at

    def state(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {
            "table": self.table.state(),
            "at": None if self._at == -math.inf else self._at,
            "since": None if self._since == math.inf else self._since,
            "all": self._all,
            "waiting": [list(each) for each in self._waiting.items()],
            "running": [
                [key, None if start != start else start, None if asked != asked else asked]
                for key, (start, asked) in self._running.items()
            ],
            "came": [list(each) for each in self._came],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state.

        Raises
        ------
        InvalidInput
            When it is incomplete or not of this kind.
        """
        try:
            table = LifeTable()
            table.restore(state["table"])
            at, since, complete = state["at"], state["since"], bool(state["all"])
            waiting = {key: float(asked) for key, asked in state["waiting"]}
            running = {key: (_known(start), _known(asked)) for key, start, asked in state["running"]}
            came = [(float(when), int(cores), float(asked)) for when, cores, asked in state["came"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"no state of what was seen of a queue: {error!r}") from error
        self.table, self._waiting, self._running = table, waiting, running
        self._all, self._at = complete, -math.inf if at is None else float(at)
        self._since = math.inf if since is None else float(since)
        self._came = deque(came, maxlen=ARRIVALS)

    def _ages(self, seen: Visible) -> tuple[Floats, Floats]:
        """When each running job started [s], and its wall time [s]; NaN where nobody can know, shape (r,) each."""
        started, ends = seen.started.copy(), seen.now + seen.left_s
        for place, (key, end) in enumerate(zip(seen.running, ends.tolist(), strict=True)):
            if started[place] == started[place]:
                continue
            if known := self._running.get(key):
                started[place] = known[0]
            elif (asked := self._waiting.get(key)) is not None:
                started[place] = min(max(end - asked, self._at), seen.now)
            elif self._at > -math.inf and self._all:  # it came and started since the last look
                started[place] = seen.now - min((seen.now - self._at) / 2, end - seen.now)
        started = np.minimum(started, seen.now)  # an old view is looked at again when its job has started
        return started, ends - started

    def _learn(
        self, now: float, running: Mapping[JobKey, tuple[float, float]], waiting: Mapping[JobKey, float]
    ) -> None:
        rows = [
            (max(self._at - start, 0.0) / asked, (now - start) / asked, key not in running)
            for key, (start, asked) in self._running.items()
            if start == start
        ]
        rows += [
            (0.0, (now - running[key][0]) / asked if key in running else (now - self._at) / asked, key not in running)
            for key, asked in self._waiting.items()
            if key not in waiting
        ]
        if rows:
            begin, end, ended = np.array(rows, dtype=np.float64).T
            self.table.add(begin, end, ended > 0)

    def _remember(self, seen: Visible, running: Mapping[JobKey, tuple[float, float]]) -> None:
        if seen.now - self._at > GAP_S:
            self._came.clear()
            self._since = seen.now
            return
        came = [
            (when, cores, asked)
            for key, when, cores, asked in zip(
                seen.waiting,
                seen.submitted.tolist(),
                seen.waiting_cores.tolist(),
                seen.walltime_s.tolist(),
                strict=True,
            )
            if key not in self._waiting and when > self._at
        ]
        came += [
            (running[key][0], cores, running[key][1])
            for key, cores in zip(seen.running, seen.running_cores.tolist(), strict=True)
            if self._all and key not in self._waiting and key not in self._running
        ]
        for each in sorted(came):
            if len(self._came) == ARRIVALS:
                self._since = self._came[0][0]
            self._came.append(each)


def _known(number: float | None) -> float:
    """A number read back, NaN where it is not known."""
    return math.nan if number is None else float(number)
