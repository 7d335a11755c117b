"""Alternatives: the finite set of waits among which an estimator chooses."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from asa.core.errors import InvalidInput

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
