"""What synthetic workloads share: arrival rates that repeat by hour, users and applications, and offered load."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import WEEK
from asa.lab.core.workload import Workload

# -- Cycles -----------------------------------------------------------------------------------------------------------


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


# -- Users ------------------------------------------------------------------------------------------------------------

SKEW = 1.0
"""Exponent of Zipf's law: the k-th user submits in proportion to 1 / k ** SKEW, and so with a user's applications."""


def with_users(
    workload: Workload, users: int, seed: int | np.random.Generator, applications: int = 4, exact: float = 0.8
) -> Workload:
    """The same jobs, labelled with users and names. Nothing but these two columns changes.

    Jobs are put in order of size, and of run time among jobs of like size (within a factor of two). Each application
    gets a stretch of that order, as long as it is popular, so that its jobs are alike; users share out the applications
    at random. The most popular user has the most popular application, and so on: Zipf's law twice.

    Parameters
    ----------
    applications
        How many each of them has; >= 1. They are named by number, and no two users share one.
    exact
        Share of the jobs that are labelled so; the others are labelled at random among all applications, as work that
        is never the same twice. In [0, 1].

    Notes
    -----
    A reading of ours, and a simple one: sessions, in which a user submits the same job over and over, are not modelled
    (`asa.lab.traces.site` does).
    """
    if users < 1 or applications < 1 or not 0 <= exact <= 1:
        raise InvalidInput(
            f"no such labels: {users} users of {applications} applications, a share of {exact} alike: "
            "at least 1, at least 1, and a share in [0, 1] expected"
        )
    rng = np.random.default_rng(seed)
    popular = np.outer(zipf(users), zipf(applications)).ravel()
    stretches = rng.permutation(users * applications)  # of the order, from its begin
    ends = np.cumsum(popular[stretches])
    order = np.lexsort((workload.run, np.floor(np.log2(workload.cores))))
    place = np.empty(len(workload))
    place[order] = (np.arange(len(workload)) + 0.5) / max(len(workload), 1)
    place = np.where(rng.random(len(workload)) < exact, place, rng.random(len(workload)))
    label: Ints = stretches[np.minimum(np.searchsorted(ends, place), len(ends) - 1)]
    return replace(workload, user=label // applications, name=label, labels=_without(workload))


def zipf(count: int) -> Floats:
    """Shares of the first, second ... of `count`; they sum to 1."""
    weights = np.arange(1.0, count + 1) ** -SKEW
    shares: Floats = weights / weights.sum()
    return shares


def _without(workload: Workload) -> dict[str, tuple[str, ...]]:
    return {column: texts for column, texts in workload.labels.items() if column not in ("user", "name")}


# -- Load -------------------------------------------------------------------------------------------------------------


def work(workload: Workload) -> float:
    """Work [core-seconds] of all jobs together."""
    return float((workload.run * workload.cores).sum())


def span(workload: Workload) -> float:
    """Time [s] from the first submission to the last."""
    return float(workload.submit[-1] - workload.submit[0]) if len(workload) else 0.0


def offered_load(workload: Workload, cores: int) -> float:
    """Work per core of the machine and second between the first submission and the last; infinite for one instant.

    >>> offered_load(Workload.of(submit=[0, 100], run=[50, 50], cores=[1, 3]), cores=4)
    0.5
    """
    if cores < 1:
        raise InvalidInput(f"a machine of {cores} cores has no load: at least 1 core expected")
    return work(workload) / (cores * span(workload)) if span(workload) else np.inf


def at_load(workload: Workload, cores: int, load: float, cycle: Cycle | None = None) -> Workload:
    """The same jobs, with the times between them stretched or shrunk so that they offer exactly this load.

    Parameters
    ----------
    cycle
        A daily or weekly cycle that the arrivals follow and shall keep: its operational time is stretched. Without one,
        days are stretched with everything else.

    Raises
    ------
    InvalidInput
        When the load is not above 0, or the jobs have no work or come all at once: no stretching gives them a load.
    """
    now = offered_load(workload, cores)
    if not 0 < load < np.inf:
        raise InvalidInput(f"load is {load!r}: a number above 0 expected")
    if not 0 < now < np.inf:
        raise InvalidInput(
            f"these jobs offer a load of {now}, which no stretching of the time between them can change: "
            "give two jobs or more, at different times, some of which run longer than 0 s"
        )
    submit = workload.submit
    until = submit[0] + span(workload) * (now / load)
    if cycle is None:
        stretched = submit[0] + (submit - submit[0]) * (now / load)
    else:
        done = cycle.operational(submit)
        last = cycle.operational(until)
        factor = (last - done[0]) / (done[-1] - done[0])
        stretched = cycle.clock(done[0] + (done - done[0]) * factor)
        stretched[[0, -1]] = submit[0], until  # not what rounding made of them
    return replace(workload, submit=np.maximum.accumulate(np.minimum(stretched, until)))
