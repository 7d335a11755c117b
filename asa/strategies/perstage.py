"""An allocation for each stage, asked for when the stage may start."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.decision import StrategyDecision
from asa.core.ports import Reach
from asa.core.stage import StageState
from asa.core.view import WorkflowView
from asa.strategies.asking import ask_for, lacks_allocation
from asa.strategies.options import DEFAULT_ESTIMATOR


class PerStage:
    """Ask for a stage's allocation when all its predecessors are done (the paper's equation 2).

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 2.2, figure 2b;
    W. Fox et al., "E-HPC: a library for elastic resource management in HPC environments", WORKS 2017.
    """

    estimator = DEFAULT_ESTIMATOR
    own_pools = False

    def reach(self, view: WorkflowView) -> Reach:
        return Reach.ITSELF

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        return [
            ask_for(stage)
            for stage in view.stages
            if stage.state in (StageState.READY, StageState.RUNNING) and lacks_allocation(stage)
        ]
