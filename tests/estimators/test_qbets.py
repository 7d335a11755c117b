import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.qbets import Qbets, bound_rank

SHARES = st.floats(0.05, 0.95)


@given(st.integers(0, 80), SHARES, SHARES)
def test_the_rank_is_the_smallest_that_is_confident(count, quantile, confidence):
    def confidence_of(rank):
        return sum(math.comb(count, k) * quantile**k * (1 - quantile) ** (count - k) for k in range(rank))

    rank = bound_rank(count, quantile, confidence)
    if rank is None:
        assert confidence_of(count) < confidence + 1e-9
    else:
        assert confidence_of(rank) > confidence - 1e-9
        assert confidence_of(rank - 1) < confidence + 1e-9


def test_the_published_minimum_for_the_95th_percentile():
    assert bound_rank(59, 0.95, 0.95) == 59
    assert bound_rank(58, 0.95, 0.95) is None


def test_no_underflow_in_long_histories():
    assert bound_rank(5000, 0.95, 0.95) == pytest.approx(4750 + 1.645 * math.sqrt(5000 * 0.95 * 0.05), abs=2)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_the_bound_covers_the_quantile_as_often_as_promised(quantile):
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        estimator = Qbets(quantile=quantile, confidence=0.9, rarity=1e-9)
        for wait in rng.random(60):
            estimator.learn(wait)
        covered.append(estimator.predict() >= quantile)
    assert 0.86 <= np.mean(covered) <= 1


def test_few_waits_predict_the_largest_and_none_0():
    estimator = Qbets()
    assert estimator.predict() == 0
    for wait in (30.0, 90.0, 10.0):
        estimator.learn(wait)
    assert estimator.predict() == 90


@pytest.mark.parametrize("level", [10.0, 100_000.0])
def test_a_change_in_either_direction_cuts_the_history(level):
    rng = np.random.default_rng(1)
    estimator = Qbets()
    for wait in 1000 * rng.lognormal(0, 0.3, 300):
        estimator.learn(wait)
    for _ in range(15):
        estimator.learn(level)
    assert estimator.predict() == level
    assert len(estimator.state()["waits"]) <= 5 + 15


def test_a_steady_queue_keeps_its_history():
    rng = np.random.default_rng(1)
    estimator = Qbets(rarity=1e-9)
    for wait in 1000 * rng.lognormal(0, 0.3, 400):
        estimator.learn(wait)
    assert len(estimator.state()["waits"]) == 400


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=20, max_size=80))
def test_the_bound_is_a_rank_of_the_newest_waits(waits):
    estimator = Qbets(history=20, rarity=1e-300)
    for wait in waits:
        estimator.learn(wait)
    assert estimator.predict() == sorted(waits[-20:])[bound_rank(20, 0.5, 0.95) - 1]


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=80), st.lists(st.floats(0, 1e6), max_size=20))
def test_a_restored_estimator_goes_on_like_its_author(before, after):
    author, reader = Qbets(history=20), Qbets(history=20)
    for wait in before:
        author.learn(wait)
        assert author.state()["waits"][-1] == wait
    reader.restore(json.loads(json.dumps(author.state())))
    for wait in after:
        assert reader.predict() == author.predict()
        author.learn(wait)
        reader.learn(wait)
    assert reader.state() == author.state()


@pytest.mark.parametrize(
    "options",
    [{"quantile": 0}, {"confidence": 1}, {"rarity": 0}, {"history": 4}, {"history": 58, "quantile": 0.95}],
)
def test_bounds_of_the_options(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Qbets(**options)


def test_a_damaged_state_is_refused_and_changes_nothing():
    estimator = Qbets()
    estimator.learn(5.0)
    before = estimator.state()
    for damage in ({"waits": [-1.0]}, {"above": -1}, {"below": "x"}):
        with pytest.raises(InvalidInput):
            estimator.restore(before | damage)
        assert estimator.state() == before
