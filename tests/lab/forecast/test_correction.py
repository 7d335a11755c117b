from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.forecast.correction import MOST, Correction

times = st.floats(0.0, 1e7)


@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_it_finds_the_factor_with_the_least_absolute_error(true: float) -> None:
    rng = np.random.default_rng(1)
    said = rng.lognormal(8, 1, 4000)
    waits = said * true * rng.lognormal(0, 0.5, 4000)
    correction = Correction(0.02)
    for forecast, wait in zip(said.tolist(), waits.tolist(), strict=True):
        correction.learn(forecast, wait)
    factors = np.geomspace(0.25, 4, 100)
    best = factors[np.abs(said[:, None] * factors - waits[:, None]).sum(axis=0).argmin()]
    assert correction.factor == pytest.approx(best, rel=0.15)


@given(st.lists(st.tuples(times, times)), st.floats(0, 1))
def test_the_factor_is_bounded(seen: list[tuple[float, float]], step: float) -> None:
    correction = Correction(step)
    for forecast, wait in seen:
        correction.learn(forecast, wait)
    assert 0.999 / MOST <= correction.factor <= 1.001 * MOST


def test_forecasts_of_nothing_and_right_ones_change_nothing() -> None:
    correction = Correction(0.5)
    correction.learn(0.0, 1e6)
    correction.learn(70.0, 70.0)
    assert correction.factor == 1.0


def test_a_state_survives_json() -> None:
    one, other = Correction(0.1), Correction(0.1)
    for state in (one.state, lambda: one.learn(10.0, 30.0) or one.state()):
        written = json.dumps(state(), allow_nan=False)
        other.restore(json.loads(written))
        assert json.dumps(other.state()) == written
    assert other.factor == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    "wrong", [{}, {"log": 0.0}, {"log": 9.0, "mean_s": 1.0}, {"log": 0.0, "mean_s": -1.0}, {"log": "x", "mean_s": None}]
)
def test_a_broken_state_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no state of a correction"):
        Correction(0.1).restore(wrong)
