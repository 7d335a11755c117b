"""Predicts a job's wait by running the simulator forward from the queue as it can be seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS
from asa.core.view import QueueView
from asa.estimators.checks import check_count, check_open_share, check_wait, printed, read
from asa.lab.core.table import TableView
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.forecast.futures import Ahead, Visible, visible
from asa.lab.forecast.sightings import Sightings, coming

# -- Correction -------------------------------------------------------------------------------------------------------

MOST = 4.0
"""The factor is between 1 / MOST and MOST."""

_FORGET = 0.02  # weight of the newest forecast in the mean


class Correction:
    """By how much forecasts are to be multiplied: after each wait a small step towards it.

    It is online gradient descent on the absolute error, in the logarithm of the factor, with the step of a long
    forecast cut to that of a mean one. A forecast of 0 stays 0.

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
        return {"log": self._log, "mean_s": self._mean_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        try:
            log, mean = float(state["log"]), state["mean_s"]
            mean = None if mean is None else float(mean)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"no state of a correction: {error!r}") from error
        if not abs(log) <= math.log(MOST) or not (mean is None or 0 < mean < math.inf):
            raise InvalidInput(f"no state of a correction: log {log!r}, mean_s {mean!r}")
        self._log, self._mean_s = log, mean


# -- Lookahead --------------------------------------------------------------------------------------------------------

RUNS = ("learned", "requested")


