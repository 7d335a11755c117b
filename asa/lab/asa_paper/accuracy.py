"""How well an estimator predicts waits (Table 2), when each wait becomes known only once the job has started."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS
from asa.core.units import HOUR
from asa.estimators.loss import PAPER_GRID, nearest, pinball, with_zero
from asa.estimators.regret import best_fixed, best_switching, loss_table
from asa.lab.study import Estimate, estimate

GRACE_S = 300.0
"""How long an allocation that came too early is kept before it is released [s], as `asa-naive` does."""

NEAR_S = 60.0
"""A prediction that is not more than this above the wait is not over it [s]."""

_GRID = with_zero(PAPER_GRID)


class Probe(NamedTuple):
    """A job that is watched: when it was submitted, and how long it waited [s]."""

    submitted: float
    wait_s: float

    @property
    def started(self) -> float:
        """When its wait became known [s]."""
        return self.submitted + self.wait_s


@dataclass(frozen=True)
class Accuracy:
    """What predictions were worth.

    Parameters
    ----------
    known
        Share of them before which any wait of their kind was known, in [0, 1].
    real_h, predicted_h, perceived_h
        Mean waits [h]: real, predicted, and what is left of the real one after the predicted lead.
    real_sd_h, predicted_sd_h, perceived_sd_h
        Their standard deviations [h].
    hit, miss
        Share of the jobs that came no more than `GRACE_S` too early, and of those that did, which are released and
        asked for again. A prediction of 0 always hits.
    overhead_core_hours
        Held idle because jobs came too early, in the mean over all jobs, each until it is released.
    idle_core_hours
        The same, if each were kept until its stage is ready.
    hit_exact, within_one
        Share of predictions whose closest alternative of the grid is that of the wait, or at most one off.
    not_over
        Share of predictions at most `NEAR_S` above the wait.
    mae_h
        Mean distance of prediction and wait [h].
    within_2x, within_3x
        Share of predictions that are at most 2 or 3 times too long or too short; times below a minute count as one.
    within_10min
        Share of predictions at most ten minutes too long or too short.
    regret, regret_switching
        Loss a job beyond that of the best alternative in hindsight, and of the best sequence of alternatives that
        changes once every `SPAN` jobs (scaled pinball loss on the logarithmic axis).
    """

    jobs: int
    known: float
    real_h: float
    real_sd_h: float
    predicted_h: float
    predicted_sd_h: float
    perceived_h: float
    perceived_sd_h: float
    hit: float
    miss: float
    overhead_core_hours: float
    idle_core_hours: float
    hit_exact: float
    within_one: float
    not_over: float
    mae_h: float
    within_2x: float
    within_3x: float
    within_10min: float
    regret: float
    regret_switching: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


SPAN = 60
"""Jobs between two changes of the best sequence in hindsight: as many as the paper submits of each geometry."""


def predict_all(estimator: Estimator, probes: Sequence[Probe], until: float = -math.inf) -> tuple[Floats, int]:
    """Predictions for each probe at its submission, shape (n,) [s]; and how many were made before any wait was known.

    The estimator learns waits in order of the starts, each only once its job has started: feedback is as late as the
    wait is long.

    Examples
    --------
    A wait of 100 s is known to the third job, not to the second.

    >>> from asa.estimators.baselines import Last
    >>> predict_all(Last(), [Probe(0.0, 100.0), Probe(60.0, 200.0), Probe(120.0, 50.0)])
    (array([  0.,   0., 100.]), 2)
    """
    return in_turn(
        [probe.submitted for probe in probes],
        [probe.started for probe in probes],
        lambda _place: estimator.predict(),
        lambda place, said: estimator.learn(probes[place].wait_s, said),
        until,
    )


def in_turn(
    submitted: Sequence[float],
    started: Sequence[float],
    predict: Callable[[int], float],
    learn: Callable[[int, float], None],
    until: float = -math.inf,
) -> tuple[Floats, int]:
    """Predictions for each job at its submission, shape (n,) [s]; and how many were made before any wait was known.

    Feedback is as late as the wait is long.

    Parameters
    ----------
    submitted, started
        When each job was submitted, ascending, and when it started [s].
    predict
        Called with a job's place, at its submission.
    learn
        Called with the place of a job that has started and its prediction [s], in order of the starts.

    Raises
    ------
    InvalidInput
        When the jobs are not in order of submission.
    """
    waiting: list[tuple[float, int]] = []
    made = np.empty(len(submitted))
    blind, before = 0, -math.inf

    def learn_known(now: float) -> None:
        while waiting and waiting[0][0] <= now:
            place = heapq.heappop(waiting)[1]
            learn(place, float(made[place]))

    for place, (now, start) in enumerate(zip(submitted, started, strict=True)):
        if now < before:
            raise InvalidInput(f"job {place} was submitted before the one above it: sort them by submission")
        before = now
        learn_known(now)
        blind += len(waiting) == place  # all that were submitted still wait
        made[place] = predict(place)
        heapq.heappush(waiting, (start, place))
    learn_known(until)
    return made, blind


def accuracy(predicted: Floats, waits: Floats, cores: int, blind: int = 0) -> Accuracy:
    """Compare predictions with waits, both of shape (n,) [s], of jobs of so many cores.

    Notes
    -----
    The paper's Table 2 cannot be met in all columns at once: its perceived waits are not what is left of the real ones
    after the predicted lead, though section 4.1 defines them so.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 4.8 and Table 2.
    """
    if not len(waits) or len(predicted) != len(waits):
        raise InvalidInput(
            f"{len(predicted)} predictions and {len(waits)} waits: as many of both, at least one, expected"
        )
    early = np.maximum(0.0, predicted - waits)
    late = np.maximum(0.0, waits - predicted)
    miss = early > GRACE_S
    steps = np.array([abs(nearest(_GRID, a) - nearest(_GRID, w)) for a, w in zip(predicted, waits, strict=True)])
    lost = np.array([pinball(np.array([a]), w)[0] for a, w in zip(predicted, waits, strict=True)])
    losses = loss_table(_GRID, waits, pinball)
    shorter, longer = np.sort(np.maximum([predicted, waits], NEAR_S), axis=0)
    jobs = len(waits)
    return Accuracy(
        jobs=jobs,
        known=1.0 - blind / jobs,
        real_h=float(waits.mean()) / HOUR,
        real_sd_h=float(waits.std()) / HOUR,
        predicted_h=float(predicted.mean()) / HOUR,
        predicted_sd_h=float(predicted.std()) / HOUR,
        perceived_h=float(late.mean()) / HOUR,
        perceived_sd_h=float(late.std()) / HOUR,
        hit=float((~miss).mean()),
        miss=float(miss.mean()),
        overhead_core_hours=float(np.minimum(early, GRACE_S).mean()) * cores / HOUR,
        idle_core_hours=float(early.mean()) * cores / HOUR,
        hit_exact=float((steps == 0).mean()),
        within_one=float((steps <= 1).mean()),
        not_over=float((predicted <= waits + NEAR_S).mean()),
        mae_h=float((early + late).mean()) / HOUR,
        within_2x=float((longer <= 2 * shorter).mean()),
        within_3x=float((longer <= 3 * shorter).mean()),
        within_10min=float((early + late <= 600.0).mean()),
        regret=(float(lost.sum()) - best_fixed(losses)) / jobs,
        regret_switching=(float(lost.sum()) - best_switching(losses, (jobs - 1) // SPAN)) / jobs,
    )


PAPER_PROBES, PAPER_EVERY_S = 60, 60.0
"""Section 4.8: so many submissions of each geometry, so far apart [s]."""

PAPER, DAYS = "paper", "days"
"""The protocols: as in section 4.8, all at once; and over days, so that most waits are known when the next is asked."""

NUMBERS = tuple(item.name for item in fields(Accuracy))
"""Of a row, by name."""


@dataclass(frozen=True)
class Judged:
    """How an estimator did on one geometry of one queue.

    Parameters
    ----------
    workflow, cores
        Whose largest stage the jobs are like.
    """

    system: str
    regime: str
    workflow: str
    cores: int
    protocol: str
    estimator: str
    seed: int
    accuracy: Accuracy

    @property
    def key(self) -> tuple[str, str, str, int, str, str]:
        """All but the seed."""
        return self.system, self.regime, self.workflow, self.cores, self.protocol, self.estimator

    def to_json(self) -> dict[str, Any]:
        return {**dict(zip(KEY, self.key, strict=True)), "seed": self.seed, **self.accuracy.to_json()}


KEY = ("system", "regime", "workflow", "cores", "protocol", "estimator")


def judge(estimator: str, probes: Sequence[Probe], cores: int, seed: int) -> Accuracy:
    """What a fresh estimator's predictions for these probes are worth, feedback being as late as it is."""
    fresh: Estimator = ESTIMATORS.create(estimator, seed=seed)
    made, blind = predict_all(fresh, probes)
    return accuracy(made, np.array([probe.wait_s for probe in probes]), cores, blind)


def means_over_seeds(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Means over seeds: a row for each geometry, protocol and estimator, with an `Estimate` of each number."""
    together: dict[Any, list[Accuracy]] = {}
    for each in judged:
        together.setdefault(each.key, []).append(each.accuracy)
    return [
        dict(zip(KEY, key, strict=True)) | {name: _mean([getattr(each, name) for each in found]) for name in NUMBERS}
        for key, found in together.items()
    ]


def _mean(values: Sequence[float]) -> Estimate:
    return estimate(lambda drawn: drawn.mean((-2, -1)), np.array(values)[:, None])
