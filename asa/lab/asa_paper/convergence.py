"""Figure 5 of the ASA paper: how fast estimators follow a wait that changes.

At each iteration one job is planned with a prediction, and its wait becomes known before the next one. The
true wait is constant over a fifth of the iterations and then jumps to another alternative of the paper's
grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.core.errors import InvalidInput
from asa.core.ports import Estimator
from asa.estimators.algorithm1 import Algorithm1
from asa.estimators.fixedshare import FixedShare
from asa.estimators.loss import PAPER_GRID, nearest, with_zero
from asa.report.picture import LABEL_PT, WIDTH_IN, charts, heading, legend_above, new_figure, save_figure, series_colour

SEGMENTS = 5
"""Stretches of constant wait."""

WINDOW = 10
"""Predictions looked at to say that an estimator has converged."""

LOOSE_WINDOW, LOOSE_TOLERANCE = 5, 0.3
"""The same for the looser measure, and how far from the level of the wait a prediction may be, relative to
it."""

ESTIMATORS: Mapping[str, Callable[[int], Estimator]] = {
    "default": lambda seed: Algorithm1(sampling="default", seed=seed),
    "tuned": lambda seed: Algorithm1(sampling="tuned", seed=seed),
    "greedy": lambda seed: Algorithm1(sampling="greedy", seed=seed),
    "fixed-share": lambda seed: FixedShare(seed=seed),
}
"""What is compared; each makes an estimator from a seed."""

_GRID = with_zero(PAPER_GRID)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tracking:
    """How well one estimator followed the wait, over all seeds.

    Parameters
    ----------
    hit
        Share of predictions whose closest alternative is that of the wait.
    near_hit
        Share of predictions whose closest alternative is that of the wait, or next to it.
    median_iterations, p90_iterations
        Median and 90th percentile, over the changes of the wait (the start is none), of the iterations until
        the estimator has converged again: from there on 8 of 10 predictions are hits. The length of a segment
        where it does not converge.
    never
        Share of the changes after which it does not converge before the next one.
    loose_median_iterations, loose_p90_iterations
        The same until 4 of 5 predictions are within 30 % of the level of the wait, which has a meaning under
        noise and where alternatives lie close together.
    """

    hit: float
    near_hit: float
    median_iterations: float
    p90_iterations: float
    never: float
    loose_median_iterations: float
    loose_p90_iterations: float


@dataclass(frozen=True)
class Convergence:
    """Result of the study.

    Parameters
    ----------
    true_waits
        The first seed's wait at each iteration, before noise [s].
    trajectories
        The first seed's predictions at each iteration, by estimator [s].
    """

    tracking: Mapping[str, Tracking]
    true_waits: Sequence[float]
    trajectories: Mapping[str, Sequence[float]]

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the figures, by estimator and name."""
        return {name: asdict(tracking) for name, tracking in self.tracking.items()}

    def table(self) -> list[dict[str, Any]]:
        return [{"sampling": name, **figures} for name, figures in self.to_json().items()]

    def draw(self, path: str | Path) -> None:
        """Draw the first seed's course: what each estimator predicts, and the true wait.

        The paper draws all in one chart, where estimators that go on trying hide the others. The suffix of `path`
        decides the format.
        """
        figure = new_figure(WIDTH_IN, 0.8 + 1.15 * len(self.trajectories))
        made = charts(figure, len(self.trajectories), sharex=True, sharey=True)
        for axes, (name, predictions) in zip(made, self.trajectories.items(), strict=True):
            axes.plot(predictions, label="predicted", drawstyle="steps-post", color=series_colour(1), linewidth=0.8)
            axes.plot(
                self.true_waits, label="true wait", drawstyle="steps-post", color=series_colour(0), linestyle="--",
                linewidth=1.2,
            )  # fmt: skip
            heading(axes, name)
        made[0].set(yscale="log", xlim=(0, len(self.true_waits)))
        made[-1].set_xlabel("iteration")
        figure.supylabel("wait [s]", fontsize=LABEL_PT)
        legend_above(figure, made[0].get_legend_handles_labels()[0])
        save_figure(figure, path)


