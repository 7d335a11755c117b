"""Losses of all alternatives once a job's wait is known, each in [0, 1]."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asa.core.errors import InvalidInput

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


LOSSES: Mapping[str, Loss] = {"closest": closest, "log": log_distance, "pinball": pinball}
"""Losses by the name they have as an option."""


PAPER_GRID: tuple[float, ...] = tuple(
    float(wait)
    for wait in (
        *range(10, 91, 5),
        *range(100, 901, 50),
        *range(1_000, 9_001, 1_000),
        *range(10_000, 90_001, 10_000),
        100_000,
    )
)
"""The m = 53 alternatives [s] of ASA's evaluation, 10 s to 100 000 s.

The paper gives their number, their range and that the tens and the hundreds hold more of them than the larger
decades. This is the one regular division that fits: steps of 5, 50, 1 000 and 10 000 s (17 + 17 + 9 + 9), and
the end point.

References
----------
ASA, section 4.3, "Workflow configuration".
"""


def check_grid(alternatives: Iterable[float]) -> tuple[float, ...]:
    """Return `alternatives` [s] as a valid grid: two or more finite waits, strictly increasing, 0 allowed.

    Raises
    ------
    InvalidInput
        If they are too few, out of order, repeated, negative or not finite.

    Examples
    --------
    >>> check_grid([0, 10, 100])
    (0.0, 10.0, 100.0)
    >>> check_grid([10, 10])
    Traceback (most recent call last):
    ...
    asa.core.errors.InvalidInput: grid[1] is 10.0 after 10.0: expected strictly increasing waits
    """
    grid = tuple(float(wait) for wait in alternatives)
    if len(grid) < 2:
        raise InvalidInput(f"grid has {len(grid)} alternatives: expected two or more waits to choose among")
    for index, wait in enumerate(grid):
        if not 0 <= wait < math.inf:
            raise InvalidInput(f"grid[{index}] is {wait!r}: expected a finite time of 0 s or more")
        if index and wait <= grid[index - 1]:
            raise InvalidInput(
                f"grid[{index}] is {wait!r} after {grid[index - 1]!r}: expected strictly increasing waits"
            )
    return grid


def with_zero(grid: Sequence[float]) -> tuple[float, ...]:
    """Return `grid` [s] with 0 in front, unless it is there already.

    Many jobs start at once, and a grid that lacks 0 is wrong about each of them.

    Examples
    --------
    >>> with_zero((10.0, 100.0))
    (0.0, 10.0, 100.0)
    """
    return check_grid(grid if grid and grid[0] == 0 else (0.0, *grid))


def nearest(grid: Sequence[float], wait_s: float) -> int:
    """Return the index of the alternative closest to `wait_s` [s]; of two equally close, the smaller one's.

    Examples
    --------
    >>> nearest(PAPER_GRID, 1234.0), PAPER_GRID[34]
    (34, 1000.0)
    """
    above = bisect_left(grid, wait_s)
    if above == 0:
        return 0
    if above == len(grid) or wait_s - grid[above - 1] <= grid[above] - wait_s:
        return above - 1
    return above
