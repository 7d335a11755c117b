"""The strategy that chooses by what the site's queue allows, and by what an allocation costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

from asa.core.decision import Ask, StrategyDecision
from asa.core.ports import Reach
from asa.core.registry import fitting
from asa.core.stage import StageState
from asa.core.view import Extent, StageView, WorkflowView
from asa.strategies.grouping import LATE, Group, Grouping, Shape, is_fresh, rest_s, shape_of
from asa.strategies.hold import Hold
from asa.strategies.places import Throttled, technique_for
from asa.strategies.staggered import Staggered


class Auto(Hold):
    """Hold places where the site allows it, stagger requests where it does not; first, have stages share an allocation
    where that is expected to be sooner and not too dear, or where narrow jobs might wait without end.

    Parameters
    ----------
    technique, lead_s, grace_s
        As in `Hold`.
    options
        The others are those of `Staggered`. What stages are charged more because they share an allocation is limited
        by the patience, and by `max_overhead` as a share of what they are charged apart.

    Notes
    -----
    Not in the paper: there, an allocation costs its tasks' time alone.
    """

    def __init__(self, *, technique: str = "auto", lead_s: float = 0.0, grace_s: float = 300.0, **options: Any) -> None:
        known = signature(Staggered).parameters
        options |= {name: fitting(name, options[name], known[name].annotation) for name in options.keys() & known}
        otherwise = Staggered(grace_s=grace_s, **options)
        super().__init__(technique=technique, lead_s=lead_s, grace_s=grace_s, otherwise=otherwise)
        self.patience, self.max_overhead = otherwise.patience, otherwise.max_overhead

    def reach(self, view: WorkflowView) -> Reach:
        """From the stages before, until it is its turn."""
        if (reach := super().reach(view)) is Reach.ALL:
            return reach
        sharing, seen = self._seen(view)
        one = self._stands_in(view.stages[0], view, sharing)
        return Reach.BEFORE if one is None else super().reach(seen.about(one))

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        sharing, seen = self._seen(view)
        if self._goes_by_all(view):
            found = sharing.contracted(view.stages)
        else:
            found = [one for item in view.stages if (one := self._stands_in(item, view, sharing)) is not None]
        names = [stage.spec.name for stage in view.stages if stage.spec.name in sharing.unknown]
        unknown = dict.fromkeys(item for name in names for item in sharing.unknown[name])
        seen = seen.about(found[0]) if len(found) == 1 else replace(seen, stages=tuple(found))
        decisions = [*map(sharing.named, super().decide(seen))] if found else []
        if unknown and self._goes_by_all(view):  # an array is asked for as a whole
            decisions = [item for item in decisions if not isinstance(item, Ask)]
        return [*unknown, *decisions]

    def explain(self, view: WorkflowView) -> str:
        sharing, seen = self._seen(view)
        return super().explain(replace(seen, stages=tuple(sharing.contracted(view.stages))))

    def _seen(self, view: WorkflowView) -> tuple[Contracted, WorkflowView]:
        """Who shares an allocation, and the run with each group as one stage; found out once for each view."""
        if "" not in view.memo:  # no stage has that name
            late = None if technique_for(view, self.technique) is None else LATE
            sharing = Contracted(view, Grouping(view, self.patience, self.max_overhead, late), held=late is not None)
            extent = view.extent or Extent.of((stage.spec for stage in view.stages), view.charged)
            view.memo[""] = sharing, replace(view, stages=(), find=sharing.find, after=None, extent=extent)
        found: tuple[Contracted, WorkflowView] = view.memo[""]
        return found

    def _goes_by_all(self, view: WorkflowView) -> bool:
        places = technique_for(view, self.technique)
        return places is not None and bool(self.lead_s or places.name == Throttled.name)

    def _stands_in(self, stage: StageView, view: WorkflowView, sharing: Contracted) -> StageView | None:
        """What is decided about for a stage: its group if it is the first of that; None for the others, for one whose
        job could not wait yet for those before it, and where a wait has to be known first."""
        if is_fresh(stage):
            before = map(view.__getitem__, reversed(stage.spec.predecessors))
            if technique_for(view, self.technique) is not None and any(map(is_fresh, before)):
                return None
        elif all(len(item.stages) == 1 for item in stage.allocations):
            return stage
        name = stage.spec.name
        first = sharing.of(name)[0].spec.name == name
        return sharing.find(name) if first and name not in sharing.unknown else None


class Contracted:
    """A run with each group of stages as one stage, of the name of its first, made as far as it is looked at."""

    def __init__(self, view: WorkflowView, sharing: Grouping, *, held: bool = False) -> None:
        self._view, self._sharing, self._held = view, sharing, held
        self._made: dict[str, StageView] = {}
        self.of, self.unknown = sharing.of, sharing.unknown

    def contracted(self, stages: Iterable[StageView]) -> list[StageView]:
        """Those that stand for these.

        A group stands where the first of it is met in the run, and waits for what its first stage waits for: where
        tasks have added stages, it is in no order, and others may stand between its stages.
        """
        found: dict[str, StageView] = {}
        for stage in stages:
            name = self.of(stage.spec.name)[0].spec.name
            if name not in found:
                one = self.find(name)
                before = tuple(other for other in one.spec.predecessors if other in found)
                if before != one.spec.predecessors:
                    one = replace(one, spec=replace(one.spec, predecessors=before))
                found[name] = one
        return [*found.values()]

    def find(self, name: str) -> StageView:
        """The stage that stands for the group of one."""
        group = self.of(name)
        first = group[0]
        if (made := self._made.get(first.spec.name)) is None:
            made = first if len(group) == 1 else _as_one(group, self._view)
            # A stage waits for no group of which it waited for stages that are over, though others may go on.
            groups = ((self._view[other], self.of(other)) for other in first.spec.predecessors)
            waits = (their for other, their in groups if len(their) == 1 or not other.state.final)
            names = dict.fromkeys(their[0].spec.name for their in waits)
            names.pop(first.spec.name, None)
            if (before := tuple(names)) != made.spec.predecessors:
                made = replace(made, spec=replace(made.spec, predecessors=before))
            self._made[first.spec.name] = made
        return made

    def named(self, item: StrategyDecision) -> StrategyDecision:
        """What is asked for one of its stages, for all that this stands for, and why for those."""
        if not isinstance(item, Ask):
            return item
        names = tuple(stage.spec.name for stage in self.of(item.stages[0]))
        if self._held:  # such a job waits for others: what was predicted is not how long
            item = replace(item, predicted_wait_s=None, soon_wait_s=None)
        return replace(item, stages=names, why=self._sharing.why.get(names[0], ""))


def _as_one(group: Group, view: WorkflowView) -> StageView:
    first, last = group[0], group[-1]
    left = [stage for stage in group if not stage.state.final]
    begun = len(left) < len(group) or any(stage.state is StageState.RUNNING for stage in group)
    items = {item.key: item for stage in group for item in stage.allocations}
    shape = shape_of(group, view.cores_per_node)
    if shape is None:  # what they need has changed since it was asked for
        item = next(item for item in items.values() if len(item.stages) > 1)
        shape = Shape(item.resources, item.walltime_s, rest_s(group))
    now = max((stage.expected_end for stage in left if stage.expected_end is not None), default=view.now)
    return replace(
        first,
        spec=replace(
            first.spec,
            resources=shape.resources,
            walltime_s=shape.walltime_s,
            run_time_s=shape.run_time_s,
        ),
        state=last.state if not left else StageState.RUNNING if begun else first.state,
        allocations=tuple(items.values()),
        ended=last.ended,
        expected_end=now + rest_s(group) if left and begun else None,
        attempts=max(stage.attempts for stage in group),
        displaced=max(stage.displaced for stage in group),
        unlaunched=any(stage.unlaunched for stage in group),
        predicted_wait_s=max((s.predicted_wait_s for s in group if s.predicted_wait_s is not None), default=None),
    )
