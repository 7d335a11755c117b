"""One allocation for the whole workflow."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.decision import Ask, StrategyDecision
from asa.core.job import Resources
from asa.core.view import WorkflowView
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
        left = [stage for stage in view.stages if not stage.state.final]
        if not left or any(not item.leaving for item in view.allocations):
            return []
        if not any(stage.unlaunched for stage in left):
            return []  # the last tasks are running in an allocation that is about to end
        needs = [stage.spec.resources for stage in left]
        memories = [item.memory for item in needs if item.memory is not None]
        nodes = [item.nodes for item in needs if item.nodes is not None]
        cores, most_nodes = max(item.cores for item in needs), max(nodes, default=None)
        if most_nodes is not None:  # each node holds what any stage has on one of its own
            on_one = [item.cores // item.nodes for item in needs if item.nodes is not None]
            cores = most_nodes * max(-(-cores // most_nodes), *on_one)
        peak = Resources(
            cores=cores,
            nodes=most_nodes,
            memory=max(memories, default=None),
            gpus=max(item.gpus for item in needs),
        )
        walltime_s = min(sum(stage.spec.walltime_s for stage in left), view.longest_s)
        return [Ask(tuple(stage.spec.name for stage in left), peak, walltime_s)]
