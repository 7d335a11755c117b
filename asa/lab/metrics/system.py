"""What a schedule made of its machine: utilisation, queue, fairness, starvation."""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput


def core_seconds(start: Floats, end: Floats, cores: Ints, begin: float = -math.inf, until: float = math.inf) -> float:
    """Core-seconds used from `begin` to `until` [s] by jobs that ran from `start` to `end` [s], shape (n,) each.

    >>> core_seconds(np.array([0.0, 5.0]), np.array([10.0, 15.0]), np.array([2, 4]), begin=5.0, until=10.0)
    30.0
    """
    inside = np.clip(np.minimum(end, until) - np.maximum(start, begin), 0.0, None)
    return float(inside @ cores)


def utilisation(start: Floats, end: Floats, cores: Ints, capacity: int, *, begin: float, until: float) -> float:
    """Share of `capacity` cores used between two times; above 1 where jobs share cores, NaN where no time passes.

    From the first submission to the last end of a trace, this has a bias: the machine starts empty, and while it
    drains after the last submission no dispatcher could fill it. Between the first and the last submission the
    draining is left out, but a dispatcher that leaves more work for afterwards looks better than it was. Compare over
    a window in which the machine is loaded.

    Raises
    ------
    InvalidInput
        When there are no cores.
    """
    if capacity < 1:
        raise InvalidInput(f"utilisation of {capacity} cores: expected at least 1")
    if not until > begin:
        return math.nan
    return core_seconds(start, end, cores, begin, until) / (capacity * (until - begin))


def jain_index(values: Floats) -> float:
    """How alike values are: 1 when all are equal, 1/n when one has everything; NaN when there are none.

    References
    ----------
    R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in
    shared computer systems", DEC Research Report TR-301, 1984.

    Examples
    --------
    >>> jain_index(np.array([3.0, 3.0, 3.0])), jain_index(np.array([4.0, 0.0]))
    (1.0, 0.5)
    """
    squares = float(values @ values)
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else math.nan


def level(begin: Floats, end: Floats, amount: Ints | int = 1) -> tuple[Floats, Ints]:
    """Sum of the amounts that are there over time: cores in use, jobs in a queue.

    Parameters
    ----------
    begin, end
        From when to when [s], shape (n,) each.
    amount
        How much each is, shape (n,).

    Returns
    -------
    times, level
        Ascending [s] without repetition, and the sum from each of them to the next, shape (m,) each; 0 at the end.

    Examples
    --------
    >>> times, cores = level(np.array([0.0, 2.0]), np.array([4.0, 4.0]), np.array([3, 5]))
    >>> times.tolist(), cores.tolist()
    ([0.0, 2.0, 4.0], [3, 8, 0])
    """
    amounts = np.broadcast_to(np.asarray(amount, dtype=np.int64), begin.shape)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    times = times[order]
    sums = np.cumsum(np.concatenate([amounts, -amounts])[order])
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, dtype=bool)
    return times[last], sums[last]


def mean_level(times: Floats, sums: Ints, edges: Floats) -> Floats:
    """Mean of a `level` between neighbouring edges [s], ascending, shape (k + 1,); shape (k,); 0 before and after.

    >>> mean_level(np.array([0.0, 2.0, 4.0]), np.array([3, 8, 0]), np.array([0.0, 4.0, 8.0])).tolist()
    [5.5, 0.0]
    """
    if not len(times):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(sums[:-1] * np.diff(times))])
    means: Floats = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return means


def longest_queue(submit: Floats, left: Floats) -> int:
    """Most jobs that waited at once, of those submitted and gone from the queue at these times [s], shape (n,) each.

    A job that starts in the instant of its submission never waits.

    >>> longest_queue(np.array([0.0, 1.0, 2.0]), np.array([0.0, 9.0, 3.0]))
    2
    """
    if not len(submit):
        return 0
    arrived = np.searchsorted(np.sort(submit), submit, side="right")
    gone = np.searchsorted(np.sort(left), submit, side="right")
    return int((arrived - gone).max())
