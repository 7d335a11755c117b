"""What coming early may cost: a budget for it, and what an hour of the user's time is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from asa.core.decision import Ask, StrategyDecision
from asa.core.errors import InvalidInput
from asa.core.stage import StageState
from asa.core.view import WorkflowView

NOTICED_S = 15.0
"""It is noticed after so long at the latest that an allocation is there [s]: its nodes report by themselves."""


KEPT_SHARE = 0.01
"""No allocation that came early costs more than this share of the plan's Per-Stage core-hours, unless the user's
patience says otherwise."""


def check_patience(value: float | None) -> float | None:
    """Core-hours that an hour of the user's time is worth; above 0, or None.

    Raises
    ------
    InvalidInput
        When it is neither.
    """
    if value is not None and not 0 < value < math.inf:
        raise InvalidInput(f"patience is {value!r}: core-hours that an hour of your time is worth expected, above 0")
    return value


def lead_quantile(patience: float, cores: int) -> float:
    """The quantile of the wait to submit a job of so many cores by, when waiting an hour costs `patience` core-hours.

    A job that comes an hour early costs its cores an hour, one that comes an hour late costs the patience; the sum is
    least, in the mean, when the share of jobs that come early is patience / (patience + cores).

    References
    ----------
    The newsvendor problem: K. Arrow, T. Harris and J. Marschak, Optimal Inventory Policy, Econometrica 19 (1951).

    Examples
    --------
    >>> lead_quantile(100.0, 100), lead_quantile(100.0, 1)
    (0.5, 0.9900990099009901)
    """
    return patience / (patience + cores)


def grace_for(cores: int, view: WorkflowView, grace_s: float) -> float:
    """How long an allocation of so many cores may idle [s]: the grace, but no more than `KEPT_SHARE` of the plan."""
    return min(grace_s, KEPT_SHARE * view.core_s / cores)


def within_budget(
    decisions: Iterable[StrategyDecision], view: WorkflowView, idle_s: Callable[[int], float], max_overhead: float
) -> list[StrategyDecision]:
    """Decisions without the early requests whose worst case would break the budget.

    The worst case of an allocation that comes before its stage is that it idles as long as it may, and until that is
    noticed; those that wait already, or idle now, count as well, and so does what has been lost by now.

    Parameters
    ----------
    idle_s
        How long an allocation of so many cores may idle before its stage, at most [s].
    max_overhead
        Share of the plan's Per-Stage core-hours that may be lost so.
    """
    noticed_s = min(view.poll_s, NOTICED_S)
    spent = view.idle_core_s()
    for stage in view.stages:
        if stage.state is StageState.WAITING:
            for item in stage.allocations:
                if not (item.after or item.array or item.leaving):
                    idled = 0.0 if item.started is None else view.now - item.started
                    cores = view.charged(item.resources)
                    spent += cores * max(0.0, idle_s(cores) + noticed_s - idled)
    kept: list[StrategyDecision] = []
    for decision in decisions:
        if isinstance(decision, Ask) and _is_early(decision, view):
            cores = view.charged(decision.resources)
            cost = cores * (idle_s(cores) + noticed_s)
            if spent + cost > max_overhead * view.core_s:
                continue
            spent += cost
        kept.append(decision)
    return kept


def _is_early(ask: Ask, view: WorkflowView) -> bool:
    """Whether nothing keeps the job from starting before its stage may begin."""
    return not (ask.after or ask.array) and all(view[name].state is StageState.WAITING for name in ask.stages)
