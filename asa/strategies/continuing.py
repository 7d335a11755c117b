"""Stages whose tasks go on in one allocation after the other, as strategies see them: as a chain of stages.

Each link needs an allocation of its own and follows on the one before, so that whatever a strategy does for stages that
follow on one another (hold their places, ask by a predicted wait) it does for the next allocations of a task, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from asa.core.allocation import drain_margin
from asa.core.decision import Ask, Predict, StrategyDecision
from asa.core.stage import StageState
from asa.core.units import DAY
from asa.core.view import AllocationView, StageView, WorkflowView

AHEAD_S = DAY
"""How far it is looked ahead where it is not said how long the tasks run in all [s]: a queue may make wait for longer
than a wall time, and a place has to be older than that when its turn comes."""
AHEAD_LEAST, AHEAD_MOST = 3, 12
"""Allocations that are looked ahead at least and at most: each counts among the jobs that the user may have."""


def continued(view: WorkflowView) -> tuple[WorkflowView, Mapping[str, str]]:
    """The run with a chain of stages for each that has checkpoints, and the stage that each link is of, by name.

    What follows on such a stage follows on the last link where it is known which that is; else it is left out.
    """
    stages: list[StageView] = []
    links: dict[str, str] = {}
    last: dict[str, str | None] = {}
    for stage in view.stages:
        before = [last.get(name, name) for name in stage.spec.predecessors]
        if None in before and not any(item.started for item in stage.allocations):
            last[stage.spec.name] = None
            continue
        spec = stage.spec
        if (left := tuple(name for name in before if name is not None)) != spec.predecessors:
            spec = replace(spec, predecessors=left)
            stage = replace(stage, spec=spec)
        if not spec.checkpoint or stage.state.final:
            stages.append(stage)
            continue
        count = _links(stage)
        chain = [*_chain(stage, min(count + 1, AHEAD_MOST) if count else ahead(spec.walltime_s), view.now)]
        stages += chain
        links |= {link.spec.name: spec.name for link in chain}
        last[spec.name] = chain[count - 1].spec.name if 0 < count < len(chain) else None
    return replace(view, stages=tuple(stages), find=None, after=None, extent=None), links


def ahead(walltime_s: float) -> int:
    """How many allocations of a wall time [s] are asked for, the present one included, where no end is predicted.

    >>> ahead(48 * 3600), ahead(6 * 3600), ahead(60)
    (3, 5, 12)
    """
    return max(AHEAD_LEAST, min(AHEAD_MOST, math.ceil(AHEAD_S / walltime_s) + 1))


def _links(stage: StageView) -> int:
    """How many allocations its tasks are expected to need from now on; 0 where that was not said."""
    walltime_s = stage.spec.walltime_s
    return 0 if stage.rest_s is None else max(1, math.ceil(stage.rest_s / (walltime_s - drain_margin(walltime_s))))


def _chain(stage: StageView, count: int, now: float) -> Iterator[StageView]:
    """The stage as it runs now, then what comes after, each with the next of its allocations."""
    live = [item for item in stage.allocations if not item.leaving]
    there = [item for item in live if item.started is not None]
    here = [item for item in there if item.busy] or there[:1] or live[:1]
    others = [*(item for item in there if item not in here), *(item for item in live if item not in (*here, *there))]
    name, end = stage.spec.name, stage.expected_end
    if stage.state is StageState.RUNNING:
        times = [item.ends - drain_margin(item.walltime_s) for item in here if item.ends is not None]
        end = max(now, min(times)) if times else None
    leaving = [item for item in stage.allocations if item.leaving]
    yield replace(
        stage,
        allocations=(*leaving, *here),
        expected_end=end,
        attempts=stage.attempts if live else 0,  # a chain that is asked for anew
    )
    for number in range(1, count):
        before, name = name, f"{stage.spec.name}, next {number}"
        own = tuple(replace(item, stages=(name,)) for item in others[number - 1 : number])
        yield _link(stage, name, before, own)


def _link(stage: StageView, name: str, before: str, own: tuple[AllocationView, ...]) -> StageView:
    return replace(
        stage,
        spec=replace(stage.spec, name=name, predecessors=(before,)),
        state=StageState.WAITING,
        allocations=own,
        started=None,
        expected_end=None,
        attempts=len(own),
        unlaunched=True,
    )


def _is_stuck(stage: StageView, view: WorkflowView) -> bool:
    """Whether the first of its allocations that have not started waits for one that is over."""
    live = [item for item in stage.allocations if not item.leaving]
    if not live or any(item.started is not None for item in live):
        return False
    return not {item.key for item in view.allocations}.issuperset(live[0].after)


def of_stages(
    decisions: Iterable[StrategyDecision], links: Mapping[str, str], ahead: WorkflowView, view: WorkflowView
) -> list[StrategyDecision]:
    """Decisions about links of chains, which stand in `ahead`, as such about their stages, which stand in `view`.

    A link has one request: it is the next link that a second one would be seen to be for, and so on without end. Nor
    is any asked for behind a first one that waits for an allocation which is over: unless that ended well, the batch
    system cancels all of them, and then the chain is asked for anew.
    """
    waits = {
        name for name in links if any(item.started is None and not item.leaving for item in ahead[name].allocations)
    }
    found = list[StrategyDecision]()
    for item in decisions:
        if isinstance(item, Ask) and not links.keys().isdisjoint(item.stages):
            own = [view[links[name]] for name in item.stages if name in links]
            if waits.issuperset(item.stages) or any(_is_stuck(stage, view) for stage in own):
                continue
            names = tuple(dict.fromkeys(links.get(name, name) for name in item.stages))
            array = f"{item.array}.{view[names[0]].attempts}" if item.array else ""  # those of one stage differ
            item = replace(item, stages=names, array=array)
        elif isinstance(item, Predict):
            item = replace(item, stage=links.get(item.stage, item.stage))
        found.append(item)
    return found
