"""First come first served, EASY and conservative backfilling: one rule and a number.

References
----------
A. W. Mu'alem and D. G. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the
IBM SP2 with backfilling", IEEE TPDS 12(6), 2001. D. A. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from asa.core.backfill import ReservationRule
from asa.core.decision import DispatchDecision
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.core.view import QueueView

if TYPE_CHECKING:  # both need NumPy, which a machine of this size does without
    from asa.lab.core.table import TableView
    from asa.lab.dispatchers.order import Key, Order

EVERYBODY = 2**62


class Rule(NamedTuple):
    """A backfilling rule as numbers, for compiled loops.

    Parameters
    ----------
    depth
        How many blocked jobs get a reservation; may be infinite.
    limit
        How many waiting jobs are looked at.
    order
        A code of `asa.lab.dispatchers.order`; -1 for the order in which the queue stands.
    threshold
        In an order, jobs that have waited for longer [s] come first.
    """

    depth: float
    limit: int = EVERYBODY
    order: int = -1
    threshold: float = math.inf


def rule_of(dispatcher: Any) -> Rule:
    """A dispatcher's rule as numbers; the dispatcher itself, or by name.

    Raises
    ------
    InvalidInput
        When it is not one that compiled loops know.
    UnknownName
        When there is none of this name.

    Examples
    --------
    >>> rule_of("backfill:depth=2,limit=100")
    Rule(depth=2.0, limit=100, order=-1, threshold=inf)
    """
    rule: Rule | None = getattr(DISPATCHERS.create(dispatcher), "native", None)
    if rule is None:
        raise InvalidInput(f"dispatcher {dispatcher!r} is no backfilling rule: expected one such as easy")
    return rule


class Backfill:
    """Start jobs in the queue's order; the first `depth` that cannot start get reservations, later ones fill the gaps.

    The rule is that of `asa.core.backfill.ReservationRule`, here also for the tables of a simulation, and with orders:
    depth 0 is first come, first served; 1 is EASY; infinity is conservative backfilling.

    What holds, for jobs that end no later than their wall times and a queue in which nobody is overtaken: the first
    blocked job never starts later than it was promised. When run times equal wall times this is true of all
    reservations, and no job starts later under conservative than under first come, first served.

    Deviation from Mu'alem and Feitelson: reservations are made anew at each decision, in the queue's order, for a
    dispatcher keeps no memory. When a job ends before its wall time, one that is early in the queue may therefore
    move forward into the place of a later one, whose reservation then moves back; the paper's compression would leave
    it. The order of the queue counts for more here than an old promise.

    Parameters
    ----------
    depth
        How many blocked jobs get a reservation; a whole number >= 0, or infinite.
    limit
        How many waiting jobs are looked at, from the front of the queue; a whole number >= 0, or infinite.
    order
        Another order than that in which the queue stands: a name of `asa.lab.dispatchers.order`, or a key.
    threshold
        With an order, jobs that have waited for longer come first, as they stand: seconds, or like ``"3d"``; > 0.

    Raises
    ------
    InvalidInput
        When `depth` or `limit` is negative or not a whole number, `threshold` no duration, or there is no order to put
        jobs before.
    UnknownName
        When there is no such order.
    """

    def __init__(
        self,
        depth: float = 1,
        limit: float = math.inf,
        order: str | Key | None = None,
        threshold: float | str = math.inf,
    ) -> None:
        self._plain = ReservationRule(depth, limit)
        self.depth, self.limit = depth, limit
        self.order: Order | None = None
        if order is not None:
            from asa.lab.dispatchers.order import order as find  # here, because it needs the compiler

            self.order = find(order, threshold)
        elif threshold != math.inf:
            raise InvalidInput("threshold= puts jobs before the order's first, and there is no order: say order=sjf")

    @property
    def needs_estimates(self) -> bool:
        """Whether it plans with wall times."""
        return self.depth > 0

    @property
    def native(self) -> Rule | None:
        """The rule as numbers, for the compiled loop of the simulator; None where the order is a Python function."""
        if self.order is not None and self.order.key is not None:
            return None
        rule = Rule(float(self.depth), int(min(self.limit, EVERYBODY)))
        return rule if self.order is None else rule._replace(order=self.order.code, threshold=self.order.threshold)

    def decide(self, view: QueueView | TableView) -> list[DispatchDecision]:
        """What to start now, and which later starts are promised; in the queue's order."""
        if not isinstance(view, QueueView):
            from asa.lab.dispatchers.tablefill import decide

            return decide(self, view)
        queue = view.queue if self.order is None else [view.queue[place] for place in self.order.arrange(view)]
        return self._plain.decide_in_order(view, queue)


class Fcfs(Backfill):
    """First come, first served: nobody is overtaken."""

    def __init__(
        self, limit: float = math.inf, order: str | Key | None = None, threshold: float | str = math.inf
    ) -> None:
        super().__init__(0, limit, order, threshold)


class Easy(Backfill):
    """EASY backfilling: the first blocked job has a reservation, the others fill what it leaves."""

    def __init__(
        self, limit: float = math.inf, order: str | Key | None = None, threshold: float | str = math.inf
    ) -> None:
        super().__init__(1, limit, order, threshold)


class Conservative(Backfill):
    """Conservative backfilling: every blocked job has a reservation."""

    def __init__(
        self, limit: float = math.inf, order: str | Key | None = None, threshold: float | str = math.inf
    ) -> None:
        super().__init__(math.inf, limit, order, threshold)
