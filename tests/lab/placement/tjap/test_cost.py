from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.lab.placement.fattree import fat_tree
from asa.lab.placement.tjap.cost import cost, is_dynamic, is_static, objective, potential, violations
from asa.lab.placement.tjap.instance import Placed, grouped
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.placement.topology import CONVENTIONS
from tests.lab.placement.tjap.windows import windows


def at(*places):
    return Placed(tuple(np.array(each, dtype=np.int64) for each in places))


@given(windows())
def test_a_cost_pair_by_pair(window):
    found = Sequential().place(window)
    total = 0.0
    for places in found.places:
        for one, other in combinations(places.tolist(), 2):
            level = next(k for k, row in enumerate(window.groups) if row[one] == row[other])
            total += window.price * window.hops[level] / len(places)
    assert cost(window, found) == pytest.approx(total)
    assert violations(window, found) == []


def test_a_job_of_the_paper_alone():
    """Ten nodes below one switch and one in the same pod: 45 pairs of 2 hops and 10 of 4, in both directions."""
    window = fat_tree(20, 10).window([str(node) for node in range(11)], [11], CONVENTIONS["paper"])
    assert cost(window, at(range(11))) == pytest.approx(1000 * 2 * (45 * 2 + 10 * 4) / 11)


@given(windows(), st.lists(st.floats(0, 2), max_size=2))
def test_a_potential_pair_by_pair(window, worth):
    window = replace(window, potential=tuple(worth))
    found = Sequential().place(window)
    left = range(int(window.sizes.sum()), len(window.idle))
    pairs = [
        each
        for each, row in zip(worth, window.groups, strict=False)
        for one, other in combinations(left, 2)
        if row[one] == row[other]
    ]
    assert potential(window, found) == pytest.approx(window.price * sum(pairs))
    assert objective(window, found) == cost(window, found) - potential(window, found)


def test_laws():
    window = grouped(range(5), [2, 3], below=[4])
    assert violations(window, at([0, 1], [2, 3, 4])) == []
    assert violations(window, at([0, 1])) == ["1 jobs have nodes: there are 2"]
    assert violations(window, at([0, 0], [2, 3, 4])) == ["job 0 has 1 nodes: it asked for 2"]
    assert violations(window, at([0, 5], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([-1, 0], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([0, 2], [2, 3, 4])) == ["node 2 has jobs 0 and 1"]


def test_neighbours():
    """Static: in the ring of idle nodes. Dynamic: in the ring of those that are left."""
    window = grouped(range(6), [2, 2], below=[6])
    assert is_static(window, at([0, 5], [2, 3])) and is_dynamic(window, at([0, 5], [2, 3]))
    assert not is_static(window, at([0, 3], [1, 2])) and is_dynamic(window, at([0, 3], [1, 2]))
    assert not is_dynamic(window, at([0, 2], [1, 3]))
