import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from coscheduler.algorithm import Mixture, Weights
from coscheduler.nouns import ACTIONS
from coscheduler.registry import EXPERTS
from coscheduler.testing import job_states

M = len(ACTIONS)


class Fixed:
    """An expert with the same vote on every job."""

    def __init__(self, votes):
        self.votes = np.asarray(votes, dtype=float) / np.sum(votes)

    def vote(self, states):
        return np.tile(self.votes, (len(states), 1))


def always(action):
    return Fixed(np.eye(M)[action])


def one(mixture, loss, job="job"):
    """A decision about one job and its loss; what was chosen."""
    states = job_states(1)
    choice = mixture.choose(("app",), np.zeros(1, dtype=int), states)
    mixture.hold([job], ["app"], choice, np.array([0]), states)
    mixture.settle(job, loss(int(choice.actions[0])))
    return choice


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.floats(0.05, 2), st.integers(0, 2**32 - 1), st.booleans())
def test_theorem_1_holds_for_realised_actions_and_a_constant_rate(n, gamma, seed, adversarial):
    """E = sum alpha_i p_i(x) l(a) - min_i sum p_i(x) l(a), over T closed rounds, is at most ln n / gamma + T gamma / 2.

    A risk is at most 2 when its round ends: it was at most 1 before the last case.
    """
    rng = np.random.default_rng(seed)
    experts = {f"e{i}": Fixed(rng.dirichlet(np.full(M, 0.3))) for i in range(n)}
    mixture = Mixture(experts, gamma=gamma, seed=seed)
    losses = rng.random(M)
    mixed, single, open_mixed, open_single = 0.0, np.zeros(n), 0.0, np.zeros(n)
    for _ in range(120):
        weights = mixture.weights("app")
        alpha, rounds = weights.shares, weights.rounds
        favourite = list(experts.values())[int(alpha.argmax())].votes

        def loss(action, favourite=favourite):
            return float(favourite[action] >= 0.1) if adversarial else float(losses[action])

        choice = one(mixture, loss)
        action = int(choice.actions[0])
        risk = choice.votes[:, 0, action] * loss(action)
        open_mixed, open_single = open_mixed + alpha @ risk, open_single + risk
        assert open_single.max() <= 2
        if mixture.weights("app").rounds > rounds:
            mixed, single = mixed + open_mixed, single + open_single
            open_mixed, open_single = 0.0, np.zeros(n)
    closed = mixture.weights("app").rounds
    assert mixed - single.min() <= (np.log(n) + closed * gamma**2 / 2) / gamma + 1e-9


def regrets(weights, risks):
    """The excess risk, and that weighted by the rates (the paper's inequality 11); the bound of the latter."""
    n = len(weights.risk)
    mixed, single, weighted_mixed, weighted_single, squares = 0.0, np.zeros(n), 0.0, np.zeros(n), 0.0
    for risk in risks:
        alpha, rate, before = weights.shares, weights.rate, weights.rounds
        mixed, single = mixed + alpha @ risk, single + risk
        weighted_mixed, weighted_single = weighted_mixed + rate * alpha @ risk, weighted_single + rate * risk
        weights.charge(risk)
        squares += rate**2 if weights.rounds > before else 0.0
    assert not weights.risk.any(), "whole rounds only"
    return mixed - single.min(), weighted_mixed - weighted_single.min(), np.log(n) + squares / 2


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 2), st.floats(0.1, 1), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_for_other_rates_the_weighted_sum_is_bounded(gamma, decay, n, seed):
    rng = np.random.default_rng(seed)
    worst = rng.integers(n, size=200)
    risks = [risk for each in worst for risk in (np.eye(n)[each], np.eye(n)[each])]  # 1 + 1 ends a round
    _, weighted, bound = regrets(Weights(n, gamma, decay), risks)
    assert weighted <= bound + 1e-9


