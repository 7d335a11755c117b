"""ASA: ask for a stage's allocation before the stage before it has ended."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from asa.core.decision import Predict, StrategyDecision, Wake, Withdraw
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import ESTIMATORS, parse_spec
from asa.core.stage import StageState
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.perstage import ask_for, lacks_allocation

DEPENDENCIES = ("auto", "upfront", "predicted", "none")

RETREATS = 3
"""Jobs of a stage that may be withdrawn because they came too early before it is only asked for when ready."""

SOONEST_S = 1.0
"""How long to wait at least before looking again [s]: an expected end moves on while nothing happens."""


class Proactive:
    """Submit the job of stage y at t(y-1) - a: the expected end of the stage before it less the predicted wait.

    Parameters
    ----------
    dependency
        ``predicted``: as the paper does, with a job dependency on the stage before it, so that the job cannot start too
        early. ``none``: without one (the paper's "ASA Naive"). ``upfront``: every stage's job goes in at once, each
        depending on the one before; needs no prediction. ``auto``: ``upfront`` where dependent jobs keep their place
        in the queue, ``predicted`` elsewhere.
    lookahead
        How many stages ahead of the running ones are considered; 0 is Per-Stage. A stage further ahead is expected to
        start when the chain of expected waits and run times before it has passed.
    grace_s
        How long an allocation that came before its stage may stay idle until it is withdrawn [s]; infinite to keep it.
    estimator
        Which estimator learns the waits; its own options may follow, as in ``asa:estimator=algorithm1,sampling=tuned``.

    Raises
    ------
    InvalidInput
        When an option has no such value.

    Notes
    -----
    Deviation from the paper: waits of 0 can be represented, and the default estimator is fixed-share, because
    Algorithm 1 cannot track noisy waits (see docs/decisions). With ``sampling`` given, Algorithm 1 is meant.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", sections 3.2 and 4.5.
    """

    own_pools = False

    def __init__(
        self,
        *,
        dependency: str = "auto",
        lookahead: float = 1,
        grace_s: float = math.inf,
        estimator: str | None = None,
        **estimator_options: Any,
    ) -> None:
        if dependency not in DEPENDENCIES:
            raise UnknownName("value of dependency", str(dependency), DEPENDENCIES)
        if lookahead < 0 or grace_s < 0:
            raise InvalidInput(f"lookahead and grace_s must not be negative: {lookahead!r}, {grace_s!r}")
        self.dependency, self.lookahead, self.grace_s = dependency, lookahead, grace_s
        name = "algorithm1" if "sampling" in estimator_options else "fixed-share"
        plain = estimator is None and not estimator_options  # then nothing need be imported yet
        self.estimator = name if plain else _estimator_spec(estimator or name, estimator_options)

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        dependency = self.dependency
        if dependency == "auto":
            dependency = "upfront" if view.regime.dependents_age else "predicted"
        if not view.dependencies:
            dependency = "none"
        return self._upfront(view) if dependency == "upfront" else self._predicted(view, dependency == "predicted")

    def _upfront(self, view: WorkflowView) -> list[StrategyDecision]:
        decisions: list[StrategyDecision] = []
        for stage in view.stages:
            before = [view[name] for name in stage.spec.predecessors]
            if lacks_allocation(stage) and all(item.state is StageState.DONE or _queued(item) for item in before):
                decisions.append(ask_for(stage, after=_holders(before)))
        return decisions

    def _predicted(self, view: WorkflowView, dependent: bool) -> list[StrategyDecision]:
        decisions: list[StrategyDecision] = []
        expected: dict[str, tuple[float, float]] = {}  # stage -> expected end, stages from one that runs
        for stage in view.stages:
            before = [view[name] for name in stage.spec.predecessors]
            start = max((expected[item.spec.name][0] for item in before), default=view.now)
            ahead = 1.0 + max((expected[item.spec.name][1] for item in before), default=0.0)
            idle = stage.state in (StageState.WAITING, StageState.READY)
            expected[stage.spec.name] = _expected_end(stage, start, view.now), ahead if idle else 0.0
            if stage.state is StageState.WAITING:
                decisions += self._retreat(stage, view.now)
            if not lacks_allocation(stage):
                continue
            if stage.state is StageState.WAITING and (ahead > self.lookahead or self._gave_up(stage, dependent)):
                continue
            if stage.predicted_wait_s is None:
                decisions.append(Predict(stage.spec.name))
            elif stage.state is not StageState.WAITING:
                decisions.append(ask_for(stage))
            elif view.now >= start - stage.predicted_wait_s:
                if not dependent or all(item.state is StageState.DONE or _queued(item) for item in before):
                    decisions.append(ask_for(stage, after=_holders(before) if dependent else ()))
            else:
                decisions.append(Wake(max(start - stage.predicted_wait_s, view.now + SOONEST_S)))
        return decisions

    def _retreat(self, stage: StageView, now: float) -> list[StrategyDecision]:
        """Withdraw what came too early and has idled for the grace."""
        decisions: list[StrategyDecision] = []
        for item in stage.allocations:
            if item.started is not None and not item.leaving and not item.busy and self.grace_s < math.inf:
                if now >= item.started + self.grace_s:
                    decisions.append(Withdraw(item.key, f"it came before its stage and idled for {self.grace_s:g} s"))
                else:
                    decisions.append(Wake(item.started + self.grace_s))
        return decisions

    def _gave_up(self, stage: StageView, dependent: bool) -> bool:
        return not dependent and self.grace_s < math.inf and stage.attempts >= RETREATS


class Naive(Proactive):
    """`Proactive` without job dependencies: an allocation that comes more than `grace_s` too early is cancelled, and
    asked for again by a new prediction (the paper's "ASA Naive", section 4.5). Stages keep to their own allocations."""

    own_pools = True

    def __init__(self, *, grace_s: float = 300.0, estimator: str | None = None, **estimator_options: Any) -> None:
        super().__init__(dependency="none", grace_s=grace_s, estimator=estimator, **estimator_options)


class Cascade(Proactive):
    """`Proactive` that looks ahead over all coming stages, not only the next one."""

    def __init__(
        self, *, dependency: str = "predicted", estimator: str | None = None, **estimator_options: Any
    ) -> None:
        super().__init__(dependency=dependency, lookahead=math.inf, estimator=estimator, **estimator_options)


def _estimator_spec(name: str, options: dict[str, Any]) -> str:
    kind, given = parse_spec(name)
    known = inspect.signature(ESTIMATORS.load(kind)).parameters
    options = given | options
    for option in options:
        if option not in known:
            raise UnknownName(f"option of estimator {kind!r}:", option, known)
    listed = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{kind}:{listed}" if listed else kind


def _queued(stage: StageView) -> bool:
    return any(item.queued and not item.leaving for item in stage.allocations)


def _holders(stages: list[StageView]) -> tuple[str, ...]:
    """Allocations of stages that are not done: what a dependent job has to wait for."""
    found: dict[str, AllocationView] = {
        item.key: item for stage in stages if stage.state is not StageState.DONE for item in stage.allocations
    }
    return tuple(key for key, item in found.items() if item.queued and not item.leaving)


def _expected_end(stage: StageView, start: float, now: float) -> float:
    """When a stage is expected to end [s since the epoch], given when its predecessors are."""
    if stage.state.final:
        return now
    if stage.expected_end is not None:
        return stage.expected_end
    arrivals = [
        max(now, item.submitted + (item.predicted_wait_s or 0.0)) if item.started is None else item.started
        for item in stage.allocations
    ]
    return max(start, min(arrivals, default=start)) + stage.spec.run_time_s
