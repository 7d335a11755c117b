"""A factor that makes forecasts right where the batch system is not what the simulator takes it for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from asa.core.errors import InvalidInput

MOST = 4.0
"""The factor is between 1 / MOST and MOST."""

_FORGET = 0.02  # weight of the newest forecast in the mean


class Correction:
    """By how much forecasts are to be multiplied: after each wait a small step towards it.

    It is online gradient descent on the absolute error, in the logarithm of the factor, with the step of a long
    forecast cut to that of a mean one. A forecast of 0 stays 0.

    Parameters
    ----------
    step
        Change of the logarithm after a mean forecast, 0 or more; 0 leaves forecasts as they are.

    Examples
    --------
    Where jobs wait twice as long as was said, it soon says so.

    >>> correction = Correction(step=0.1)
    >>> for _ in range(50):
    ...     correction.learn(100.0, 200.0)
    >>> 1.8 < correction.factor < 2.2
    True

    References
    ----------
    M. Zinkevich, "Online convex programming and generalized infinitesimal gradient ascent", ICML 2003, section 2.1;
    unlike there, the step does not shrink, for queues change.
    """

    def __init__(self, step: float) -> None:
        self._step = step
        self._log = 0.0
        self._mean_s: float | None = None

    @property
    def factor(self) -> float:
        """What to multiply forecasts with."""
        return math.exp(self._log)

    def learn(self, forecast_s: float, wait_s: float) -> None:
        """What was said before the correction, and the wait [s]."""
        said = forecast_s * self.factor
        if said <= 0:
            return
        mean = said if self._mean_s is None else self._mean_s
        self._mean_s = mean + _FORGET * (said - mean)
        step = self._step * min(1.0, said / self._mean_s)
        towards = self._log + (step if wait_s > said else -step if wait_s < said else 0.0)
        self._log = min(max(towards, -math.log(MOST)), math.log(MOST))

    def state(self) -> dict[str, float | None]:
        """All of it, JSON-able."""
        return {"log": self._log, "mean_s": self._mean_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state.

        Raises
        ------
        InvalidInput
            When it is incomplete or not of this kind.
        """
        try:
            log, mean = float(state["log"]), state["mean_s"]
            mean = None if mean is None else float(mean)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"no state of a correction: {error!r}") from error
        if not abs(log) <= math.log(MOST) or not (mean is None or 0 < mean < math.inf):
            raise InvalidInput(f"no state of a correction: log {log!r}, mean_s {mean!r}")
        self._log, self._mean_s = log, mean
