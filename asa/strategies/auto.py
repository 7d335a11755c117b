"""The strategy that chooses by what the site's queue allows, and by what an allocation costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from asa.core.decision import Ask, StrategyDecision
from asa.core.job import Resources
from asa.core.ports import Reach
from asa.core.stage import StageState
from asa.core.units import brief
from asa.core.view import StageView, WorkflowView
from asa.strategies.ahead import outlook
from asa.strategies.asking import lacks_allocation
from asa.strategies.bigjob import largest
from asa.strategies.hold import Hold
from asa.strategies.staggered import Staggered

MOST = 12
"""Stages that are newly merged into one allocation, at most: how far ahead is looked from each."""
DEARER = 2.0
"""How often as much merged stages may be charged where the narrower of them might not start by themselves for as long
as others submit wider jobs."""

Group = Sequence[StageView]
"""Stages that follow on one another, each the only one before and after its neighbours."""


class Auto(Hold):
    """Hold places where the site allows it, stagger requests where it does not; first, merge stages into one allocation
    where that is expected to be sooner and no dearer, or where narrow jobs might wait without end.

    Parameters
    ----------
    technique, lead_s, grace_s
        As in `Hold`.
    options
        The others are those of `Staggered`. With a patience, merged stages may be dearer by as much as it is worth to
        be so much sooner.

    Notes
    -----
    Not in the paper: there, an allocation costs its tasks' time alone.
    """

    def __init__(self, *, technique: str = "auto", lead_s: float = 0.0, grace_s: float = 300.0, **options: Any) -> None:
        otherwise = Staggered(grace_s=grace_s, **options)
        super().__init__(technique=technique, lead_s=lead_s, grace_s=grace_s, otherwise=otherwise)
        self.patience = otherwise.patience

    def reach(self, view: WorkflowView) -> Reach:
        """From all where stages may be merged."""
        return Reach.ALL if any(view.fixed_s) else super().reach(view)

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        several = any(len(item.stages) > 1 for stage in view.stages for item in stage.allocations)
        merged = [*shared(view)] if several else []
        why = dict[str, str]()
        for group, gain in mergers(view, self.patience or 0.0):
            merged.append(group)
            why[group[0].spec.name] = gain.explained()
        if not merged:
            return super().decide(view)
        names = {group[0].spec.name: tuple(stage.spec.name for stage in group) for group in merged}
        return [
            replace(item, stages=names[item.stages[0]], why=why.get(item.stages[0], ""))
            if isinstance(item, Ask) and item.stages[0] in names
            else item
            for item in super().decide(contracted(view, merged))
        ]

    def explain(self, view: WorkflowView) -> str:
        """How places are held, and why so."""
        return super().explain(contracted(view, [*shared(view)]))


class Gain(NamedTuple):
    """What one allocation for several stages is expected to bring: how much sooner the last of them ends [s], infinite
    where else it might never start, and what they are charged together and apart [core-s]; `cores` is its size, `jobs`
    how many it replaces."""

    saved_s: float
    together: float
    apart: float
    cores: int
    jobs: int

    def explained(self) -> str:
        """Why they are merged, or are not.

        >>> Gain(2.5, 71.0, 74.0, 12, 2).explained()
        'one allocation of 12 cores for these 2 stages: expected to end 2.5 s sooner than 2, charged 71 instead of 74 \
core-seconds'
        """
        sooner = "narrower jobs wait here for as long as others submit wider ones"
        if self.saved_s < math.inf:
            sooner = f"expected to end {brief(self.saved_s)} sooner than {self.jobs}"
        return (
            f"one allocation of {self.cores} core{'s' * (self.cores != 1)} for these {self.jobs} stages: {sooner}, "
            f"charged {self.together:.0f} instead of {self.apart:.0f} core-seconds"
        )


def shared(view: WorkflowView) -> Iterator[Group]:
    """Stages that share allocations which were asked for and take tasks yet, or wait, and have no others."""
    for names in dict.fromkeys(item.stages for item in view.allocations if not item.leaving):
        group = [view[name] for name in names]
        if len(group) > 1 and all(
            item.leaving or item.stages == names for stage in group for item in stage.allocations
        ):
            yield group


def mergers(view: WorkflowView, patience: float = 0.0) -> Iterator[tuple[Group, Gain]]:
    """Stages that no job was asked for, to be merged, and what that brings; each is in one group at most.

    From each on, of the stretches that begin there and are no dearer, the one that is soonest. Nothing is merged where
    it is not known what an allocation costs. Where wider jobs go first, the narrower stages of a stretch might never
    start by themselves: the longest stretch is taken that is not `DEARER`.

    Parameters
    ----------
    view
        The run.
    patience
        How many core-seconds more a second that it is sooner may cost.
    """
    if not any(view.fixed_s):
        return
    expected = outlook(view)
    for stretch in stretches(view):
        first = 0
        while first < len(stretch) - 1:
            best: tuple[Group, Gain] | None = None
            for last in range(first + 2, min(first + MOST, len(stretch)) + 1):
                group = stretch[first:last]
                gain = weigh(group, view, expected[group[0].spec.name].ready)
                if gain is None or gain.saved_s <= 0:
                    continue
                starves = gain.saved_s == math.inf
                if gain.together > (DEARER * gain.apart if starves else gain.apart + patience * gain.saved_s):
                    continue
                if best is None or gain.saved_s > best[1].saved_s or starves:
                    best = group, gain
            if best is not None:
                yield best
            first += 1 if best is None else len(best[0])


def stretches(view: WorkflowView) -> list[list[StageView]]:
    """Stages that no job was asked for, as chains: each alone follows on the one before, and on no other."""
    followers: dict[str, list[StageView]] = {}
    for stage in view.stages:
        for name in stage.spec.predecessors:
            followers.setdefault(name, []).append(stage)
    chains: list[list[StageView]] = []
    ends: dict[str, list[StageView]] = {}  # last stage of a chain -> the chain
    for stage in view.stages:
        if stage.attempts or stage.state.final or stage.spec.checkpoint or not lacks_allocation(stage):
            continue
        before = stage.spec.predecessors
        chain = ends.pop(before[0], None) if len(before) == 1 and len(followers[before[0]]) == 1 else None
        if chain is None:
            chains.append(chain := [])
        chain.append(stage)
        ends[stage.spec.name] = chain
    return chains


def weigh(group: Group, view: WorkflowView, ready: float) -> Gain | None:
    """What one allocation brings for stages the first of which is expected to be ready at `ready` [s since the epoch];
    None where it cannot be: no such wall time is allowed, not all want as many GPUs and the same options of the batch
    system, or none is large enough.

    Jobs are taken to be in the queue from now on, and to wait as was predicted, or not at all where nothing was; the
    merged one as long as the widest of them. So a job for each begins when the stage before it has ended, at the
    soonest.
    """
    specs = [stage.spec for stage in group]
    if len({(spec.resources.gpus, spec.resources.options) for spec in specs}) > 1:
        return None
    whole = largest([spec.resources for spec in specs], view.cores_per_node)
    widest = max(group, key=lambda stage: stage.spec.resources.cores)
    if whole.cores > widest.spec.resources.cores or sum(spec.walltime_s for spec in specs) > view.longest_s:
        return None
    end, apart = ready, 0.0
    for stage in group:
        held_s = fixed_s(stage.spec.resources, view) + stage.spec.run_time_s
        end = max(end, view.now + (stage.predicted_wait_s or 0.0)) + held_s
        apart += view.charged(stage.spec.resources) * held_s
    held_s = fixed_s(whole, view) + sum(spec.run_time_s for spec in specs)
    merged = max(ready, view.now + (widest.predicted_wait_s or 0.0)) + held_s
    if view.wide_first and any(spec.resources.cores < whole.cores for spec in specs):
        end = math.inf
    return Gain(end - merged, view.charged(whole) * held_s, apart, whole.cores, len(group))


def fixed_s(size: Resources, view: WorkflowView) -> float:
    """How long an allocation of this size is charged for beside its tasks [s]."""
    one, several = view.fixed_s
    return several if (size.packed(view.cores_per_node).nodes or 1) > 1 else one


def contracted(view: WorkflowView, groups: Sequence[Group]) -> WorkflowView:
    """The run with each group as one stage, of the name of its first.

    It stands where the first of them stands in the run, and waits for what that one waits for: where tasks have added
    stages, a group is in no order, and others may stand between its stages.
    """
    group_of = {stage.spec.name: group for group in groups for stage in group}
    stages: dict[str, StageView] = {}
    for stage in view.stages:
        group = group_of.get(stage.spec.name)
        if group is None or group[0].spec.name not in stages:
            one = stage if group is None else _as_one(group, view)
            names = (group_of[name][0].spec.name if name in group_of else name for name in stage.spec.predecessors)
            before = dict.fromkeys(name for name in names if name in stages)
            stages[one.spec.name] = replace(one, spec=replace(one.spec, predecessors=tuple(before)))
    return replace(view, stages=tuple(stages.values()), find=None, extent=None)


def _as_one(group: Group, view: WorkflowView) -> StageView:
    first, last = group[0], group[-1]
    left = [stage for stage in group if not stage.state.final]
    begun = len(left) < len(group) or first.state is StageState.RUNNING
    resources = largest([stage.spec.resources for stage in group], view.cores_per_node)
    times = [(stage.spec.walltime_s, stage.spec.run_time_s) for stage in group]
    behind_s = sum(stage.spec.run_time_s for stage in left if stage.expected_end is None)
    now = max((stage.expected_end for stage in left if stage.expected_end is not None), default=view.now)
    return replace(
        first,
        spec=replace(
            first.spec,
            resources=resources,
            walltime_s=sum(walltime_s for walltime_s, _ in times),
            run_time_s=sum(run_time_s for _, run_time_s in times),
        ),
        state=last.state if not left else StageState.RUNNING if begun else first.state,
        allocations=tuple({item.key: item for stage in group for item in stage.allocations}.values()),
        ended=last.ended,
        expected_end=now + behind_s if left and begun else None,
        attempts=max(stage.attempts for stage in group),
        displaced=max(stage.displaced for stage in group),
        unlaunched=any(stage.unlaunched for stage in group),
    )
