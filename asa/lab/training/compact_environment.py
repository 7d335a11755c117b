"""What the compact policy learns from: pieces of a log, and what waiting costs between two actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsInt

import gymnasium
import numpy as np

from asa.core.arrays import Bools, Floats
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Reals, Workload
from asa.lab.dispatchers.learned.compact_sight import Shares
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.metrics.job import bounded_slowdown
from asa.lab.simulator.run import simulate
from asa.lab.training.environment import Dispatching

REFERENCE = "easy:order=sjf"
"""The dispatcher whose costs are taken off: a compiled one, near to what is learned."""
SETTINGS: Mapping[str, Any] = {"keep_nodes": False}
"""How the machine behaves: where jobs run is not written down."""
SHORT_S = 600.0
"""Shorter run times count as this in what slowdowns cost [s]."""
SCALE = 0.1
"""What rewards are multiplied with, so that sums of them are about 1."""


@dataclass(frozen=True)
class Cost:
    """What the wait of a job costs: its share of a mean wait, of a mean slowdown, and more the longer it is.

    A wait `w` [s] costs ``w / wait_s + (w / run) / slowdown + late * max(0, w - long_s)^2 / (wait_s * long_s)``. Run
    times of less than `SHORT_S` count as that: nobody can see that a job of hours is going to fail within seconds, and
    with 10 s, as in bounded slowdowns, such a one would count more than all others.

    Parameters
    ----------
    wait_s, slowdown
        A mean wait [s] and a mean bounded slowdown: what each is worth; > 0.
    long_s
        From here on waits are long [s]; > 0.
    late
        What a long wait is worth; >= 0.

    Raises
    ------
    InvalidInput
        When a number is out of its bounds.
    """

    wait_s: float
    slowdown: float
    long_s: float
    late: float = 0.2

    def __post_init__(self) -> None:
        if not (min(self.wait_s, self.slowdown, self.long_s) > 0 and self.late >= 0):
            raise InvalidInput(f"{self}: means and long_s above 0 expected, and late at least 0")

    def of(self, wait: Floats, run: Floats) -> float:
        """Of all jobs together, by waits and run times [s], shape (n,)."""
        beyond = np.maximum(wait - self.long_s, 0.0)
        rate = 1.0 / self.wait_s + 1.0 / (self.slowdown * np.maximum(run, SHORT_S))
        return float((wait * rate).sum() + self.late * (beyond @ beyond) / (self.wait_s * self.long_s))


def cost_under(log: Workload, cluster: Cluster, late: float, dispatcher: str = "easy") -> Cost:
    """Costs in units of a dispatcher's means on a log; its 99th percentile of waits is long.

    Raises
    ------
    InvalidInput
        When no job waits there.
    """
    done = simulate(log, cluster, dispatcher, **SETTINGS)
    wait, run = done.wait, done.end - done.start
    ran = np.isfinite(wait)
    if not (wait[ran] > 0).any():
        raise InvalidInput(f"under {dispatcher} no job of the log waits: there is nothing to learn from it")
    slowdown = bounded_slowdown(wait[ran] + run[ran], run[ran], SHORT_S)
    return Cost(float(wait[ran].mean()), float(slowdown.mean()), float(np.percentile(wait[ran], 99)), late)


def waits_until(now: float, submit: Floats, start: Floats) -> Floats:
    """How long each job has waited by now [s], shape (n,); `start` is NaN where it still waits, or is not submitted.

    >>> waits_until(10.0, np.array([0.0, 4.0, 20.0]), np.array([3.0, np.nan, np.nan])).tolist()
    [3.0, 6.0, 0.0]
    """
    found: Floats = np.maximum(np.fmin(start, now) - submit, 0.0)
    return found


def pieces(log: Workload, count: int, *, seed: int, days: float = 15.0) -> list[Workload]:
    """Stretches of a log, each a little different from it: drawn begins, a drawn load, and drawn delays.

    Time goes by 0.9 to 1.3 times as fast, and each job comes up to half an hour later than it did.

    Parameters
    ----------
    count
        How many; >= 1.
    days
        Their length in the log [days]; a shorter log is taken whole.

    Raises
    ------
    InvalidInput
        When no stretch of the log has two jobs: one alone never waits.
    """
    first, last = (float(log.submit[0]), float(log.submit[-1])) if len(log) else (0.0, 0.0)
    reached = log.submit[log.submit < max(last, first + days * DAY)]  # a stretch of a longer log ends before its last
    if len(reached) < 2 or np.diff(reached).min() >= days * DAY:
        raise InvalidInput(f"no {days:g} days of the log to learn from have two jobs: a log with more jobs expected")
    draw = np.random.default_rng(seed)
    found: list[Workload] = []
    while len(found) < count:
        begin = first + draw.random() * max(last - first - days * DAY, 0.0)
        piece = log.between(begin, begin + days * DAY)
        if len(piece) > 1:
            pace = draw.uniform(0.9, 1.3)
            found.append(delayed(replace(piece, submit=(piece.submit - begin) / pace), draw))
    return found


def delayed(jobs: Workload, draw: np.random.Generator, most_s: float = 1800.0) -> Workload:
    """The same jobs, each submitted up to `most_s` [s] later, drawn alike."""
    submit = jobs.submit + draw.uniform(0.0, most_s, len(jobs))
    order = np.argsort(submit, kind="stable")
    together = replace(jobs, submit=np.zeros(len(jobs)))  # rows must be in order of submission all the while
    return replace(together.take(order), submit=submit[order])


class Accrued(gymnasium.Wrapper[Reals, np.int64, Reals, np.int64]):
    """`asa.lab.training.environment.Dispatching` whose reward is what waiting costs, less than under `REFERENCE`.

    An action is rewarded with what the reference's queue has cost since the last one, minus what this one has. The
    reference goes by time alone, whatever is done, so the same policy is best; but how many jobs come, which makes most
    of the costs, matters less. Where there is one action only it is taken, and the next one is asked for.

    Parameters
    ----------
    workloads
        Sets of jobs; each episode takes the next one.
    cluster
        The machine.
    cost
        What waiting costs.
    sight, turns
        As for `Dispatching`.

    References
    ----------
    H. Mao, S. B. Venkatakrishnan, M. Schwarzkopf and M. Alizadeh, "Variance reduction for reinforcement learning in
    input-driven environments", ICLR 2019.
    """

    def __init__(
        self, workloads: Sequence[Workload], cluster: Cluster, cost: Cost, sight: Shares, *, turns: Turns
    ) -> None:
        self._inner = Dispatching(workloads, cluster, sight, turns=turns, settings=SETTINGS)
        super().__init__(self._inner)
        self._cluster, self._cost = cluster, cost

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Reals, dict[str, Any]]:
        """Begin the next episode that leaves a choice."""
        over = True
        while over:
            state, info = self.env.reset(seed=seed, options=options)
            workload = self.schedule().workload
            self._reference = simulate(workload, self._cluster, REFERENCE, **SETTINGS)
            state, over, info = self._forced(state, False, info)
        self._paid = self._lead(info["now"])
        return state, info

    def step(self, action: SupportsInt) -> tuple[Reals, float, bool, bool, dict[str, Any]]:
        """Select a job."""
        state, _, over, _, info = self.env.step(np.int64(int(action)))
        state, over, info = self._forced(state, over, info)
        before, self._paid = self._paid, self._lead(info["now"])
        return state, SCALE * (self._paid - before), over, False, info

    def action_masks(self) -> Bools:
        """See `Dispatching`."""
        return self._inner.action_masks()

    def schedule(self) -> Schedule:
        """See `Dispatching`."""
        return self._inner.schedule()

    def _forced(self, state: Reals, over: bool, info: dict[str, Any]) -> tuple[Reals, bool, dict[str, Any]]:
        """Go on while there is nothing to choose."""
        while not over and (mask := self.action_masks()).sum() == 1:
            state, _, over, _, info = self.env.step(np.int64(mask.argmax()))
        return state, over, info

    def _lead(self, now: float) -> float:
        """What the reference has cost by now, minus what this has."""
        mine, other = self.schedule(), self._reference
        jobs = mine.workload
        theirs = self._cost.of(waits_until(now, jobs.submit, other.start), jobs.run)
        return theirs - self._cost.of(waits_until(now, jobs.submit, mine.start), jobs.run)
