"""Every estimator keeps the promises of the port, and the suite notices one that does not."""

import json
import math
from collections import deque

import pytest

from asa.core.registry import ESTIMATORS as ESTIMATOR_NAMES
from asa.estimators.algorithm1 import Algorithm1
from asa.estimators.baselines import Last, Mean, Median, Qbets, Zero
from asa.estimators.fixedshare import FixedShare
from asa.testing import estimators as suite

ESTIMATORS = {
    "zero": lambda seed: Zero(seed=seed),
    "last": lambda seed: Last(seed=seed),
    "median": lambda seed: Median(seed=seed),
    "mean": lambda seed: Mean(seed=seed),
    "qbets": lambda seed: Qbets(seed=seed),
    "fixed-share": lambda seed: FixedShare(seed=seed),
    "fixed-share-asymmetric": lambda seed: FixedShare(seed=seed, eta=8, alpha=0.02, tau=0.8, quantile=0.3),
    "planned": lambda seed: ESTIMATOR_NAMES.create("planned", seed=seed),
    "context": lambda seed: ESTIMATOR_NAMES.create("context", seed=seed),
    "default": lambda seed: Algorithm1(seed=seed),
    "tuned": lambda seed: Algorithm1(seed=seed, sampling="tuned"),
    "greedy": lambda seed: Algorithm1(seed=seed, sampling="greedy"),
    "graded": lambda seed: Algorithm1(seed=seed, sampling="tuned", loss="log", replay=5, gamma=2, grid=(0, 9, 99)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, name):
    check(ESTIMATORS[name])


class Negative(Last):
    def predict(self, context=None, quantile=None):
        return -1.0


class Impure(Median):
    def predict(self, context=None, quantile=None):
        self._waits.append(1.0)
        return 1.0


class Forgetful(Last):
    def restore(self, state):
        pass


class Shared(Zero):
    def __init__(self, seed=0):
        self.kept = {"count": 0}

    def learn(self, wait_s, predicted_s=None, context=None):
        super().learn(wait_s)
        self.kept["count"] += 1

    def state(self):
        return self.kept

    def restore(self, state):
        self.kept = state


class Unseeded(Last):
    instances = 0

    def __init__(self, seed=0):
        super().__init__(seed=seed)
        Unseeded.instances += 1
        self.offset = float(Unseeded.instances)

    def predict(self, context=None, quantile=None):
        return self.offset


class Needy(Last):
    """Takes it that a context tells everything."""

    def predict(self, context=None, quantile=None):
        return super().predict() if context is None else context.backlog_s / 2


class Blind(Last):
    """Cannot do without a context."""

    def predict(self, context=None, quantile=None):
        return super().predict() + 0.0 * context.at


class Upside(Last):
    """Takes the share of longer waits for that of shorter ones."""

    def predict(self, context=None, quantile=0.5):
        return super().predict() * (1 - (quantile or 0.5))


class Nosy(Last):
    """Learns from the contexts that it is asked about."""

    def __init__(self, seed=0):
        super().__init__(seed=seed)
        self.seen = 0.0

    def predict(self, context=None, quantile=None):
        if context is not None:
            self.seen = max(self.seen, context.at)
        return super().predict()

    def state(self):
        return super().state() | {"seen": self.seen}

    def restore(self, state):
        super().restore(state)
        self.seen = state["seen"]


class Eager(Nosy):
    """As nosy, but only about quantiles."""

    def predict(self, context=None, quantile=None):
        return super().predict(context if quantile else None)


class Absent(Last):
    """Keeps what it learns from contexts out of its state."""

    def __init__(self, seed=0):
        super().__init__(seed=seed)
        self.busy = 0.0

    def learn(self, wait_s, predicted_s=None, context=None):
        super().learn(wait_s)
        if context is not None:
            self.busy = context.backlog_s or self.busy

    def predict(self, context=None, quantile=None):
        return self.busy if context is not None else super().predict()


class Aloof(Last):
    """Forgets when it is copied or pickled."""

    def __reduce__(self):
        return (Aloof, ())


class Twin(Last):
    """Shares what it knows with its copies."""

    def __deepcopy__(self, memo):
        return self


class Album(Last):
    """Keeps the context of every job, though not in its state."""

    def __init__(self, seed=0):
        super().__init__(seed=seed)
        self.contexts = []

    def learn(self, wait_s, predicted_s=None, context=None):
        super().learn(wait_s)
        if context is not None:
            self.contexts.append(context)


class Hoarder(Last):
    def __init__(self, seed=0):
        super().__init__(seed=seed)
        self._waits = deque()


class Proud(Last):
    def learn(self, wait_s, predicted_s=None, context=None):
        if predicted_s is not None and predicted_s > 1e6:
            raise RuntimeError("I would never have said that")
        super().learn(wait_s)


class Credulous(Last):
    def learn(self, wait_s, predicted_s=None, context=None):
        self._waits.append(wait_s)


class Hasty(Last):
    def learn(self, wait_s, predicted_s=None, context=None):
        self._waits.append(wait_s if math.isfinite(wait_s) else 0.0)
        super().learn(wait_s)


class Nan(Last):
    def state(self):
        return {"waits": [math.nan]}


@pytest.mark.parametrize(
    ("broken", "check", "error"),
    [
        (Negative, suite.check_predictions, AssertionError),
        (Needy, suite.check_contexts, TypeError),
        (Blind, suite.check_contexts, AttributeError),
        (Upside, suite.check_quantiles, AssertionError),
        (Impure, suite.check_predict_is_pure, AssertionError),
        (Nosy, suite.check_predict_is_pure, AssertionError),
        (Eager, suite.check_predict_is_pure, AssertionError),
        (Forgetful, suite.check_state_round_trip, AssertionError),
        (Nan, suite.check_state_round_trip, ValueError),
        (Absent, suite.check_state_round_trip, AssertionError),
        (Aloof, suite.check_copies, AssertionError),
        (Twin, suite.check_copies, AssertionError),
        (Shared, suite.check_state_is_a_copy, AssertionError),
        (Unseeded, suite.check_seed, AssertionError),
        (Hoarder, suite.check_state_is_bounded, AssertionError),
        (Album, suite.check_state_is_bounded, AssertionError),
        (Proud, suite.check_late_feedback, RuntimeError),
        (Credulous, suite.check_rejects, AssertionError),
        (Hasty, suite.check_rejects, AssertionError),
    ],
)
def test_the_suite_notices_what_is_broken(broken, check, error):
    with pytest.raises(error):
        check(lambda seed: broken(seed=seed))
    with pytest.raises((AssertionError, AttributeError, RuntimeError, TypeError, ValueError)):
        suite.check_estimator(lambda seed: broken(seed=seed))


def test_one_that_draws_may_say_anything_of_quantiles():
    suite.check_quantiles(ESTIMATORS["default"])


def test_a_class_that_cannot_be_imported_is_not_pickled():
    class Inner(Last):
        def __reduce__(self):
            raise AssertionError("pickled")

        def __deepcopy__(self, memo):
            copied = Inner()
            copied.restore(self.state())
            return copied

    suite.check_copies(lambda seed: Inner(seed=seed))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "zero"])
def test_an_incomplete_state_is_refused_and_changes_nothing(name):
    estimator = ESTIMATORS[name](0)
    estimator.learn(100.0)
    before = json.dumps(estimator.state())
    for key in estimator.state():
        incomplete = {other: value for other, value in estimator.state().items() if other != key}
        with pytest.raises(ValueError, match=f"no '{key}'"):
            estimator.restore(incomplete)
        assert json.dumps(estimator.state()) == before
