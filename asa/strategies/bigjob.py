"""One allocation for the whole workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from asa.core.decision import Ask, StrategyDecision
from asa.core.job import QueueRegime, Resources
from asa.core.stage import StageSpec, StageState
from asa.core.view import StageView, WorkflowView
from asa.strategies.options import DEFAULT_ESTIMATOR


class BigJob:
    """Ask once for the largest stage's resources, for the sum of all wall times (the paper's equation 1).

    When the site allows no such wall time, or the allocation ends early, another is asked for what is left; ahead of
    that, as `Hold` asks for stages that follow on one another, where tasks have checkpoints. Without a queue it
    is large enough for all stages that may run side by side, as far as the machine is.

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 2.2, figure 2a.
    """

    estimator = DEFAULT_ESTIMATOR
    own_pools = False

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        if len(kinds := view.kinds) <= 1:
            return [*self._decide(view, view.stages)]
        alike = ([stage for stage in view.stages if stage.spec.resources.options == options] for options in kinds)
        return [item for stages in alike for item in self._decide(view, stages)]

    def _decide(self, view: WorkflowView, alike: Sequence[StageView]) -> Iterator[StrategyDecision]:
        """One for the stages with the same options of the batch system: one job cannot be in two partitions."""
        if not view.goes_on and any(not item.leaving for stage in reversed(alike) for item in stage.allocations):
            return  # seen at once: the last stages need it to the end
        left = [stage for stage in alike if not stage.state.final]
        if any(stage.spec.checkpoint for stage in left):
            yield from _ahead(view, left)
            return
        if any(not item.leaving for stage in left for item in stage.allocations):
            return
        if not any(stage.unlaunched for stage in left):
            return  # none, or the last tasks are running in an allocation that is about to end
        yield Ask(tuple(stage.spec.name for stage in left), *_size(view, left))


def _size(view: WorkflowView, left: Sequence[StageView]) -> tuple[Resources, float]:
    """What all of these need, and for how long [s]."""
    specs = [*_with_memory([stage.spec for stage in left], view.largest)]
    peak = largest([spec.resources for spec in specs], view.cores_per_node)
    if view.regime is QueueRegime.IMMEDIATE and view.largest is not None and peak.nodes is None:
        peak = _widest(specs, peak, view.largest)
    return peak, min(sum((1 + stage.spec.rounds) * stage.spec.walltime_s for stage in left), view.longest_s)


def _with_memory(specs: Sequence[StageSpec], machine: Resources | None) -> Iterator[StageSpec]:
    """Stages of which those that state no memory beside others that do have what goes with their cores on the machine:
    what suffices for those need not for them."""
    some = any(spec.resources.memory is not None for spec in specs)
    for spec in specs:
        need = spec.resources
        if some and need.memory is None and machine is not None and machine.memory is not None:
            memory = machine.memory * min(need.cores, machine.cores) // machine.cores
            yield replace(spec, resources=replace(need, memory=memory))
        else:
            yield spec


def _widest(specs: Sequence[StageSpec], peak: Resources, most: Resources) -> Resources:
    """What the largest level of stages needs, none of which waits for another, but `peak` at least and the `most` that
    there is; all of that where tasks add stages whose number is not known before."""
    depths: dict[str, int] = {}
    levels: dict[int, list[Resources]] = {}
    for spec in specs:
        depths[spec.name] = depth = 1 + max((depths.get(name, 0) for name in spec.predecessors), default=0)
        levels.setdefault(depth, []).append(most if spec.expands and spec.expect is None else spec.resources)
    cores = max(sum(size.cores for size in level) for level in levels.values())
    gpus = max(sum(size.gpus for size in level) for level in levels.values())
    memory = max(sum(size.memory or 0 for size in level) for level in levels.values())
    return replace(
        peak,
        cores=max(peak.cores, min(cores, most.cores)),
        gpus=max(peak.gpus, min(gpus, most.gpus)),
        memory=None if peak.memory is None else max(peak.memory, min(memory, most.memory or peak.memory)),
    )


def _ahead(view: WorkflowView, left: Sequence[StageView]) -> Iterator[StrategyDecision]:
    """Allocations for all that is left, one after the other: as for one stage with checkpoints."""
    from asa.strategies.continuing import continued, of_stages  # here: few workflows need it
    from asa.strategies.hold import Hold

    peak, walltime_s = _size(view, left)
    name, names = left[0].spec.name, tuple(stage.spec.name for stage in left)
    live = {item.key: replace(item, stages=(name,)) for stage in left for item in stage.allocations}
    begun = any(stage.started is not None for stage in left)
    times = [stage.rest_s if stage.spec.checkpoint else stage.spec.run_time_s for stage in left]
    whole = replace(
        left[0],
        spec=replace(left[0].spec, resources=peak, walltime_s=walltime_s, predecessors=(), checkpoint=True),
        state=StageState.RUNNING if begun else StageState.READY,
        allocations=tuple(live.values()),
        expected_end=None,
        attempts=max(stage.attempts for stage in left),
        unlaunched=any(stage.unlaunched for stage in left),
        rest_s=None if None in times else sum(filter(None, times)),
    )
    one = replace(view, stages=(whole,), find=None, extent=None)
    ahead, links = continued(one)
    for item in of_stages(Hold().decide(ahead), links, ahead, one):
        yield replace(item, stages=names) if isinstance(item, Ask) else item


def largest(needs: Sequence[Resources], cores_per_node: int | None) -> Resources:
    """The least that holds each of these, which have the same options: on nodes of its own where one needs that, else
    anywhere, in large units.

    >>> largest([Resources(8, unit=1), Resources(6, unit=3)], 4)
    Resources(cores=9, nodes=None, memory=None, gpus=0, unit=3)
    >>> largest([Resources(12, unit=1), Resources(4, nodes=2, gpus=4)], 4)
    Resources(cores=12, nodes=3, memory=None, gpus=6, unit=None)
    """
    (options,) = {item.options for item in needs}
    if any(item.nodes is not None for item in needs):
        nodes = max(item.packed(cores_per_node).nodes or 1 for item in needs)
        parts = [_on_one(item, nodes) for item in needs]
        cores, gpus = max(part.cores for part in parts), max(part.gpus for part in parts)
        memory = max((nodes * part.memory for part in parts if part.memory is not None), default=None)
        return Resources(nodes * cores, nodes, memory, nodes * gpus, None, options)
    memory = max((item.memory for item in needs if item.memory is not None), default=None)
    gpus = max(item.gpus for item in needs)
    unit = max((item.unit for item in needs if item.unit is not None), default=None)
    if unit is None:
        return Resources(max(item.cores for item in needs), None, memory, gpus, None, options)
    units = max(-(-(item.cores // (item.unit or 1)) // (unit // (item.unit or 1))) for item in needs)
    return Resources(units * unit, None, memory, gpus, unit, options)


def _on_one(need: Resources, nodes: int) -> Resources:
    """What each of so many nodes needs to hold what any stage has there."""
    unit = need.unit or 1
    cores = -(-(need.cores // unit) // nodes) * unit
    if need.nodes is not None:
        cores = max(need.cores // need.nodes, -(-need.cores // nodes))
    memory = None if need.memory is None else -(-need.memory * cores // need.cores)
    return Resources(cores, None, memory, -(-need.gpus * cores // need.cores))
