from __future__ import annotations

import pytest

from asa.core.decision import Ask
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.strategies.asking import ask_for, lacks_allocation
from tests.strategies.views import allocation, stage


@pytest.mark.parametrize(
    ("lacks", "found"),
    [
        (True, stage("a", state=StageState.READY)),
        (True, stage("a", state=StageState.READY, allocations=(allocation("x", "a", leaving=True),))),
        (False, stage("a", state=StageState.READY, allocations=(allocation("x", "a", queued=False),))),
        (False, stage("a", state=StageState.RUNNING, unlaunched=False)),
        (False, stage("a", state=StageState.FAILED)),
    ],
)
def test_what_lacks_an_allocation(lacks: bool, found: object) -> None:
    assert lacks_allocation(found) is lacks


def test_a_prediction_goes_with_the_job_it_was_made_for() -> None:
    assert ask_for(stage("a", predicted_wait_s=7.0), after=("x",)) == Ask(("a",), Resources(1), 600.0, ("x",), 7.0)
