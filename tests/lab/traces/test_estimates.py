import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.traces.estimates import requested
from asa.lab.traces.modal import HOUR, distribution, popular

runs = st.lists(st.integers(0, 200_000), min_size=1, max_size=300).map(lambda run: np.array(run, dtype=float))


@settings(max_examples=60)
@given(runs, st.sampled_from(["exact", "uniform:1", "uniform:5", "modal", "modal:60"]), st.integers(0, 99))
def test_nobody_requests_less_than_the_job_runs(run, model, seed):
    asked = requested(model, run, np.random.default_rng(seed))
    assert (asked >= run).all()
    assert (asked > 0).all()
    assert (asked == requested(model, run, np.random.default_rng(seed))).all()


def test_exact_requests_are_the_run_times():
    assert requested("exact", np.array([0.0, 7.0]), np.random.default_rng(0)).tolist() == [1, 7]


def test_uniform_requests_are_spread_evenly_up_to_the_factor():
    factor = requested("uniform:3", np.full(50_000, 6e5), np.random.default_rng(1)) / 6e5
    assert np.quantile(factor, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([1, 1.5, 2, 2.5, 3], abs=0.02)


def test_modal_requests_are_few_and_round():
    run = np.exp(np.random.default_rng(2).normal(6, 2, 10_000)).clip(1, 60_000)
    asked = requested("modal:18", run, np.random.default_rng(3))
    values, counts = np.unique(asked, return_counts=True)
    assert len(values) <= 90, "as many as the paper says for 10,000 jobs"
    assert (values % 60 == 0).all()
    assert set(values[np.argsort(-counts)[:15]]) <= set(popular(18 * HOUR))
    assert values[counts.argmax()] == 18 * HOUR, "the longest is the most popular"
    assert np.sort(counts)[-20:].sum() == pytest.approx(8900, abs=150)


def test_the_popular_values_of_a_machine_with_a_limit_of_18_hours():
    head = popular(18 * HOUR)
    assert len(head) == 20
    assert head[0] == 18 * HOUR
    assert head[1:] == sorted(head[1:])
    assert {300, 900, 1800, 3600, 12 * HOUR, 15 * HOUR} <= set(head)


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_shares_sum_to_one_and_values_fall(jobs, hours):
    values, shares = distribution(jobs, hours * HOUR, np.random.default_rng(jobs))
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    assert (np.diff(values) < 0).all()
    assert values[0] == hours * HOUR


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("uniform", "after the colon"),
        ("uniform:x", "after the colon"),
        ("uniform:0.5", "after the colon"),
        ("modal:0", "after the colon"),
        ("modal:2", "longest run"),
        ("exactly", "did you mean 'exact'"),
        ("exact:3", "unknown model of requested times"),
    ],
)
def test_bad_models_are_named(model, words):
    with pytest.raises(InvalidInput, match=words):
        requested(model, np.array([10_000.0]), np.random.default_rng(0))
