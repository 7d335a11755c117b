"""What watching a queue shows: which jobs came, started and ended, and how much of their wall times they used."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.decision import JobKey
from asa.core.errors import InvalidInput
from asa.lab.forecast.futures import NO_JOBS, Coming, Visible

# -- Life tables ------------------------------------------------------------------------------------------------------

BINS = 40
PRIOR_JOBS = 5.0
"""Jobs that every table has beside those it was taught: they are as likely to end at any share of their wall times."""

MEMORY_JOBS = 2000.0
"""Ends after which what was learned counts 1/e."""

_EDGES: Floats = np.linspace(0.0, 1.0, BINS + 1) ** 2  # narrow at the begin: many jobs end soon after their start
_WIDTHS: Floats = np.diff(_EDGES)
_PRIOR_ENDS: Floats = PRIOR_JOBS * _WIDTHS
_PRIOR_PASSED: Floats = PRIOR_JOBS * _WIDTHS * (1 - _EDGES[:-1] - _WIDTHS / 2)


class LifeTable:
    """Rate at which running jobs end, by the share of its wall time that a job has used.

    Each look at a queue tells of every running job that it went from one share to another, and whether it ended there.
    A job that still runs counts for the shares that it has passed: so long jobs are not missed because short ones end
    first. A job that ended between two looks has ended anywhere between them.

    Examples
    --------
    Jobs that always use a quarter of their wall times.

    >>> table = LifeTable()
    >>> for _ in range(200):
    ...     table.add(np.array([0.0, 0.24]), np.array([0.24, 0.26]), np.array([False, True]))
    >>> table.share(np.array([0.0, 0.2, 0.9]), np.array([0.5, 0.5, 0.5])).round(2).tolist()
    [0.25, 0.25, 0.95]

    References
    ----------
    E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", J. Am. Stat. Assoc. 53, 1958:
    its actuarial estimate (section 3), with fixed intervals, and an end spread evenly over the time between the looks.
    Unlike theirs, old observations fade.
    """

    def __init__(self) -> None:
        self._ends, self._passed = np.zeros(BINS), np.zeros(BINS)

    def add(self, begin: Floats, end: Floats, ended: npt.NDArray[np.bool_]) -> None:
        """Jobs went from share `begin` to share `end`, at most 1, or had `ended` by then; shape (n,) each."""
        end = np.clip(np.maximum(end, begin + 1e-9), 0.0, 1.0)
        begin = np.minimum(np.clip(begin, 0.0, 1.0), end - 1e-9)
        low, high = np.maximum(begin[:, None], _EDGES[:-1]), np.minimum(end[:, None], _EDGES[1:])
        inside = np.maximum(high - low, 0.0)
        part = inside / (end - begin)[:, None]  # of the way from begin to end
        gone = ((low + high) / 2 - begin[:, None]) / (end - begin)[:, None]  # who ended on it, at the middle of the bin
        fade = np.exp(-ended.sum() / MEMORY_JOBS)
        self._passed = fade * self._passed + (inside * np.where(ended[:, None], 1 - gone, 1.0)).sum(axis=0)
        self._ends = fade * self._ends + part[ended].sum(axis=0)

    def share(self, used: Floats, chance: Floats) -> Floats:
        """Share of its wall time at which a job ends that has used so much of it so far, in [0, 1]; shape (n,) each.

        `chance`, in [0, 1), is that of ending earlier, given that it has not ended yet.
        """
        rate = (self._ends + _PRIOR_ENDS) / (self._passed + _PRIOR_PASSED)
        hazard = np.append(0.0, np.cumsum(rate * _WIDTHS))
        until = np.interp(used, _EDGES, hazard) - np.log1p(-chance)
        found: Floats = np.maximum(np.interp(until, hazard, _EDGES), used)
        return found

    def state(self) -> dict[str, list[float]]:
        return {"ends": self._ends.tolist(), "passed": self._passed.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        columns = []
        for key in ("ends", "passed"):
            column = np.array(state.get(key, ()), dtype=np.float64)
            if column.shape != (BINS,) or not (np.isfinite(column) & (column >= 0)).all():
                raise InvalidInput(f"state[{key!r}] of a life table: {BINS} numbers of at least 0 expected")
            columns.append(column)
        self._ends, self._passed = columns


# -- Sightings --------------------------------------------------------------------------------------------------------

GAP_S = 7200.0
"""After so long without a look [s] it is not known any more which jobs came."""

ARRIVALS = 1500
"""Submissions that are remembered."""

JOBS = 2000
"""Jobs of the last look that are remembered, waiting and running each.

Of the others it is not known later that they are not new. So no new job is then seen among the running jobs.
"""


class Sightings:
    """What was seen of a queue, look by look."""

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
        return self._at

    def state(self) -> dict[str, Any]:
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
        """Take over a state."""
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
        """When each running job started [s], and its wall time [s]; NaN where it cannot be known, shape (r,) each."""
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


# -- Arrivals ---------------------------------------------------------------------------------------------------------

LEAST_S = 3 * 3600.0
"""What was seen of a shorter time [s] says nothing of the times to come."""


def coming(sightings: Sightings, now: float, until: float, rng: np.random.Generator) -> Coming:
    """One guess at the jobs that are submitted from `now` until `until` [s]: a stretch of what was seen, moved.

    It begins at any of the times seen, and goes on with the first ones behind the last.
    """
    came, since = sightings.recent()
    span = sightings.at - since
    if not (len(came) and span >= LEAST_S and until > now):
        return NO_JOBS
    later = (came[:, 0] - since - rng.uniform(0.0, span)) % span
    rounds = np.arange(int(np.ceil((until - now) / span)))
    submit = (now + later + span * rounds[:, None]).ravel()
    cores, walltime = np.tile(came[:, 1], len(rounds)), np.tile(came[:, 2], len(rounds))
    chosen = np.flatnonzero(submit < until)
    chosen = chosen[np.argsort(submit[chosen], kind="stable")]
    share = sightings.table.share(np.zeros(len(chosen)), rng.random(len(chosen)))
    asked = walltime[chosen]
    return Coming(submit[chosen], cores[chosen].astype(np.int64), asked, share * asked)
