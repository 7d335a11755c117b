"""A backfilling rule fitted to a site's own log, and dispatchers compared on jobs that nothing was fitted to.

A log is cut in three by the order of submission: rules are fitted on the first 60 % of the jobs, one of the best is
chosen by the next 20 %, and what counts are the last 20 %. Each simulation begins with the log's first job and ends
with the part that is looked at, so that parts begin with the queue that the same dispatcher has left, and predictors
have seen what came before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import AsaError, InvalidInput, UnknownName
from asa.core.units import WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import ORDERS
from asa.lab.metrics.energy import energy
from asa.lab.metrics.schedule import bounded_slowdown
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import walltimes
from asa.lab.study import Estimate, estimate

FIT, CHOOSE = 0.6, 0.8
"""Shares of the jobs at which the parts end that rules are fitted on and chosen by."""

BESIDE = ("easy:order=sjf,threshold=60h", "easy:order=wfp3", "easy++")
"""Dispatchers that a tuned one is compared to, besides EASY."""

FEWEST = 100
"""Jobs of a log, at least: 20 in each of the two smaller parts."""

Progress = Callable[[int, int, str], None]
"""Called after each simulation with how many are done, of at most how many, and what was simulated."""


# -- Rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedRule:
    """A backfilling rule in five choices.

    Parameters
    ----------
    threshold_h
        Hours after which a waiting job comes first; infinite: never.
    oldest, depth, order, predictor
        As in `asa.lab.dispatchers.backfill.Backfill`; without a predictor, wall times are planned with.

    Examples
    --------
    >>> print(TunedRule("sjf", 24.0, oldest=2))
    backfill:depth=1,order=sjf,threshold=24h,oldest=2
    """

    order: str = "sjf"
    threshold_h: float = 60.0
    oldest: float = math.inf
    depth: float = 1
    predictor: str = ""

    def __post_init__(self) -> None:
        if self.threshold_h == math.inf:  # no job is beyond it
            object.__setattr__(self, "oldest", math.inf)

    def __str__(self) -> str:
        words = [f"depth={self.depth:g}", f"order={self.order}"]
        if self.threshold_h < math.inf:
            words.append(f"threshold={self.threshold_h:g}h")
        if self.oldest < math.inf:
            words.append(f"oldest={self.oldest:g}")
        if self.predictor:
            words.append(f"predictor={self.predictor},strict_after=24h")
        return "backfill:" + ",".join(words)


VALUES: Mapping[str, tuple[Any, ...]] = {
    "threshold_h": (6.0, 12.0, 18.0, 24.0, 36.0, 48.0, 60.0, 84.0, 120.0, math.inf),
    "oldest": (1, 2, 4, math.inf),
    "order": tuple(ORDERS),
    "depth": (1, 2, 4, 8),
}
"""What is tried of each choice; predictors are tried last, on the best rules: they take longer."""


# -- What becomes of the jobs of a part --------------------------------------------------------------------------------


class PartWaits(NamedTuple):
    """Waits [s] and bounded slowdowns of the jobs of a part that ran, and the weeks they came in; shape (n,) each.

    And what the machine drew from the log's first job to the part's last end: see `asa.lab.metrics.energy.energy`.
    """

    wait: Floats
    slowdown: Floats
    week: Ints
    drawn: Mapping[str, float] = MappingProxyType({})


class Shares(NamedTuple):
    """Mean wait, mean bounded slowdown, 99th percentile of waits and longest wait, as shares of EASY's."""

    wait: Any
    slowdown: Any
    p99: Any
    longest: Any


def measures(jobs: PartWaits) -> Shares:
    """The four numbers themselves [s, -, s, s]."""
    waits = [float(of) for of in (jobs.wait.mean(), np.percentile(jobs.wait, 99), jobs.wait.max())]
    return Shares(waits[0], float(jobs.slowdown.mean()), *waits[1:])


def shares(found: PartWaits, easy: PartWaits) -> Shares:
    """The four numbers of one dispatcher over those of EASY; infinite where EASY's is 0 and the other's is not."""
    pairs = zip(measures(found), measures(easy), strict=True)
    return Shares(*(a / b if b > 0 else 1.0 if a == 0 else math.inf for a, b in pairs))


