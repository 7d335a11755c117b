from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.cp.times import FINEST_S, times_of
from asa.lab.dispatchers.planning.active import active
from asa.lab.dispatchers.planning.lists import keys, order_of
from asa.lab.dispatchers.planning.verify import violations
from tests.lab.dispatchers.planning.instances import instance, instances


def times(durations, ends=()):
    jobs = [([1], 1, length, 0) for length in durations]
    return times_of(instance([[9]], jobs, [(0, [1], 1, end) for end in ends]))


@pytest.mark.parametrize(
    ("durations", "ends", "tick", "ticks"),
    [
        ([60, 90], [30], 30.0, [2, 3]),
        ([7, 5], [3], 1.0, [7, 5]),
        ([0.5, 1.25], [0.75], 0.25, [2, 5]),
        ([86_400, 3_600], [], 3_600.0, [24, 1]),
    ],
)
def test_the_longest_tick(durations, ends, tick, ticks):
    found = times(durations, ends)
    assert found.exact and found.tick == pytest.approx(tick)
    assert found.duration.tolist() == ticks
    assert found.horizon == sum(ticks) + sum(round(end / tick) for end in ends)


def test_times_without_a_tick_are_rounded_up():
    found = times([np.pi, 1e-6], [np.e])
    assert (found.exact, found.tick) == (False, FINEST_S)
    assert (found.duration.tolist(), found.release.tolist()) == ([3217, 1], [2784])


def test_very_long_times_have_longer_ticks():
    found = times([1e12 + 0.5, 1.0])
    assert not found.exact and found.duration[0] < 2**40 and found.duration[1] == 1


@given(instances(), st.floats(0.01, 100.0))
def test_plans_of_the_rounded_instance_are_plans(problem, factor):
    """And their starts are whole ticks."""
    odd = replace(problem, duration=problem.duration * factor, release_at=problem.release_at * factor)
    found = times_of(odd)
    plan = active(found.rounded(odd), order_of(keys(odd, "dense")))
    assert violations(odd, plan) == []
    assert (found.in_ticks(plan.start) * found.tick == plan.start).all()


def test_times_that_never_end():
    with pytest.raises(InvalidInput, match="job 1 takes inf s"):
        times([5.0, np.inf])
    with pytest.raises(InvalidInput, match="what runs ends after inf s"):
        times([5.0], [np.inf])


def test_costs_are_slowdowns_but_for_a_millionth():
    found = times([10, 35, 86_400], [100])
    start = np.array([3, 7, 17_280])
    assert found.cost(start) / found.scale == pytest.approx((start / found.duration).sum(), rel=1e-6)
    assert found.cost(start) / found.scale <= (start / found.duration).sum()


def test_costs_stay_small_enough():
    found = times([1.0] * 50 + [1e9] * 50)
    assert found.cost(np.full(100, found.horizon)) < 2**62
    assert (found.weight[:50] > 0).all()
