"""Weights of experts, moved once a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.estimators.checks import check_count, check_positive, read, read_numbers


class Weights:
    """The outer loop of Algorithm 1: distribution over experts, and the risk that the open round has collected.

    Parameters
    ----------
    experts
        How many, one or more.
    gamma, decay
        The learning rate of round t is ``gamma * t ** -decay``; gamma above 0, decay >= 0. Theorem 1 asks for a
        sequence that does not rise. It holds for a constant one; for others only the sum weighted by the rates is
        bounded, the paper's (11): see docs/coscheduler.md.

    Notes
    -----
    Weights are kept as logarithms, relative to the largest: no risk makes them all vanish.

    References
    ----------
    ASA_X, Algorithm 1, lines 1 to 3 and 10 to 12.

    Examples
    --------
    >>> weights = Weights(2)
    >>> weights.charge(np.array([0.9, 0.1])), weights.charge(np.array([0.9, 0.1]))  # ends once a risk has passed 1
    (False, True)
    >>> weights.shares.round(3).tolist()
    [0.168, 0.832]
    """

    def __init__(self, experts: int, gamma: float = 1.0, decay: float = 0.0) -> None:
        self._gamma = check_positive(gamma, "gamma")
        self._decay = decay and check_positive(decay, "decay")
        self.log_weights = np.zeros(check_count(experts, "experts", at_least=1))
        """Logarithms of the weights, the largest 0; shape (n,)."""
        self.risk = np.zeros(experts)
        """Risk of the open round, shape (n,)."""
        self.rounds = 0
        """Rounds closed so far."""

    @property
    def shares(self) -> Floats:
        """The weights, shape (n,); their sum is 1."""
        found = np.exp(self.log_weights)
        return np.asarray(found / found.sum())

    @property
    def rate(self) -> float:
        """Learning rate of the open round."""
        return float(self._gamma * (self.rounds + 1) ** -self._decay)

    def charge(self, risk: Floats) -> bool:
        """Add a risk to each expert's, shape (n,); whether that has ended the round."""
        self.risk = self.risk + risk
        if self.risk.max() <= 1.0:
            return False
        moved = self.log_weights - self.rate * self.risk
        self.log_weights = moved - moved.max()
        self.risk, self.rounds = np.zeros_like(self.risk), self.rounds + 1
        return True

    def heir(self) -> Weights:
        """Weights that begin where these are, with a round of their own."""
        found = Weights(len(self.log_weights), self._gamma, self._decay)
        found.log_weights = self.log_weights.copy()
        return found

    def state(self) -> dict[str, Any]:
        """Return all of it, JSON-able."""
        return {"log_weights": self.log_weights.tolist(), "risk": self.risk.tolist(), "rounds": self.rounds}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what others with as many experts have learned.

        Raises
        ------
        InvalidInput
            When something is missing, or of another length.
        """
        experts = len(self.log_weights)
        log_weights, risk = (read_numbers(state, name, experts) for name in ("log_weights", "risk"))
        rounds = check_count(read(state, "rounds"), "rounds")
        self.log_weights, self.risk, self.rounds = np.array(log_weights), np.array(risk), rounds
