"""Which cores jobs have, and with which share."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import BackendError
from coscheduler.real.gangs import AGAIN_S, LEASE_S, RENEW_S, Leases, NodeCores, Places
from tests.coscheduler.real.fake_machine import nodes


def test_the_smallest_gap_that_is_large_enough():
    places = Places(nodes(3, cores=4))
    places.own("a", 3)
    assert places.own("b", 2) == (NodeCores("n1", 2),)
    assert places.own("c", 1) == (NodeCores("n0", 1),)
    assert places.own("d", 6) == (NodeCores("n2", 4), NodeCores("n1", 2))


def test_guests_beside_one_another():
    places = Places(nodes(2, cores=2))
    places.own("host", 4)
    assert places.beside("a", 3, "host", []) == (NodeCores("n1", 2), NodeCores("n0", 1))
    assert places.beside("c", 1, "host", ["a"]) == (NodeCores("n0", 1),)
    assert places.on("n0") == ["a", "c", "host"], "guests first"


def test_a_node_that_is_lost():
    places = Places(nodes(2, cores=2))
    places.own("a", 1)
    places.lose("n1")
    assert places.own("b", 1) == (NodeCores("n0", 1),)
    places.leave("a")
    places.join("n1", 2)
    assert places.own("c", 3) == (NodeCores("n1", 2), NodeCores("n0", 1))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=30))
def test_no_core_belongs_to_two(steps):
    """Owners come, take guests, leave, and guests inherit: no core has two owners, nor two guests of one host."""
    size, places = {node.name: node.cores for node in nodes(3, cores=3)}, Places(nodes(3, cores=3))
    owners, guests = {}, {}
    for number, (cores, choice) in enumerate(steps):
        name, free = f"j{number}", sum(size.values()) - sum(owners.values())
        if 0 < cores <= free:
            places.own(name, cores)
            owners[name] = cores
        elif cores and owners:
            host = sorted(owners)[choice % len(owners)]
            beside = [guest for guest, its in guests.items() if its == host]
            if cores <= owners[host] - sum(place.cores for guest in beside for place in places[guest]):
                places.beside(name, cores, host, beside)
                guests[name] = host
        elif owners:
            host = sorted(owners)[choice % len(owners)]
            places.leave(host)
            del owners[host]
            for guest in [guest for guest, its in guests.items() if its == host]:
                places.inherit(guest)
                owners[guest] = sum(place.cores for place in places[guest])
                del guests[guest]
        for who in (owners, *({g for g, h in guests.items() if h == host} for host in owners)):
            used = Counter()
            for job in who:
                used.update({place.node: place.cores for place in places[job]})
            assert all(count <= size[node] for node, count in used.items())
    assert sum(owners.values()) <= sum(size.values())


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
