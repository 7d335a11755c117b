"""Orders: who comes first in the queue, by a key that is computed from each job; the lowest key is first.

References
----------
WFP3: W. Tang, Z. Lan, N. Desai and D. Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P systems",
IEEE Cluster 2009. F1: D. Carastan-Santos and R. Y. de Camargo, "Obtaining dynamic scheduling policies with simulation
and machine learning", SC 2017, table 3. The others are folklore. Threshold: J. Lelong, V. Reis and D. Trystram, "Tuning
EASY-backfilling queues", JSSPP 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import duration
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.compiled import compiled
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import columns

Key = Callable[[QueuedJob, float], float]
"""What a job's place in the queue is computed from: the job and the time [s]. The lowest is first."""

FCFS, SJF, LARGEST_AREA, WFP3, F1 = range(5)
OWN = -1
"""Code of an order that somebody else's function makes."""


@compiled
def order_key(code: int, now: float, submit: float, estimate: float, cores: int) -> float:
    """Key of one job in one of the orders `FCFS`, `SJF`, `LARGEST_AREA`, `WFP3` and `F1`.

    Times in [s]. Infinite where an order needs an estimate and there is none (NaN or infinite). Where a formula divides
    by the estimate, or takes the logarithm of it or of the submission, less than 1 s counts as 1 s: the papers leave
    open what jobs without length, and those at the very start of a trace, are worth.
    """
    if code == FCFS:
        return submit
    if not math.isfinite(estimate):
        return math.inf
    if code == SJF:
        return estimate
    if code == LARGEST_AREA:
        return -estimate * cores
    if code == WFP3:
        ratio = (now - submit) / max(estimate, 1.0)
        return -ratio * ratio * ratio * cores
    return math.log10(max(estimate, 1.0)) * cores + 870.0 * math.log10(max(submit, 1.0))


@compiled
def queue_key(code: int, threshold: float, now: float, submit: float, estimate: float, cores: int) -> float:
    """`order_key`, or minus infinity for a job that has waited for longer than `threshold` [s]."""
    return -math.inf if now - submit > threshold else order_key(code, now, submit, estimate, cores)


@compiled
def queue_keys(code: int, threshold: float, now: float, submit: Floats, estimate: Floats, cores: Ints) -> Floats:
    """Keys of many jobs, shape (q,); see `queue_key`."""
    keys = np.empty(len(submit))
    for job in range(len(submit)):
        keys[job] = queue_key(code, threshold, now, submit[job], estimate[job], cores[job])
    return keys


@dataclass(frozen=True)
class Order:
    """An order of the queue. Equal keys leave jobs in the order in which they stand.

    Parameters
    ----------
    name
        What it is called.
    code
        Its number for `order_key`, or `OWN`.
    dynamic
        Whether a job's key changes while it waits.
    key
        The function behind an order of one's own.
    threshold
        Jobs that have waited for longer [s] come before all others, and stay among themselves as they stand: so no
        order starves a job for ever. Infinite: there are none.
    """

    name: str
    code: int
    dynamic: bool = False
    key: Key | None = None
    threshold: float = math.inf

    def rank(self, now: float, submit: npt.ArrayLike, estimate: npt.ArrayLike, cores: npt.ArrayLike) -> Floats:
        """Keys of jobs that are given as columns, shape (q,).

        Raises
        ------
        InvalidInput
            When the order is a function of one's own: it needs to see the jobs, so use `keys`.
        """
        if self.key is not None:
            raise InvalidInput(f"order {self.name!r} is a function of jobs: give `keys` a view instead of columns")
        keys: Floats = queue_keys(
            self.code,
            self.threshold,
            float(now),
            np.ascontiguousarray(submit, dtype=np.float64),
            np.ascontiguousarray(estimate, dtype=np.float64),
            np.ascontiguousarray(cores, dtype=np.int64),
        )
        return keys

    def keys(self, view: QueueView | TableView) -> Floats:
        """Keys of a view's waiting jobs, shape (q,)."""
        if self.key is not None:
            keys = np.array([self.key(job, view.now) for job in view.queue], dtype=np.float64)
            keys[view.now - columns(view)[0] > self.threshold] = -math.inf
            return keys
        return self.rank(view.now, *columns(view))

    def arrange(self, view: QueueView | TableView) -> Ints:
        """Places of the waiting jobs in a view's queue, in this order, shape (q,)."""
        return np.argsort(self.keys(view), kind="stable")


ORDERS: Mapping[str, Order] = {
    item.name: item
    for item in (
        Order("fcfs", FCFS),
        Order("sjf", SJF),
        Order("largest-area", LARGEST_AREA),
        Order("wfp3", WFP3, dynamic=True),
        Order("f1", F1),
    )
}
"""First come first served: submission. Shortest job first: estimate. Largest area first: minus estimate times cores.
WFP3: minus (wait / estimate) cubed times cores, which favours large jobs that have waited long for their length. F1:
log10(estimate) * cores + 870 * log10(submission), learned from simulations; the logarithm of the submission makes it
depend on when time begins, which for it is the begin of the trace.
"""


def order(what: str | Order | Key, threshold: float | str = math.inf) -> Order:
    """The order of that name, or one made of a function ``key(job, now)``, which is taken to change with time.

    Parameters
    ----------
    what
        Name, function, or an order.
    threshold
        See `Order`: seconds, or like ``"3d"``; > 0.

    Raises
    ------
    InvalidInput
        When the threshold is no duration.
    UnknownName
        When there is no order of that name.

    Examples
    --------
    >>> order("sjf").rank(now=0.0, submit=[0.0, 0.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([60., 30.])
    >>> order("sjf", "1h").rank(now=3601.0, submit=[0.0, 60.0], estimate=[60.0, 30.0], cores=[1, 8])
    array([-inf,  30.])
    >>> order(lambda job, now: job.resources.cores).dynamic
    True
    """
    found, limit = _found(what), duration(threshold, what="threshold", endless=True)
    return found if limit == math.inf else replace(found, threshold=limit, dynamic=True)


def _found(what: str | Order | Key) -> Order:
    if isinstance(what, Order):
        return what
    if not isinstance(what, str):
        return Order(getattr(what, "__name__", "own"), OWN, dynamic=True, key=what)
    if what not in ORDERS:
        raise UnknownName("order", what, ORDERS)
    return ORDERS[what]
