"""A task with checkpoints as a chain of stages, for whatever strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from asa.core.decision import Amend, Ask, Cancel, Predict
from asa.core.job import QueueRegime
from asa.core.stage import StageState
from asa.core.view import StageView
from asa.strategies.asking import ask_for
from asa.strategies.auto import Auto
from asa.strategies.continuing import AHEAD_MOST, continued, of_stages
from asa.strategies.perstage import PerStage
from asa.strategies.proactive import Proactive
from tests.strategies.views import allocation, stage, view

AHEAD = AHEAD_MOST
"""Of stages of 600 s, whose end is not predicted."""


def long(*allocations: Any, total_s: float | None = None, **more: Any) -> StageView:
    """A stage of one task with checkpoints that is ready, of 600 s wall time."""
    found = stage("md", allocations=allocations, rest_s=total_s, **{"state": StageState.READY, **more})
    return replace(found, spec=replace(found.spec, checkpoint=True, total_s=total_s))


def decided(strategy: Any, *stages: StageView, **more: Any) -> list[Any]:
    before = view(*stages, **more)
    ahead, links = continued(before)
    return of_stages(strategy.decide(ahead), links, ahead, before)


def test_places_of_the_next_allocations_are_held_one_behind_the_other() -> None:
    (first,) = decided(Auto(), long(), regime=QueueRegime.FIFO)
    assert isinstance(first, Ask) and first.stages == ("md",) and first.after == ()
    queued: list[Any] = []
    for number in range(AHEAD):
        asks = decided(Auto(), long(*queued, attempts=number), regime=QueueRegime.FIFO)
        assert [(item.stages, item.after) for item in asks] == [(("md",), (f"j{number - 1}",) if number else ())]
        queued.append(allocation(f"j{number}", "md", submitted=float(number)))
    assert decided(Auto(), long(*queued, attempts=AHEAD), regime=QueueRegime.FIFO) == []


def test_when_one_has_started_another_is_asked_for_at_the_end() -> None:
    there = [allocation("j0", "md", started=900.0, busy=True)]
    there += [allocation(f"j{number}", "md", after=(f"j{number - 1}",)) for number in range(1, AHEAD)]
    running = long(*there, attempts=AHEAD, state=StageState.RUNNING, started=900.0, unlaunched=False)
    assert decided(Auto(), running, regime=QueueRegime.FIFO) == []
    paused = long(replace(there[0], busy=False, leaving=True), *there[1:], attempts=AHEAD, state=StageState.RUNNING)
    amend, ask = sorted(decided(Auto(), paused, regime=QueueRegime.FIFO), key=lambda item: type(item).__name__)
    assert amend == Amend("j1", after=()), "it is wanted now"
    assert isinstance(ask, Ask) and ask.after == (f"j{AHEAD - 1}",)


def test_a_parked_place_is_let_go_when_the_one_before_has_ended() -> None:
    parked = [allocation(f"j{number}", "md", parked=True) for number in range(1, AHEAD)]
    paused = long(*parked, attempts=AHEAD, state=StageState.RUNNING)
    found = decided(Auto(technique="parked"), paused, regime=QueueRegime.LIMITS, parks=True)
    assert [item for item in found if isinstance(item, Amend)] == [Amend("j1", parked=False)]


def test_no_more_are_asked_for_than_it_needs_as_far_as_was_said() -> None:
    ahead, links = continued(view(long(total_s=1500.0)))
    assert len(ahead.stages) == len(links) == 4, "three of 570 s each, and one in case it takes longer"
    ahead, _ = continued(view(long(total_s=1e6)))
    assert len(ahead.stages) == AHEAD_MOST


def test_what_follows_has_a_place_behind_the_last_where_that_is_known() -> None:
    ahead, links = continued(view(long(total_s=1500.0), stage("after", "md")))
    assert ahead["after"].spec.predecessors == ("md, next 2",) and "after" not in links
    ahead, _ = continued(view(long(), stage("after", "md"), stage("later", "after")))
    assert "after" not in [each.spec.name for each in ahead.stages] and len(ahead.stages) == AHEAD


def test_an_array_has_one_element_for_each_and_another_name_each_time() -> None:
    asks = decided(Auto(), long(), regime=QueueRegime.LIMITS, arrays=True)
    assert [item.stages for item in asks] == [("md",)] * AHEAD
    assert len({item.array for item in asks}) == 1
    again = decided(Auto(), long(attempts=AHEAD), regime=QueueRegime.LIMITS, arrays=True)
    assert len(again) == AHEAD and again[0].array != asks[0].array


def test_elsewhere_the_next_is_asked_for_by_the_predicted_wait() -> None:
    there = allocation("j0", "md", started=900.0, busy=True)
    running = long(there, attempts=1, state=StageState.RUNNING, started=900.0, unlaunched=False)
    naive = Proactive(dependency="none")
    assert Predict("md") in decided(naive, running)
    soon = replace(running, predicted_wait_s=400.0)
    assert [item for item in decided(naive, soon) if isinstance(item, Ask)] == [], "470 s are left of it"
    late = decided(naive, replace(running, predicted_wait_s=480.0), now=1000.0)
    assert [type(item) for item in late if isinstance(item, Ask)] == [Ask]


@pytest.mark.parametrize("strategy", [PerStage(), Auto(), Proactive()])
def test_other_runs_are_decided_as_ever(strategy: Any) -> None:
    stages = [stage("a", state=StageState.READY), stage("b", "a")]
    before = view(*stages, regime=QueueRegime.FIFO)
    ahead, links = continued(before)
    assert not links and list(strategy.decide(ahead)) == list(strategy.decide(before))


def test_an_early_one_is_withdrawn_like_any_other() -> None:
    there = allocation("j0", "md", started=900.0, busy=True, ends=5000.0)
    early = allocation("j1", "md", started=910.0, ends=1510.0)
    running = long(there, early, attempts=2, state=StageState.RUNNING, started=900.0, unlaunched=False)
    found = decided(Proactive(dependency="none", grace_s=30.0), running)
    assert any(isinstance(item, Cancel) and item.allocation == "j1" for item in found)


class Twice(PerStage):
    """Asks for every stage, whatever was asked for."""

    def decide(self, view: Any) -> list[Any]:
        return [ask_for(each) for each in view.stages]


def test_a_link_has_one_request() -> None:
    """A second one would be taken for that of the next link, which then lacks a second one: jobs without end."""
    queued = [allocation(f"j{number}", "md") for number in range(1, 4)]
    found = decided(Twice(), long(allocation("j0", "md", started=900.0), *queued, attempts=4))
    assert [each.stages for each in found] == [("md",)] * (AHEAD - 3), "all but the three that wait"


def test_behind_one_that_waits_for_a_failed_one_none_is_asked_for() -> None:
    """The batch system cancels it, and all behind it; were others asked for behind these, so it went on without end."""
    queued = [allocation(f"j{number}", "md", after=(f"j{number - 1}",)) for number in range(1, 4)]
    assert decided(Twice(), long(*queued, attempts=4)) == []
    assert decided(Twice(), long(allocation("j0", "md", started=900.0), *queued, attempts=4)) != []
    assert len(decided(Twice(), long(attempts=4))) == AHEAD, "once they are gone, it is asked for anew"