def intervals(found: PartWaits, easy: PartWaits, *, seed: int = 0) -> Shares:
    """`shares` as `asa.lab.study.Estimate`; all but that of the percentile with an interval of 95 %.

    Whole weeks are drawn with replacement, the same for both, out of what was simulated: nothing is simulated again. So
    what a week leaves to the next one stays as it was, and intervals of the longest wait are too narrow.
    """
    last = int(max(found.week.max(), easy.week.max()))
    both = np.column_stack([each for part in (found, easy) for each in _by_week(part, last + 1)])
    weeks = both[both[:, [0, 4]].sum(axis=1) > 0]

    def ratio(column: int) -> Callable[[Floats], Floats]:
        def mean(drawn: Floats) -> Floats:
            sums = drawn.sum(axis=-2)
            with np.errstate(divide="ignore", invalid="ignore"):
                share: Floats = sums[..., column] / sums[..., 0] / (sums[..., 4 + column] / sums[..., 4])
            return share

        return mean

    def longest(drawn: Floats) -> Floats:
        most = drawn.max(axis=-2)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = most[..., 3] / most[..., 7]
        return share

    wait, slowdown, most = (estimate(each, weeks, seed=seed) for each in (ratio(1), ratio(2), longest))
    return Shares(wait, slowdown, Estimate(shares(found, easy).p99), most)


def _by_week(jobs: PartWaits, weeks: int) -> list[Floats]:
    """Of each week: jobs, sum of the waits, sum of the slowdowns, and the longest wait; shape (weeks,) each."""
    most = np.zeros(weeks)
    np.maximum.at(most, jobs.week, jobs.wait)
    sums = [np.bincount(jobs.week, weights=of, minlength=weeks) for of in (jobs.wait, jobs.slowdown)]
    return [np.bincount(jobs.week, minlength=weeks).astype(float), *sums, most]


# -- The protocol -----------------------------------------------------------------------------------------------------

OBJECTIVES = ("both", "wait", "slowdown")
"""What is to be small: the mean wait, the mean bounded slowdown, or the geometric mean of their shares of EASY's."""


def check_aims(objective: str, longest: float) -> None:
    """Refuse what `Trial` cannot aim at.

    Raises
    ------
    InvalidInput
        When there is no such objective, or the limit of the longest wait is not above 0 and finite.
    """
    if objective not in OBJECTIVES:
        raise UnknownName("objective", objective, OBJECTIVES)
    if not 0 < longest < math.inf:
        raise InvalidInput(f"longest={longest!r}: a finite share of EASY's longest wait, above 0, expected")


class TriedRule(NamedTuple):
    """A rule and its shares of EASY's on a part; ranked by whether the longest wait is above the limit, and by the
    objective, times how far it is above. Lower is better.
    """

    rule: TunedRule
    shares: Shares
    rank: tuple[bool, float]


