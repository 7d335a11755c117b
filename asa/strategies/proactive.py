"""ASA: ask for a stage's allocation before the stage before it has ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from asa.core.decision import SOONEST_S, Predict, StrategyDecision, Wake
from asa.core.errors import InvalidInput, UnknownName
from asa.core.ports import Reach
from asa.core.stage import StageState
from asa.core.units import share
from asa.core.view import StageView, WorkflowView
from asa.strategies.ahead import ask_after, outlook, retreat
from asa.strategies.asking import ask_for, lacks_allocation
from asa.strategies.budget import within_budget
from asa.strategies.options import PAPER_ESTIMATOR, estimator_spec

DEPENDENCIES = ("auto", "upfront", "predicted", "none")

RETREATS = 3
"""Jobs of a stage that may be withdrawn because they came too early before it is only asked for when ready."""


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
    late, soon
        Quantiles of the wait, in (0, 1): the one that a job is submitted by, and the one by which those of the stages
        before it may have come; None for what the estimator plans with. Where jobs depend on one another and age while
        they do, coming early costs nothing: a high one and a low one then.
    max_overhead
        Share of the plan's Per-Stage core-hours that may be lost because jobs come early, such as 0.03 or ``"3%"``; no
        limit by default. Dependent jobs cannot come early.
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
        late: float | None = None,
        soon: float | None = None,
        max_overhead: float | str | None = None,
        estimator: str | None = None,
        **estimator_options: Any,
    ) -> None:
        if dependency not in DEPENDENCIES:
            raise UnknownName("value of dependency", str(dependency), DEPENDENCIES)
        if lookahead < 0 or grace_s < 0:
            raise InvalidInput(f"lookahead and grace_s must not be negative: {lookahead!r}, {grace_s!r}")
        for name, value in (("late", late), ("soon", soon)):
            if value is not None and not 0 < value < 1:
                raise InvalidInput(f"{name}={value!r}: a quantile of the wait expected, above 0 and below 1")
        self.dependency, self.lookahead, self.grace_s = dependency, lookahead, grace_s
        self.late, self.soon = late, soon
        self.max_overhead = None if max_overhead is None else share(max_overhead, what="max_overhead", most=math.inf)
        name = "algorithm1" if "sampling" in estimator_options else PAPER_ESTIMATOR
        self.estimator = estimator_spec(estimator or name, estimator_options)

    def reach(self, view: WorkflowView) -> Reach:
        """No further than it looks ahead, and from nothing else once a job was asked for."""
        if self._dependency(view) != "upfront" and self.max_overhead is not None:
            return Reach.ALL
        if not any(map(lacks_allocation, view.stages)):
            return Reach.ITSELF
        near = self._dependency(view) == "upfront" or self.lookahead <= 1
        return Reach.BEFORE if near else Reach.AHEAD

    def _dependency(self, view: WorkflowView) -> str:
        if not view.dependencies:
            return "none"
        if self.dependency == "auto":
            return "upfront" if view.regime.dependents_age else "predicted"
        return self.dependency

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        dependency = self._dependency(view)
        if dependency == "upfront":
            return self._upfront(view)
        decisions = self._predicted(view, dependency == "predicted")
        if self.max_overhead is None:
            return decisions
        return within_budget(decisions, view, lambda _cores: self.grace_s, self.max_overhead)

    def _upfront(self, view: WorkflowView) -> list[StrategyDecision]:
        return [*ask_after(view, {stage.spec.name for stage in view.stages if lacks_allocation(stage)})]

    def _predicted(self, view: WorkflowView, dependent: bool) -> list[StrategyDecision]:
        decisions: list[StrategyDecision] = []
        lacking = any(map(lacks_allocation, view.stages))
        expected = outlook(view, far=self.lookahead > 1) if lacking else {}
        due: set[str] = set()
        for stage in view.stages:
            if stage.state is StageState.WAITING:
                decisions += retreat(stage, view.now, self.grace_s)
            if not lacks_allocation(stage):
                continue
            ready, _, ahead, _ = expected[stage.spec.name]
            if stage.state is StageState.WAITING and (ahead > self.lookahead or self._gave_up(stage, dependent)):
                continue
            if stage.predicted_wait_s is None:
                decisions.append(Predict(stage.spec.name, self.late, self.soon))
            elif stage.state is not StageState.WAITING:
                decisions.append(ask_for(stage))
            elif view.now < ready - stage.predicted_wait_s:
                decisions.append(Wake(max(ready - stage.predicted_wait_s, view.now + SOONEST_S)))
            elif dependent:
                due.add(stage.spec.name)
            else:
                decisions.append(ask_for(stage))
        return [*decisions, *ask_after(view, _with_those_before(view, due))]

    def _gave_up(self, stage: StageView, dependent: bool) -> bool:
        return not dependent and self.grace_s < math.inf and stage.attempts >= RETREATS


class Naive(Proactive):
    """`Proactive` without job dependencies: an allocation that comes more than `grace_s` too early is cancelled, and
    asked for again by a new prediction (the paper's "ASA Naive", section 4.5). Stages keep to their own allocations."""

    own_pools = True

    def __init__(self, *, grace_s: float = 300.0, estimator: str | None = None, **options: Any) -> None:
        super().__init__(dependency="none", grace_s=grace_s, estimator=estimator, **options)


class Cascade(Proactive):
    """`Proactive` that looks ahead over all coming stages, not only the next one.

    A job is submitted by a high quantile of its wait, and those before it are taken to come by a low one: it depends on
    them, so coming early costs it nothing where dependent jobs age.
    """

    def __init__(
        self,
        *,
        dependency: str = "predicted",
        late: float | None = 0.9,
        soon: float | None = 0.1,
        estimator: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            dependency=dependency, lookahead=math.inf, late=late, soon=soon, estimator=estimator, **options
        )


def _with_those_before(view: WorkflowView, stages: set[str]) -> set[str]:
    """These stages, and those before them that lack an allocation: a job can only wait for one that is in the queue."""
    found, todo = set(stages), [*stages]
    while todo:
        for stage in map(view.__getitem__, view[todo.pop()].spec.predecessors):
            name = stage.spec.name
            if name not in found and stage.state is StageState.WAITING and lacks_allocation(stage):
                found.add(name)
                todo.append(name)
    return found
