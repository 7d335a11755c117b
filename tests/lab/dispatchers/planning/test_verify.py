import numpy as np
import pytest

from asa.lab.dispatchers.planning.instance import Plan
from asa.lab.dispatchers.planning.verify import violations
from tests.lab.dispatchers.planning.instances import instance

PROBLEM = instance(
    [[2], [2]], [([1], 2, 5.0, 0.0, 1, 0), ([2], 1, 3.0, 0.0, 0, 1)], [(1, [1], 1, 4.0)], members=[[1, 1], [1, 0]]
)
GOOD = [[0, 0, 1], [0, 1, 1], [1, 0, 1]]


def test_a_plan_that_keeps_all_laws():
    assert violations(PROBLEM, Plan(np.array([0.0, 5.0]), np.array(GOOD))) == []


@pytest.mark.parametrize(
    ("start", "where", "law"),
    [
        ([0.0, 4.0], GOOD, "node 0 is asked for 3 cores"),
        ([np.nan, 5.0], GOOD, "job 0 starts at nan s"),
        ([-1.0, 5.0], GOOD, "job 0 starts at -1 s"),
        ([0.0, 5.0], GOOD[1:], "job 0 has 1 units on its nodes: it asked for 2"),
        ([0.0, 5.0], [[0, 0, 2], [1, 0, 1]], "job 0 has 2 units on a node: 1 at most"),
        ([0.0, 5.0], [*GOOD[:2], [1, 1, 1]], "job 1 is on node 1, which is not of its partition"),
        ([0.0, 5.0], [*GOOD, [0, 0, 0]], "job 0 has 0 units on node 0"),
    ],
)
def test_laws(start, where, law):
    found = violations(PROBLEM, Plan(np.array(start), np.array(where)))
    assert any(law.replace("cores", "r0") in line for line in found), found


def test_what_the_machine_has_as_a_whole():
    problem = instance(
        [[2], [2]], [([1], 2, 5.0, 0.0, 0, 0, [3]), ([1], 1, 5.0, 0.0)], [(1, [1], 1, 4.0, [5])], shared=[10]
    )
    where = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
    assert violations(problem, Plan(np.array([4.0, 0.0]), where)) == []
    found = violations(problem, Plan(np.array([3.0, 0.0]), where))
    assert found == ["the machine is asked for 11 s0 at 3 s: it has 10"]
