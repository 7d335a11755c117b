"""The update of fixed share, compiled. Import this where it is needed: it needs numba."""

from __future__ import annotations

import math

from asa.estimators.loss import PINBALL_SCALE, Vector
from asa.lab.core.compiled import compiled_alone


@compiled_alone
def share(log_grid: Vector, weights: Vector, log_wait: float, tau: float, eta: float, alpha: float) -> None:
    """Update `weights` in place by the `pinball` losses of all alternatives, then share; see `FixedShare`.

    Parameters
    ----------
    log_grid, weights
        Of each alternative, shape (m,).
    log_wait
        Logarithm of the wait, taken after `OFFSET_S` is added, as those of the alternatives are.
    """
    least = math.inf
    for log_alternative in log_grid:
        distance = PINBALL_SCALE * (log_wait - log_alternative)
        least = min(least, max(tau * distance, (tau - 1.0) * distance))
    # A loss common to all cancels in the normalisation; without it the largest factor is 1, and since no weight is
    # below alpha / m their sum cannot underflow, whatever eta.
    least = min(least, 1.0)
    total = 0.0
    for place, log_alternative in enumerate(log_grid):
        distance = PINBALL_SCALE * (log_wait - log_alternative)
        loss = min(1.0, max(tau * distance, (tau - 1.0) * distance))
        weights[place] *= math.exp(-eta * (loss - least))
        total += weights[place]
    for place in range(len(weights)):
        weights[place] = (1.0 - alpha) * weights[place] / total + alpha / len(weights)
