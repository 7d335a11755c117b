from __future__ import annotations

import pytest

from asa.core.decision import Ask, Predict, Wake, Withdraw
from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.core.view import StageView
from asa.strategies.staggered import TRIES, Staggered
from tests.strategies.views import allocation, stage, view

WIDE = Resources(100)


def running(expected_end: float = 5000.0) -> StageView:
    held = allocation("x", "a", started=900.0, busy=True)
    return stage("a", state=StageState.RUNNING, unlaunched=False, expected_end=expected_end, allocations=(held,))


def after_a(*allocations: object, **more: object) -> StageView:
    """A stage of 1,000 s on 100 cores, which asks for 2,000 s."""
    needs = {"cores": 100, "walltime_s": 2000.0, "run_time_s": 1000.0, "predicted_wait_s": 2500.0}
    return stage("b", "a", allocations=allocations, **(needs | more))


def decide(b: StageView, *, now: float = 1000.0, **options: object) -> list[object]:
    return list(Staggered(**options).decide(view(running(), b, now=now)))


def waiting(key: str, submitted: float) -> object:
    return allocation(key, "b", submitted=submitted, predicted_wait_s=2500.0, cores=100)


def test_the_first_request_is_to_come_when_the_stage_is_ready() -> None:
    assert decide(after_a(predicted_wait_s=None)) == [Predict("b")]
    assert decide(after_a()) == [Wake(2500.0)]
    assert decide(after_a(), now=2500.0) == [Ask(("b",), WIDE, 2000.0, (), 2500.0)]


def test_a_prediction_is_made_anew_when_it_is_old() -> None:
    assert decide(after_a(predicted_at=1000.0), now=1600.0) == [Wake(2500.0)]
    assert decide(after_a(predicted_at=1000.0), now=1601.0) == [Predict("b")]


def test_further_ones_are_to_come_later_up_to_as_many_as_may_be_outstanding() -> None:
    one = after_a(waiting("y", 2500.0))
    assert decide(one, now=3000.0, spacing_s=1800.0) == [Wake(4300.0)]
    assert decide(one, now=4300.0, spacing_s=1800.0) == [Ask(("b",), WIDE, 2000.0, (), 2500.0)]
    assert decide(one, now=4300.0, outstanding=1) == []


def test_a_stage_that_is_ready_waits_for_what_is_in_the_queue() -> None:
    ready = after_a(waiting("y", 2500.0), state=StageState.READY)
    assert decide(ready, now=9000.0) == []
    assert decide(after_a(state=StageState.READY), now=9000.0) == [Ask(("b",), WIDE, 2000.0, (), 2500.0)]


def test_what_comes_much_too_early_is_given_back_at_once() -> None:
    there = allocation("y", "b", started=1000.0, cores=100)
    (found,) = decide(after_a(there))
    assert isinstance(found, Withdraw) and found.allocation == "y"


def test_what_comes_a_little_early_is_kept_and_the_other_requests_withdrawn() -> None:
    there = allocation("y", "b", started=4997.0, cores=100)
    found = decide(after_a(there, waiting("z", 4000.0)), now=4997.0, grace_s=5.0)
    assert found == [Wake(5002.0), Withdraw("z", "its stage has an allocation already")]
    late = list(Staggered(grace_s=5.0).decide(view(running(5002.0), after_a(there), now=5002.0)))
    assert [type(item) for item in late] == [Withdraw], "its grace is over"


def test_none_costs_more_than_a_hundredth_of_the_plan() -> None:
    """1,006 core-seconds, which 100 cores idle away in 10 s."""
    there = allocation("y", "b", started=4997.0, cores=100)
    assert decide(after_a(there), now=4997.0, grace_s=300.0) == [Wake(4997.0 + 10.06)]
    assert decide(after_a(there), now=4997.0, patience=1e4) == [Wake(4997.0 + 970.0)], (
        "as long as its wall time lets it"
    )


def test_with_patience_it_is_kept_while_another_wait_would_cost_more() -> None:
    """Three tenths of the wait that it was planned with, at 30 core-hours an hour for 100 cores."""
    there = allocation("y", "b", started=4997.0, cores=100, predicted_wait_s=50.0)
    assert decide(after_a(there), now=4997.0, patience=30.0) == [Wake(4997.0 + 15.0)]


def test_a_stage_that_runs_late_does_not_cost_the_allocation_that_waits_for_it() -> None:
    there = allocation("y", "b", started=4800.0, cores=100)
    found = Staggered(grace_s=5.0).decide(view(running(4800.0), after_a(there), now=4802.0))
    assert list(found) == [Wake(4805.0)]


def test_narrow_allocations_may_idle_longer() -> None:
    """As many core-seconds as the widest stage's, within their wall time."""
    narrow = stage("b", "a", walltime_s=20_000.0, run_time_s=100.0, allocations=(allocation("y", "b", started=1000.0),))
    wide = stage("c", "b", cores=100, predicted_wait_s=0.0)
    found = list(Staggered(grace_s=5.0).decide(view(running(1400.0), narrow, wide)))
    assert Wake(1500.0) in found and not any(isinstance(item, Withdraw) for item in found)


def test_with_patience_wide_jobs_are_planned_to_come_late_and_narrow_ones_early() -> None:
    assert decide(after_a(predicted_wait_s=None), patience=100.0) == [Predict("b", 0.5)]
    narrow = stage("b", "a")
    assert decide(narrow, patience=99.0) == [Predict("b", 0.99)]


def test_what_breaks_the_budget_is_not_sent() -> None:
    """100 cores are noticed after 15 s: 1.5 % of the 100,600 core-seconds that the stages take, and there are two."""
    one = after_a(waiting("y", 2500.0))
    assert decide(one, now=4300.0, max_overhead="1%") != [], "each may idle for a quarter of the budget"
    slow = view(running(), one, now=4300.0, poll_s=60.0)
    assert list(Staggered(max_overhead=0.03).decide(slow)) == []
    assert list(Staggered(max_overhead="6%").decide(slow)) != []


def test_it_does_not_try_for_ever() -> None:
    assert decide(after_a(attempts=TRIES), now=4000.0) == []


def test_nothing_is_left_in_the_queue_for_a_stage_that_has_all_it_needs() -> None:
    busy = allocation("y", "b", started=6000.0, busy=True)
    b = after_a(busy, waiting("z", 4000.0), state=StageState.RUNNING, unlaunched=False)
    assert decide(b, now=6500.0) == [Withdraw("z", "its stage has an allocation already")]


@pytest.mark.parametrize("option", [{"outstanding": 0}, {"spacing_s": -1.0}, {"grace_s": -1.0}])
def test_options_out_of_bounds_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="at least 1, 0 s and 0 s"):
        Staggered(**option)
