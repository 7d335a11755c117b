"""Losses of all alternatives once a job's wait is known, each in [0, 1]."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

OFFSET_S = 60.0
"""Added to waits before their logarithm [s]: differences well below a minute cost nothing, and 0 has a
logarithm."""

PINBALL_SCALE = 2 / math.log(100)
"""With tau = 0.5, an estimate that is 100 times too large or too small (after the offset) costs 1."""

Vector = NDArray[np.float64]
Loss = Callable[[Vector, float], Vector]


def closest(grid: Vector, wait_s: float) -> Vector:
    """Return 0 for the alternative closest to `wait_s` [s] and 1 for the others; shape (m,).

    References
    ----------
    ASA, equation (3). Of two equally close alternatives the smaller is right; the paper is silent.

    Examples
    --------
    >>> closest(np.array([10.0, 100.0, 1000.0]), 70.0)
    array([1., 0., 1.])
    """
    losses = np.ones(len(grid))
    losses[np.abs(grid - wait_s).argmin()] = 0.0
    return losses


def log_distance(grid: Vector, wait_s: float) -> Vector:
    """Return the distance in decades, capped at one, between each alternative and `wait_s` [s]; shape (m,).

    A graded loss: unlike `closest`, it tells nearly right from wrong, and so survives noise.

    Examples
    --------
    >>> log_distance(np.array([0.0, 540.0, 86400.0]), 0.0).round(3)
    array([0., 1., 1.])
    """
    return np.minimum(1.0, np.abs(np.log10((grid + OFFSET_S) / (wait_s + OFFSET_S))))


def pinball(grid: Vector, wait_s: float, tau: float = 0.5) -> Vector:
    """Return the scaled pinball loss of each alternative on the logarithmic axis, capped at 1; shape (m,).

    It is smallest in expectation at the `tau`-quantile of the wait. With the price of a second waited c_wait
    and that of a second held idle c_idle, ``tau = c_wait / (c_wait + c_idle)`` minimises the cost.

    Examples
    --------
    >>> pinball(np.array([0.0, 5940.0]), 0.0), pinball(np.array([0.0, 5940.0]), 5940.0, tau=0.25)
    (array([0., 1.]), array([0.5, 0. ]))
    """
    out = np.empty(len(grid))
    log_pinball(np.log(grid + OFFSET_S), math.log(wait_s + OFFSET_S), tau, out)
    return out


def log_pinball(log_grid: Vector, log_wait: float, tau: float, out: Vector) -> None:
    """Write `pinball` into `out`, shape (m,), from logarithms taken after adding `OFFSET_S`."""
    np.subtract(log_wait, log_grid, out=out)
    distance = np.abs(out)
    out *= PINBALL_SCALE * (tau - 0.5)
    distance *= PINBALL_SCALE * 0.5
    out += distance
    np.minimum(out, 1.0, out=out)


def seconds_pinball(predicted_s: float, wait_s: float, tau: float = 0.5) -> float:
    """Return the pinball loss of a prediction [s], `tau` a second waited and 1 - `tau` a second held idle.

    Examples
    --------
    >>> seconds_pinball(60.0, 100.0, tau=0.75), seconds_pinball(100.0, 60.0, tau=0.75)
    (30.0, 10.0)
    """
    return max(tau * (wait_s - predicted_s), (1.0 - tau) * (predicted_s - wait_s))


LOSSES: Mapping[str, Loss] = {"closest": closest, "log": log_distance, "pinball": pinball}
"""Losses by the name they have as an option."""