@printed
class Lookahead:
    """The queue's jobs run on a machine of their own, in many futures; the wait is that of a job behind all of them.

    In each future every job runs for a share of its wall time that is drawn from those that jobs were seen to use,
    given how long it has run already, and others submit what they were seen to submit lately. A job that starts at
    once by the wall times alone starts at once in every future.

    Jobs are known by their cores, wall times, order and expected ends, which is what ``squeue`` shows. Memory, nodes
    and limits per user are not looked at, and the order in which jobs stand now is taken to last.

    Parameters
    ----------
    base
        What predicts where the queue is not seen, or the job is larger than the machine: a spec of
        `asa.core.registry.ESTIMATORS`, or an `Estimator`.
    runs
        How long jobs run: ``"learned"``; or ``"requested"``, all of their wall times, and no other job is submitted.
    quantile
        Quantile of the waits in them that `predict` returns, between 0 and 1; 0.5 is the median.
    step
        How fast a factor follows by which the waits turn out longer or shorter than that, from 0 (not at all) to 1;
        see `asa.lab.forecast.lookahead`.

    Raises
    ------
    InvalidInput
        When an option is out of its bounds, or the dispatcher is not a backfilling rule.
    UnknownName
        When there is no such base or dispatcher.

    Examples
    --------
    Four cores are taken until 600 s at the latest; by then, a job of all four will be there.

    >>> from asa.core.job import Resources
    >>> from asa.core.view import RunningJob
    >>> four = Resources(4)
    >>> queue = QueueView(0.0, four, (), (RunningJob("a", four, ends=600.0),))
    >>> Lookahead(runs="requested").predict(Context(0.0, cores=4, queue=queue))
    600.0
    >>> 0 < Lookahead().predict(Context(0.0, cores=4, queue=queue)) < 600
    True

    References
    ----------
    W. Smith, V. Taylor and I. Foster, "Using run-time predictions to estimate queue wait times and improve scheduler
    performance", JSSPP 1999: forward simulation with predicted run times (section 4). Unlike theirs, run times are
    drawn and not point predictions, and jobs come; both on average delay a job.
    """

    pooled = looks_ahead = True

    def __init__(
        self,
        *,
        base: Any = "fixed-share",
        dispatcher: Any = "easy",
        runs: str = "learned",
        futures: int = 15,
        quantile: float = 0.5,
        step: float = 0.03,
        seed: int = 0,
    ) -> None:
        if runs not in RUNS:
            raise InvalidInput(f"runs is {runs!r}: expected one of {', '.join(RUNS)}")
        if not 0 <= step <= 1:
            raise InvalidInput(f"step is {step!r}: expected a number from 0 to 1")
        self._rule = rule_of(dispatcher)
        self._base: Estimator = ESTIMATORS.create(base, seed=seed)
        self._learned = runs == "learned"
        self._futures = check_count(futures, "futures", at_least=1)
        self._quantile = check_open_share(quantile, "quantile")
        self._seed = check_count(seed, "seed")
        self._sightings, self._correction, self._step = Sightings(), Correction(step), step
        self._last: tuple[Context, Floats] | None = None

    def see(self, view: QueueView | TableView) -> None:
        """Look at the queue: how long jobs run is learned from every look. Old looks tell nothing."""
        self._see(visible(view))

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """The wait to plan with [s]: a quantile over the futures, or what the base says where nothing is seen."""
        if context is None or context.queue is None:
            return self._base.predict(context, quantile)
        if self._last is not None and self._last[0] is context:  # another quantile of the same futures
            waits = self._last[1]
        else:
            waits = self.waits(visible(context.queue), context.cores, context.walltime_s)
            self._last = context, waits
        if not np.isfinite(waits).all():
            return self._base.predict(context, quantile)
        found = np.quantile(waits, self._quantile if quantile is None else quantile)
        return float(found) * self._correction.factor

    def waits(self, seen: Visible, cores: int, walltime_s: float) -> Floats:
        """Waits of a job in all futures [s], not corrected; infinite when it is larger than the machine.

        Of shape (futures,), or of shape (1,) when all of them are the same.
        """
        ahead = Ahead.of(seen, cores, walltime_s)
        longest = ahead.wait(self._rule, seen.left_s, seen.walltime_s)
        if longest in (0.0, math.inf) or not self._learned:
            return np.array([longest])
        rng = np.random.default_rng([self._seed, int(abs(seen.now))])
        used, asked = self._sightings.used(seen)
        here = len(used)
        used = np.concatenate([used, np.zeros(len(seen.waiting))])
        asked = np.concatenate([asked, seen.walltime_s])
        found = np.empty(self._futures)
        for future, chances in enumerate(_spread(self._futures, len(used), rng)):
            left = (self._sightings.table.share(used, chances) - used) * asked
            others = coming(self._sightings, seen.now, seen.now + longest, rng)
            found[future] = ahead.wait(self._rule, left[:here], left[here:], others)
        return found

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        """A job waited `wait_s` [s]: the base learns it, and the correction, for which the forecast is made again.

        A table is no use for that: by the time the job has started it shows another moment. Let `see` look in time.
        """
        self._base.learn(check_wait(wait_s), predicted_s, context)
        if context is None or not isinstance(context.queue, QueueView):
            return
        seen = visible(context.queue)
        if self._step and math.isfinite(
            forecast := float(np.median(self.waits(seen, context.cores, context.walltime_s)))
        ):
            self._correction.learn(forecast, wait_s)
        self._see(seen)

    def state(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "base": self._base.state(),
            "sightings": self._sightings.state(),
            "correction": self._correction.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another instance with the same base has learned."""
        seed = check_count(read(state, "seed"), "state['seed']")
        sightings, correction = Sightings(), Correction(self._step)
        sightings.restore(read(state, "sightings"))
        correction.restore(read(state, "correction"))
        self._base.restore(read(state, "base"))
        self._seed, self._sightings, self._correction, self._last = seed, sightings, correction, None

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which need not have the queue."""
        return vars(self) | {"_last": None}

    def _see(self, seen: Visible) -> None:
        self._sightings.see(seen)
        self._last = None


def _spread(futures: int, jobs: int, rng: np.random.Generator) -> Floats:
    """Chances for each job that are spread evenly over the futures, shape (futures, jobs): a Latin hypercube."""
    parts = rng.permuted(np.tile(np.arange(futures)[:, None], (1, jobs)), axis=0)
    spread: Floats = (parts + rng.random(parts.shape)) / futures
    return spread
