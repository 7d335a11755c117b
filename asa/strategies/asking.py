"""Asking for a stage's allocation, as all strategies do it."""

from __future__ import annotations

from asa.core.decision import Ask
from asa.core.view import StageView


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