class Trial:
    """A log in three parts, and what dispatchers make of each.

    Parameters
    ----------
    objective
        Of `OBJECTIVES`.
    longest
        The longest wait may be so many times EASY's; > 0. A rule that breaks this is worse than all that do not.
    predictor
        What all plan with, as `asa.lab.simulator.run.simulate` takes it.

    Raises
    ------
    InvalidInput
        When the log has too few jobs, or none has a requested time and `predictor` is ``"user"``, or no job waits in a
        part, or an option is out of bounds.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        *,
        objective: str = OBJECTIVES[0],
        longest: float = 1.1,
        predictor: str = "user",
        progress: Progress | None = None,
    ) -> None:
        check_aims(objective, longest)
        if len(workload) < FEWEST:
            raise InvalidInput(f"{len(workload)} jobs: at least {FEWEST} expected, to fit, to choose and to report")
        if predictor == "user" and np.isnan(walltimes(workload, cluster)).all():
            raise InvalidInput(
                f"none of {len(workload)} jobs has a requested time, with which EASY plans, and all are compared to "
                "EASY: give a --predictor for all, oracle, or one with a default such as last-two:default_s=3600"
            )
        self._workload, self._cluster, self._predictor = workload, cluster, predictor
        self._objective, self._longest, self._progress = objective, longest, progress
        ends = [0, int(FIT * len(workload)), int(CHOOSE * len(workload)), len(workload)]
        self.parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        self.simulated, self.most = 0, 0
        self._easy = [self.outcome("easy", part) for part in range(3)]
        for part, what in enumerate(("first 60 %", "next 20 %", "last 20 %")):
            if not (len(self._easy[part].wait) and self._easy[part].wait.max() > 0):
                raise InvalidInput(f"under easy none of the {what} of the jobs waits: there is nothing to gain")

    def outcome(self, dispatcher: TunedRule | str, part: int) -> PartWaits:
        """What becomes of the jobs of a part (0, 1 or 2) when a dispatcher has served the machine from the start."""
        rows = self.parts[part]
        power = self._cluster.power
        made = simulate(
            self._workload.take(np.arange(rows.stop)),
            self._cluster,
            str(dispatcher),
            predictor=self._predictor,
            keep_nodes=power is not None and power.off_w is not None,
        )
        self.simulated += 1
        if self._progress is not None:
            self._progress(self.simulated, max(self.simulated, self.most), f"{dispatcher}")
        mine = np.flatnonzero(made.ran)
        mine = mine[mine >= rows.start]
        submit, start, end = made.workload.submit[mine], made.start[mine], made.end[mine]
        week = ((submit - made.workload.submit[0]) // WEEK).astype(np.int64)
        return PartWaits(start - submit, bounded_slowdown(end - submit, end - start), week, energy(made))

    def judge(self, rule: TunedRule, part: int) -> TriedRule:
        found = shares(self.outcome(rule, part), self._easy[part])
        return TriedRule(rule, found, self._rank(found))

    def _rank(self, found: Shares) -> tuple[bool, float]:
        value = {"wait": found.wait, "slowdown": found.slowdown}.get(
            self._objective, math.sqrt(found.wait * found.slowdown)
        )
        return found.longest > self._longest, value * max(1.0, found.longest / self._longest)

    def tune(self, evaluations: int, *, predictors: Sequence[str] = ("alike",), best: int = 6, seed: int = 0) -> str:
        """The rule that is fitted and chosen; `easy` where none is better within the limit.

        From one rule after another, the first ``sjf`` after 60 h, the rest drawn, one choice after another is tried
        with all its values and the best is kept, until none changes. Then the best few are tried with predictors, and
        of all the best few are tried on the second part.

        Parameters
        ----------
        evaluations
            Rules that are tried on the first part without predictors, at most; >= 1.
        best
            Rules that are tried with each predictor, at most 3 of them, and on the second part; >= 1.
        """
        if evaluations < 1 or best < 1:
            raise InvalidInput(f"evaluations={evaluations}, best={best}: at least 1 of each expected")
        draw = np.random.default_rng(seed)
        few = min(best, 3)
        self.most = self.simulated + evaluations + few * len(predictors) + best
        tried: dict[TunedRule, TriedRule] = {}
        start = TunedRule()
        size = len({TunedRule(**dict(zip(VALUES, of, strict=True))) for of in itertools.product(*VALUES.values())})
        while len(tried) < min(evaluations, size):
            self._descend(start, tried, evaluations)
            start = TunedRule(**{name: of[draw.integers(len(of))] for name, of in VALUES.items()})
        for judged in _best(tried, few):
            for predictor in predictors:
                rule = replace(judged.rule, predictor=predictor)
                tried[rule] = self.judge(rule, 0)
        again = [self.judge(judged.rule, 1) for judged in _best(tried, best) if not judged.rank[0]]
        chosen = min(again, key=lambda judged: judged.rank, default=None)
        easy = self._rank(Shares(1.0, 1.0, 1.0, 1.0))
        return "easy" if chosen is None or chosen.rank >= easy else str(chosen.rule)

    def _descend(self, rule: TunedRule, tried: dict[TunedRule, TriedRule], evaluations: int) -> None:
        """Change one choice after another for the better, until none is, or enough has been tried."""
        changed = True
        while changed:
            changed = False
            for name, values in VALUES.items():
                found = []
                for value in values:
                    other = replace(rule, **{name: value})
                    if other not in tried:
                        if len(tried) == evaluations:
                            return
                        tried[other] = self.judge(other, 0)
                    found.append(tried[other])
                better = min(found, key=lambda judged: judged.rank[1])  # beyond the limit, too: the way may lead back
                if better.rank[1] < tried[rule].rank[1]:
                    rule, changed = better.rule, True

    def report(self, dispatchers: Sequence[str], *, seed: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
        """A row for EASY and for each dispatcher, on the last part; and what was refused, with the reason."""
        self.most = self.simulated + len(dispatchers)
        rows, refused = [], []
        for name in dict.fromkeys(("easy", *dispatchers)):
            try:
                found = self._easy[2] if name == "easy" else self.outcome(name, 2)
            except AsaError as error:
                refused.append(f"{name}: {error}")
                continue
            mean, slowdown, p99, most = measures(found)
            numbers = {"mean_wait_s": mean, "mean_bounded_slowdown": slowdown, "p99_wait_s": p99, "max_wait_s": most}
            of_easy = intervals(found, self._easy[2], seed=seed)._asdict()
            rows.append({"dispatcher": name, "jobs": len(found.wait), **numbers, **found.drawn, "of_easy": of_easy})
        return rows, refused


def _best(tried: dict[TunedRule, TriedRule], count: int) -> list[TriedRule]:
    """The best of them that differ in what became of the jobs."""
    found: dict[Shares, TriedRule] = {}
    for judged in sorted(tried.values(), key=lambda judged: judged.rank):
        found.setdefault(judged.shares, judged)
    return list(found.values())[:count]
