"""Fixed share: exponential weights that never forget how to come back. The default estimator."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.checks import check_open_share, check_positive, check_same_grid, check_wait, printed, read_numbers
from asa.estimators.loss import OFFSET_S, PAPER_GRID, PINBALL_SCALE, Vector, check_grid, with_zero


@printed
class FixedShare:
    """Weights over alternatives, all of them updated by each wait, plan with the weighted median.

    A wait that has become known tells the loss of every alternative, not only of the one planned with. Each
    weight shrinks by ``exp(-eta * loss)``; then a share `alpha` of the total is spread evenly, so that an
    alternative that has been wrong for long comes back within a job or two once it is right.

    Parameters
    ----------
    eta
        Learning rate, above 0. Large values follow the newest waits (30), small ones average (8).
    alpha
        Share of the weight spread over all alternatives after each wait, between 0 and 1.
    tau
        Quantile of the wait to aim at, between 0 and 1: the price of a second waited over that of a second
        waited plus a second held idle.
    quantile
        Quantile of the weights that `predict` returns, between 0 and 1; 0.5 is the weighted median.
    grid
        Alternatives [s], strictly increasing; by default 0 and the paper's 53.
    seed
        Accepted for uniformity: nothing here is random.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.

    References
    ----------
    M. Herbster and M. Warmuth, Tracking the Best Expert, Machine Learning 32 (1998). Unlike their update
    (their section 5), the shared weight also returns to the alternative that it came from, which only
    rescales alpha by m / (m - 1).

    Examples
    --------
    >>> estimator = FixedShare()
    >>> for wait in [20.0] * 5 + [7000.0] * 2:
    ...     estimator.learn(wait)
    >>> estimator.predict()
    7000.0
    """

    def __init__(
        self,
        *,
        eta: float = 30.0,
        alpha: float = 0.01,
        tau: float = 0.5,
        quantile: float = 0.5,
        grid: Iterable[float] = with_zero(PAPER_GRID),
        seed: int = 0,
    ) -> None:
        self.grid = check_grid(grid)
        self._eta = check_positive(eta, "eta")
        self._alpha = check_open_share(alpha, "alpha")
        self._tau = check_open_share(tau, "tau")
        self._quantile = check_open_share(quantile, "quantile")
        scaled = PINBALL_SCALE * np.log(np.array(self.grid) + OFFSET_S)
        self._too_short, self._too_long = self._tau * scaled, (1.0 - self._tau) * scaled
        self._weights = np.full(len(self.grid), 1 / len(self.grid))

    @property
    def weights(self) -> Vector:
        """Weight of each alternative, shape (m,); they add up to 1, and none is below alpha / m."""
        return self._weights.copy()

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """Return the wait to plan with [s], one of the alternatives: a quantile of the weights, its own by default."""
        cumulative = self._weights.cumsum()
        share = self._quantile if quantile is None else check_open_share(quantile, "quantile")
        return self.grid[int(cumulative.searchsorted(share * cumulative[-1]))]

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        scaled = PINBALL_SCALE * math.log(check_wait(wait_s) + OFFSET_S)
        weights = np.maximum(self._tau * scaled - self._too_short, self._too_long - (1.0 - self._tau) * scaled)
        np.minimum(weights, 1.0, out=weights)  # the losses so far
        # A loss common to all cancels in the normalisation; without it the largest factor is 1, and since no weight is
        # below alpha / m their sum cannot underflow, whatever eta.
        weights -= weights.min()
        weights *= -self._eta
        np.exp(weights, out=weights)
        weights *= self._weights
        weights *= (1.0 - self._alpha) / weights.sum()
        weights += self._alpha / len(weights)
        self._weights = weights

    def state(self) -> dict[str, Any]:
        return {"grid": list(self.grid), "weights": self._weights.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The other one must have the same grid."""
        check_same_grid(state, self.grid)
        weights = np.array(read_numbers(state, "weights", len(self.grid)))
        if weights.min() <= 0:
            raise InvalidInput(f"state['weights'] holds {weights.min()}: expected numbers above 0")
        self._weights = weights
