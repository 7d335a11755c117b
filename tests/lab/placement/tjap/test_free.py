from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.cost import cost, objective, violations
from asa.lab.placement.tjap.dcas import DcasAlns
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import Placed, grouped
from asa.lab.placement.tjap.scas import Scas
from tests.lab.placement.tjap.windows import best_free, drawn, subsets, windows


@given(windows(most_idle=9, most_jobs=3))
@settings(max_examples=60, deadline=None)
def test_beside_all_placements_there_are(window):
    best, found = best_free(window), Free(iterations=300).place(window)
    assert violations(window, found) == []
    assert best * (1 - 1e-9) <= cost(window, found) <= cost(window, Scas().place(window)) * (1 + 1e-9)
    assert found.bound <= best * (1 + 1e-9) + 1e-9
    if found.status == "optimal":
        assert cost(window, found) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_small_windows_are_solved(seed):
    window = drawn(seed, idle=11, jobs=3)
    assert cost(window, Free().place(window)) == pytest.approx(best_free(window))


@given(windows(most_idle=9, most_jobs=1), st.lists(st.floats(0, 2), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_with_a_potential_one_job_goes_where_both_together_are_best(window, worth):
    window = replace(window, potential=tuple(worth))
    best = min(objective(window, Placed((np.array(mine),))) for mine in subsets(window, int(window.sizes[0])))
    found = Free(iterations=50).place(window)
    assert violations(window, found) == []
    assert objective(window, found) == pytest.approx(best, abs=1e-6 * window.price)


@given(windows())
@settings(max_examples=60, deadline=None)
def test_with_a_potential_it_is_never_worse_than_neighbours(window):
    window = replace(window, potential=(0.5, 0.1))
    found = Free(iterations=50).place(window)
    assert violations(window, found) == [] and found.bound <= cost(window, found) * (1 + 1e-9) + 1e-9
    assert objective(window, found) <= objective(window, Scas().place(window)) + 1e-6 * window.price


def test_jobs_that_cost_nothing_leave_nodes_together():
    """Each takes its node from the switch with fewer; the other one stays whole, or nearly."""
    window = grouped(range(7), [1, 1, 1], below=[4], potential=(1.0,))
    for method in (Free(), DcasAlns()):
        assert sorted(np.concatenate(method.place(window).places).tolist()) == [4, 5, 6]


def test_the_same_seed_the_same_placement():
    window = drawn(2, idle=70, jobs=5)
    one, same = (np.concatenate(Free(seed=5).place(window).places) for _ in range(2))
    assert one.tolist() == same.tolist()


@pytest.mark.parametrize("options", [{"iterations": -1}, {"removed": 0}])
def test_no_such_search(options):
    with pytest.raises(InvalidInput, match="expected"):
        Free(**options)
