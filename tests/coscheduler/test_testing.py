"""The conformance suites find experts and sharing rules that break a promise."""

import numpy as np
import pytest

from asa.core.decision import Start
from coscheduler.nouns import ACTIONS, Evict, SetShare, StartGuest, first_fit
from coscheduler.registry import EXPERTS, SHARING_RULES
from coscheduler.testing import EXPERT_CHECKS, RULE_CHECKS, check_expert, check_sharing_rule

RULES = (
    *SHARING_RULES,
    "space:queue=first-fit",
    "static:hard=true,share=0.9",
    "asax:importance=true,loss=walltime,decay=0.5",
    "asax:experts=cpu+contention",
    "scavenger:guests=3,order=queue",
    "scavenger:worth=100,min_rate=0.01,queue=easy",
)


@pytest.mark.parametrize("check", EXPERT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXPERTS.names())
def test_experts(name, check):
    check(lambda: EXPERTS.create(name))


@pytest.mark.parametrize("check", RULE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("spec", RULES)
def test_sharing_rules(spec, check):
    check(lambda seed: SHARING_RULES.create(spec, seed=seed))


class Even:
    def vote(self, states):
        return np.full((len(states), len(ACTIONS)), 1 / len(ACTIONS))


class TooMuch(Even):
    def vote(self, states):
        return 1.1 * super().vote(states)


class Herd(Even):
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


@pytest.mark.parametrize("broken", [TooMuch, Herd, Moody, Forgetful])
def test_a_broken_expert_is_found(broken):
    with pytest.raises(AssertionError):
        check_expert(broken)


def test_every_check_is_needed():
    """Each check finds one that passes the checks before it."""
    for check, broken in zip(EXPERT_CHECKS, (TooMuch, Herd, Moody, Forgetful), strict=True):
        with pytest.raises(AssertionError):
            check(broken)


class Plain:
    def __init__(self, seed=0):
        self.seed = seed

    def decide(self, view):
        return [Start(job.name) for job in first_fit(view.queue, view.free)]

    def learn(self, run):
        pass

    def state(self):
        return {}

    def restore(self, state):
        pass


class Greedy(Plain):
    def decide(self, view):
        return [Start(job.name) for job in view.queue]


class Idle(Plain):
    def decide(self, view):
        return []


class Crusher(Plain):
    def decide(self, view):
        hosts = [name for name, host in zip(view.running.names, view.running.host, strict=True) if host < 0]
        starts = super().decide(view)
        left = [job.name for job in view.queue if Start(job.name) not in starts]
        return [*starts, *(StartGuest(name, host, 0.99) for name, host in zip(left, hosts, strict=False))]


class Confused(Plain):
    def decide(self, view):
        return [*super().decide(view), *(SetShare(name, 0.5) for name in view.running.names[:1])]


class Killer(Plain):
    def decide(self, view):
        return [*super().decide(view), *(Evict(name) for name in view.running.names[:1])]


class Foreign(Plain):
    def decide(self, view):
        return [*super().decide(view), "nothing else"]


class Secretive(Plain):
    runs = 0

    def decide(self, view):
        return super().decide(view)[: 1 + self.runs % 3]

    def learn(self, run):
        self.runs += 1


def test_a_good_rule_passes():
    check_sharing_rule(Plain)


@pytest.mark.parametrize("broken", [Greedy, Idle, Crusher, Confused, Killer, Foreign, Secretive])
def test_a_broken_rule_is_found(broken):
    with pytest.raises(AssertionError):
        check_sharing_rule(broken)
