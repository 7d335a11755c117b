"""Several requests for one stage, a while apart: for queues in which no place can be held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asa.core.allocation import drain_margin
from asa.core.decision import SOONEST_S, Cancel, Predict, StrategyDecision, Wake
from asa.core.errors import InvalidInput
from asa.core.ports import Reach
from asa.core.stage import StageState
from asa.core.units import check_number, share
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.ahead import FRESH_S, Outlook, horizon_s, outlook
from asa.strategies.asking import ask_for
from asa.strategies.budget import KEPT_SHARE, check_patience, lead_quantile, within_budget
from asa.strategies.options import DEFAULT_ESTIMATOR, estimator_spec

TRIES = 20
"""Jobs of a stage that may come too early before it is only asked for when it is ready."""

KEPT_MOST_S = 4 * 3600.0
"""No allocation idles longer than this [s], however few cores it has."""

SPACING_LEAST_S = 600.0
"""Requests are this much apart at least [s], where nothing else is asked for."""


class Staggered:
    """Ask for a stage's allocation so that the first request comes when the stage is expected to be ready, and further
    ones a while later each, in case it comes too early.

    An allocation that comes too early is kept while that is cheap, and released at once if it is not; as soon as a
    stage has what it needs its other requests are withdrawn. No job depends on another.

    Parameters
    ----------
    outstanding
        Requests that a stage may have in the queue at a time.
    spacing_s
        How much later each of them is meant to come than the one before [s]; by default the predicted wait over their
        number, so that one comes before the next wait of the first would be over.
    grace_s
        How long an allocation of the workflow's widest stage may idle [s]; narrower ones may as many core-seconds. Less
        where that would use up the budget.
    patience
        Core-hours that an hour of the user's time is worth. If given, waits are planned with the quantile that makes
        the cost of both least, and allocations are kept as long as that is cheaper than to wait for another.
    max_overhead
        Share of the plan's Per-Stage core-hours that may be lost by coming early, such as 0.03 or ``"3%"``.
    late
        Quantile of the wait that jobs are submitted by, where no patience is given.
    soon
        Quantile by which those of the stages before may have come.
    estimator
        What learns the waits.

    Raises
    ------
    InvalidInput
        When an option is out of its bounds.
    """

    own_pools = False

    def __init__(
        self,
        *,
        outstanding: int = 3,
        spacing_s: float | None = None,
        grace_s: float = 300.0,
        patience: float | None = None,
        max_overhead: float | str | None = None,
        late: float | None = None,
        soon: float | None = None,
        estimator: str = DEFAULT_ESTIMATOR,
        **estimator_options: Any,
    ) -> None:
        check_number("outstanding", outstanding, 1, whole=True)
        if spacing_s is not None:
            check_number("spacing_s", spacing_s, 0)
        if not grace_s >= 0:
            raise InvalidInput(f"grace_s={grace_s!r}: a time of at least 0 s expected; inf: for ever")
        for name, given in (("late", late), ("soon", soon)):
            if given is not None and not 0 < given < 1:
                raise InvalidInput(f"{name}={given!r}: a quantile of the wait expected, above 0 and below 1")
        self.outstanding, self.spacing_s, self.grace_s = outstanding, spacing_s, grace_s
        self.patience = check_patience(patience)
        self.max_overhead = None if max_overhead is None else share(max_overhead, what="max_overhead", most=math.inf)
        self.late, self.soon = late, soon
        self.estimator = estimator_spec(estimator, estimator_options)

    def reach(self, view: WorkflowView) -> Reach:
        """From how far those before a stage are: its requests are to come when it is ready."""
        if self.max_overhead is not None:
            return Reach.ALL
        waits = any(stage.state is StageState.WAITING for stage in view.stages)
        return Reach.EXPECTED if waits else Reach.ITSELF

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        expected = outlook(view)
        decisions: list[StrategyDecision] = []
        for stage in view.stages:
            if not stage.state.final:
                decisions += self._stage(stage, expected[stage.spec.name], view)
        if self.max_overhead is None:
            return decisions
        return within_budget(decisions, view, lambda cores: self._idle_s(cores, view), self.max_overhead)

    def explain(self, view: WorkflowView) -> str:
        apart = "a part of the wait" if self.spacing_s is None else f"{self.spacing_s:g} s"
        return f"up to {self.outstanding} requests a stage, {apart} apart"

    def _stage(self, stage: StageView, expected: Outlook, view: WorkflowView) -> list[StrategyDecision]:
        live = [item for item in stage.allocations if not item.leaving]
        there = [item for item in live if item.started is not None]
        asked = [item for item in live if item.started is None]
        decisions: list[StrategyDecision] = []
        if stage.state is StageState.WAITING:
            early = [item for item in there if not item.busy]
            decisions += self._early(stage, early, expected.ready, view)
            if any(isinstance(item, Cancel) for item in decisions):
                return decisions
        if there or not stage.unlaunched:
            return decisions + [Cancel(item.key, "its stage has an allocation already") for item in asked]
        waits = stage.state is StageState.WAITING
        if (len(asked) >= self.outstanding or stage.attempts >= TRIES) if waits else asked:
            return decisions
        wait_s, soonest = stage.predicted_wait_s, view.now + SOONEST_S
        if wait_s is not None:
            due = self._target(wait_s, asked, expected.ready) - wait_s if waits else view.now
            made = math.inf if stage.predicted_at is None else stage.predicted_at
            stale = max(made + FRESH_S, min(due, expected.ready - horizon_s(wait_s)))
            if view.now < stale:
                return [*decisions, ask_for(stage) if view.now >= due else Wake(max(min(due, stale), soonest))]
        cores = view.charged(stage.spec.resources)
        late = self.late if self.patience is None else lead_quantile(self.patience, cores)
        return [*decisions, Predict(stage.spec.name, late, self.soon)]

    def _target(self, wait_s: float, asked: Sequence[AllocationView], ready: float) -> float:
        """When the next request is to come [s since the epoch]."""
        if not asked:
            return ready
        spacing_s = max(SPACING_LEAST_S, wait_s / self.outstanding) if self.spacing_s is None else self.spacing_s
        return max(ready, max(item.submitted + (item.predicted_wait_s or 0.0) for item in asked) + spacing_s)

    def _early(
        self, stage: StageView, there: Sequence[AllocationView], ready: float, view: WorkflowView
    ) -> list[StrategyDecision]:
        """Give back what came too early, unless it is cheap to keep it until the stage is ready."""
        decisions: list[StrategyDecision] = []
        for item in there:
            assert item.started is not None, "it is there"
            until = item.started + self._keep_s(item, stage, view)
            if view.now >= until or ready > until:
                said = f"it came before its stage, and may idle for {until - item.started:.0f} s only"
                decisions.append(Cancel(item.key, said))
            else:
                decisions.append(Wake(until))
        return decisions

    def _keep_s(self, item: AllocationView, stage: StageView, view: WorkflowView) -> float:
        """How long an allocation may idle [s]; enough of its wall time has to be left."""
        cores, spec = view.charged(stage.spec.resources), stage.spec
        keep_s = self._idle_s(cores, view)
        if self.patience is not None:
            keep_s = min(keep_s, self.patience / cores * (item.predicted_wait_s or self.grace_s))
        left_s = spec.walltime_s - spec.run_time_s - drain_margin(spec.walltime_s)
        return max(0.0, min(keep_s, left_s))

    def _idle_s(self, cores: int, view: WorkflowView) -> float:
        """How long an allocation of so many cores may idle, at most [s]."""
        core_s = min(self.grace_s * view.widest, KEPT_SHARE * view.core_s) if self.patience is None else math.inf
        if self.max_overhead is not None:
            core_s = min(core_s, self.max_overhead * view.core_s / (2 * len(view.stages)))
        return min(KEPT_MOST_S, core_s / cores)
