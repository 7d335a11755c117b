"""A dispatcher that goes on learning while it dispatches, and a guard that lets EASY take over while it harms.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-C: "The DRAS agents
automatically adjust their neural network parameters during operation to handle workload changes." The guard is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Bools
from asa.core.decision import DispatchDecision, JobKey
from asa.core.errors import InvalidInput
from asa.core.units import WEEK
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import Objective
from asa.lab.core.table import TableView
from asa.lab.core.workload import Reals, Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.dispatchers.learned.dras import PATIENCE, DrasModel, Rows, read_model, seconds
from asa.lab.dispatchers.learned.selection import Memory, QueueColumns, Selection, Turns, queue_of
from asa.lab.dras_paper.environment import objective_of, rewarded
from asa.lab.dras_paper.learners import INSTANCES, PolicyGradient, QLearning, Step, put
from asa.lab.simulator.run import simulate


@dataclass(slots=True)
class SeenJob:
    """A job, as far as it could be seen: when it began to wait in the period [s], its size and estimate [s], and when
    it started and ended [s]; NaN where it has not."""

    since: float
    size: int
    estimate: float
    start: float = math.nan
    end: float = math.nan


class Shadow:
    """Watches a queue decision by decision, and says at the end of a period how long its jobs have waited.

    Starts and ends are noticed at the next decision, which is when something has come or ended while jobs wait: an end
    is noticed late while no job waits, when it makes no difference.
    """

    def __init__(self) -> None:
        self._jobs: dict[JobKey, SeenJob] = {}
        self._begin, self._now, self._total = math.nan, math.nan, 0

    @property
    def age(self) -> float:
        """Time since the period began [s]; 0 before anything was seen."""
        return 0.0 if math.isnan(self._begin) else self._now - self._begin

    def see(self, view: QueueView | TableView) -> None:
        """Look at the queue once more."""
        queue, before = queue_of(view), self._now
        self._now, self._total = queue.now, queue.total
        if math.isnan(self._begin):
            self._begin = queue.now
        for place, key in enumerate(queue.keys):
            if key not in self._jobs:
                since = max(self._begin, queue.now - float(queue.wait[place]))
                self._jobs[key] = SeenJob(since, int(queue.size[place]), float(queue.estimate[place]))
        running = view.active.tolist() if isinstance(view, TableView) else [job.key for job in view.running]
        for key, end, held in zip(running, queue.ends.tolist(), queue.held.tolist(), strict=True):
            job = self._jobs.setdefault(key, SeenJob(queue.now, held, end - queue.now, queue.now))
            if math.isnan(job.start):
                job.start = min(queue.now, max(job.since, end - job.estimate))
        here = {*running, *queue.keys}
        for key, job in self._jobs.items():
            if key not in here and math.isnan(job.end):
                job.end = queue.now
                job.start = max(job.since, before) if math.isnan(job.start) else job.start

    def judge(self, now: float) -> tuple[float, float]:
        """Time that all jobs together have waited in the period, and would have waited under EASY [s].

        A new period begins.

        What ran when the period began runs in the shadow, too, and what waited waits. Jobs that have ended ran as long
        as they did; the others are taken to run for as long as was asked for.
        """
        seen = sorted(self._jobs.values(), key=lambda job: (job.since, not job.start <= self._begin))
        waited = sum(min(job.start, now) - job.since if job.start == job.start else now - job.since for job in seen)
        run = [max(1.0, job.end - job.start) if job.end == job.end else max(1.0, job.estimate) for job in seen]
        work = Workload.of(
            submit=[job.since for job in seen],
            run=run,
            cores=[job.size for job in seen],
            walltime=np.maximum(run, [job.estimate for job in seen]),
        )
        start = simulate(work, Cluster.of(max(self._total, 1)), "easy").start
        shadow = float((np.minimum(start, now) - work.submit).sum())
        self._renew(now)
        return float(waited), shadow

    def _renew(self, now: float) -> None:
        """Begin a period with what waits and runs now."""
        left = {key: job for key, job in self._jobs.items() if math.isnan(job.end)}
        for job in left.values():
            if job.start == job.start:
                job.estimate = max(1.0, job.start + job.estimate - now)
                job.start = now
            job.since = now
        self._jobs, self._begin = left, now


class PeriodVerdict(NamedTuple):
    """What the guard has found at the end of a period.

    Parameters
    ----------
    waited, shadow
        Time that jobs have waited in the period, of all jobs together, and would have waited under EASY [s].
    rest
        For how many periods EASY has its place from now on.
    """

    at: float
    waited: float
    shadow: float
    learned: bool
    rest: int


class Online:
    """A trained dispatcher that learns on, by the rule that it was trained by, from what it does.

    After every ten scheduling instances its network is changed, as in training. At the end of each period the guard
    simulates what EASY would have done with the jobs of that period, from the same beginning (`Shadow`). Where jobs
    waited longer than `tolerance` times what they would have waited then, the learned dispatcher has harmed: its
    weights go back to what they were at the end of the last period in which it had not, and EASY dispatches for a
    period; for two, four ... when it harms again right away.

    Parameters
    ----------
    model
        A safetensors file, the name of an installed model, or a `Model`.
    rate
        Learning rate of Adam; >= 0, and 0 does not learn. A tenth of the one in training: there is no baseline yet.
    tolerance
        See above; >= 1, and infinite for no guard.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; infinite: as in the paper.

    Raises
    ------
    InvalidInput
        When there is no such model, or a number is out of its bounds; later, when the machine is of another size.
    """

    needs_estimates = True

    def __init__(
        self,
        model: str | DrasModel = "",
        *,
        objective: str | Objective = "capability",
        rate: float = 0.0001,
        period_s: float = WEEK,
        tolerance: float = 1.1,
        seed: int = 0,
        patience: float = PATIENCE,
        threshold: float | str = math.inf,
    ) -> None:
        if not model:
            raise InvalidInput("a learned dispatcher needs a model: say model=FILE")
        if not (rate >= 0 and period_s > 0 and tolerance >= 1):
            raise InvalidInput(
                f"rate {rate}, period_s {period_s}, tolerance {tolerance}: at least 0, above 0 and at least 1 expected"
            )
        found = model if isinstance(model, DrasModel) else read_model(model)
        self._shape, self._sight = found.shape, Rows(found.shape.window, found.shape.scaling)
        if found.shape.kind == "pg":
            self.learner: PolicyGradient | QLearning = PolicyGradient(found.shape, seed=seed, rate=rate)
        else:
            self.learner = QLearning(found.shape, seed=seed, rate=rate, epsilon=0.0)
        put(self.learner.network, found)
        self._rate, self._objective, self._turns = rate, objective_of(objective), Turns(patience, seconds(threshold))
        self._period, self._tolerance, self._easy = period_s, tolerance, Easy()
        self.verdicts: list[PeriodVerdict] = []
        self._good, self._rest, self._next_rest = found, 0, 1
        self._begin(-math.inf)

    def _begin(self, now: float) -> None:
        """Another life of the machine: what was learned stays."""
        self._memory, self._shadow, self._last = Memory(self._turns), Shadow(), now
        self._steps: list[Step] = []
        self._instances = 0
        self._open: tuple[Reals, Bools, int, float] | None = None

    def decide(self, view: QueueView | TableView) -> list[DispatchDecision]:
        queue = queue_of(view)
        if queue.total != self._shape.nodes:
            raise InvalidInput(f"the model was trained for a machine of {self._shape.nodes} nodes, not {queue.total}")
        if queue.now < self._last:
            self._begin(queue.now)
        self._last = queue.now
        self._shadow.see(view)
        if self._shadow.age >= self._period:
            self._judge(queue.now)
        if self._rest:
            self._memory.reserved = None
            return self._easy.decide(view)
        return self._select(queue)

    def _select(self, queue: QueueColumns) -> list[DispatchDecision]:
        """Decide by the network, and remember."""
        selection = Selection(queue, self._sight.window, self._memory, levels=self._shape.levels)
        self._instances += not selection.over
        while not selection.over:
            state, mask = self._sight(selection), selection.mask.copy()
            self._close(state, mask)
            if self._instances > INSTANCES and self._steps:
                self._learn()
            action = self.learner.act(state, mask)
            self._open = (state, mask, action, rewarded(selection, action, self._objective)[1])
        return list(selection.decisions)

    def _close(self, state: Reals, mask: Bools) -> None:
        """The step before has led here."""
        if self._open is not None:
            self._steps.append(Step(*self._open, state, mask))
            self._open = None

    def _learn(self) -> None:
        if self._rate:
            self.learner.learn(self._steps)
        self._steps, self._instances = [], 1

    def _judge(self, now: float) -> None:
        """At the end of a period: who dispatches in the next one."""
        learned = not self._rest
        waited, shadow = self._shadow.judge(now)
        if not learned:
            self._rest -= 1
        elif waited > self._tolerance * shadow:
            self._rest, self._next_rest = self._next_rest, 2 * self._next_rest
            put(self.learner.network, self._good)
            self._steps, self._open, self._instances = [], None, 0
        else:
            self._next_rest, self._good = 1, self.learner.network.model()
        self.verdicts.append(PeriodVerdict(now, waited, shadow, learned, self._rest))
