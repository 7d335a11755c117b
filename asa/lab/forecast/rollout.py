"""A dispatcher that tries backfilling rules on futures of the queue as it is, and goes on with the best of them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.decision import DispatchDecision, JobKey
from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, check_number, duration
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, BackfillRule, Easy, decide_on_tables
from asa.lab.forecast.futures import Visible, visible
from asa.lab.forecast.twin import Snapshot, Twin
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import StopReason

# -- What a site has seen of its jobs ---------------------------------------------------------------------------------

LAST = 60
"""Jobs of a user that are drawn from; of all users together twenty times as many."""

FEWEST = 3
"""With fewer jobs alike, less similar ones are drawn from."""


class JobHistory:
    """Jobs that were submitted, and the run times of those that have ended; a `asa.core.ports.JobPredictor`.

    Run times are drawn from the shares of their wall times that jobs of the same user and wall time have used, or of
    the same user, or all jobs. It predicts wall times.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> history = JobHistory()
    >>> for key in range(3):
    ...     history.learn(QueuedJob(key, Resources(), walltime_s=100.0, submitted=0.0, user="ann"), 25.0)
    >>> history.draw(["ann"], np.array([200.0]), np.zeros(1), np.random.default_rng(0)).tolist()
    [50.0]
    """

    def __init__(self) -> None:
        self._shares: dict[Hashable, list[float]] = {}
        self._jobs: list[QueuedJob] = []  # in order of submission
        self._runs: dict[JobKey, float] = {}

    def predict(self, job: QueuedJob) -> float:
        """The wall time [s]; the job is remembered."""
        if math.isfinite(job.walltime_s):
            insort(self._jobs, job, key=_submitted)
        return job.walltime_s

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        self._runs[job.key] = run_time_s
        for alike in _alike(job.user, job.walltime_s):
            shares = self._shares.setdefault(alike, [])
            shares.append(min(1.0, run_time_s / max(job.walltime_s, 1.0)))
            if len(shares) > LAST * (20 if alike is None else 1):
                del shares[: len(shares) // 4]

    def draw(self, users: Sequence[str], walltime_s: Floats, ran_s: Floats, rng: np.random.Generator) -> Floats:
        """A run time of each job [s], longer than it has run, where such a one has been seen; shape (n,) each."""
        found = np.empty(len(users))
        columns = zip(users, walltime_s.tolist(), ran_s.tolist(), rng.random(len(users)).tolist(), strict=True)
        for place, (user, walltime, ran, chance) in enumerate(columns):
            least = ran / max(walltime, 1.0)
            for alike in _alike(user, walltime):
                shares = self._shares.get(alike, [])
                if least:
                    shares = [share for share in shares if share > least]
                if len(shares) >= FEWEST:
                    found[place] = shares[int(chance * len(shares))] * walltime
                    break
            else:
                found[place] = ran + chance * max(0.0, walltime - ran)
        return found

    def since(self, begin: float, end: float = math.inf) -> list[QueuedJob]:
        """Jobs submitted from `begin` until before `end` [s], in order of submission."""
        return self._jobs[bisect_left(self._jobs, begin, key=_submitted) : bisect_left(self._jobs, end, key=_submitted)]

    def runs(self, jobs: Sequence[QueuedJob], rng: np.random.Generator) -> Floats:
        """Run times of jobs [s], drawn for those that have not ended; shape (n,)."""
        drawn = self.draw([job.user for job in jobs], _columns(jobs)[1], np.zeros(len(jobs)), rng)
        return np.array([self._runs.get(job.key, run) for job, run in zip(jobs, drawn.tolist(), strict=True)])

    def forget(self, before: float) -> None:
        """Drop jobs that were submitted before [s]; what was learned of them stays."""
        self._jobs = self.since(before)
        self._runs = {job.key: self._runs[job.key] for job in self._jobs if job.key in self._runs}


_submitted = attrgetter("submitted")


def _alike(user: str, walltime_s: float) -> tuple[Hashable, ...]:
    """What other jobs must have in common with one, most first."""
    return (user, walltime_s), user, None


def _columns(jobs: Sequence[QueuedJob]) -> tuple[Ints, Floats]:
    """Cores and wall times [s], shape (n,) each."""
    cores = np.array([job.resources.cores for job in jobs], dtype=np.int64)
    return cores, np.array([job.walltime_s for job in jobs], dtype=np.float64)


# -- Rules that are tried ---------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """A rule but for its threshold, here as a share of the longest wait."""

    order: str
    share: float = 1.0
    oldest: float = math.inf
    depth: float = 1

    def rule(self, longest_s: float) -> Backfill:
        return Backfill(self.depth, order=self.order, threshold=max(1.0, self.share * longest_s), oldest=self.oldest)


_CANDIDATES = (
    _Candidate("sjf"),
    _Candidate("sjf", share=0.5),
    _Candidate("sjf", share=0.0, oldest=1),
    _Candidate("sjf", depth=4),
    _Candidate("smallest-area"),
    _Candidate("smallest-area", share=0.5),
    _Candidate("f1"),
    _Candidate("f1", share=0.5),
    _Candidate("wfp3"),
)

_EASY, _SETTINGS = BackfillRule(1.0), MachineSettings(keep_nodes=False)
_EXCESS = 20.0  # how often an hour of wait beyond the limit counts
_SHORTEST_LIMIT_S = 2 * HOUR  # so long any job may wait


class Rollout:
    """Now and then, try nine backfilling rules on futures of the queue, and go on with the best of them.

    In each future run times are drawn from what is known of a job's user, and what was submitted a whole number of days
    ago, drawn among those of `memory`, is submitted again until `horizon`. The rules differ in order, threshold and
    depth. The best has the least sum of the mean wait and `slowdown` times the mean bounded slowdown, as shares of
    EASY's in all futures so far; what a wait is longer than the limit counts twenty times more. The limit is `longest`
    times the longest wait that EASY would have had in `memory`, or would have in that future, whichever is longer.

    A view without a table, as in `local:`, gets ``easy:order=sjf,threshold=60h``. Futures look at cores only.

    Parameters
    ----------
    futures
        How many, at least 1; after each two, the worse half of the rules is dropped.
    every, horizon, memory
        How often a rule is chosen, how long jobs are submitted in a future, and how far back is looked: seconds, or
        like ``"1h"``; > 0.
    longest
        The limit of waits as a share of EASY's longest; > 0.
    slowdown
        Weight of the bounded slowdown; >= 0.
    work
        Jobs that are simulated for a choice, about; >= 1. Once there have been more, no third or later future is tried.
    seed
        The same chooses the same rules.

    Raises
    ------
    InvalidInput
        When an option is out of its bounds.

    References
    ----------
    D. P. Bertsekas and D. A. Castanon, "Rollout algorithms for stochastic scheduling problems", Journal of Heuristics
    5, 1999. Unlike there, what is tried is not the next step before one policy, but each of several policies: policy
    switching, as in H. S. Chang, R. Givan and E. K. P. Chong, "Parallel rollout for online solution of partially
    observable Markov decision processes", Discrete Event Dynamic Systems 14, 2004.
    """

    needs_estimates = True

    def __init__(
        self,
        *,
        futures: int = 6,
        every: float | str = "1h",
        horizon: float | str = "12h",
        memory: float | str = "28d",
        longest: float = 0.85,
        slowdown: float = 0.3,
        work: int = 20_000,
        seed: int = 0,
    ) -> None:
        for name, number in (("futures", futures), ("work", work)):
            check_number(name, number, 1, whole=True)
        if not (0 < longest < math.inf and 0 <= slowdown < math.inf):
            raise InvalidInput(f"longest={longest!r}, slowdown={slowdown!r}: finite, above 0 and at least 0, expected")
        self._futures, self._longest, self._slowdown, self._work = futures, longest, slowdown, work
        self._every = duration(every, what="every")
        self._horizon, self._memory = duration(horizon, what="horizon"), duration(memory, what="memory")
        self.predictor = JobHistory()
        self._rng = np.random.default_rng(seed)
        self._best = 0
        self._rule: Backfill = Easy(order="sjf", threshold="60h")
        self._chosen = self._looked = -math.inf  # when a rule was chosen, and EASY's longest wait computed [s]
        self._easy_s = _SHORTEST_LIMIT_S
        self._means = np.zeros(2)  # EASY's wait and bounded slowdown, added up over all futures

    def decide(self, view: QueueView | TableView) -> list[DispatchDecision]:
        """What to start now, and which later start is promised; in the queue's order."""
        if isinstance(view, QueueView):
            return self._rule.decide(view)
        if len(view.waiting) > 1 and view.now >= self._chosen + self._every:
            self._chosen = float(view.now)
            self._rule = self._choose(view)
        return decide_on_tables(self._rule, view)

    def _choose(self, view: TableView) -> Backfill:
        """The rule that is best on futures of this view."""
        seen = visible(view)
        if seen.now >= self._looked + DAY:
            self._looked = seen.now
            self.predictor.forget(seen.now - self._memory)
            self._easy_s = max(_SHORTEST_LIMIT_S, self._easy_longest(seen))
        rules = [each.rule(self._easy_s) for each in _CANDIDATES]
        users = [view.job(row).user for row in (*view.active.tolist(), *view.waiting.tolist())]
        alive, costs, left = list(range(len(rules))), np.zeros(len(rules)), self._work
        for future in range(self._futures):
            twin = self._future(seen, users)
            left -= len(twin.state.jobs) * (1 + len(alive))
            if future > 1 and left < 0:
                break
            wait, slowdown = _run(twin, _EASY, seen)
            limit = self._longest * max(self._easy_s, float(wait.max()))
            self._means += wait.mean(), slowdown.mean()
            weight = self._slowdown * self._means[0] / self._means[1]
            for rule in alive:
                wait, slowdown = _run(twin, rules[rule].numbers, seen)
                excess = np.maximum(wait - limit, 0.0)
                costs[rule] += wait.mean() + _EXCESS * excess.mean() + weight * slowdown.mean()
            if future % 2 and len(alive) > 3:
                ranked = sorted(alive, key=lambda rule: costs[rule])
                alive = sorted({*ranked[: max(3, len(alive) // 2)], self._best} & {*alive})
        self._best = min(alive, key=lambda rule: costs[rule])
        return rules[self._best]

    def _future(self, seen: Visible, users: Sequence[str]) -> Engine:
        """The queue in one future, at this moment; `users` of the running jobs and of the waiting ones."""
        ran = np.append(np.nan_to_num(seen.now - seen.started), np.zeros(len(seen.waiting)))
        running = len(seen.running)
        walltime = np.append(ran[:running] + seen.left_s, seen.walltime_s)
        run = self.predictor.draw(users, walltime, ran, self._rng) - ran
        left = np.maximum(run[:running], 1.0)
        return Twin.of(Snapshot.of(seen), left_s=left, run_s=run[running:], coming=self._coming(seen)).engine

    def _coming(self, seen: Visible) -> Workload:
        """What was submitted a whole number of days ago, drawn."""
        fewest = math.ceil(self._horizon / DAY)
        back = DAY * int(self._rng.integers(fewest, max(fewest, int(self._memory // DAY)), endpoint=True))
        jobs = self.predictor.since(seen.now - back, seen.now - back + self._horizon)
        jobs = [job for job in jobs if job.resources.cores <= seen.cores]
        cores, walltime = _columns(jobs)
        submit = np.array([job.submitted + back for job in jobs], dtype=np.float64)
        return Workload.of(submit=submit, run=self.predictor.runs(jobs, self._rng), cores=cores, walltime=walltime)

    def _easy_longest(self, seen: Visible) -> float:
        """The longest wait [s] that EASY would have had with the jobs that are remembered."""
        jobs = [job for job in self.predictor.since(-math.inf) if job.resources.cores <= seen.cores]
        if not jobs:
            return 0.0
        cores, walltime = _columns(jobs)
        run = self.predictor.runs(jobs, self._rng)
        work = Workload.of(submit=[job.submitted for job in jobs], run=run, cores=cores, walltime=walltime)
        engine = Engine(work, Cluster.of(nodes=1, cores=seen.cores), _SETTINGS)
        engine.dispatch(_EASY, seen.now)
        started = engine.state.jobs["started"][: len(jobs)]
        waits = np.where(np.isnan(started), seen.now, started) - engine.state.jobs["submit"][: len(jobs)]
        return float(waits.max())


def _run(twin: Engine, rule: BackfillRule, seen: Visible) -> tuple[Floats, Floats]:
    """Waits [s] and bounded slowdowns under a rule, of all jobs that do not run yet and ever will; shape (n,) each."""
    engine = twin.copy()
    while engine.dispatch(rule) is not StopReason.OVER:
        pass
    behind = slice(len(seen.running), int(engine.state.world[0]["arrivals"]))
    jobs, ended = engine.state.jobs[behind], engine.state.job_states["ended"][behind]
    ran: Bools = ~np.isnan(jobs["started"])
    if not ran.any():
        return np.zeros(1), np.ones(1)
    wait, run = (jobs["started"] - jobs["submit"])[ran], (ended - jobs["started"])[ran]
    return wait, np.maximum(1.0, (wait + run) / np.maximum(run, 10.0))
