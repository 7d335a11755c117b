import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.bound import lower_bound
from asa.lab.placement.tjap.certificate import proven
from asa.lab.placement.tjap.cost import cost, job_cost
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import grouped
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.tjap.windows import best_free, drawn, windows

pytest.importorskip("ortools")
from asa.lab.placement.tjap.columns import dantzig_wolfe


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
    monkeypatch.setattr("asa.lab.placement.tjap.columns.ROUNDS", 2)
    bound, prices = dantzig_wolfe(window, found)
    assert bound <= whole * (1 + 1e-9)
    assert proven(window, prices) == pytest.approx(bound, rel=1e-9, abs=1e-6)


def test_without_the_solver(monkeypatch):
    window = drawn(3, idle=20, jobs=2)
    monkeypatch.setitem(sys.modules, "ortools.linear_solver.pywraplp", None)
    with pytest.raises(InvalidInput, match=r"this bound needs ortools: pip install 'asa-hpc\[cp\]'"):
        dantzig_wolfe(window, Free().place(window))
