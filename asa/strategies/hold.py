"""Every stage in the queue from the start, its place held until it is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.decision import SOONEST_S, Amend, Ask, Cancel, Predict, StrategyDecision, Wake
from asa.core.errors import InvalidInput
from asa.core.ports import DecidesByStage, Explains, PlaceHolding, Reach, Strategy
from asa.core.stage import StageState
from asa.core.view import StageView, WorkflowView
from asa.strategies.ahead import outlook, retreat
from asa.strategies.asking import ask_for, lacks_allocation
from asa.strategies.budget import grace_for
from asa.strategies.places import SETTLED_S, Throttled, check_technique, technique_for
from asa.strategies.proactive import Proactive


class Hold:
    """Submit every stage's job at once, and hold the places of those whose time has not come.

    Parameters
    ----------
    technique
        How places are held: ``afterok``, ``aged-afterok``, ``array`` or ``parked``; ``auto`` for what the site's queue
        allows, which is never ``parked``.
    lead_s
        How long before a stage is ready its job may start [s]; at most the grace. With more than 0 the wait for nodes
        to become free overlaps with the stage before, and the allocation idles when it comes early. It hardly ever
        pays (docs/waits-experiments.md).
    grace_s
        How long an allocation that came before its stage may stay idle until it is withdrawn [s]; without a lead no
        longer than costs a hundredth of the plan.
    otherwise
        The strategy for stages whose places cannot be held, or were lost; the paper's by default.

    Raises
    ------
    InvalidInput
        When a time is negative, or the lead is longer than the grace.
    UnknownName
        When there is no such technique.

    Notes
    -----
    Not in the paper, which assumes that a job which depends on another ages; on a default Slurm it does not.
    """

    own_pools = False

    def __init__(
        self,
        *,
        technique: str = "auto",
        lead_s: float = 0.0,
        grace_s: float = 300.0,
        otherwise: Strategy | None = None,
    ) -> None:
        if not 0 <= lead_s <= grace_s:
            raise InvalidInput(
                f"lead_s={lead_s!r}, grace_s={grace_s!r}: a lead of at least 0 s and at most the grace expected, for "
                "what comes as early as the lead allows must not be released"
            )
        self.technique, self.lead_s, self.grace_s = check_technique(technique), lead_s, grace_s
        self.otherwise: Strategy = otherwise or Proactive(dependency="predicted")
        self.estimator = self.otherwise.estimator
        self._also = self.otherwise if isinstance(self.otherwise, DecidesByStage) else None

    def reach(self, view: WorkflowView) -> Reach:
        """From no more than the stages before, for whose jobs it waits; from what the other strategy looks at where
        places cannot be held, or were lost."""
        if (places := technique_for(view, self.technique)) is not None:
            if self.lead_s or places.name == Throttled.name:
                return Reach.ALL
            if not any(map(_is_loose, view.stages)):
                return Reach.BEFORE if any(map(lacks_allocation, view.stages)) else Reach.ITSELF
        return Reach.ALL if self._also is None else self._also.reach(view)

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        places = technique_for(view, self.technique)
        if places is None:
            return self.otherwise.decide(view)
        if lost := self._lost(view, places):
            return lost
        lacking = [stage for stage in view.stages if lacks_allocation(stage)]
        fresh = [stage for stage in lacking if not stage.attempts]
        wanted = self._wanted(view)
        decisions: list[StrategyDecision] = [*places.ask(fresh, view), *places.tend(view, wanted), *self._later(view)]
        again = {stage.spec.name for stage in lacking if stage.attempts and stage.state is not StageState.WAITING}
        loose = {stage.spec.name for stage in view.stages if _is_loose(stage)}
        for stage in view.stages:
            if stage.state is StageState.WAITING and stage.spec.name not in loose:
                grace_s = max(self.lead_s, grace_for(view.charged(stage.spec.resources), view, self.grace_s))
                decisions += retreat(stage, view.now, grace_s)
            elif stage.spec.name in again:
                decisions.append(ask_for(stage))
        if loose:
            decisions += [item for item in self.otherwise.decide(view) if _concerns(item, loose, view)]
        return decisions

    def explain(self, view: WorkflowView) -> str:
        places = technique_for(view, self.technique)
        if places is None:
            how = self.otherwise
            said = how.explain(view) if isinstance(how, Explains) else "jobs are submitted by predicted waits"
            why = f": {view.unordered}: the largest element of a job array would start first" if view.unordered else ""
            return f"no place can be held in this queue ({view.regime.value}{why}): {said}"
        lost = [stage.spec.name for stage in view.stages if stage.displaced]
        said = f"places in the queue ({view.regime.value}) are held by the technique {places.name!r}"
        return said + (f"; lost by {', '.join(lost)}" if lost else "")

    def _wanted(self, view: WorkflowView) -> frozenset[str]:
        """Stages whose jobs may start: those that may begin, and those that soon will."""
        ahead = self._next(view).items() if self.lead_s else ()
        soon = {name for name, ready in ahead if ready - view.now <= self.lead_s}
        now = {stage.spec.name for stage in view.stages if stage.state in (StageState.READY, StageState.RUNNING)}
        return frozenset(now | soon)

    def _later(self, view: WorkflowView) -> list[StrategyDecision]:
        """When to look again: to let jobs go, and to see whether they have begun to age."""
        times = [ready - self.lead_s for ready in self._next(view).values()] if self.lead_s else []
        times = [max(at, view.now + SOONEST_S) for at in times if at > view.now]
        settled = [item.submitted + SETTLED_S for item in view.allocations if item.reason and item.ages_since is None]
        return [Wake(at) for at in (*times, *settled) if at > view.now]

    def _next(self, view: WorkflowView) -> dict[str, float]:
        """When stages that wait for running ones are expected to be ready [s since the epoch]."""
        waiting = [stage.spec.name for stage in view.stages if stage.state is StageState.WAITING]
        expected = outlook(view, far=False)
        return {name: expected[name].ready for name in waiting if expected[name].distance <= 1}

    def _lost(self, view: WorkflowView, places: PlaceHolding) -> list[StrategyDecision]:
        """Cancel what has lost its place, and what stands behind it in its array."""
        decisions: list[StrategyDecision] = []
        broken: set[str] = set()
        for stage in view.stages:
            for item in stage.allocations if stage.state is StageState.WAITING else ():
                if item.started is not None or item.leaving:
                    continue
                if not places.kept(item, view) or item.array in broken:
                    broken |= {item.array} - {""}
                    said = item.refused or f"the batch system says {item.reason or 'nothing'}, and it does not age"
                    decisions.append(Cancel(item.key, f"its place in the queue is lost: {said}", displaced=True))
        return decisions


def _is_loose(stage: StageView) -> bool:
    """Whether a stage has to come without a place that is held: it lost it, or its first job is gone."""
    return stage.state is StageState.WAITING and bool(stage.displaced or (stage.attempts and lacks_allocation(stage)))


def _concerns(decision: StrategyDecision, stages: set[str], view: WorkflowView) -> bool:
    """Whether a decision is about one of these stages."""
    match decision:
        case Ask():
            return bool(stages & {*decision.stages})
        case Predict():
            return decision.stage in stages
        case Cancel() | Amend():
            return any(item.key == decision.allocation for name in stages for item in view[name].allocations)
        case Wake():
            return True
