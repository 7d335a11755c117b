import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.rounds import Rounds

CHARGES = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1, allow_nan=False)), max_size=200)


def literal(alternatives, gamma, charges):
    """Algorithm 1 as printed, in plain probabilities: yields them and whether a round closed."""
    probabilities, losses = np.full(alternatives, 1 / alternatives), np.zeros(alternatives)
    for alternative, loss in charges:
        losses[alternative] += loss
        closed = losses.max() > 1
        if closed:
            probabilities = probabilities * np.exp(-gamma * losses)
            probabilities /= probabilities.sum()
            losses = np.zeros(alternatives)
        yield probabilities, closed


@given(CHARGES, st.floats(0.1, 3))
def test_rounds_are_the_printed_algorithm(charges, gamma):
    rounds, closed_rounds = Rounds(5, gamma), 0
    for (alternative, loss), (probabilities, closed) in zip(charges, literal(5, gamma, charges), strict=True):
        assert rounds.charge(alternative, loss) == closed
        closed_rounds += closed
        assert rounds.probabilities == pytest.approx(probabilities.tolist())
        assert max(rounds.losses) <= 1
    assert rounds.closed == closed_rounds


def test_a_round_closes_when_a_loss_passes_1_not_when_it_reaches_it():
    rounds = Rounds(3)
    assert not rounds.charge(0, 1.0)
    assert not rounds.charge(1, 0.5)
    assert not rounds.charge(1, 0.5)
    assert rounds.probabilities == pytest.approx([1 / 3] * 3)
    assert rounds.charge(1, 1e-9)
    assert rounds.losses == [0.0, 0.0, 0.0]
    assert rounds.closed == 1


def test_weights_stay_a_distribution_after_100_000_losses():
    rounds = Rounds(53)
    for number in range(100_000):
        rounds.charge(number % 52, 1.0)
    probabilities = rounds.probabilities
    assert sum(probabilities) == pytest.approx(1)
    assert probabilities[52] == pytest.approx(1)
    assert all(np.isfinite(rounds.log_weights))
    for _ in range(100_000):
        rounds.charge(52, 1.0)
    assert sum(rounds.probabilities) == pytest.approx(1)
    assert rounds.probabilities[52] == 0


def test_pick_follows_the_probabilities_and_never_what_has_none():
    rounds = Rounds(4)
    rounds.restore([0.0, -2000.0, -1.0, -2000.0], [0.0] * 4, closed=9)
    picks = [rounds.pick(uniform) for uniform in (np.arange(10_000) / 10_000).tolist()]
    assert np.bincount(picks, minlength=4) / 10_000 == pytest.approx(rounds.probabilities, abs=1e-4)
    assert rounds.pick(1 - 2**-53) == 2


@pytest.mark.parametrize(("best", "rest", "alternatives"), [(0.4, 0.6, 2), (0.1, 0.99, 53), (0.4, 0.99, 53)])
def test_shares_settle_where_they_are_proportional_to_one_over_the_loss(best, rest, alternatives):
    # Without importance weights a logarithm falls at the rate share times expected loss, and all are in balance
    # where these products are equal. So the best alternative is not found unless it never loses.
    means = np.array([best] + [rest] * (alternatives - 1))
    law = (1 / best) / (1 / means).sum()
    shares = [_mean_share_of_the_first(means, jobs=12_000, seed=seed) for seed in range(3)]
    assert np.mean(shares) == pytest.approx(law, rel=0.12)


def _mean_share_of_the_first(means, jobs, seed):
    rng = np.random.default_rng(seed)
    rounds, shares = Rounds(len(means)), []
    share = 1 / len(means)
    for pick, coin in zip(rng.random(jobs).tolist(), rng.random(jobs).tolist(), strict=True):
        alternative = rounds.pick(pick)
        if rounds.charge(alternative, float(coin < means[alternative])):
            share = rounds.probabilities[0]
        shares.append(share)
    return float(np.mean(shares[jobs // 4 :]))


@pytest.mark.parametrize(
    "options", [{"alternatives": 1}, {"alternatives": 3, "gamma": 0}, {"alternatives": 3, "gamma": np.inf}]
)
def test_bounds_of_the_options(options):
    with pytest.raises(InvalidInput):
        Rounds(**options)
