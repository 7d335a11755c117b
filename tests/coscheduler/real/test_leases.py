import math

import pytest

from asa.core.errors import BackendError
from coscheduler.real.gangs import AGAIN_S, LEASE_S, RENEW_S, Leases


class Asked:
    """A machine that notes what it is asked for."""

    def __init__(self):
        self.asked, self.fails = [], False

    def share(self, *what):
        self.asked.append(what)
        if self.fails:
            raise BackendError("the agent does not answer", transient=True)


@pytest.fixture
def machine():
    return Asked()


def test_what_containers_begin_with(machine):
    leases = Leases(machine)
    assert leases.begin("host", 4, guest=False, limit=4.0) == (pytest.approx(3.6), 4.0)
    assert leases.begin("guest", 2, guest=True, limit=4.0) == (pytest.approx(0.1), 4.0)
    leases.want("host", 4 * 0.95, 4.0, now=0.0)
    assert machine.asked == [], "nearly what it has"
    assert leases.due() == math.inf


def test_what_is_leased_is_asked_for_again_until_it_is_not_wanted(machine):
    leases = Leases(machine)
    leases.begin("host", 4, guest=False, limit=4.0)
    leases.want("host", 2.0, 4.0, now=10.0)
    leases.want("host", 2.0, 4.0, now=10.5)
    assert machine.asked == [("host", 2.0, 4.0, LEASE_S)], "once"
    assert leases.due() == 10 + RENEW_S
    leases.renew(11.0)
    leases.renew(12.0)
    assert len(machine.asked) == 2
    leases.want("host", 4.0, 4.0, now=13.0)
    assert machine.asked[-1] == ("host", pytest.approx(3.6), 4.0, 0.0)
    assert leases.due() == math.inf


def test_an_agent_that_does_not_answer_is_asked_again(machine):
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=4.0)
    machine.fails = True
    leases.want("guest", 2.0, 4.0, now=0.0)
    leases.renew(RENEW_S)
    assert len(machine.asked) == 2


def test_an_heir_has_its_cores_for_good(machine):
    leases = Leases(machine)
    leases.begin("guest", 4, guest=True, limit=2.0)
    leases.want("guest", 2.0, 2.0, now=0.0)
    leases.inherit("guest", 4, 4.0, now=1.0)
    assert machine.asked[-1] == ("guest", pytest.approx(3.6), 4.0, None)
    leases.renew(1.0 + AGAIN_S)
    assert machine.asked[-2:] == [machine.asked[-1]] * 2, "told again: it may not have been heard"
    leases.want("guest", 2.0, 4.0, now=20.0)
    leases.want("guest", 4.0, 4.0, now=21.0)
    assert leases.due() == 21.0 + AGAIN_S
    leases.end("guest")
    count = len(machine.asked)
    leases.renew(100.0)
    assert len(machine.asked) == count
