"""One allocation for the whole workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from asa.core.decision import Ask, StrategyDecision
from asa.core.job import Resources
from asa.core.view import StageView, WorkflowView
from asa.strategies.options import DEFAULT_ESTIMATOR


class BigJob:
    """Ask once for the largest stage's resources, for the sum of all wall times (the paper's equation 1).

    When the site allows no such wall time, or the allocation ends early, another is asked for what is left.

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
        return [ask for stages in alike for ask in self._decide(view, stages)]

    def _decide(self, view: WorkflowView, alike: Sequence[StageView]) -> Iterator[Ask]:
        """One for the stages with the same options of the batch system: one job cannot be in two partitions."""
        if any(not item.leaving for stage in reversed(alike) for item in stage.allocations):
            return  # seen at once: the last stages need it to the end
        left = [stage for stage in alike if not stage.state.final]
        if not any(stage.unlaunched for stage in left):
            return  # none, or the last tasks are running in an allocation that is about to end
        peak = largest([stage.spec.resources for stage in left], view.cores_per_node)
        walltime_s = min(sum((1 + stage.spec.rounds) * stage.spec.walltime_s for stage in left), view.longest_s)
        yield Ask(tuple(stage.spec.name for stage in left), peak, walltime_s)


def largest(needs: Sequence[Resources], cores_per_node: int | None) -> Resources:
    """The least that holds each of these, which have the same options: on nodes of its own where one needs that, else
    anywhere, in large units.

    >>> largest([Resources(8, unit=1), Resources(6, unit=3)], 4)
    Resources(cores=9, nodes=None, memory=None, gpus=0, unit=3)
    >>> largest([Resources(12, unit=1), Resources(4, nodes=2, gpus=4)], 4)
    Resources(cores=12, nodes=3, memory=None, gpus=6, unit=None)
    """
    memory = max((item.memory for item in needs if item.memory is not None), default=None)
    (options,) = {item.options for item in needs}
    if any(item.nodes is not None for item in needs):
        nodes = max(item.packed(cores_per_node).nodes or 1 for item in needs)
        gpus = nodes * max(-(-item.gpus // (item.nodes or nodes)) for item in needs)
        return Resources(nodes * max(_on_one(item, nodes) for item in needs), nodes, memory, gpus, None, options)
    gpus = max(item.gpus for item in needs)
    unit = max((item.unit for item in needs if item.unit is not None), default=None)
    if unit is None:
        return Resources(max(item.cores for item in needs), None, memory, gpus, None, options)
    units = max(-(-(item.cores // (item.unit or 1)) // (unit // (item.unit or 1))) for item in needs)
    return Resources(units * unit, None, memory, gpus, unit, options)


def _on_one(need: Resources, nodes: int) -> int:
    """Cores that each of so many nodes needs to hold what any stage has there."""
    if need.nodes is not None:
        return max(need.cores // need.nodes, -(-need.cores // nodes))
    unit = need.unit or 1
    return -(-(need.cores // unit) // nodes) * unit
