"""What lies ahead of a run: when stages are expected to be ready and to end, and what came too early."""

from __future__ import annotations

import math
from typing import NamedTuple

from asa.core.decision import Ask, Cancel, StrategyDecision, Wake
from asa.core.stage import StageState
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.asking import ask_for

FRESH_S = 600.0
"""A prediction is made anew after so long [s]: a job may be submitted hours after it was first thought of."""


class Outlook(NamedTuple):
    """What is expected of a stage: when it is ready and when it ends [s since the epoch]; `distance` is how many stages
    it is away from one that runs (0: it runs or is over); `last` that of those before it that is to end last."""

    ready: float
    end: float
    distance: float
    last: str = ""


def outlook(view: WorkflowView, *, far: bool = True) -> dict[str, Outlook]:
    """What is expected of the view's stages, and maybe of some before them; none is expected in the past.

    Unless it is looked `far` ahead, it is of one that waits for others that have not begun, and that are not among the
    view's, that they are far away.
    """
    found: dict[str, Outlook] = view.memo if far else {}
    for stage in view.stages:
        _look_ahead(stage, view, found, far)
    return found


def _look_ahead(stage: StageView, view: WorkflowView, found: dict[str, Outlook], far: bool) -> None:
    """Find out what is expected of a stage, and of those before it of which that is not known."""
    todo = [stage]
    while todo:
        stage = todo[-1]
        idle = stage.state in (StageState.WAITING, StageState.READY)
        before = stage.spec.predecessors if idle else ()
        ready, distance, last = -math.inf, 0.0, ""
        for name in reversed(before):
            # Stages that share an allocation may be one here, with another name than that by which others wait for it.
            if (item := found.get(name)) is None and (item := found.get((other := view[name]).spec.name)) is None:
                if other.state not in (StageState.WAITING, StageState.READY):
                    item = found[name] = Outlook(view.now, _end(other, view.now, view.now), 0.0)
                elif far:
                    todo.append(other)
                    continue
                else:
                    item = _FAR
            if item.end > ready:
                ready, last = item.end, name
            distance = max(distance, item.distance)
            if distance == math.inf:
                break
        if todo[-1] is stage:
            ready = ready if before else view.now
            found[stage.spec.name] = Outlook(ready, _end(stage, ready, view.now), distance + idle, last)
            todo.pop()


def expected(view: WorkflowView, name: str) -> Outlook:
    """What is expected of one of its stages."""
    if name not in view.memo:
        _look_ahead(view[name], view, view.memo, True)
    found: Outlook = view.memo[name]
    return found


_FAR = Outlook(math.inf, math.inf, math.inf)


def horizon_s(wait_s: float) -> float:
    """How long before it is expected to be ready a stage is looked at whose job is expected to wait so long [s]."""
    return 2 * wait_s + FRESH_S


def _end(stage: StageView, ready: float, now: float) -> float:
    """When a stage is expected to end [s since the epoch].

    Its allocation comes when the first of its jobs does; if none was asked for, a predicted wait from now on, or when
    it is ready if no wait is known.
    """
    if stage.state.final:
        return now
    more_s = stage.spec.rounds * stage.spec.run_time_s  # of the stages that it is expected to add
    if stage.expected_end is not None:
        return stage.expected_end + more_s
    unasked = now + (stage.predicted_wait_s or 0.0)
    came = min((arrival(item, now) for item in stage.allocations), default=unasked)
    return max(ready, came) + stage.spec.run_time_s + more_s


def arrival(item: AllocationView, now: float) -> float:
    """When an allocation is, or was, there [s since the epoch]: as soon as it may be, if a low quantile was asked."""
    if item.started is not None:
        return item.started
    wait_s = item.predicted_wait_s if item.soon_wait_s is None else item.soon_wait_s
    return max(now, item.submitted + (wait_s or 0.0))


def retreat(stage: StageView, now: float, grace_s: float) -> list[StrategyDecision]:
    """Cancel allocations of a stage that waits which came too early and have idled for the grace [s]."""
    decisions: list[StrategyDecision] = []
    for item in stage.allocations:
        if item.started is not None and not item.leaving and not item.busy and grace_s < math.inf:
            if now >= item.started + grace_s:
                decisions.append(Cancel(item.key, f"it came before its stage and idled for {grace_s:g} s"))
            else:
                decisions.append(Wake(item.started + grace_s))
    return decisions


def queued(stage: StageView) -> bool:
    """Whether the batch system has a job for a stage, for others to wait for."""
    return any(item.queued and not item.leaving for item in stage.allocations)


def holders(stages: list[StageView]) -> tuple[str, ...]:
    """Allocations of stages that are not over: what a dependent job has to wait for."""
    found: dict[str, AllocationView] = {
        item.key: item for stage in stages if not stage.state.final for item in stage.allocations
    }
    return tuple(key for key, item in found.items() if item.queued and not item.leaving)


def ask_after(view: WorkflowView, stages: set[str], *, delay_s: float = 0.0) -> list[Ask]:
    """Jobs for these stages, each to wait for those of the stages before it, as soon as these are in the queue.

    Those that wait for others may not start for `delay_s` [s] besides.
    """
    found = []
    if not stages:
        return []
    there = [stage for stage in view.stages if stage.spec.name in stages]
    others = sorted(stages - {stage.spec.name for stage in there})
    for stage in (*map(view.__getitem__, others), *there):
        before = map(view.__getitem__, reversed(stage.spec.predecessors))  # the last ones are asked for last
        if all(item.state.final or queued(item) for item in before):  # others may go on without what has failed
            after = holders([view[name] for name in stage.spec.predecessors])
            found.append(ask_for(stage, after=after, delay_s=delay_s if after else 0.0))
    return found
