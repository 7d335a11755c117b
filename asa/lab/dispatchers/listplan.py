"""List planning: all waiting jobs are planned, on nodes, and those start that the plan starts now."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import NodeRun, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.planning.instance import Instance, PlannedJob, QueuePlan, from_view
from asa.lab.dispatchers.planning.schemes import RULES, active, improve, keys, nondelay, order_of, reserving

ACTIVE, NON_DELAY, BOTH = SCHEMES = ("active", "non-delay", "both")


class ListPlan:
    """Plan the queue in an order, and start what begins now.

    Parameters
    ----------
    rule
        The order: ``dense`` (what brings most for what it takes), ``sjf``, ``pcp`` (PCP'20's priority) or ``fcfs``.
    scheme
        ``"active"``: each job as early as it can beside those before it, so that wide jobs get their turn; or
        ``"non-delay"``: whatever fits starts, in that order, which is quicker; or ``"both"``: two plans, of which the
        one with the smaller mean slowdown counts.
    overdue
        A job that has waited for more than so many times its duration comes before all that have not, and has a
        reservation in either scheme; the one overdue for longest comes first. Infinite: none is. At least 0.
    seconds
        Search for a better order for so long at each decision, or in `asa dispatch` unless a limit is given there [s];
        for active plans only.

    Raises
    ------
    InvalidInput
        When an option is out of range.
    UnknownName
        When there is no such rule or scheme.

    Notes
    -----
    Deviation from PCP'20, which minimises the same objective: the plan is made by a list, and not by constraint
    programming; the bound of `asa dispatch` tells how much there is left to gain.

    With `overdue`, and expected durations that no job exceeds, every wait has an end: a job is overdue once it has
    waited for `overdue` times its duration; then only jobs overdue for longer come before it; and
    the first of them starts at the latest when all that runs has ended. So no job waits for more than `overdue` times
    its duration and, for itself and each of those, the longest duration of all.
    """

    needs_estimates = True

    def __init__(
        self,
        *,
        rule: str = "dense",
        scheme: str = ACTIVE,
        overdue: float = math.inf,
        seconds: float = 0.0,
    ) -> None:
        for what, name, known in (("rule", rule, RULES), ("scheme", scheme, SCHEMES)):
            if name not in known:
                raise UnknownName(what, name, known)
        if not overdue >= 0:
            raise InvalidInput(f"overdue is {overdue!r}: a number of at least 0, or inf, expected")
        if not 0 <= seconds < math.inf:
            raise InvalidInput(f"seconds is {seconds!r}: a finite number of at least 0 expected")
        if seconds and scheme == NON_DELAY:
            raise InvalidInput(f"seconds={seconds:g} with scheme={scheme}: orders are searched for active plans only")
        self._rule, self._scheme, self._overdue, self._seconds = rule, scheme, overdue, seconds
        self.default_limit_s = seconds  # for asa dispatch without a limit

    def decide(self, view: QueueView | TableView) -> list[Start]:
        if not len(view.queue if isinstance(view, QueueView) else view.waiting):
            return []
        instance = from_view(view)
        if self._scheme == BOTH or self._seconds:
            plan = self._best(instance, self._seconds)[0]
        else:
            plan = self._plan(instance, self._scheme, now=True)
        return starts_now(view, instance, plan)

    def solve(self, instance: Instance, seconds: float) -> PlannedJob:
        """Plan all waiting jobs: at once with 0 seconds, else search for so long [s] for a better order."""
        plan, notes = self._best(instance, seconds)
        return PlannedJob(plan, "feasible", notes=notes)

    def keys(self, instance: Instance) -> Floats:
        """Keys of the waiting jobs, shape (n,); the lowest is first. Those overdue have negative ones."""
        late = instance.waited - self._overdue * instance.duration
        return np.where(late > 0, -late, keys(instance, self._rule))

    def _best(self, instance: Instance, seconds: float) -> tuple[QueuePlan, dict[str, Any]]:
        """The better plan of those that the scheme allows; which scheme made it, and how many orders were tried."""
        found, tries = dict[str, QueuePlan](), 0
        if self._scheme != NON_DELAY:
            if seconds:
                found[ACTIVE], tries = improve(instance, self.keys(instance), seconds=seconds)
            else:
                found[ACTIVE] = self._plan(instance, ACTIVE)
        if self._scheme != ACTIVE:
            found[NON_DELAY] = self._plan(instance, NON_DELAY)
        # Jobs whose nodes are down have no start in either plan.
        best = min(found, key=lambda scheme: float(np.nansum(instance.slowdown(found[scheme].start))))
        return found[best], {"tries": tries, "scheme": best}

    def _plan(self, instance: Instance, scheme: str, *, now: bool = False) -> QueuePlan:
        """A plan of all jobs, or `now` of those only that start now."""
        key = self.keys(instance)
        order, late = order_of(key), key < 0
        if scheme == ACTIVE:
            return active(instance, order, now=now)
        if late.any():
            return reserving(instance, order, late, now=now)
        return nondelay(instance, order, 0.0 if now else math.inf)


def starts_now(view: QueueView | TableView, instance: Instance, plan: QueuePlan) -> list[Start]:
    """What a plan starts now, in the queue's order; on its nodes, where nodes matter."""
    starts = np.flatnonzero(plan.start <= 0).tolist()
    if isinstance(view, QueueView) or view.slots >= 0:
        return [Start(instance.names[job]) for job in starts]
    return [Start(instance.names[job], tuple(_runs(plan.nodes(job)))) for job in starts]


def _runs(nodes: Iterable[tuple[int, int]]) -> list[NodeRun]:
    """Neighbouring nodes with equally many units, as runs.

    >>> _runs([(0, 2), (1, 2), (2, 1), (4, 1)])
    [NodeRun(first=0, last=1, units=2), NodeRun(first=2, last=2, units=1), NodeRun(first=4, last=4, units=1)]
    """
    found: list[NodeRun] = []
    for node, units in nodes:
        if found and found[-1].last == node - 1 and found[-1].units == units:
            found[-1] = found[-1]._replace(last=node)
        else:
            found.append(NodeRun(node, node, units))
    return found
