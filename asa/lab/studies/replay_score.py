"""What predictions of recorded waits were worth: means over the sizes of a log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.units import HOUR
from asa.estimators.loss import OFFSET_S
from asa.lab.studies.accuracy import NEAR_S, accuracy
from asa.lab.studies.replay_waits import Replayed

WARMUP = 200
"""The first jobs of each size are predicted and learned from, but do not count."""


@dataclass(frozen=True)
class Score:
    """What predictions were worth; each number is the mean over the sizes of that over the jobs.

    Parameters
    ----------
    jobs
        How many counted, of all sizes.
    mae_h
        Mean distance of prediction and wait [h]: the next two together.
    late_h, early_h
        How much of the wait the predicted lead leaves, and by how much it is too long [h].
    log10_error
        Mean distance of the decimal logarithms, after adding `OFFSET_S` to both.
    hit_exact, within_one, not_over, regret, regret_switching
        As `asa.lab.studies.accuracy.Accuracy` has them.
    pinball_h
        Mean pinball loss at each quantile that was asked for [h]; of the median, half the MAE.
    calibration
        Share of the waits that were not above what was predicted for each quantile; None for an estimator that does
        not heed quantiles. Waits within `NEAR_S` of the prediction, such as the many of 0 s, may stand on either side:
        the share nearest to the quantile is taken.
    """

    jobs: int
    mae_h: float
    late_h: float
    early_h: float
    log10_error: float
    hit_exact: float
    within_one: float
    not_over: float
    regret: float
    regret_switching: float
    pinball_h: tuple[float, ...]
    calibration: tuple[float, ...] | None

    def to_json(self) -> dict[str, Any]:
        """All of it, by name."""
        return asdict(self)


def score(replayed: Replayed, warmup: int = WARMUP) -> Score:
    """What predictions were worth.

    Parameters
    ----------
    warmup
        Leave out so many jobs of each size; sizes of which nothing is left do not count.

    Raises
    ------
    InvalidInput
        When nothing is left at all.
    """
    parts = replayed.later(warmup).by_size()
    if not parts:
        raise InvalidInput(f"no size has more than the {warmup} jobs that are left out at its beginning: lower warmup")
    means: dict[str, float] = {}
    each = [accuracy(part.predicted, part.waits, int(part.sizes[0])) for part in parts]
    names = ("mae_h", "hit_exact", "within_one", "not_over", "regret", "regret_switching")
    for name in names:
        means[name] = float(np.mean([getattr(found, name) for found in each]))
    means["late_h"] = float(np.mean([found.perceived_h for found in each]))
    means["early_h"] = float(np.mean([np.maximum(0.0, part.predicted - part.waits).mean() for part in parts])) / HOUR
    means["log10_error"] = float(np.mean([log10_distance(part.predicted, part.waits).mean() for part in parts]))
    pinballs = np.mean([_pinball(part) for part in parts], axis=0) / HOUR
    under = np.mean([_under(part) for part in parts], axis=0)
    return Score(
        jobs=sum(found.jobs for found in each),
        **means,
        pinball_h=tuple(pinballs.tolist()),
        calibration=tuple(under.tolist()) if heeds_quantiles(replayed) else None,
    )


def log10_distance(predicted: Floats, waits: Floats) -> Floats:
    """Distance of the decimal logarithms of times [s], after adding `OFFSET_S` to both; shape (n,).

    >>> log10_distance(np.array([0.0, 540.0]), np.array([0.0, 0.0]))
    array([0., 1.])
    """
    return np.asarray(np.abs(np.log10((predicted + OFFSET_S) / (waits + OFFSET_S))))


def heeds_quantiles(replayed: Replayed) -> bool:
    """Whether what an estimator said never decreases from quantile to quantile, and somewhere increases.

    One that draws its predictions, or ignores quantiles, fails the one or the other.
    """
    said = replayed.quantile_predicted[:, np.argsort(replayed.quantiles)]
    rises = np.diff(said, axis=1)
    return bool((rises >= 0).all() and (rises > 0).any())


def _under(part: Replayed) -> Floats:
    """Share of the waits under each quantile, shape (quantiles,)."""
    above = part.waits[:, None] - part.quantile_predicted
    least, most = (above < -NEAR_S).mean(axis=0), (above <= NEAR_S).mean(axis=0)
    return np.asarray(np.clip(np.array(part.quantiles), least, most))


def _pinball(part: Replayed) -> Floats:
    """Mean loss at each quantile [s], shape (quantiles,)."""
    short = part.waits[:, None] - part.quantile_predicted
    tau = np.array(part.quantiles)
    return np.asarray(np.maximum(tau * short, (tau - 1.0) * short).mean(axis=0))
