"""The suite finds experts that break a promise."""

import numpy as np
import pytest

from asa.core.sharing import ACTIONS
from asa.testing.experts import CHECKS, check_expert


class Even:
    def vote(self, states):
        return np.full((len(states), len(ACTIONS)), 1 / len(ACTIONS))


class TooMuch(Even):
    def vote(self, states):
        return 1.1 * super().vote(states)


class Crowd(Even):
    def vote(self, states):
        votes = np.full((len(states), len(ACTIONS)), 0.05)
        votes[:, len(states) % len(ACTIONS)] += 0.5
        return votes


class Moody(Even):
    calls = 0

    def vote(self, states):
        self.calls += 1
        return np.roll(np.eye(len(ACTIONS)), self.calls, axis=0)[np.zeros(len(states), dtype=int)]


class Forgetful(Even):
    def __init__(self):
        self.action = 0

    def vote(self, states):
        return np.eye(len(ACTIONS))[np.full(len(states), self.action)]

    def learn(self, states, action, loss):
        self.action = action

    def state(self):
        return {}

    def restore(self, state):
        pass


def test_a_good_expert_passes():
    check_expert(Even)


@pytest.mark.parametrize("broken", [TooMuch, Crowd, Moody, Forgetful])
def test_a_broken_expert_is_found(broken):
    with pytest.raises(AssertionError):
        check_expert(broken)


def test_every_check_is_needed():
    """Each check finds one that passes the checks before it."""
    for check, broken in zip(CHECKS, (TooMuch, Crowd, Moody, Forgetful), strict=True):
        with pytest.raises(AssertionError):
            check(broken)
