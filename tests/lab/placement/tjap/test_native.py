from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.lab.core.compiled import compiled
from asa.lab.placement.tjap.cost import job_cost, potential
from asa.lab.placement.tjap.instance import Placed
from asa.lab.placement.tjap.native import all_stretches, below, count_left, draw, stretch, stretches
from tests.lab.placement.tjap.windows import windows


@compiled
def numbers(seed, count, most):
    state, found, whole = np.full(1, seed, np.uint64), np.empty(count), np.empty(count, np.int64)
    for k in range(count):
        found[k] = draw(state)
        whole[k] = below(state, most)
    return found, whole


@compiled
def on_ring(t, ring, size, cost):
    left, seen = np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    worth = count_left(t, ring, len(ring), left)
    stretches(t, ring, len(ring), size, left, seen, cost)
    last = stretch(t, ring, len(ring), len(ring) - 1, size, seen)
    return worth, last, seen.sum()


@given(windows(), st.lists(st.floats(0, 2), max_size=2), st.data())
@settings(max_examples=60, deadline=None)
def test_what_stretches_cost(window, worth, data):
    """Of any ring: hops, and what the potential of the ring loses."""
    window = replace(window, potential=tuple(worth), sizes=np.array([1]))
    ring = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(window.idle))), min_size=1))))
    size = data.draw(st.integers(1, len(ring)))
    others = np.setdiff1d(np.arange(len(window.idle)), ring)
    cost = np.empty(len(ring))
    before, last, counted = on_ring(window.tables, ring, size, cost)
    assert before == pytest.approx(potential(window, Placed((others,))), abs=1e-6)
    for start in range(len(ring)):
        mine = np.sort(ring[(start + np.arange(size)) % len(ring)])
        after = potential(window, Placed((others, mine)))
        assert cost[start] == pytest.approx(job_cost(window, mine) + before - after, abs=1e-6 * window.price)
    assert last == pytest.approx(job_cost(window, mine)) and counted == 0


@given(windows(most_jobs=1))
@settings(max_examples=30, deadline=None)
def test_all_stretches_of_all_nodes(window):
    size = np.unique(window.sizes)
    cost = np.empty((1, len(window.idle)))
    all_stretches(window.tables, size, cost)
    places = np.arange(len(window.idle))
    expected = [job_cost(window, np.sort((start + np.arange(size[0])) % len(places))) for start in places]
    assert cost[0] == pytest.approx(np.array(expected))


def test_random_numbers():
    found, whole = numbers(7, 20_000, 5)
    assert found.min() >= 0 and found.max() < 1
    assert np.histogram(found, 10, (0, 1))[0] == pytest.approx(2000, rel=0.1)
    assert np.bincount(whole, minlength=5) == pytest.approx(4000, rel=0.1)
    assert numbers(7, 3, 5)[0].tolist() == found[:3].tolist() != numbers(8, 3, 5)[0].tolist()


def test_random_numbers_are_splitmix64():
    """The first output for seed 1234567 of the reference implementation (Vigna, 2015)."""
    first = numbers(1234567, 1, 2)[0][0]
    assert first == (6457827717110365317 >> 11) * 2.0**-53
