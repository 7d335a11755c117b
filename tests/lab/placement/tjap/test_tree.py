from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.core.compiled import compiled
from asa.lab.placement.tjap.cost import job_cost
from asa.lab.placement.tjap.tree import add_potential, cheapest, hops, tree_of
from tests.lab.placement.brute import UNTIMED
from tests.lab.placement.tjap.windows import windows


@compiled
def solve(t, size, room, price, answer):
    return cheapest(tree_of(t, size), size, room, price, answer)


@compiled
def of_hops(t, size, has):
    return hops(tree_of(t, size), size, has, np.zeros(len(has), np.int64))


@compiled
def lost(t, room, price):
    return add_potential(tree_of(t, 1), room, np.zeros(len(room), np.int64), price)


def places(window, has):
    """The first idle nodes of each leaf switch."""
    leaf = window.tables.groups[0]
    return np.concatenate([np.flatnonzero(leaf == k)[:count] for k, count in enumerate(has)])


@given(windows(most_idle=9, most_jobs=1), st.data())
@UNTIMED
def test_one_job_goes_where_it_costs_least(window, data):
    """All ways to take nodes of leaf switches, some of which are gone, at any prices."""
    rooms = np.bincount(window.tables.groups[0])
    left = np.array([data.draw(st.integers(0, count)) for count in rooms.tolist()])
    size = data.draw(st.integers(1, max(1, int(left.sum()))))
    if size > left.sum():
        return
    price = np.array(data.draw(st.lists(st.floats(0, 2000), min_size=len(rooms), max_size=len(rooms))))
    paid = {
        has: job_cost(window, places(window, has)) + float(price @ np.array(has))
        for has in product(*(range(count + 1) for count in left.tolist()))
        if sum(has) == size
    }
    answer = np.zeros(len(rooms), dtype=np.int64)
    value = solve(window.tables, size, left, price, answer)
    assert value == pytest.approx(min(paid.values())) and paid[tuple(answer.tolist())] == pytest.approx(value)
    assert of_hops(window.tables, size, answer) + price @ answer == pytest.approx(value)


@given(windows(most_jobs=1), st.lists(st.floats(0, 2), min_size=2, max_size=2), st.data())
@UNTIMED
def test_what_a_job_takes_from_the_potential(window, worth, data):
    """With prices of first nodes, what it costs is its hops and what the potential loses."""
    window = replace(window, potential=tuple(worth))
    rooms = np.bincount(window.tables.groups[0])
    has, price, after = np.zeros_like(rooms), np.zeros(len(rooms)), np.zeros(len(rooms))
    before = lost(window.tables, rooms, price)
    size = data.draw(st.integers(1, len(window.idle)))
    value = solve(window.tables, size, rooms, price, has)
    gone = before - lost(window.tables, rooms - has, after)
    assert value == pytest.approx(of_hops(window.tables, size, has) + gone, abs=1e-6)
