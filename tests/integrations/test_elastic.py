from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.event import Cancelled, JobEnded, Learned, Released, RunEnded, RunState, TaskDone
from asa.core.run import UNRESPONSIVE_S
from asa.integrations.elastic import Limits, ranges
from asa.workflows.plan import Cancel
from tests.integrations.world import world


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"minimum": 2, "maximum": 1}, "minimum=2 and maximum=1"),
        ({"maximum": 0}, "maximum >= 1"),
        ({"idle_s": -1.0}, "idle must be a time"),
        ({"worth_s": math.inf}, "worth must be a time"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Limits(**limits)  # type: ignore[arg-type]


def test_nothing_is_asked_for_without_calls() -> None:
    there = world()
    there.run(100.0)
    assert there.asked == 0


def test_a_minimum_is_held_without_calls() -> None:
    there = world(Limits(minimum=2, maximum=3))
    there.settle()
    there.run(1000.0)
    assert there.asked == 2 and len(there.elastic.pool.held) == 2


def test_calls_that_may_be_long_get_all_the_room_they_can_use() -> None:
    there = world()
    there.call(5)
    assert there.asked == 3  # of two cores each


def test_calls_that_are_short_are_not_worth_another_allocation() -> None:
    there = world(Limits(maximum=4, worth_s=5.0))
    there.call(1)
    there.run(20.0)
    there.call(8)  # of 1 s each: less than 5 s of two cores
    assert there.asked == 1
    there.call(100)
    assert there.asked == 4


def test_an_allocation_is_kept_for_as_long_as_it_was_waited_for() -> None:
    there = world(wait_s=60.0)
    there.call(1)
    there.run(61.0)
    assert there.ended == [0]
    there.run(61.0 + 59.0)
    assert not [event for event in there.log if isinstance(event, Released)]
    there.run(61.0 + 61.0)
    (released,) = [event for event in there.log if isinstance(event, Released)]
    assert released.at == 121.0


def test_a_job_that_was_released_and_does_not_end_is_cancelled() -> None:
    there = world(call_s=100.0)
    there.call(1)
    there.run(30.0)
    (key,) = there.elastic.pool.held
    there.tell(Released(40.0, key, "it is told to end"))
    assert Cancel(key, "it was released and did not end") not in there.elastic.decide(40.0 + UNRESPONSIVE_S - 1.0)
    assert Cancel(key, "it was released and did not end") in there.elastic.decide(40.0 + UNRESPONSIVE_S)


def test_a_load_that_comes_and_goes_does_not_make_jobs_come_and_go() -> None:
    there = world(Limits(maximum=4, worth_s=0.0), wait_s=60.0, call_s=20.0)
    for _ in range(10):
        there.call(8)
        there.run(there.now + 60.0)
    assert there.asked == 4
    thrashing = world(Limits(maximum=4, worth_s=0.0, idle_s=0.0), wait_s=60.0, call_s=20.0)
    for _ in range(10):
        thrashing.call(8)
        thrashing.run(thrashing.now + 100.0)
    assert thrashing.asked == 40


def test_withdrawn_calls_let_jobs_go_that_wait() -> None:
    there = world(wait_s=1000.0)
    there.call(4)
    assert there.asked == 2
    for index in range(4):
        there.elastic.withdraw(index, there.now)
    there.run(100.0)
    assert [event.at for event in there.log if isinstance(event, Cancelled)] == [5.0, 5.0]


def test_every_wait_teaches_once() -> None:
    there = world(wait_s=7.0)
    there.call(8)
    there.run(100.0)
    assert [event.wait_s for event in there.log if isinstance(event, Learned)] == [7.0] * 4


def test_near_its_wall_time_an_allocation_is_replaced() -> None:
    there = world(Limits(minimum=1, maximum=1))
    there.settle()
    there.run(3700.0)
    assert there.asked == 2
    (first, *_) = [event for event in there.log if isinstance(event, Released)]
    assert first.reason == "too little of its wall time is left" and first.at < 3610.0


def test_once_closed_it_ends_when_the_last_call_has() -> None:
    there = world()
    there.call(6)
    there.run(10.0)
    there.elastic.closing = True
    there.run(60.0)
    assert sorted(there.ended) == list(range(6))
    assert there.elastic.closed and there.elastic.outcome is RunState.SUCCEEDED
    (over,) = [event for event in there.log if isinstance(event, RunEnded)]
    assert over.at == max(event.at for event in there.log if isinstance(event, TaskDone))


@given(
    steps=st.lists(st.tuples(st.integers(0, 12), st.floats(0.1, 80.0)), min_size=1, max_size=8),
    minimum=st.integers(0, 2),
    more=st.integers(0, 3),
    wait_s=st.floats(0.0, 50.0),
    call_s=st.floats(0.01, 30.0),
    idle_s=st.none() | st.floats(0.0, 20.0),
)
def test_every_call_ends_once_and_every_job_is_let_go(
    steps: list[tuple[int, float]], minimum: int, more: int, wait_s: float, call_s: float, idle_s: float | None
) -> None:
    limits = Limits(minimum, max(1, minimum + more), idle_s)
    there = world(limits, wait_s=wait_s, call_s=call_s)
    for count, pause in steps:
        there.call(count)
        there.run(there.now + pause)
    there.elastic.closing = True
    there.settle()
    there.run(there.now + 3000.0)
    assert sorted(there.ended) == list(range(there.width))
    assert there.elastic.closed and not there.given_up
    assert there.most <= limits.maximum
    assert len([event for event in there.log if isinstance(event, JobEnded)]) == there.asked


@given(st.lists(st.integers(0, 30), unique=True))
def test_ranges_are_the_same_numbers(numbers: list[int]) -> None:
    found = [number for start, stop in ranges(iter(numbers)) for number in range(start, stop)]
    assert found == numbers
