import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.fixedshare import FixedShare
from asa.estimators.loss import PAPER_GRID, pinball, with_zero
from asa.estimators.regret import best_switching, loss_table

GRID = with_zero(PAPER_GRID)
SMALL = (0.0, 60.0, 600.0, 6000.0)
WAITS = st.lists(st.floats(0, 1e7, allow_nan=False), max_size=40)


def reference_weights(waits, grid, eta, alpha, tau=0.5):
    """The update as it is written down, one alternative at a time, in plain probabilities."""
    weights = [1 / len(grid)] * len(grid)
    for wait in waits:
        losses = []
        for alternative in grid:
            difference = math.log(wait + 60) - math.log(alternative + 60)
            losses.append(min(1, 2 / math.log(100) * max(tau * difference, (tau - 1) * difference)))
        weights = [weight * math.exp(-eta * loss) for weight, loss in zip(weights, losses, strict=True)]
        total = sum(weights)
        weights = [(1 - alpha) * weight / total + alpha / len(grid) for weight in weights]
    return weights


@given(WAITS, st.floats(1, 40), st.floats(0.001, 0.5), st.floats(0.05, 0.95))
def test_weights_are_those_of_the_definition(waits, eta, alpha, tau):
    estimator = FixedShare(eta=eta, alpha=alpha, tau=tau)
    for wait in waits:
        estimator.learn(wait)
    assert estimator.weights.tolist() == pytest.approx(reference_weights(waits, GRID, eta, alpha, tau), rel=1e-6)


@given(WAITS, st.floats(0.05, 0.95))
def test_the_prediction_is_the_quantile_of_the_weights(waits, quantile):
    estimator = FixedShare(quantile=quantile)
    for wait in waits:
        estimator.learn(wait)
    index = GRID.index(estimator.predict())
    weights = estimator.weights
    assert weights[: index + 1].sum() >= quantile - 1e-9
    assert weights[:index].sum() <= quantile + 1e-9


@given(WAITS)
def test_weights_stay_a_distribution_that_rules_nothing_out(waits):
    estimator = FixedShare(eta=1e6)
    for wait in waits:
        estimator.learn(wait)
    assert estimator.weights.sum() == pytest.approx(1)
    assert not waits or estimator.weights.min() >= 0.01 / len(GRID) * (1 - 1e-9)


def test_no_underflow_after_100_000_losses():
    estimator = FixedShare()
    for _ in range(100_000):
        estimator.learn(1e5)
    assert estimator.weights.sum() == pytest.approx(1)
    estimator.learn(20.0)
    estimator.learn(20.0)
    assert estimator.predict() == 20.0


@given(WAITS, WAITS)
def test_a_restored_estimator_goes_on_like_its_author(before, after):
    author, reader = FixedShare(), FixedShare()
    for wait in before:
        author.learn(wait)
    reader.restore(json.loads(json.dumps(author.state())))
    for wait in after:
        assert reader.predict() == author.predict()
        author.learn(wait)
        reader.learn(wait)
    assert reader.state() == author.state()


@given(st.floats(0, 1e6), st.integers(2, 10), st.floats(0, 1e5))
def test_what_was_predicted_does_not_matter(wait, count, predicted):
    with_prediction, without = FixedShare(), FixedShare()
    for _ in range(count):
        with_prediction.learn(wait, predicted)
        without.learn(wait)
    assert with_prediction.state() == without.state()


