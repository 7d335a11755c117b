from __future__ import annotations

import math

from asa.core.decision import Ask, Wake, Withdraw
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.strategies.ahead import arrival, ask_after, holders, outlook, queued, retreat
from tests.strategies.views import allocation, stage, view


def test_a_chain_is_expected_to_run_one_after_the_other() -> None:
    running = stage("a", state=StageState.RUNNING, expected_end=1500.0)
    found = outlook(view(running, stage("b", "a", walltime_s=100.0), stage("c", "b", walltime_s=50.0)))
    assert found["a"] == (1000.0, 1500.0, 0.0)
    assert found["b"] == (1500.0, 1600.0, 1.0)
    assert found["c"] == (1600.0, 1650.0, 2.0)


def test_a_stage_begins_when_its_allocation_is_there() -> None:
    waits = allocation("y", "b", submitted=900.0, predicted_wait_s=700.0)
    stages = view(stage("a", state=StageState.DONE), stage("b", "a", walltime_s=100.0, allocations=(waits,)))
    assert outlook(stages)["b"].end == 900.0 + 700.0 + 100.0
    assert arrival(allocation("y", "b", submitted=0.0, predicted_wait_s=7.0), 1000.0) == 1000.0, "not in the past"
    assert arrival(allocation("y", "b", started=3.0, predicted_wait_s=7.0), 1000.0) == 3.0


def test_what_was_not_asked_for_comes_a_predicted_wait_from_now_at_the_soonest() -> None:
    stages = view(stage("a", state=StageState.READY, predicted_wait_s=700.0, walltime_s=100.0), stage("b", "a"))
    assert outlook(stages)["a"].end == 1000.0 + 700.0 + 100.0


def test_those_before_are_taken_to_come_as_soon_as_they_may() -> None:
    item = allocation("y", "b", submitted=900.0, predicted_wait_s=700.0, soon_wait_s=200.0)
    assert arrival(item, 1000.0) == 1100.0


def test_what_idles_is_given_back_after_its_grace() -> None:
    early = stage("b", "a", allocations=(allocation("y", "b", started=1000.0),))
    assert retreat(early, 1100.0, 300.0) == [Wake(1300.0)]
    assert retreat(early, 1300.0, 300.0) == [Withdraw("y", "it came before its stage and idled for 300 s")]
    assert retreat(early, 1e9, math.inf) == []
    busy = stage("b", "a", allocations=(allocation("y", "b", started=1000.0, busy=True),))
    assert retreat(busy, 1e9, 300.0) == []


def test_a_job_waits_for_those_in_the_queue_that_are_not_done() -> None:
    a = stage("a", allocations=(allocation("x", "a"), allocation("w", "a", leaving=True)))
    b = stage("b", state=StageState.DONE, allocations=(allocation("y", "b"),))
    assert holders([a, b]) == ("x",)
    assert queued(a) and not queued(stage("c", allocations=(allocation("z", "c", queued=False),)))
    c = stage("c", "a", "b")
    assert ask_after(view(a, b, c), {"c"}) == [Ask(("c",), Resources(1), 600.0, ("x",))]
    assert ask_after(view(stage("a"), b, c), {"c"}) == [], "a has no job yet"
