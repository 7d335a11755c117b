from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.registry import ESTIMATORS
from asa.estimators.checks import (
    Stream,
    check_count,
    check_open_share,
    check_positive,
    check_same_grid,
    check_wait,
    pack,
    read,
    read_numbers,
    read_packed,
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


@given(st.lists(st.floats(allow_nan=False), max_size=20))
def test_what_was_packed_is_read(values):
    state = json.loads(json.dumps({"values": pack(np.array(values), "<f8")}))
    assert read_packed(state, "values", "<f8", (len(values),)).tolist() == values


@pytest.mark.parametrize("text", ["AAA=", "!", 7, None])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidInput, match=r"state\['values'\] is no packed array of the shape \(2,\)"):
        read_packed({"values": text}, "values", "<f8", (2,))


def test_a_missing_array_is_named():
    with pytest.raises(InvalidInput, match="no 'values'"):
        read_packed({}, "values", "<f8", (2,))


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_says_what_it_was_made_with(name: str) -> None:
    kind = type(ESTIMATORS.create(name)).__name__
    assert repr(ESTIMATORS.create(name)) == f"{kind}()"
    assert repr(ESTIMATORS.create(name, seed=3)) == f"{kind}(seed=3)"


def test_options_of_a_spec_are_told() -> None:
    made = ESTIMATORS.create("algorithm1:sampling=tuned,replay=5")
    assert repr(made) == "Algorithm1(sampling='tuned', replay=5)"


@given(st.integers(0, 2**64), st.lists(st.integers(0, 200), max_size=6), st.integers(0, 50))
def test_a_stream_resumes_from_two_integers(seed, draws, more):
    stream = Stream(seed=seed, key=3)
    for count in draws:
        stream.draw(count)
    resumed = Stream.resume(json.loads(json.dumps(stream.state())), key=3)
    assert resumed.draw(more) == stream.draw(more)
    assert resumed.state() == stream.state()


def test_drawing_singly_is_drawing_together():
    single, together = Stream(seed=1, key=0), Stream(seed=1, key=0)
    assert [single.draw(1)[0] for _ in range(100)] == together.draw(100)


def test_keys_and_seeds_give_other_numbers():
    assert Stream(seed=1, key=0).draw(4) != Stream(seed=1, key=1).draw(4)
    assert Stream(seed=1, key=0).draw(4) != Stream(seed=2, key=0).draw(4)


def test_numbers_are_uniform():
    numbers = np.array(Stream(seed=5, key=0).draw(20_000))
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.histogram(numbers, bins=10, range=(0, 1))[0] == pytest.approx(2000, abs=200)


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"seed": 1, "draws": -1}])
def test_seed_and_draws_are_integers_of_0_or_more(options):
    with pytest.raises(InvalidInput, match="expected an integer of 0 or more"):
        Stream(key=0, **options)
