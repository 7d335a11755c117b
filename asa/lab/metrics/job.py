"""What jobs of a schedule went through: waits, turnarounds and bounded slowdowns, of all jobs, by size and by user."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput

BOUND_S = 10.0
"""Jobs that ran for less count as having run so long in a bounded slowdown [s]."""

CLASSES_MOST = 10
"""Size classes of a machine, at most: what one looks at in a picture."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How values are spread: their number, mean, median, 90th and 99th percentile and maximum.

    All but the number are NaN where there are no values. Percentiles are interpolated linearly.
    """

    count: int
    mean: float
    median: float
    p90: float
    p99: float
    max: float


def spread(values: Floats) -> Spread:
    """The spread of values, shape (n,); n may be 0.

    >>> spread(np.array([1.0, 2.0, 3.0, 10.0])).median
    2.5
    """
    if not len(values):
        return Spread(0, math.nan, math.nan, math.nan, math.nan, math.nan)
    median, p90, p99 = np.percentile(values, (50, 90, 99)).tolist()
    return Spread(len(values), float(values.mean()), median, p90, p99, float(values.max()))


def bounded_slowdown(turnaround: Floats, run: Floats, bound_s: float = BOUND_S) -> Floats:
    """How many times longer each job took than it ran, at least 1, shape (n,).

    Parameters
    ----------
    turnaround, run
        From submission to end and from start to end [s], shape (n,) each.
    bound_s
        Shorter run times count as this [s]; > 0. Otherwise jobs of a second would outweigh all others.

    Raises
    ------
    InvalidInput
        When `bound_s` is not positive.

    References
    ----------
    D. G. Feitelson, L. Rudolph, U. Schwiegelshohn, K. C. Sevcik and P. Wong, "Theory and practice in parallel job
    scheduling", JSSPP 1997.

    Examples
    --------
    >>> bounded_slowdown(np.array([60.0, 100.0, 5.0]), np.array([30.0, 1.0, 1.0])).tolist()
    [2.0, 10.0, 1.0]
    """
    if not bound_s > 0:
        raise InvalidInput(f"the bound of a slowdown must be above 0 s, not {bound_s!r}")
    slowdown: Floats = np.maximum(1.0, turnaround / np.maximum(run, bound_s))
    return slowdown


def size_classes(cores: int, most: int = CLASSES_MOST) -> Ints:
    """Classes of job sizes on a machine of so many cores: the largest size in each, ascending, shape (k,), k <= `most`.

    Classes end at the powers of two, or of four, eight ... where those are too many; the last one ends at the machine.
    They depend on the machine alone, so that schedules of several dispatchers can be laid side by side.

    Raises
    ------
    InvalidInput
        When there are no cores, or fewer than two classes are allowed.

    Examples
    --------
    >>> size_classes(100).tolist()
    [1, 2, 4, 8, 16, 32, 64, 100]
    >>> size_classes(4392).tolist()
    [1, 4, 16, 64, 256, 1024, 4096, 4392]
    """
    if cores < 1 or most < 2:
        raise InvalidInput(f"no size classes for {cores} cores, {most} at most: expected at least 1 and at least 2")
    step = 1
    while -(-(cores - 1).bit_length() // step) + 1 > most:
        step += 1
    powers = [1 << exponent for exponent in range(0, (cores - 1).bit_length(), step)]
    return np.array([*powers, cores], dtype=np.int64)


def class_names(bounds: Ints) -> list[str]:
    """Names of the size classes that end at `bounds`.

    >>> class_names(size_classes(6))
    ['1', '2', '3-4', '5-6']
    """
    first = 1
    names = []
    for last in bounds.tolist():
        names.append(str(last) if first == last else f"{first}-{last}")
        first = last + 1
    return names


def by_class(values: Floats, cores: Ints, bounds: Ints) -> list[Spread]:
    """Spread of the values of jobs, shape (n,), in each of the size classes that end at `bounds`.

    Jobs larger than the last bound are in the last class.
    """
    classes = np.minimum(np.searchsorted(bounds, cores), len(bounds) - 1).astype(np.int8)
    order = np.argsort(classes, kind="stable")
    cuts = np.searchsorted(classes[order], np.arange(1, len(bounds)))
    return [spread(values[rows]) for rows in np.split(order, cuts)]


def user_means(values: Floats, user: Ints) -> Floats:
    """Mean of each user's values, in order of the users' codes; jobs of unknown users (code < 0) are left out.

    >>> user_means(np.array([1.0, 3.0, 8.0, 5.0]), np.array([7, 7, 2, -1])).tolist()
    [8.0, 2.0]
    """
    known = user >= 0
    codes, who = np.unique(user[known], return_inverse=True)
    sums = np.bincount(who, weights=values[known], minlength=len(codes))
    means: Floats = sums / np.bincount(who, minlength=len(codes))
    return means
