"""The core of Algorithm 1: exponential weights over alternatives, updated once a round."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from asa.estimators.checks import check_count, check_positive


class Rounds:
    """The double loop of Algorithm 1: a distribution over alternatives and the losses of the open round.

    Parameters
    ----------
    alternatives
        How many, two or more.
    gamma
        Learning rate, above 0 and constant. The paper asks for a non-increasing sequence and its proof uses
        1; a vanishing one never learns within a thousand jobs.

    Notes
    -----
    Weights are kept as logarithms, relative to the largest: no number of losses makes them all vanish.

    References
    ----------
    ASA, Algorithm 1.

    Examples
    --------
    >>> rounds = Rounds(2)
    >>> rounds.charge(0, 1.0), rounds.charge(0, 1.0)  # a round ends once a loss has passed 1
    (False, True)
    >>> [round(share, 3) for share in rounds.probabilities]
    [0.119, 0.881]
    """

    def __init__(self, alternatives: int, gamma: float = 1.0) -> None:
        self._gamma = check_positive(gamma, "gamma")
        self.closed = 0
        """Rounds closed so far."""
        self.losses = [0.0] * check_count(alternatives, "alternatives", at_least=2)
        """Losses of the open round, one per alternative."""
        self._set_log_weights([0.0] * alternatives)

    @property
    def probabilities(self) -> list[float]:
        """Probability of each alternative."""
        total = self._cumulative[-1]
        return [math.exp(log_weight) / total for log_weight in self.log_weights]

    def pick(self, uniform: float) -> int:
        """Return the alternative that a number `uniform` in [0, 1) selects (line 4 of the algorithm)."""
        return bisect_right(self._cumulative, uniform * self._cumulative[-1])

    def charge(self, alternative: int, loss: float) -> bool:
        """Add a loss to one alternative; return whether that closed the round (lines 3, 5 and 7)."""
        losses = self.losses
        losses[alternative] += loss
        # Only this entry grew, so the maximum of all passes 1 exactly when this one does.
        if losses[alternative] <= 1.0:
            return False
        self._set_log_weights(
            [weight - self._gamma * lost for weight, lost in zip(self.log_weights, losses, strict=True)]
        )
        self.losses = [0.0] * len(losses)
        self.closed += 1
        return True

    def restore(self, log_weights: Sequence[float], losses: Sequence[float], closed: int) -> None:
        """Take over the weights, the losses of the open round, and the number of rounds closed."""
        self._set_log_weights(log_weights)
        self.losses = list(losses)
        self.closed = closed

    def _set_log_weights(self, log_weights: Sequence[float]) -> None:
        largest = max(log_weights)
        self.log_weights = [log_weight - largest for log_weight in log_weights]
        self._cumulative = list(accumulate(map(math.exp, self.log_weights)))
