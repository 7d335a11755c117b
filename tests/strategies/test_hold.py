from __future__ import annotations

import pytest

from asa.core.decision import Ask, Predict, Wake, Withdraw
from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageState
from asa.strategies.auto import Auto
from asa.strategies.hold import Hold
from asa.strategies.perstage import PerStage
from asa.strategies.places import SETTLED_S
from asa.strategies.staggered import Staggered
from tests.strategies.views import allocation, stage, view

ONE = Resources(1)
LOST = {"array": "a+2", "reason": "JobArrayTaskLimit", "submitted": 0.0}
KEPT = LOST | {"ages_since": 1.0}


def running(**more: object) -> object:
    held = allocation("x", "a", started=900.0, busy=True, array="a+2")
    return stage("a", state=StageState.RUNNING, unlaunched=False, attempts=1, allocations=(held,), **more)


def test_every_stage_is_in_the_queue_from_the_start() -> None:
    stages = view(stage("a", state=StageState.READY), stage("b", "a"), stage("c", "b"), arrays=True)
    assert [item.stages for item in Hold().decide(stages) if isinstance(item, Ask)] == [("a",), ("b",), ("c",)]


def test_a_stage_that_may_begin_and_whose_job_is_gone_is_asked_for_plainly() -> None:
    stages = view(stage("a", state=StageState.READY, attempts=1), stage("b", "a", attempts=1), arrays=True)
    assert Ask(("a",), ONE, 600.0) in Hold().decide(stages)


def test_a_lost_place_is_given_up_with_those_behind_it_in_the_array() -> None:
    stages = view(
        running(),
        stage("b", "a", attempts=1, allocations=(allocation("y", "b", **LOST),)),
        stage("c", "b", attempts=1, allocations=(allocation("z", "c", **KEPT),)),
        arrays=True,
        now=2000.0,
    )
    found = Hold().decide(stages)
    assert [(item.allocation, item.displaced) for item in found if isinstance(item, Withdraw)] == [
        ("y", True),
        ("z", True),
    ]
    assert len(found) == 2


def test_it_looks_again_when_it_is_known_whether_a_job_ages() -> None:
    late = allocation("y", "b", **LOST | {"submitted": 990.0})
    stages = view(running(), stage("b", "a", attempts=1, allocations=(late,)), arrays=True)
    assert Hold().decide(stages) == [Wake(990.0 + SETTLED_S)]


def test_a_stage_whose_place_was_lost_is_left_to_the_other_strategy() -> None:
    lost = stage("b", "a", attempts=1, displaced=1)
    stages = view(running(expected_end=1500.0), lost, arrays=True)
    assert Hold().decide(stages) == [Predict("b")]
    later = Hold(otherwise=PerStage())
    assert later.decide(stages) == [], "which may be any"


def test_where_no_place_can_be_held_the_other_strategy_does_it_all() -> None:
    stages = view(stage("a", state=StageState.READY), stage("b", "a"), arrays=False)
    assert Hold(otherwise=PerStage()).decide(stages) == [Ask(("a",), ONE, 600.0)]


def test_with_a_lead_the_next_stage_is_let_go_before_it_is_ready() -> None:
    def decide(now: float) -> list[object]:
        held = allocation("y", "b", after=("x",), reason="Dependency", ages_since=1.0)
        before = allocation("x", "a", started=900.0, busy=True)
        first = stage("a", state=StageState.RUNNING, unlaunched=False, allocations=(before,), expected_end=1500.0)
        stages = view(first, stage("b", "a", attempts=1, allocations=(held,)), regime=QueueRegime.FIFO, now=now)
        return list(Hold(lead_s=100.0).decide(stages))

    assert decide(1000.0) == [Wake(1400.0)]
    assert [type(item).__name__ for item in decide(1400.0)] == ["Amend"]


def test_what_comes_too_early_is_given_back_after_its_grace() -> None:
    early = stage("b", "a", attempts=1, allocations=(allocation("y", "b", started=1000.0),))
    found = Hold(grace_s=60.0).decide(view(running(), early, arrays=True, now=1060.0))
    assert [item.allocation for item in found if isinstance(item, Withdraw)] == ["y"]


def test_it_says_what_it_does_and_why() -> None:
    lost = stage("b", "a", attempts=1, displaced=1)
    assert Hold().explain(view(running(), lost, arrays=True)) == (
        "places in the queue (limits) are held by the technique 'array'; lost by b"
    )
    said = Auto().explain(view(running(), lost))
    assert said.startswith("no place can be held in this queue (limits): up to 3 requests a stage")


def test_options() -> None:
    auto = STRATEGIES.create("auto:technique=parked,outstanding=2,estimator=median,window=5")
    assert (auto.technique, auto.estimator) == ("parked", "median:window=5")
    assert isinstance(auto.otherwise, Staggered) and auto.otherwise.outstanding == 2
    for lead_s in (-1.0, 301.0):
        with pytest.raises(InvalidInput, match="at most the grace expected"):
            Hold(lead_s=lead_s)
