import math

import pytest

from asa.core.errors import InvalidInput
from asa.estimators.checks import (
    check_count,
    check_open_share,
    check_positive,
    check_same_grid,
    check_wait,
    read,
    read_numbers,
    read_waits,
)


@pytest.mark.parametrize("wait", [0, 0.0, 1e-9, 3600, 1e300])
def test_a_wait_is_any_finite_time_from_0(wait):
    assert check_wait(wait) == wait
    assert isinstance(check_wait(wait), float)


@pytest.mark.parametrize("wait", [-1e-9, -1, math.nan, math.inf, -math.inf])
def test_anything_else_is_refused_by_name(wait):
    with pytest.raises(InvalidInput, match=f"lead is {wait!r}"):
        check_wait(wait, "lead")


@pytest.mark.parametrize("share", [0, 1, -0.1, math.nan])
def test_an_open_share_lies_strictly_between_0_and_1(share):
    assert check_open_share(0.5, "tau") == 0.5
    with pytest.raises(InvalidInput, match="tau is"):
        check_open_share(share, "tau")


@pytest.mark.parametrize("number", [0, -1, math.inf, math.nan])
def test_a_rate_is_finite_and_above_0(number):
    assert check_positive(1e-9, "eta") == 1e-9
    with pytest.raises(InvalidInput, match="eta is"):
        check_positive(number, "eta")


@pytest.mark.parametrize("count", [0, -1, 1.0, "3", None])
def test_a_count_is_an_integer(count):
    assert check_count(1, "window", at_least=1) == 1
    with pytest.raises(InvalidInput, match=r"window is .*: expected an integer of 1 or more"):
        check_count(count, "window", at_least=1)


def test_states_are_read_with_care():
    state = {"waits": [1, 2.5], "bad": [1.0, -1.0], "grid": [0.0, 10.0]}
    assert read(state, "waits") == [1, 2.5]
    assert read_waits(state, "waits") == [1.0, 2.5]
    assert read_numbers(state, "bad", 2) == [1.0, -1.0]
    check_same_grid(state, (0.0, 10.0))
    with pytest.raises(InvalidInput, match=r"no 'weights', only \['bad', 'grid', 'waits'\]"):
        read(state, "weights")
    with pytest.raises(InvalidInput, match=r"state\['bad'\] is -1\.0"):
        read_waits(state, "bad")
    with pytest.raises(InvalidInput, match="has 2 numbers: expected 3"):
        read_numbers(state, "bad", 3)
    with pytest.raises(InvalidInput, match="not finite"):
        read_numbers({"weights": [math.inf]}, "weights", 1)
    with pytest.raises(InvalidInput, match="give it the same grid"):
        check_same_grid(state, (0.0, 20.0))
