"""Estimators on recorded waits: what each would have predicted, scored, as a table and as a picture."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.command import table
from asa.core.errors import InvalidInput
from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS
from asa.core.units import HOUR
from asa.estimators.loss import OFFSET_S
from asa.lab.asa_paper.accuracy import NEAR_S, accuracy, in_turn
from asa.lab.asa_paper.published import PAPER_ESTIMATOR
from asa.lab.asa_paper.queue_history import ObservedWait
from asa.lab.study import LEVEL, Estimate, estimate, reaches
from asa.report.picture import LINE, charts, legend, marker, new_figure, save_figure, series_colour, ticks_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Make = Callable[[int], Estimator]
"""A fresh estimator from a seed."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, eq=False)
class Replayed:
    """Predictions beside the waits that came, in order of submission.

    Parameters
    ----------
    predicted, waits
        Shape (n,) [s].
    quantile_predicted
        What was said to each of them, shape (n, quantiles) [s].
    step_us
        Time that a prediction and learning the wait took in the mean [us].
    """

    predicted: Floats
    waits: Floats
    sizes: Ints
    quantiles: tuple[float, ...]
    quantile_predicted: Floats
    step_us: float = math.nan

    def later(self, first: int) -> Replayed:
        """All but the first so many jobs of each size."""
        keep = np.ones(len(self.waits), dtype=bool)
        for size in np.unique(self.sizes):
            keep[np.flatnonzero(self.sizes == size)[:first]] = False
        return self._take(keep)

    def by_size(self) -> list[Replayed]:
        """One for each size, smallest first."""
        return [self._take(self.sizes == size) for size in np.unique(self.sizes)]

    def _take(self, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Replayed:
        return Replayed(
            self.predicted[keep],
            self.waits[keep],
            self.sizes[keep],
            self.quantiles,
            self.quantile_predicted[keep],
            self.step_us,
        )


def replay(
    make_estimator: Make, records: Sequence[ObservedWait], *, seed: int = 0, quantiles: Sequence[float] = ()
) -> Replayed:
    """Predict each job at its submission; learn its wait when it starts, with the context of its submission.

    An estimator whose class says ``pooled = True`` sees the jobs of all sizes; of any other there is one for each size.

    Examples
    --------
    A wait of 100 s is known to the third job, not to the second.

    >>> from asa.core.context import Context
    >>> from asa.estimators.baselines import Last
    >>> waits = [(0.0, 100.0), (60.0, 200.0), (120.0, 50.0)]
    >>> jobs = [ObservedWait(4, at, wait, Context(at, cores=4)) for at, wait in waits]
    >>> replay(lambda seed: Last(seed=seed), jobs).predicted
    array([  0.,   0., 100.])
    """
    sizes = np.array([record.size for record in records], dtype=np.int64)
    estimators = _estimators(make_estimator, np.unique(sizes).tolist(), seed)
    at_quantiles = np.empty((len(records), len(quantiles)))
    spent = 0.0

    def predict(place: int) -> float:
        nonlocal spent
        record = records[place]
        estimator, began = estimators[record.size], time.perf_counter()
        said = estimator.predict(record.context)
        spent += time.perf_counter() - began
        for column, quantile in enumerate(quantiles):
            at_quantiles[place, column] = estimator.predict(record.context, quantile)
        return said

    def learn(place: int, said: float) -> None:
        nonlocal spent
        record, began = records[place], time.perf_counter()
        estimators[record.size].learn(record.wait_s, said, record.context)
        spent += time.perf_counter() - began

    times = [record.submitted for record in records], [record.started for record in records]
    made, _ = in_turn(*times, predict, learn)
    waits = np.array([record.wait_s for record in records])
    return Replayed(made, waits, sizes, tuple(quantiles), at_quantiles, 1e6 * spent / max(1, len(records)))


def _estimators(make: Make, sizes: Sequence[int], seed: int) -> dict[int, Estimator]:
    """The estimator of each size: the same one for all of them if it is pooled."""
    found: dict[int, Estimator] = {}
    shared: Estimator | None = None
    for size, each in zip(sizes, np.random.SeedSequence(seed).generate_state(len(sizes)).tolist(), strict=True):
        found[size] = make(each) if shared is None else shared
        if getattr(found[size], "pooled", False):
            shared = found[size]
    return found


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
    hit_exact, within_one, not_over, within_2x, within_3x, within_10min, regret, regret_switching
        As `asa.lab.asa_paper.accuracy.Accuracy` has them.
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
    within_2x: float
    within_3x: float
    within_10min: float
    regret: float
    regret_switching: float
    pinball_h: tuple[float, ...]
    calibration: tuple[float, ...] | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_SHARED = (
    "mae_h", "hit_exact", "within_one", "not_over", "within_2x", "within_3x", "within_10min", "regret",
    "regret_switching",
)  # fmt: skip


def score(replayed: Replayed, warmup: int = WARMUP) -> Score:
    """What predictions were worth."""
    parts = replayed.later(warmup).by_size()
    if not parts:
        raise InvalidInput(f"no size has more than the {warmup} jobs that are left out at its beginning: lower warmup")
    means: dict[str, float] = {}
    each = [accuracy(part.predicted, part.waits, int(part.sizes[0])) for part in parts]
    for name in _SHARED:
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


REFERENCE = "last"
"""All mean errors are compared with its."""

SPANS = 20
"""Stretches of each log, of equally many jobs, that intervals are found from."""

Progress = Callable[[str, str], None]


@dataclass(frozen=True, eq=False)
class EstimatorRow:
    """An estimator on a log.

    Parameters
    ----------
    seeds
        What it was worth with each seed; one for an estimator that never draws.
    relative
        Mean absolute error over that of `REFERENCE`; the interval is that over stretches of the log.
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
        return {
            "trace": self.trace,
            "estimator": self.estimator,
            "relative": self.relative.to_json(),
            "step_us": self.step_us,
            "seeds": [each.to_json() for each in self.seeds],
        }


@dataclass(frozen=True, eq=False)
class ReplayTable:
    """Estimators beside each other.

    Parameters
    ----------
    overall
        Estimator -> the geometric mean of its relative errors over the logs.
    """

    rows: tuple[EstimatorRow, ...]
    overall: Mapping[str, Estimate]
    quantiles: tuple[float, ...] = QUANTILES

    def to_json(self) -> dict[str, Any]:
        return {
            "quantiles": list(self.quantiles),
            "overall": {name: found.to_json() for name, found in self.overall.items()},
            "rows": [row.to_json() for row in self.rows],
        }

    def text(self) -> str:
        """A table for each log, and one over all."""
        traces = list(dict.fromkeys(row.trace for row in self.rows))
        parts = []
        for trace in traces:
            rows = [row for row in self.rows if row.trace == trace]
            sizes = rows[0].errors.shape[1]
            heading = f"{trace}: {rows[0].seeds[0].jobs} jobs, means over {sizes} {'size' if sizes == 1 else 'sizes'}"
            parts.append(f"{heading}\n{table(replay_lines(rows, self.quantiles), 'nothing')}")
        if len(traces) > 1:
            overall = [{"estimator": name, "MAE/last": str(value)} for name, value in self.overall.items()]
            parts.append(f"geometric mean over {len(traces)} logs\n{table(overall, 'nothing')}")
        return "\n\n".join([*parts, _LEGEND])

    def draw(self, path: str | Path) -> None:
        """Draw it; the suffix of `path` decides the format.

        On the left, each estimator's mean absolute error over that of the last wait, a mark for each log with its
        interval, and a line for the geometric mean. On the right, the share of waits under each predicted quantile, for
        estimators that heed quantiles, in the mean over logs: on the diagonal where they are calibrated, above it where
        waits of exactly 0 are many.
        """
        figure = new_figure(_WIDTH_IN, 1.8 + 0.3 * len(self.overall))
        left, right = charts(figure, 1, 2, width_ratios=(3, 2))
        _draw_errors(left, self)
        _draw_calibration(right, self)
        save_figure(figure, path)


def tabulate(
    logs: Mapping[str, Sequence[ObservedWait]],
    estimators: Sequence[str],
    *,
    seeds: int = 3,
    seed: int = 0,
    warmup: int = WARMUP,
    quantiles: Sequence[float] = QUANTILES,
    progress: Progress | None = None,
) -> ReplayTable:
    """Replay every log to every estimator.

    Parameters
    ----------
    estimators
        Specs; `REFERENCE` takes part in any case.
    seeds, seed
        How many, and the first one, for estimators that draw.
    warmup
        Jobs of each size that do not count, at its beginning.

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
        reference: EstimatorRow | None = None
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
    return ReplayTable(tuple(rows), overall, tuple(quantiles))


def default_estimators() -> list[str]:
    """All that have a name, but the one that simulates the queue for every prediction; and the paper's own."""
    return [*(name for name in ESTIMATORS if name != "forecast"), PAPER_ESTIMATOR]


def draws(estimator: Any) -> bool:
    """Whether an estimator's predictions depend on chance: it then keeps a generator in its state."""
    return "random" in estimator.state()


def _row(
    trace: str,
    records: Sequence[ObservedWait],
    spec: str,
    *,
    seeds: range,
    warmup: int,
    quantiles: Sequence[float],
    reference: EstimatorRow | None,
) -> EstimatorRow:
    if not draws(ESTIMATORS.create(spec, seed=seeds[0])):
        seeds = seeds[:1]
    runs = [
        replay(lambda given: ESTIMATORS.create(spec, seed=given), records, seed=each, quantiles=quantiles)
        for each in seeds
    ]
    scores = tuple(score(run, warmup) for run in runs)
    errors = np.mean([_error_sums(run.later(warmup)) for run in runs], axis=0)
    base = errors if reference is None else reference.errors
    step_us = float(np.mean([run.step_us for run in runs]))
    return EstimatorRow(trace, spec, scores, estimate(_ratio, np.hstack([errors, base])), step_us, errors)


def _error_sums(replayed: Replayed) -> Floats:
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


def _geometric(rows: Sequence[EstimatorRow], everything: Sequence[EstimatorRow]) -> Estimate:
    """The geometric mean of the ratios of an estimator over its logs."""
    base = {row.trace: row for row in everything if row.estimator == REFERENCE}
    pairs = [np.hstack([row.errors, base[row.trace].errors]) for row in rows]
    edges = np.cumsum([0, *(pair.shape[1] for pair in pairs)])

    def mean(values: Floats) -> Floats:
        ratios = [_ratio(values[..., a:b]) for a, b in itertools.pairwise(edges)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.exp(np.mean(np.log(ratios), axis=0)))

    return estimate(mean, np.hstack(pairs))


_COLUMNS = {
    "mae_h": "MAE [h]", "within_2x": "x2", "within_3x": "x3", "within_10min": "10 min", "not_over": "not over",
    "late_h": "late [h]", "early_h": "early [h]",
}  # fmt: skip

_LEGEND = f"""\
MAE: mean distance of prediction and wait, which is late and early together; /last: over that of the last wait,
[{100 * LEVEL:.0f} % interval, bootstrap over stretches of the log]; x2, x3: share of waits predicted within a factor
of 2 and of 3, times below a minute counted as one; 10 min: within ten minutes; not over: at most a minute above the
wait; under: share of the waits not above what was predicted for each quantile, - for estimators without quantiles;
us: time of a prediction and of learning"""


def replay_lines(rows: Sequence[EstimatorRow], quantiles: Sequence[float]) -> list[dict[str, Any]]:
    """What is shown of each row, by heading."""
    return [
        {"estimator": row.estimator, "/last": str(row.relative)}
        | {heading: f"{row.mean(name):.3f}" for name, heading in _COLUMNS.items()}
        | {f"under {q:g}": _share(row.means("calibration"), place) for place, q in enumerate(quantiles)}
        | {"us": round(row.step_us)}
        for row in rows
    ]


def _share(shares: Sequence[float] | None, place: int) -> str:
    return "-" if shares is None else f"{shares[place]:.2f}"


_WIDTH_IN = 9.0
_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 20, 50, 100)


