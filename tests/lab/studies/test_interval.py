from __future__ import annotations

import json

import numpy as np
import pytest

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.lab.studies.interval import Estimate, estimate


def mean(values: Floats) -> Floats:
    return np.asarray(values.mean((-2, -1)))


def test_the_interval_of_a_mean_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(1).normal(100.0, 10.0, size=(400, 1))
    found = estimate(mean, values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.15)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for trial in range(200):
        found = estimate(mean, rng.normal(0.0, 1.0, size=(30, 1)), seed=trial)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0.0 <= found.high
    assert 0.88 <= inside / 200 <= 0.99


def test_pairs_stay_together() -> None:
    base = np.random.default_rng(3).uniform(1.0, 100.0, size=(10, 1))
    found = estimate(lambda values: values[..., 0].sum(-1) / values[..., 1].sum(-1), np.hstack([base, 2 * base]))
    assert found == Estimate(0.5, 0.5, 0.5)


def test_one_seed_has_no_interval() -> None:
    assert estimate(mean, np.array([[3.0]])) == Estimate(3.0)


def test_what_is_no_number_is_null_in_json() -> None:
    assert json.loads(json.dumps(Estimate(float("nan")).to_json())) == {"value": None, "low": None, "high": None}


def test_what_is_no_number_is_a_dash_in_words() -> None:
    assert str(Estimate(float("nan"))) == "-"


def test_no_seeds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one or more seeds"):
        estimate(mean, np.empty((0, 2)))
