"""Estimators to compare with: zero, the batch system's, the last wait, median and mean of recent ones, and QBETS.

None of them is random; `seed` is accepted for uniformity. Before the first wait they predict 0.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from asa.core.context import Context
from asa.estimators.checks import check_count, check_wait, printed, read_waits
from asa.estimators.qbets import Qbets

__all__ = ["Last", "Mean", "Median", "PlannedWait", "Qbets", "Zero"]


class _Unlearned:
    """Knows nothing, and learns nothing."""

    def __init__(self, *, seed: int = 0) -> None:
        pass

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        check_wait(wait_s)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Do nothing: there is nothing to know."""


@printed
class Zero(_Unlearned):
    """Always 0: no job is planned ahead, which makes ASA the per-stage strategy.

    Examples
    --------
    >>> estimator = Zero()
    >>> estimator.learn(3600.0)
    >>> estimator.predict()
    0.0
    """

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return 0.0


@printed
class PlannedWait(_Unlearned):
    """What the batch system itself expects, and 0 where it says nothing.

    Examples
    --------
    >>> PlannedWait().predict(Context(at=0.0, planned_s=600.0))
    600.0
    """

    pooled = True

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return 0.0 if context is None or context.planned_s is None else context.planned_s


class _Recent:
    """The newest waits, in the order in which they became known."""

    def __init__(self, window: int) -> None:
        self._waits: deque[float] = deque(maxlen=check_count(window, "window", at_least=1))

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        self._waits.append(check_wait(wait_s))

    def state(self) -> dict[str, Any]:
        return {"waits": list(self._waits)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Of a wider window's waits, the newest."""
        self._waits = deque(read_waits(state, "waits"), maxlen=self._waits.maxlen)


@printed
class Last(_Recent):
    """The wait that became known last.

    Examples
    --------
    >>> estimator = Last()
    >>> estimator.learn(90.0)
    >>> estimator.learn(30.0)
    >>> estimator.predict()
    30.0
    """

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(window=1)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return self._waits[-1] if self._waits else 0.0


@printed
class Median(_Recent):
    """The median of the last `window` waits, one or more.

    Examples
    --------
    >>> estimator = Median(window=3)
    >>> for wait in (10.0, 9000.0, 20.0):
    ...     estimator.learn(wait)
    >>> estimator.predict()
    20.0
    """

    def __init__(self, *, window: int = 9, seed: int = 0) -> None:
        super().__init__(window)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return statistics.median(self._waits) if self._waits else 0.0


@printed
class Mean(_Recent):
    """The mean of the last `window` waits, one or more.

    Examples
    --------
    >>> estimator = Mean(window=2)
    >>> for wait in (9000.0, 10.0, 20.0):
    ...     estimator.learn(wait)
    >>> estimator.predict()
    15.0
    """

    def __init__(self, *, window: int = 100, seed: int = 0) -> None:
        super().__init__(window)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return math.fsum(self._waits) / len(self._waits) if self._waits else 0.0
