"""An expert that learns what each action costs a job in each kind of state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.estimators.checks import check_open_share, check_positive, read
from coscheduler.experts.simplex import bump
from coscheduler.nouns import ACTIONS, JobStates

_PARTS = 4  # of CPU and of memory use


class LearnedContention:
    """Gives as much as it may by the mean loss seen in states like this one.

    States are alike that are in the same quarter of CPU use, the same quarter of memory use, and both in sequential or
    both in parallel stages. Giving more never harms less, so means are made to rise with the action.

    Parameters
    ----------
    tolerance
        Expected loss that is accepted, in (0, 1).
    prior
        How many runs without loss every action is credited with, above 0: what was never tried is tried.
    """

    def __init__(self, *, tolerance: float = 0.1, prior: float = 1.0) -> None:
        self._tolerance = check_open_share(tolerance, "tolerance")
        self._prior = check_positive(prior, "prior")
        self._loss = np.zeros((2 * _PARTS * _PARTS, len(ACTIONS)))
        self._count = np.zeros_like(self._loss)

    def vote(self, states: JobStates) -> Floats:
        """A peak at the largest action whose expected loss is accepted, shape (n, m)."""
        mean = np.maximum.accumulate(self._loss / (self._count + self._prior), axis=1)
        largest = (mean <= self._tolerance).sum(axis=1) - 1
        return bump(np.array(ACTIONS)[np.maximum(largest, 0)][_cell(states)])

    def learn(self, states: JobStates, action: int, loss: float) -> None:
        """Jobs in these states gave `action`, and lost `loss` in [0, 1] each."""
        np.add.at(self._loss, (_cell(states), action), loss)
        np.add.at(self._count, (_cell(states), action), 1.0)

    def state(self) -> dict[str, Any]:
        """Sums of losses and counts."""
        return {"loss": self._loss.tolist(), "count": self._count.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another one has learned.

        Raises
        ------
        InvalidInput
            When the tables are of another shape.
        """
        tables = [np.array(read(state, name), dtype=np.float64) for name in ("loss", "count")]
        if any(each.shape != self._loss.shape or not np.isfinite(each).all() for each in tables):
            raise InvalidInput(f"two tables of finite numbers of shape {self._loss.shape} expected")
        self._loss, self._count = tables


def _cell(states: JobStates) -> Any:
    parts = [np.minimum((_PARTS * column).astype(np.int64), _PARTS - 1) for column in (states.cpu, states.memory)]
    return (parts[0] * _PARTS + parts[1]) * 2 + states.parallel
