"""PCP'20's model: its size, and what boxes cannot do."""

import pytest

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.cp.pcp19 import Pcp19
from asa.lab.dispatchers.cp.pcp20 import Pcp20
from tests.lab.dispatchers.planning.instances import best, instance

pytest.importorskip("ortools", reason="the solver is an extra: cp")

JOBS = [([2, 1], 3, 5, 0), ([1, 2], 2, 4, 1), ([3, 0], 1, 7, 0)]


def variables(planner, nodes):
    problem = instance([[4, 4]] * nodes, JOBS, [(node, [2, 2], 1, 3 + node) for node in range(nodes)])
    return planner(warm=False).solve(problem, 60.0).notes["variables"]


def test_its_size_does_not_depend_on_the_number_of_nodes():
    """A start for each job, for each unit a position on each resource that it needs, and its node."""
    starts, positions, nodes = 3, 3 * 2 + 2 * 2 + 1 * 1, 3 + 2 + 1
    assert [variables(Pcp20, nodes_) for nodes_ in (2, 8, 32)] == [starts + positions + nodes] * 3


def test_that_of_pcp19_does():
    small, large = variables(Pcp19, 4), variables(Pcp19, 32)
    assert large - 3 == 8 * (small - 3)


def test_what_is_free_in_two_pieces(monkeypatch):
    """The best plan of boxes is not the best of all; a model of counts finds that one."""
    jobs = [([2], 1, 7, 0), ([3], 1, 6, 0), ([2], 1, 7, 0), ([1], 1, 5, 0)]
    problem = instance([[4]], jobs, [(0, [2], 1, 4), (0, [1], 1, 5), (0, [1], 1, 1)])
    found = Pcp20(warm=False).solve(problem, 60.0)
    assert (found.status, found.plan.objective(problem)) == ("optimal", pytest.approx(best(problem)))
    monkeypatch.setattr("asa.lab.dispatchers.cp.pcp20.better", lambda search: None)
    boxes = Pcp20(warm=False).solve(problem, 60.0)
    assert boxes.notes["best of boxes"] and boxes.status == "feasible"
    assert boxes.plan.objective(problem) > best(problem) + 0.03


def test_per_node_and_partitions():
    problem = instance(
        [[4], [4], [4]], [([1], 3, 5, 0, 1, 0), ([1], 2, 5, 0, 2, 1), ([3], 1, 5, 0, 0, 1)],
        members=[[1, 1, 1], [1, 0, 0]],
    )  # fmt: skip
    for warm in (True, False):
        found = Pcp20(warm=warm).solve(problem, 60.0)
        assert found.plan.objective(problem) == pytest.approx(best(problem))
        assert sorted(node for node, _ in found.plan.nodes(0)) == [0, 1, 2]
        assert {node for node, _ in found.plan.nodes(1) + found.plan.nodes(2)} == {0}


def test_amounts_that_the_solver_cannot_count():
    jobs = [([1, 2**52 + odd], 1, 1e9 + odd, 0) for odd in range(9)]
    with pytest.raises(InvalidInput, match="the solver refuses this queue, give amounts in larger units"):
        Pcp20(warm=False).solve(instance([[64, 2**60]], jobs), 60.0)
