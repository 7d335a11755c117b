from __future__ import annotations

from asa.core.decision import Ask
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.strategies.perstage import PerStage
from tests.strategies.views import allocation, stage, view


def test_a_job_for_each_stage_that_may_start() -> None:
    """The paper's equation 2: exactly the size that the stage declares."""
    stages = view(
        stage("a", state=StageState.DONE, unlaunched=False),
        stage("b", "a", state=StageState.READY, cores=8, walltime_s=50.0),
        stage("c", "a", state=StageState.RUNNING, allocations=(allocation("x", "c", leaving=True),)),
        stage("d", "b"),
    )
    assert PerStage().decide(stages) == [
        Ask(("b",), Resources(8), 50.0),
        Ask(("c",), Resources(1), 600.0),
    ]