def convergence(seeds: int = 20, iterations: int = 1000, noise: float = 0.0, seed: int = 0) -> Convergence:
    """Let every estimator follow `seeds` random courses of the wait.

    Parameters
    ----------
    iterations
        Jobs a course; a multiple of 5, and 50 or more.
    noise
        Standard deviation of the logarithm of the wait around its level; 0.3 is about 30 %.

    References
    ----------
    ASA, section 4.4 and Figure 5. The paper shows one course and says neither its levels nor how it measures
    convergence; the definitions here are `Tracking`'s.

    Examples
    --------
    >>> result = convergence(seeds=2, iterations=250)
    >>> result.tracking["fixed-share"].median_iterations, result.tracking["default"].never
    (0.0, 1.0)
    """
    if seeds < 1:
        raise InvalidInput(f"seeds is {seeds}: expected 1 or more")
    if iterations % SEGMENTS or iterations < SEGMENTS * WINDOW:
        raise InvalidInput(
            f"iterations is {iterations}: expected a multiple of {SEGMENTS}, {SEGMENTS * WINDOW} or more"
        )
    if not 0 <= noise < 10:
        raise InvalidInput(f"noise is {noise}: expected 0 or more, and less than 10")
    courses = [_course(np.random.default_rng([seed, index]), iterations, noise) for index in range(seeds)]
    predictions = {
        name: [_follow(make(seed + index), waits) for index, (_, waits) in enumerate(courses)]
        for name, make in ESTIMATORS.items()
    }
    levels, waits = np.array(courses).swapaxes(0, 1)
    return Convergence(
        tracking={name: _track(np.array(followed), levels, waits) for name, followed in predictions.items()},
        true_waits=courses[0][0],
        trajectories={name: followed[0] for name, followed in predictions.items()},
    )


def iterations_to_converge(right: NDArray[np.bool_], window: int = WINDOW) -> int:
    """Return the first iteration from which on 80 % of a window of predictions are right; if none, their number.

    Examples
    --------
    >>> iterations_to_converge(np.array([False, False, True, False] + [True] * 7))
    1
    >>> iterations_to_converge(np.zeros(20, dtype=bool))
    20
    """
    in_window = np.convolve(right, np.ones(window, dtype=int), mode="valid")
    converged = np.flatnonzero(in_window >= 0.8 * window)
    return int(converged[0]) if len(converged) else len(right)


def _course(rng: np.random.Generator, iterations: int, noise: float) -> tuple[list[float], list[float]]:
    """Return the level of the wait and the wait itself, at each iteration [s]."""
    steps = rng.integers(1, len(PAPER_GRID), size=SEGMENTS)  # never 0 alternatives: every change is one
    levels = np.repeat(np.array(PAPER_GRID)[np.cumsum(steps) % len(PAPER_GRID)], iterations // SEGMENTS)
    waits = levels * np.exp(noise * rng.standard_normal(iterations))
    return levels.tolist(), waits.tolist()


def _follow(estimator: Estimator, waits: Sequence[float]) -> list[float]:
    """Return what the estimator predicted before each wait [s]."""
    predictions = []
    for wait in waits:
        predicted = estimator.predict()
        estimator.learn(wait, predicted)
        predictions.append(predicted)
    return predictions


def _track(predictions: Array, levels: Array, waits: Array) -> Tracking:
    """Sum up predictions, levels and waits, all of shape (seeds, iterations) [s]."""
    alternative = np.vectorize(lambda wait: nearest(_GRID, wait), otypes=[int])
    distance = np.abs(alternative(predictions) - alternative(waits))
    strict = _after_changes(distance == 0, WINDOW)
    loose = _after_changes(np.abs(predictions - levels) <= LOOSE_TOLERANCE * levels, LOOSE_WINDOW)
    return Tracking(
        hit=float(np.mean(distance == 0)),
        near_hit=float(np.mean(distance <= 1)),
        median_iterations=float(np.median(strict)),
        p90_iterations=_p90(strict),
        never=float(np.mean(strict == waits.shape[1] // SEGMENTS)),
        loose_median_iterations=float(np.median(loose)),
        loose_p90_iterations=_p90(loose),
    )


def _after_changes(right: NDArray[np.bool_], window: int) -> NDArray[np.int_]:
    """Return the iterations to converge after each change, shape (seeds * (SEGMENTS - 1),)."""
    segments = right.reshape(len(right), SEGMENTS, -1)[:, 1:]
    return np.array([iterations_to_converge(segment, window) for course in segments for segment in course])


def _p90(values: NDArray[np.int_]) -> float:
    return float(np.percentile(values, 90, method="inverted_cdf"))