def test_for_falling_rates_theorem_1_does_not_hold():
    """The best expert changes: what was learned with high rates is unlearned with low ones, too slowly."""
    rounds = 1600
    losers = [1] * (rounds // 4) + [0] * (3 * rounds // 4)
    risks = [np.eye(2)[each] for each in losers for _ in range(2)]
    excess, _, bound = regrets(Weights(2, 1.0, 0.5), risks)
    assert excess > 5 * bound / (rounds**-0.5)


def test_a_round_ends_when_a_risk_has_passed_one():
    mixture = Mixture({"shy": always(0), "bold": always(9)}, seed=1)
    weights = []
    while mixture.weights("app").rounds == 0:
        choice = one(mixture, lambda action: 0.6 * (action == 9))
        weights.append(choice.weights[0].tolist())
    assert weights == [[0.5, 0.5]] * len(weights)
    assert mixture.weights("app").shares[1] == pytest.approx(1 / (1 + np.exp(1.2)))


def test_a_loss_comes_late_and_teaches_once():
    mixture = Mixture({"shy": always(0), "bold": always(9)})
    states = job_states(3)
    choice = mixture.choose(("a", "b"), np.array([0, 1, 0]), states)
    mixture.hold(["host"] * 3, ["a"] * 3, choice, np.arange(3), states)
    assert not mixture.weights("a").risk.any()
    assert mixture.settle("nobody", 1.0) == 0
    assert mixture.settle("host", 0.1) == 3
    assert mixture.settle("host", 0.1) == 0
    assert mixture.weights("a").risk.sum() == pytest.approx(0.3)


def test_what_nobody_knows_teaches_nothing():
    mixture = Mixture({"bold": always(9)})
    states = job_states(1)
    choice = mixture.choose(("a",), np.zeros(1, dtype=int), states)
    mixture.hold(["host"], ["a"], choice, np.array([0]), states)
    assert mixture.settle("host", None) == 0
    assert mixture.state()["pending"] == {}
    with pytest.raises(InvalidInput, match=r"loss is 1\.5"):
        mixture.settle("host", 1.5)


def test_a_new_application_begins_with_everybodys_weights():
    mixture = Mixture({"shy": always(0), "bold": always(9)})
    for _ in range(30):
        one(mixture, lambda action: float(action == 9))
    learned = mixture.weights("app").shares
    assert learned[0] > 0.9
    assert mixture.weights("never seen").shares == pytest.approx(learned)


def test_importance_weights_divide_by_the_probability_and_are_clipped():
    plain, weighted = (
        Mixture({"even": Fixed(np.ones(M)), "bold": always(9)}, importance=importance, clip=3.0)
        for importance in (False, True)
    )
    for mixture in (plain, weighted):
        mixture.stream = Always(0.01)  # the first action, which only the even expert may take: probability 0.05
        assert one(mixture, lambda _: 0.2).actions[0] == 0
    assert plain.weights("app").risk.tolist() == pytest.approx([0.02, 0])
    assert weighted.weights("app").risk.tolist() == pytest.approx([0.06, 0])


class Always:
    def __init__(self, value):
        self.value = value

    def draw(self, count):
        return [self.value] * count


def test_actions_are_drawn_from_the_mixture():
    rng = np.random.default_rng(3)
    mixture = Mixture({f"e{i}": Fixed(rng.dirichlet(np.ones(M))) for i in range(3)}, seed=5)
    jobs = 20_000
    choice = mixture.choose(("a",), np.zeros(jobs, dtype=int), job_states(jobs))
    shares = np.bincount(choice.actions, minlength=M) / jobs
    assert shares == pytest.approx(choice.mixture[0], abs=4 * np.sqrt(0.25 / jobs))


def test_a_restored_mixture_goes_on_like_its_author():
    def made(seed):
        return Mixture({name: EXPERTS.create(name) for name in ("cpu", "memory", "contention")}, seed=seed)

    author = made(1)
    states = job_states(20)
    choice = author.choose(("a", "b"), np.arange(20) % 2, states)
    author.hold([f"job{row}" for row in range(20)], ["a", "b"] * 10, choice, np.arange(20), states)
    for row in range(10):
        author.settle(f"job{row}", 0.9)
    reader = made(2)
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    for mixture in (author, reader):
        for row in range(10, 20):
            mixture.settle(f"job{row}", 0.7)
    assert reader.state() == author.state()
    pair = [mixture.choose(("a",), np.zeros(20, dtype=int), states) for mixture in (author, reader)]
    assert pair[0].actions.tolist() == pair[1].actions.tolist()


def test_a_state_of_other_experts_is_refused():
    with pytest.raises(InvalidInput, match="expected those of"):
        Mixture({"a": always(0)}).restore(Mixture({"b": always(0)}).state())
    with pytest.raises(InvalidInput, match="no experts"):
        Mixture({})


def test_a_vote_that_is_no_distribution_is_found():
    class Wrong:
        def vote(self, states):
            return np.zeros((len(states), M))

    with pytest.raises(InvalidInput, match="'wrong' voted with what is no distribution"):
        Mixture({"wrong": Wrong()}).choose(("a",), np.zeros(1, dtype=int), job_states(1))