@settings(max_examples=30)
@given(st.lists(st.sampled_from((0.0, 50.0, 700.0, 5000.0)), min_size=1, max_size=5), st.floats(0.5, 30))
def test_the_weights_are_bayes_rule_over_all_sequences_of_alternatives(waits, eta):
    # Fixed share mixes all m ** t sequences at once. Here they are enumerated, with the prior of a Markov chain
    # that stays with probability 1 - alpha + alpha / m, and its mixture loss and posterior are compared.
    alpha, m = 0.2, len(SMALL)
    losses = loss_table(SMALL, waits, pinball)
    stay, move = 1 - alpha + alpha / m, alpha / m
    mixture, posterior = 0.0, np.zeros(m)
    for path in itertools.product(range(m), repeat=len(waits) + 1):
        steps = list(itertools.pairwise(path))
        prior = 1 / m * math.prod(stay if before == after else move for before, after in steps)
        weight = prior * math.exp(-eta * sum(losses[job, path[job]] for job in range(len(waits))))
        mixture += weight
        posterior[path[-1]] += weight
    estimator = FixedShare(grid=SMALL, eta=eta, alpha=alpha)
    assert _mixture_loss(estimator, waits, losses, eta) == pytest.approx(-math.log(mixture) / eta)
    assert estimator.weights == pytest.approx(posterior / mixture)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from((0.0, 50.0, 700.0, 5000.0)), st.integers(1, 12)), min_size=1, max_size=6),
    st.floats(0.5, 30),
    st.floats(0.01, 0.5),
)
def test_the_tracking_bound_of_herbster_and_warmuth(levels, eta, alpha):
    waits = [wait for wait, jobs in levels for _ in range(jobs)]
    losses, jobs, m = loss_table(SMALL, waits, pinball), len(waits), len(SMALL)
    estimator = FixedShare(grid=SMALL, eta=eta, alpha=alpha)
    incurred = _mixture_loss(estimator, waits, losses, eta)
    for switches in range(min(jobs, 6)):
        cost = math.log(m) + switches * math.log(m / alpha) - (jobs - 1 - switches) * math.log(1 - alpha + alpha / m)
        assert incurred <= best_switching(losses, switches) + cost / eta + 1e-9


def _mixture_loss(estimator, waits, losses, eta):
    total = 0.0
    for wait, row in zip(waits, losses, strict=True):
        total -= math.log(estimator.weights @ np.exp(-eta * row)) / eta
        estimator.learn(wait)
    return total


@pytest.mark.parametrize(("tau", "share"), [(0.2, 0.2), (0.5, 0.5), (0.8, 0.8)])
def test_tau_sets_how_often_the_wait_is_over_predicted(tau, share):
    waits = np.exp(np.random.default_rng(0).normal(7, 0.8, 3000))
    estimator, over = FixedShare(eta=3, alpha=0.001, tau=tau), []
    for wait in waits:
        over.append(estimator.predict() >= wait)
        estimator.learn(wait)
    assert np.mean(over[200:]) == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(
    "options",
    [{"eta": 0}, {"alpha": 0}, {"alpha": 1}, {"tau": 0}, {"tau": 1.5}, {"quantile": 1}, {"grid": [5, 5]}],
)
def test_bounds_of_the_options(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        FixedShare(**options)


def test_a_state_of_another_grid_is_refused():
    with pytest.raises(InvalidInput, match="learned on a grid of 4 alternatives"):
        FixedShare().restore(FixedShare(grid=SMALL).state())


@pytest.mark.parametrize("weights", [[0.0] * 4, [1.0] * 3, [1.0, 1.0, 1.0, float("inf")]])
def test_a_damaged_state_is_refused_and_changes_nothing(weights):
    estimator = FixedShare(grid=SMALL)
    before = estimator.state()
    with pytest.raises(InvalidInput, match="weights"):
        estimator.restore(before | {"weights": weights})
    assert estimator.state() == before


@given(WAITS, st.lists(st.floats(0.01, 0.99), min_size=2, max_size=5))
def test_quantiles_are_those_of_the_weights_and_in_order(waits, quantiles):
    estimator = FixedShare(eta=8.0)
    for wait in waits:
        estimator.learn(wait)
    said = [estimator.predict(None, quantile) for quantile in sorted(quantiles)]
    assert said == sorted(said)
    for quantile in quantiles:
        assert (
            estimator.predict(None, quantile)
            == estimator.grid[
                next(place for place, share in enumerate(np.cumsum(estimator.weights)) if share >= quantile - 1e-12)
            ]
        )


def test_predictions_need_no_numba():
    code = (
        "import sys; from asa.estimators.fixedshare import FixedShare; FixedShare().predict(); "
        "print('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
