"""The suite finds sharing rules that break a promise."""

import pytest

from asa.core.decision import Start
from asa.core.sharing import Evict, SetShare, StartGuest, first_fit
from asa.testing.sharing import check_sharing_rule


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
