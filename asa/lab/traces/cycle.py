"""Rates of arrival that repeat, by the hour of the day or of the week."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.units import WEEK


@dataclass(frozen=True)
class Cycle:
    """A rate that is constant over each of several equal spans, and then begins anew.

    It is used as a change of clock: *operational time* runs fast while the rate is high, so arrivals that are steady in
    operational time follow the cycle on the clock. Over a whole period both clocks agree.

    Parameters
    ----------
    weights
        Rate in each span relative to the others, shape (spans,); >= 0, not all 0.
    period_s
        Length of all spans together [s]; > 0.

    Raises
    ------
    InvalidInput
        When there is no weight above 0, a weight is negative or not finite, or the period is not above 0.

    Examples
    --------
    Twice as much by day as by night: half of the day's work has been done by two in the afternoon.

    >>> day = Cycle((1.0, 2.0), period_s=24.0)
    >>> day.clock([0.0, 8.0, 12.0, 24.0]).tolist()
    [0.0, 12.0, 15.0, 24.0]
    >>> day.operational(15.0).tolist()
    12.0
    """

    weights: tuple[float, ...] = (1.0,)
    period_s: float = WEEK

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.sum() > 0:
            raise InvalidInput("a cycle needs weights of at least 0, one of them above 0")
        if not 0 < self.period_s < np.inf:
            raise InvalidInput(f"a cycle has a period of {self.period_s!r} s: a finite time above 0 expected")

    def operational(self, time: npt.ArrayLike) -> Floats:
        """Operational time [s] at these times [s]."""
        turns, rest = np.divmod(np.asarray(time, dtype=np.float64), self.period_s)
        return turns * self.period_s + np.interp(rest, self._edges(), self._work())

    def clock(self, operational: npt.ArrayLike) -> Floats:
        """Times [s] at which operational time [s] has come this far; spans without a rate are leapt over."""
        turns, rest = np.divmod(np.asarray(operational, dtype=np.float64), self.period_s)
        work, edges = self._work(), self._edges()
        span = np.clip(np.searchsorted(work, rest, side="right") - 1, 0, len(self.weights) - 1)
        rate = np.asarray(self.weights)[span] / np.mean(self.weights)
        into = (rest - work[span]) / np.where(rate > 0, rate, 1.0)
        return turns * self.period_s + np.minimum(edges[span] + into, edges[span + 1])

    def _edges(self) -> Floats:
        return np.linspace(0.0, self.period_s, len(self.weights) + 1)

    def _work(self) -> Floats:
        done: Floats = np.concatenate([[0.0], np.cumsum(self.weights)])
        return done * np.float64(self.period_s / done[-1])


def measure(submit: Floats, period_s: float, spans: int) -> Cycle:
    """The cycle that arrivals followed, from how many of them fell into each span.

    Only whole periods count, unless there is none: a log that ends on a Wednesday would make Mondays look busy.

    Parameters
    ----------
    submit
        Times of arrival [s], shape (n,), not decreasing; n >= 1. Periods begin at multiples of `period_s`.
    """
    if not len(submit):
        raise InvalidInput("there are no arrivals to measure a cycle of: the log, or what was chosen of it, is empty")
    begin = np.floor(submit[0] / period_s) * period_s
    whole = np.floor((submit[-1] - submit[0]) / period_s) * period_s
    counted = submit[submit < submit[0] + whole] if whole else submit
    span = ((counted - begin) % period_s / period_s * spans).astype(np.int64)
    counts = np.bincount(np.minimum(span, spans - 1), minlength=spans)
    return Cycle(tuple(counts.astype(float).tolist()), period_s)
