"""Distributions over the actions."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from coscheduler.nouns import ACTIONS

WIDTH, GROUND = 0.08, 0.001


def check_votes(votes: Floats, jobs: int, who: str) -> Floats:
    """Return the votes of an expert on so many jobs, shape (jobs, m).

    Raises
    ------
    InvalidInput
        When they are no distributions over the m actions.
    """
    if votes.shape != (jobs, len(ACTIONS)):
        raise InvalidInput(f"{who} voted with shape {votes.shape}: expected ({jobs}, {len(ACTIONS)})")
    if jobs and not (votes.min() >= 0 and np.abs(votes.sum(axis=1) - 1).max() < 1e-6):
        raise InvalidInput(f"{who} voted with what is no distribution: expected shares >= 0 that sum to 1")
    return votes


def bump(centres: Floats) -> Floats:
    """Distributions that peak at these shares, shape (n, m): a Gaussian of width `WIDTH` on a ground of `GROUND`.

    >>> bump(np.array([0.3])).argmax()
    np.int64(3)
    """
    found = np.exp(-0.5 * ((np.array(ACTIONS) - np.asarray(centres)[..., None]) / WIDTH) ** 2) + GROUND
    return np.asarray(found / found.sum(axis=-1, keepdims=True))
