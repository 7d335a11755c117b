import numpy as np
import pytest
from hypothesis import given, settings

from asa.lab.dispatchers.cp.hcp19 import Hcp19, allocate
from asa.lab.dispatchers.planning.active import active
from asa.lab.dispatchers.planning.lists import keys, order_of
from asa.lab.dispatchers.planning.verify import violations
from tests.lab.dispatchers.planning.instances import instance, instances


@given(instances())
@settings(max_examples=40, deadline=None)
def test_whatever_the_starts_are_all_find_nodes_and_nobody_begins_early(problem):
    for start in (np.zeros(len(problem)), active(problem, order_of(keys(problem, "sjf"))).start):
        plan = allocate(problem, start)
        assert violations(problem, plan) == []
        assert (plan.start >= start).all()


def test_best_fit():
    problem = instance([[4], [4], [4]], [([1], 1, 5, 0)], [(0, [1], 1, 9), (1, [3], 1, 9), (2, [2], 1, 9)])
    assert allocate(problem, np.zeros(1)).nodes(0) == [(1, 1)]


def test_the_pool_is_only_a_bound():
    """Two jobs of three cores each fit into a pool of six, and not on nodes of two or four."""
    pytest.importorskip("ortools", reason="the solver is an extra: cp")
    jobs = [([3], 1, 5, 0), ([3], 1, 5, 0)]
    found = Hcp19(warm=False).solve(instance([[4], [2]], jobs), 60.0)
    assert (found.status, found.bound, found.notes["moved"]) == ("feasible", pytest.approx(1.0, abs=1e-6), 1)
    assert sorted(found.plan.start.tolist()) == [0.0, 5.0]
    alone = Hcp19(warm=False).solve(instance([[6]], jobs), 60.0)
    assert (alone.status, alone.notes["moved"]) == ("optimal", 0)
