from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coscheduler.real.gangs import NodeCores, Places
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
