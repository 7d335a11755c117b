from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from asa.lab.placement.tjap.bound import lower_bound, priced_nodes
from asa.lab.placement.tjap.certificate import proven
from asa.lab.placement.tjap.cost import cost
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import grouped
from tests.lab.placement.tjap.windows import best_free, drawn, windows


@given(windows(most_idle=8, most_jobs=3))
@settings(max_examples=40, deadline=None)
def test_nothing_costs_less_and_its_prices_prove_it(window):
    best = best_free(window)
    for known in (None, best, 2 * best):
        bound, prices = priced_nodes(window, known)
        assert bound <= best * (1 + 1e-9) + 1e-9
        assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)


@given(windows(most_jobs=1))
@settings(max_examples=40, deadline=None)
def test_of_one_job_it_is_exact(window):
    assert lower_bound(window) == pytest.approx(cost(window, Free(iterations=5).place(window)))


def test_prices_prove_more_than_jobs_that_overlap():
    """Two jobs of four want the one switch that has four: without prices both have it."""
    window = grouped([0, 1, 2, 3, 4, 5, 8, 9], [4, 4], below=[4, 8], price=1.0)
    alone = proven(window, np.zeros(3))
    assert alone == pytest.approx(2 * 6 / 4)
    assert lower_bound(window) > 1.3 * alone


def test_it_is_near_what_is_found():
    for seed in range(5):
        window = drawn(seed, idle=100, jobs=4)
        known = cost(window, Free().place(window))
        assert 0.97 * known <= lower_bound(window, known) <= known * (1 + 1e-9)


def test_a_potential_is_no_matter_and_no_jobs_cost_nothing():
    window = drawn(0, idle=60, jobs=3)
    assert lower_bound(replace(window, potential=(1.0, 1.0))) == lower_bound(window)
    assert lower_bound(grouped([1, 2], [], below=[2])) == 0.0
