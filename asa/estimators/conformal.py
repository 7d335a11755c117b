"""Quantiles that hold what they promise: another estimator's, corrected by how often they held."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Any

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.bysize import make_pooled
from asa.estimators.checks import check_count, check_open_share, check_wait, printed, read, read_numbers

_LOGITS = range(-63, 64)  # of the levels tried, times 9: from 0.0009 to 0.9991, close together at the ends
_LEVELS = tuple(1 / (1 + math.exp(-logit / 9)) for logit in _LOGITS)
_PRIOR = 64  # levels as a calibrated estimator would have them, that the first jobs replace


@printed
class Conformal:
    """Asks its base for another level than the one wanted: the one that as many of the newest waits kept to.

    The level of a wait is the smallest one whose quantile, as the base would have predicted it at submission, is not
    below the wait. Were the base right, levels would be spread evenly. Where a share q of the newest ones is below a
    level, this level's quantile is a better one for q.

    Parameters
    ----------
    base
        Spec of the estimator; it has to know quantiles.
    window
        Levels that count, 64 or more.
    seed
        0 or more; for a base that samples.

    Raises
    ------
    InvalidInput
        If an option is out of its bounds.
    UnknownName
        If there is no such base.

    Notes
    -----
    Levels become known with the waits, however late; they are those of the job's submission. Corrections are bounded by
    the base's own extremes, unlike the steps of adaptive conformal inference (I. Gibbs and E. Candès, NeurIPS 2021),
    which pile up while waits are not known. The base's own choice, without a quantile, is passed on as it is.

    References
    ----------
    V. Kuleshov, N. Fenner, S. Ermon, Accurate Uncertainties for Deep Learning Using Calibrated Regression, ICML 2018,
    over a sliding window, with the finite-sample rank of V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a
    Random World (2005).

    Examples
    --------
    Fixed share follows the newest waits, and its quantiles are too close to one another.

    >>> from asa.estimators.fixedshare import FixedShare
    >>> alone, corrected = FixedShare(), Conformal(base="fixed-share")
    >>> for number in range(600):
    ...     for estimator in (alone, corrected):
    ...         estimator.learn(100.0 * (7 * number % 10))
    >>> alone.predict(None, 0.9) < corrected.predict(None, 0.9)
    True
    """

    pooled = True
    has_quantiles = True

    def __init__(self, *, base: str = "context", window: int = 500, seed: int = 0) -> None:
        self._spec = base
        self._base = make_pooled(base, check_count(seed, "seed"))
        prior = [(place + 0.5) / _PRIOR for place in range(_PRIOR)]
        self._levels = deque(prior, maxlen=check_count(window, "window", at_least=_PRIOR))

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """Return the corrected quantile [s], or the base's own choice."""
        if quantile is None:
            return self._base.predict(context)
        rank = math.ceil(check_open_share(quantile, "quantile") * (len(self._levels) + 1))
        level = sorted(self._levels)[min(rank, len(self._levels)) - 1]
        return self._base.predict(context, level)

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """Find the wait's level, and teach the base.

        Raises
        ------
        InvalidInput
            If the wait is negative or not finite.
        """
        wait = check_wait(wait_s)
        place = bisect_left(_LEVELS[:-1], True, key=lambda level: self._base.predict(context, level) >= wait)
        self._levels.append(_LEVELS[place])
        self._base.learn(wait, predicted_s, context)

    def state(self) -> dict[str, Any]:
        """Return the levels and what the base has learned, JSON-able."""
        return {"base": self._spec, "levels": list(self._levels), "learned": self._base.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another instance with the same base has learned; of a longer window, the newest levels.

        Raises
        ------
        InvalidInput
            If the state is incomplete, or of another base.
        """
        learned, levels = read(state, "learned"), read(state, "levels")
        levels = [check_open_share(level, "level") for level in read_numbers(state, "levels", len(levels))]
        if read(state, "base") != self._spec:
            raise InvalidInput(f"the state is of the base {state['base']!r}: expected {self._spec!r}")
        self._base.restore(learned)
        self._levels = deque(levels, maxlen=self._levels.maxlen)
