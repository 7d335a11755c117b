"""An allocation for each stage, asked for when the stage may start."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.decision import Ask, StrategyDecision
from asa.core.stage import StageState
from asa.core.view import StageView, WorkflowView


def lacks_allocation(stage: StageView) -> bool:
    """Whether a stage has work left and no allocation, held or asked for, that takes it."""
    return stage.unlaunched and not stage.state.final and all(item.leaving for item in stage.allocations)


def ask_for(stage: StageView, after: tuple[str, ...] = (), *, delay_s: float = 0.0, array: str = "") -> Ask:
    """A job of exactly the size that the stage declares."""
    spec = stage.spec
    return Ask(
        stages=(spec.name,),
        resources=spec.resources,
        walltime_s=spec.walltime_s,
        after=after,
        predicted_wait_s=stage.predicted_wait_s,
        soon_wait_s=stage.soon_wait_s,
        delay_s=delay_s,
        array=array,
    )


class PerStage:
    """Ask for a stage's allocation when all its predecessors are done (the paper's equation 2).

    References
    ----------
    A. Souza et al., "ASA: the adaptive scheduling algorithm", section 2.2, figure 2b;
    W. Fox et al., "E-HPC: a library for elastic resource management in HPC environments", WORKS 2017.
    """

    estimator = "fixed-share"
    own_pools = False

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        return [
            ask_for(stage)
            for stage in view.stages
            if stage.state in (StageState.READY, StageState.RUNNING) and lacks_allocation(stage)
        ]
