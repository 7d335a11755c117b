from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.bounds import dantzig_wolfe, lower_bound, priced_nodes
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import cost, grouped, job_cost, proven
from asa.lab.placement.tjap.scas import beam, exact
from asa.lab.placement.tjap.seq import Sequential
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


pytest.importorskip("ortools")


def relaxation(window) -> float:
    """The linear program over all placements of each job at once, by HiGHS."""
    leaf, jobs = window.tables.groups[0], len(window.sizes)
    room = np.bincount(leaf)
    costs, columns = [], []
    for job, size in enumerate(window.sizes.tolist()):
        for has in product(*(range(count + 1) for count in room.tolist())):
            if sum(has) == size:
                places = np.concatenate([np.flatnonzero(leaf == k)[:count] for k, count in enumerate(has)])
                costs.append(job_cost(window, places))
                columns.append((job, has))
    choose = np.array([[job == mine for mine, _ in columns] for job in range(jobs)], dtype=float)
    take = np.array([has for _, has in columns], dtype=float).T
    found = linprog(costs, A_ub=take, b_ub=room, A_eq=choose, b_eq=np.ones(jobs))
    assert found.status == 0
    return float(found.fun)


@given(windows(most_idle=7, most_jobs=3))
@settings(max_examples=40, deadline=None)
def test_it_is_the_linear_relaxation_over_all_placements(window):
    bound, prices = dantzig_wolfe(window, Sequential().place(window))
    assert bound == pytest.approx(relaxation(window), rel=1e-6, abs=1e-6)
    assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)
    assert bound <= best_free(window) * (1 + 1e-9) + 1e-9


def test_it_is_at_least_the_lagrangian_bound():
    better = 0
    for seed in range(10):
        window = drawn(seed, idle=100, jobs=4)
        found = Free().place(window)
        known = cost(window, found)
        bound, lagrangian = dantzig_wolfe(window, found)[0], lower_bound(window, known)
        assert lagrangian <= bound * (1 + 1e-12) and bound <= known * (1 + 1e-9)
        better += bound > lagrangian * (1 + 1e-5)
    assert better >= 1


def test_no_jobs_cost_nothing():
    window = grouped([1, 2], [], below=[2])
    assert dantzig_wolfe(window, Sequential().place(window))[0] == 0.0


def test_it_is_a_bound_whenever_it_is_stopped(monkeypatch):
    window = drawn(3, idle=100, jobs=4)
    found = Free().place(window)
    whole, _ = dantzig_wolfe(window, found)
    monkeypatch.setattr("asa.lab.placement.tjap.bounds.ROUNDS", 2)
    bound, prices = dantzig_wolfe(window, found)
    assert bound <= whole * (1 + 1e-9)
    assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)


def test_without_the_solver(monkeypatch):
    window = drawn(3, idle=20, jobs=2)
    monkeypatch.setitem(sys.modules, "ortools.linear_solver.pywraplp", None)
    with pytest.raises(InvalidInput, match=r"this bound needs ortools: pip install 'asa-hpc\[cp\]'"):
        dantzig_wolfe(window, Free().place(window))


def both(cost: list[list[float]], size: list[int], copies: list[int], width: int = 20) -> tuple[float, float, float]:
    """The bound, what the search found, and the least there is."""
    args = np.array(cost, dtype=float), np.array(size), np.array(copies)
    steps, bound = beam(*args, width)
    least = exact(*args, np.zeros((sum(copies), 2), dtype=np.int64))
    return bound, float(args[0][steps[:, 0], steps[:, 1]].sum()), least


def test_prices_that_are_right_are_left_alone() -> None:
    """They once went to infinity from there, and rounding made them a bound that was none."""
    third = 13 / 3
    bound, found, least = both([[3.0, third, third, third, 5.0, third]], [3], [2])
    assert least == pytest.approx(22 / 3) and found >= least
    assert bound == pytest.approx(least) and bound <= least * (1 + 1e-12)


@given(st.data())
def test_no_placement_costs_less_than_the_bound(data: st.DataObject) -> None:
    size = sorted(data.draw(st.sets(st.integers(1, 4), min_size=1, max_size=3)))
    copies = [data.draw(st.integers(1, 3)) for _ in size]
    nodes = sum(map(int.__mul__, size, copies)) + data.draw(st.integers(0, 4))
    amounts = st.lists(st.integers(1, 30).map(lambda tenths: tenths / 3), min_size=nodes, max_size=nodes)
    bound, found, least = both([data.draw(amounts) for _ in size], size, copies, data.draw(st.sampled_from([1, 20])))
    assert bound <= least * (1 + 1e-9) and least <= found * (1 + 1e-9)
