from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.core.view import QueuedJob
from asa.lab.dispatchers.order import F1, FCFS, LARGEST_AREA, ORDERS, SJF, WFP3, Order, order, order_key
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dispatchers.views import Job, queue_view, slot_view

JOBS = [
    Job(4, submit=10.0, estimate=3600.0),
    Job(1, submit=20.0, estimate=60.0),
    Job(8, submit=30.0, estimate=600.0),
    Job(1, submit=40.0, estimate=60.0),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fcfs", [10.0, 20.0, 30.0, 40.0]),
        ("sjf", [3600.0, 60.0, 600.0, 60.0]),
        ("largest-area", [-14400.0, -60.0, -4800.0, -60.0]),
        ("wfp3", [-4 * (90 / 3600) ** 3, -((80 / 60) ** 3), -8 * (70 / 600) ** 3, -1.0]),
        (
            "f1",
            [
                4 * math.log10(3600) + 870,
                math.log10(60) + 870 * math.log10(20),
                8 * math.log10(600) + 870 * math.log10(30),
                math.log10(60) + 870 * math.log10(40),
            ],
        ),
    ],
)
def test_keys_are_those_of_the_papers(name: str, expected: list[float]) -> None:
    """At 100 s."""
    assert order(name).keys(slot_view(JOBS, 1, 8)) == pytest.approx(expected)
    assert order(name).keys(queue_view(JOBS, 1, 8)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("sjf", [1, 3, 2, 0]),
        ("largest-area", [0, 2, 1, 3]),
        ("wfp3", [1, 3, 2, 0]),
        ("f1", [0, 1, 2, 3]),
    ],
)
def test_the_lowest_key_is_first_and_of_equal_ones_the_earlier(name: str, places: list[int]) -> None:
    assert order(name).arrange(slot_view(JOBS, 1, 8)).tolist() == places


def test_many_equal_keys_leave_jobs_as_they_stand() -> None:
    jobs = [Job(1, estimate=60.0 * (row % 2)) for row in range(300)]
    assert order("sjf").arrange(slot_view(jobs, 1, 8)).tolist() == [*range(0, 300, 2), *range(1, 300, 2)]


def test_large_jobs_that_have_waited_long_lead_wfp3() -> None:
    wfp3 = order("wfp3")
    assert wfp3.dynamic
    early = wfp3.rank(1000.0, [0.0, 900.0], [1000.0, 60.0], [8, 8])
    late = wfp3.rank(9000.0, [0.0, 8900.0], [1000.0, 60.0], [8, 8])
    assert early[0] > early[1] and late[0] < late[1]


@pytest.mark.parametrize("submit", [-5.0, 0.0, 0.5, 1.0])
def test_f1_takes_the_first_second_of_a_trace_for_one(submit: float) -> None:
    assert order_key(F1, 0.0, submit, 100.0, 3) == pytest.approx(6.0)


@pytest.mark.parametrize("code", [WFP3, F1])
def test_a_job_without_length_counts_as_one_of_a_second(code: int) -> None:
    key = order_key(code, 50.0, 40.0, 0.0, 2)
    assert math.isfinite(key) and key == order_key(code, 50.0, 40.0, 1.0, 2)


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
@pytest.mark.parametrize("code", [SJF, LARGEST_AREA, WFP3, F1])
def test_jobs_without_an_estimate_come_last(code: int, unknown: float) -> None:
    assert order_key(code, 50.0, 40.0, unknown, 2) == math.inf
    assert order_key(FCFS, 50.0, 40.0, unknown, 2) == 40.0


@UNTIMED
@given(
    st.sampled_from(sorted(ORDERS)),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 100_000)), max_size=8),
)
def test_columns_give_the_keys_of_their_rows(name: str, jobs: list[tuple[float, float, int]]) -> None:
    columns = [np.array([job[k] for job in jobs]) for k in range(3)]
    keys = order(name).rank(2e6, *columns)
    assert keys.tolist() == [order_key(ORDERS[name].code, 2e6, *job) for job in jobs]


@UNTIMED
@given(st.sampled_from(sorted(ORDERS)), st.permutations(range(6)), st.floats(100.0, 1e6))
def test_only_dynamic_orders_change_with_time(name: str, jobs: list[int], later: float) -> None:
    submit, cores = np.zeros(6), np.ones(6, dtype=np.int64)
    now, then = (order(name).rank(time, submit, np.array(jobs) * 60.0, cores) for time in (99.0, later))
    assert order(name).dynamic or (now == then).all()


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_jobs_beyond_the_threshold_come_first_as_they_stand(name: str) -> None:
    """At 100 s, of jobs that came at 10, 20, 30 and 40 s."""
    late = order(name, 75.0)
    assert late.dynamic and late.name == name
    for make in (queue_view, slot_view):
        assert late.arrange(make(JOBS, 1, 8)).tolist()[:2] == [0, 1]
        assert late.keys(make(JOBS, 1, 8))[2:].tolist() == order(name).keys(make(JOBS, 1, 8))[2:].tolist()
    assert order(name, math.inf) is ORDERS[name]


def test_an_order_of_ones_own_has_a_threshold_too() -> None:
    mine = order(lambda job, now: -job.submitted, "75s")
    for make in (queue_view, slot_view):
        assert mine.arrange(make(JOBS, 1, 8)).tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, "soon"])
def test_a_threshold_is_a_duration(threshold: float | str) -> None:
    with pytest.raises(InvalidInput, match=r"threshold .* is not a positive duration"):
        order("sjf", threshold)


def test_a_function_of_jobs_is_an_order() -> None:
    def last_come(job: QueuedJob, now: float) -> float:
        return now - job.submitted

    mine = order(last_come)
    for make in (queue_view, slot_view):
        assert mine.keys(make(JOBS, 1, 8)).tolist() == [90.0, 80.0, 70.0, 60.0]
        assert mine.arrange(make(JOBS, 1, 8)).tolist() == [3, 2, 1, 0]
    assert (mine.name, mine.dynamic, order(mine)) == ("last_come", True, mine)


def test_an_empty_queue_is_in_order() -> None:
    for what in (*ORDERS, lambda job, now: 0.0):
        assert order(what).arrange(queue_view([], 1, 8)).tolist() == []


def test_columns_say_too_little_for_a_function_of_jobs() -> None:
    mine = Order("mine", -1, key=lambda job, now: 0.0)
    with pytest.raises(InvalidInput, match="'mine' is a function of jobs"):
        mine.rank(0.0, [0.0], [1.0], [1])


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown order 'wfp': did you mean 'wfp3'"):
        order("wfp")
