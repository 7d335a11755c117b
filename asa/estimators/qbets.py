"""A bound on a quantile of the wait, after QBETS."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from asa.core.context import Context
from asa.estimators.checks import check_count, check_open_share, check_wait, printed, read, read_waits


@lru_cache(maxsize=4096)
def bound_rank(count: int, quantile: float, confidence: float) -> int | None:
    """Return the rank, from 1, of the smallest of `count` sorted values that bounds the quantile from above.

    The value of rank k is at least the quantile exactly when fewer than k values lie below it, and their
    number is binomial. None if even the largest value does not reach the confidence.

    Examples
    --------
    >>> bound_rank(59, 0.95, 0.95), bound_rank(58, 0.95, 0.95)
    (59, None)
    >>> bound_rank(100, 0.5, 0.95)
    59
    """
    log_odds = math.log(quantile) - math.log1p(-quantile)
    log_term = count * math.log1p(-quantile)
    at_most = math.exp(log_term)  # P(no more than rank - 1 of them lie below the quantile)
    for rank in range(1, count + 1):
        if at_most >= confidence:
            return rank
        log_term += math.log((count - rank + 1) / rank) + log_odds
        at_most += math.exp(log_term)
    return None


@printed
class Qbets:
    """An upper confidence bound on a quantile of the wait, from a history that is cut when the queue changes.

    Parameters
    ----------
    quantile, confidence
        The predicted wait is above this quantile of the wait with this probability, if waits are independent
        and alike. Both between 0 and 1.
    history
        Waits remembered, at least as many as a bound needs.
    rarity
        A run of waits on one side of the bound counts as a change once its probability, were nothing changed,
        is below this; between 0 and 1.
    seed
        Accepted for uniformity: nothing here is random.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.

    Notes
    -----
    Deviations from QBETS:

    - The quantile is the median by default, not the 0.95 of a user who asks "at most how long": a planner
      pays for waiting and for idling alike.
    - Change points are runs on either side of the bound. QBETS looks for runs above it only, so after a drop
      its bound stays safe but loose. The length of a run is derived from `rarity` for independent waits;
      QBETS corrects it for autocorrelation by simulation.
    - The history is bounded, and the rank is exact where QBETS approximates the binomial by a normal
      distribution when it is long.
    - No clustering of jobs by size: an estimator serves one geometry.
    - Until there are enough waits for a bound, the largest is predicted; 0 before the first.

    References
    ----------
    D. Nurmi, J. Brevik and R. Wolski, QBETS: Queue Bounds Estimation from Time Series, JSSPP 2007.

    Examples
    --------
    >>> estimator = Qbets()
    >>> for wait in (10.0, 40.0, 30.0, 20.0, 50.0) * 20:
    ...     estimator.learn(wait)
    >>> estimator.predict()
    30.0
    """

    def __init__(
        self,
        *,
        quantile: float = 0.5,
        confidence: float = 0.95,
        history: int = 500,
        rarity: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self._quantile = check_open_share(quantile, "quantile")
        self._confidence = check_open_share(confidence, "confidence")
        self._kept = max(1, math.ceil(math.log1p(-self._confidence) / math.log(self._quantile)))
        """Waits that a change leaves: the fewest that give a bound."""
        log_rarity = math.log(check_open_share(rarity, "rarity"))
        self._longest_above = log_rarity / math.log1p(-self._quantile)
        self._longest_below = log_rarity / math.log(self._quantile)
        self._waits: deque[float] = deque(maxlen=check_count(history, "history", at_least=self._kept))
        self._sorted: list[float] = []
        self._above = self._below = 0

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        if not self._sorted:
            return 0.0
        rank = bound_rank(len(self._sorted), self._quantile, self._confidence)
        return self._sorted[-1 if rank is None else rank - 1]

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """The history is cut if the wait completes a run that is too long."""
        wait, bound = check_wait(wait_s), self.predict()
        self._above = self._above + 1 if wait > bound else 0
        self._below = self._below + 1 if wait < bound else 0
        if len(self._waits) == self._waits.maxlen:
            del self._sorted[bisect_left(self._sorted, self._waits[0])]
        self._waits.append(wait)
        insort(self._sorted, wait)
        if self._above > self._longest_above or self._below > self._longest_below:
            self._replace(list(self._waits)[-self._kept :], above=0, below=0)

    def state(self) -> dict[str, Any]:
        """Return the history, oldest first, and the lengths of the current runs."""
        return {"waits": list(self._waits), "above": self._above, "below": self._below}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Of a longer history, the newest waits."""
        waits = read_waits(state, "waits")
        above, below = check_count(read(state, "above"), "above"), check_count(read(state, "below"), "below")
        self._replace(waits, above, below)

    def _replace(self, waits: list[float], above: int, below: int) -> None:
        self._waits = deque(waits, maxlen=self._waits.maxlen)
        self._sorted = sorted(self._waits)
        self._above, self._below = above, below
