"""Estimators beside each other on the recorded waits of several logs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.registry import ESTIMATORS
from asa.lab.studies.interval import Estimate, estimate
from asa.lab.studies.published import PAPER_ESTIMATOR
from asa.lab.studies.replay_score import WARMUP, Score, score
from asa.lab.studies.replay_waits import QUANTILES, Replayed, replay
from asa.lab.studies.waits_seen import Record

REFERENCE = "last"
"""All mean errors are compared with its."""

SPANS = 20
"""Stretches of each log, of equally many jobs, that intervals are found from."""

Progress = Callable[[str, str], None]


@dataclass(frozen=True, eq=False)
class Row:
    """An estimator on a log.

    Parameters
    ----------
    trace, estimator
        Their names.
    seeds
        What it was worth with each seed; one for an estimator that never draws.
    relative
        Mean absolute error over that of `REFERENCE`; the interval is that over stretches of the log.
    step_us
        Time that a prediction and learning the wait took in the mean [us].
    errors
        Sums of the absolute errors, in the mean over seeds, shape (SPANS, sizes) [s].
    """

    trace: str
    estimator: str
    seeds: tuple[Score, ...]
    relative: Estimate
    step_us: float
    errors: Floats = field(repr=False)

    def mean(self, name: str) -> float:
        """A number of the scores, in the mean over seeds."""
        return float(np.mean([getattr(each, name) for each in self.seeds]))

    def means(self, name: str) -> tuple[float, ...] | None:
        """The same of numbers for each quantile; None where there are none."""
        found = [getattr(each, name) for each in self.seeds]
        return None if None in found else tuple(np.mean(found, axis=0).tolist())

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "trace": self.trace,
            "estimator": self.estimator,
            "relative": self.relative.to_json(),
            "step_us": self.step_us,
            "seeds": [each.to_json() for each in self.seeds],
        }


@dataclass(frozen=True, eq=False)
class Table:
    """Estimators beside each other.

    Parameters
    ----------
    rows
        One for each log and estimator.
    overall
        Estimator -> the geometric mean of its relative errors over the logs.
    quantiles
        Which were asked for.
    """

    rows: tuple[Row, ...]
    overall: Mapping[str, Estimate]
    quantiles: tuple[float, ...] = QUANTILES

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "quantiles": list(self.quantiles),
            "overall": {name: found.to_json() for name, found in self.overall.items()},
            "rows": [row.to_json() for row in self.rows],
        }

    def text(self) -> str:
        """As tables of text."""
        from asa.lab.studies.replay_words import in_words

        return in_words(self)

    def draw(self, path: str | Path) -> None:
        """Draw relative errors and calibration; the suffix of `path` decides the format."""
        from asa.lab.studies.replay_picture import draw

        draw(self, path)


def tabulate(
    logs: Mapping[str, Sequence[Record]],
    estimators: Sequence[str],
    *,
    seeds: int = 3,
    seed: int = 0,
    warmup: int = WARMUP,
    quantiles: Sequence[float] = QUANTILES,
    progress: Progress | None = None,
) -> Table:
    """Replay every log to every estimator.

    Parameters
    ----------
    logs
        Name -> its jobs, in order of submission.
    estimators
        Specs; `REFERENCE` takes part in any case.
    seeds, seed
        How many, and the first one, for estimators that draw.
    warmup
        Jobs of each size that do not count, at its beginning.
    quantiles
        Which to ask for.
    progress
        Told the log and the estimator that come next.

    Raises
    ------
    InvalidInput
        When there are no logs, no seeds, or too few jobs in a log.
    UnknownName
        When there is no such estimator, or it has no such option.
    """
    if not logs or seeds < 1:
        raise InvalidInput(f"{len(logs)} logs and {seeds} seeds: at least one of each expected")
    specs = list(dict.fromkeys([REFERENCE, *estimators]))
    for spec in specs:
        ESTIMATORS.create(spec, seed=seed)  # better said before than after minutes
    rows = []
    for trace, records in logs.items():
        reference: Row | None = None
        for spec in specs:
            if progress is not None:
                progress(trace, spec)
            row = _row(
                trace, records, spec,
                seeds=range(seed, seed + seeds), warmup=warmup, quantiles=quantiles, reference=reference,
            )  # fmt: skip
            reference = reference or row
            rows.append(row)
    overall = {spec: _geometric([row for row in rows if row.estimator == spec], rows) for spec in specs}
    return Table(tuple(rows), overall, tuple(quantiles))


def default_estimators() -> list[str]:
    """All that have a name, but the one that simulates the queue for every prediction; and the paper's own."""
    return [*(name for name in ESTIMATORS if name != "forecast"), PAPER_ESTIMATOR]


def draws(estimator: Any) -> bool:
    """Whether an estimator's predictions depend on chance: it then keeps a generator in its state."""
    return "random" in estimator.state()


def _row(
    trace: str,
    records: Sequence[Record],
    spec: str,
    *,
    seeds: range,
    warmup: int,
    quantiles: Sequence[float],
    reference: Row | None,
) -> Row:
    if not draws(ESTIMATORS.create(spec, seed=seeds[0])):
        seeds = seeds[:1]
    runs = [
        replay(lambda given: ESTIMATORS.create(spec, seed=given), records, seed=each, quantiles=quantiles)
        for each in seeds
    ]
    scores = tuple(score(run, warmup) for run in runs)
    errors = np.mean([_errors(run.later(warmup)) for run in runs], axis=0)
    base = errors if reference is None else reference.errors
    step_us = float(np.mean([run.step_us for run in runs]))
    return Row(trace, spec, scores, estimate(_ratio, np.hstack([errors, base])), step_us, errors)


def _errors(replayed: Replayed) -> Floats:
    """Sums of absolute errors in each of `SPANS` stretches, over the jobs of its size, shape (SPANS, sizes)."""
    columns = []
    for part in replayed.by_size():
        error = np.abs(part.predicted - part.waits) / len(part.waits)
        columns.append([chunk.sum() for chunk in np.array_split(error, SPANS)])
    return np.array(columns).T


def _ratio(values: Floats) -> Floats:
    """Sums of the first half of the columns over those of the other half; shape (..., SPANS, columns) to (...)."""
    sums = values.sum(axis=-2)
    half = sums.shape[-1] // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., :half].sum(axis=-1) / sums[..., half:].sum(axis=-1))


def _geometric(rows: Sequence[Row], everything: Sequence[Row]) -> Estimate:
    """The geometric mean of the ratios of an estimator over its logs."""
    base = {row.trace: row for row in everything if row.estimator == REFERENCE}
    pairs = [np.hstack([row.errors, base[row.trace].errors]) for row in rows]
    edges = np.cumsum([0, *(pair.shape[1] for pair in pairs)])

    def mean(values: Floats) -> Floats:
        ratios = [_ratio(values[..., a:b]) for a, b in itertools.pairwise(edges)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.exp(np.mean(np.log(ratios), axis=0)))

    return estimate(mean, np.hstack(pairs))
