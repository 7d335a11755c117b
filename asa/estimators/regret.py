"""Regret: how much more an estimator lost than the best alternative known in hindsight.

All functions take the losses of every alternative, shape (t, m): one row a job, in the order of learning.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from asa.core.errors import InvalidInput
from asa.estimators.loss import Loss, Vector, closest


def loss_table(grid: Sequence[float], waits: Iterable[float], loss: Loss = closest) -> Vector:
    """Return the loss of each alternative of `grid` [s] for each of `waits` [s], shape (t, m).

    Examples
    --------
    >>> loss_table((10.0, 100.0), [10.0, 90.0])
    array([[0., 1.],
           [1., 0.]])
    """
    alternatives = np.array(grid)
    return np.array([loss(alternatives, wait) for wait in waits]).reshape(-1, len(grid))


def best_fixed(losses: Vector) -> float:
    """Return the total loss of the best single alternative."""
    return float(losses.sum(axis=0).min())


def best_switching(losses: Vector, switches: int) -> float:
    """Return the total loss of the best sequence of alternatives that changes at most `switches` times.

    Dynamic programming over jobs and changes used, O(t m (switches + 1)).

    Raises
    ------
    InvalidInput
        If `switches` is negative.

    Examples
    --------
    >>> losses = loss_table((10.0, 100.0), [10.0, 10.0, 90.0, 90.0, 10.0])
    >>> [best_switching(losses, switches) for switches in range(3)]
    [2.0, 1.0, 0.0]
    """
    if switches < 0:
        raise InvalidInput(f"switches is {switches}: expected 0 or more")
    totals = np.zeros((switches + 1, losses.shape[1]))
    for row in losses:
        totals[1:] = np.minimum(totals[1:], totals[:-1].min(axis=1, keepdims=True))
        totals += row
    return float(totals.min())


def regret(incurred: Vector, losses: Vector, switches: int = 0) -> float:
    """Return the total of the losses `incurred`, shape (t,), above that of the best sequence of alternatives.

    Parameters
    ----------
    incurred
        What the estimator lost, job by job.
    losses
        What each alternative would have lost.
    switches
        Changes allowed to the best sequence; 0 compares with the best fixed alternative.

    Raises
    ------
    InvalidInput
        If the two differ in length, or `switches` is negative.

    Examples
    --------
    >>> losses = loss_table((10.0, 100.0), [10.0, 90.0, 90.0])
    >>> regret(np.array([0.0, 1.0, 0.0]), losses), regret(np.array([0.0, 1.0, 0.0]), losses, switches=1)
    (0.0, 1.0)
    """
    if len(incurred) != len(losses):
        raise InvalidInput(f"incurred has {len(incurred)} losses: expected {len(losses)}, the table's rows")
    return float(incurred.sum()) - best_switching(losses, switches)