def _draw_errors(axes: Axes, found: ReplayTable) -> None:
    names = list(found.overall)
    traces = list(dict.fromkeys(row.trace for row in found.rows))
    for place, trace in enumerate(traces):
        rows = [row for row in found.rows if row.trace == trace]
        at = np.array([names.index(row.estimator) for row in rows]) + 0.6 * ((place + 0.5) / len(traces) - 0.5)
        relative = [row.relative for row in rows]
        axes.errorbar(
            [each.value for each in relative], at, xerr=reaches(relative), fmt=marker(place), label=trace,
            color=series_colour(place), markersize=4, elinewidth=1,
        )  # fmt: skip
    for place, name in enumerate(names):
        axes.vlines(found.overall[name].value, place - 0.4, place + 0.4, color="black", linewidth=1.5)
    axes.axvline(1.0, color=LINE, linewidth=0.8)
    axes.set(xscale="log", xlabel="mean absolute error / that of the last wait")
    ticks_at(axes.xaxis, _TICKS)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=max(1, min(len(traces), 5)))


def _draw_calibration(axes: Axes, found: ReplayTable) -> None:
    axes.plot([0, 1], [0, 1], color=LINE, linewidth=0.8)
    for place, name in enumerate(found.overall):
        shares = [row.means("calibration") for row in found.rows if row.estimator == name]
        known = [each for each in shares if each is not None]
        if known:
            axes.plot(
                found.quantiles, np.mean(known, axis=0), label=name, color=series_colour(place), linewidth=1,
                marker=marker(place), markersize=4, clip_on=False,
            )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="quantile", ylabel="share of waits under its prediction")
    if axes.get_legend_handles_labels()[1]:
        legend(axes, loc="lower right")
