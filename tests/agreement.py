"""How alike two orders of the same jobs are: a simulated schedule against an observed one, say."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput


def ranks(values: npt.ArrayLike) -> Floats:
    """Rank of each value, from 1, shape (n,); equal values share the mean of theirs.

    Raises
    ------
    InvalidInput
        When the values are not one row of numbers, or one is NaN.

    Examples
    --------
    >>> ranks([30.0, 10.0, 10.0]).tolist()
    [3.0, 1.5, 1.5]
    """
    first, last = _span(_numbers(values))
    mean: Floats = (first + last) / 2 + 1
    return mean


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Rank correlation rho of two rows of n numbers, in [-1, 1]; NaN when all of one are equal.

    It is Pearson's correlation of the ranks, which is right for equal values too.

    References
    ----------
    C. Spearman, "The proof and measurement of association between two things", American Journal of Psychology 15(1),
    1904.

    Examples
    --------
    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    left, right = _pair(a, b)
    x, y = ranks(left), ranks(right)
    x, y = x - x.mean() if len(x) else x, y - y.mean() if len(y) else y
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale else math.nan


def kendall(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Rank correlation tau-b of two rows of n numbers, in [-1, 1]; NaN when all of one are equal.

    Without equal values, (1 + tau) / 2 is the share of all pairs that stand in the same order in both.

    References
    ----------
    M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945. Discordant pairs are counted
    while sorting, as in W. R. Knight, "A computer method for calculating Kendall's tau with ungrouped data", JASA
    61(314), 1966: n log(n) steps for n values, rather than n**2.

    Examples
    --------
    One pair of six is the other way round.

    >>> round(kendall([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.667
    """
    left, right = _pair(a, b)
    x, y = _span(left)[0], _span(right)[0]
    count = len(x)
    tied_x, tied_y, tied_both = _tied(x), _tied(y), _tied(x * count + y)
    pairs = count * (count - 1) // 2
    swapped = inversions(y[np.lexsort((y, x))])
    scale = math.sqrt((pairs - tied_x) * (pairs - tied_y))
    return (pairs - tied_x - tied_y + tied_both - 2 * swapped) / scale if scale else math.nan


def inversions(values: Ints) -> int:
    """How many pairs of a row of whole numbers from 0 to n - 1, shape (n,), stand in descending order.

    >>> inversions(np.array([2, 0, 1]))
    2
    """
    count, width, found = len(values), 1, 0
    index = np.arange(count)
    while width < count:  # blocks of `width` are sorted: count, and merge, what stands in neighbours
        block = index // (2 * width)
        keys = block * count + values
        right = index // width % 2 == 1
        left = keys[~right]
        until = np.searchsorted(left, (block[right] + 1) * count)
        found += int((until - np.searchsorted(left, keys[right], side="right")).sum())
        values = np.sort(keys) - block * count
        width *= 2
    return found


def equal_positions(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Share of n jobs that have the same position in both orders, in [0, 1]; NaN when there are none.

    Jobs that start at the same time have no order among them: they share all their positions, and a position is the
    same when such ranges meet.

    Examples
    --------
    Job 0 is first in both; the others have changed places.

    >>> equal_positions([1, 2, 3], [5, 7, 6]) == 1 / 3
    True
    >>> equal_positions([1, 2, 3], [5, 6, 6])
    1.0
    """
    (first, last), (begin, end) = map(_span, _pair(a, b))
    return float(((first <= end) & (begin <= last)).mean()) if len(first) else math.nan


def displacement(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """By how many positions each job starts later in the second order than in the first, shape (n,).

    Parameters
    ----------
    a, b
        Start times of the same jobs, shape (n,) each; those that start at the same time share their mean position.

    Examples
    --------
    >>> displacement([1, 2, 3], [7, 5, 6]).tolist()
    [2.0, -1.0, -1.0]
    """
    left, right = _pair(a, b)
    return ranks(right) - ranks(left)


def _numbers(values: npt.ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise InvalidInput(f"one row of numbers expected, not the shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise InvalidInput(f"number {int(np.argmax(np.isnan(numbers)))} is NaN: leave jobs out that never started")
    return numbers


def _pair(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, Floats]:
    left, right = _numbers(a), _numbers(b)
    if len(left) != len(right):
        raise InvalidInput(f"two orders of the same jobs expected, not of {len(left)} and {len(right)}")
    return left, right


def _span(values: Floats) -> tuple[Ints, Ints]:
    """First and last position, from 0, of those that have the same value."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right") - 1


def _tied(codes: Ints) -> int:
    """How many pairs are equal."""
    _, sizes = np.unique(codes, return_counts=True)
    return int((sizes * (sizes - 1) // 2).sum())
