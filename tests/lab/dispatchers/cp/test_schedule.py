"""What the models are made of: where units of jobs may go, and what runs on each node."""

import numpy as np
import pytest
from hypothesis import given, settings

from asa.lab.dispatchers.cp.schedule import Queue
from asa.lab.dispatchers.cp.solver import Budget, TimeOver
from asa.lab.dispatchers.cp.times import times_of
from asa.lab.dispatchers.cp.windows import windows
from asa.lab.dispatchers.planning.active import active
from asa.lab.dispatchers.planning.instance import held
from asa.lab.dispatchers.planning.lists import keys, order_of
from tests.lab.dispatchers.planning.instances import instance, instances


def queue_of(problem, known=None, seconds=60.0):
    times = times_of(problem)
    return Queue(problem, times, windows(problem, times, known), Budget(seconds))


def test_what_runs_by_hand():
    problem = instance([[4], [4], [4]], [([1], 1, 5, 0)], [(0, [1], 2, 3), (2, [2], 1, 5), (0, [1], 1, 9)])
    running = queue_of(problem).running(problem.demands)
    assert {node: [(end, amounts.tolist()) for end, amounts in stack] for node, stack in running.items()} == {
        0: [(3, [2]), (9, [1])],
        2: [(5, [2])],
    }
    assert not running[1]


@given(instances())
@settings(max_examples=40, deadline=None)
def test_what_runs_on_nodes_is_all_that_runs(problem):
    running = queue_of(problem).running(problem.demands)
    there = held(problem.release, problem.demands, len(problem.capacity))
    for node, amounts in enumerate(there):
        ends = [end for end, _ in running[node]]
        assert ends == sorted(ends)
        assert (sum((held for _, held in running[node]), np.zeros_like(amounts)) == amounts).all()


@given(instances())
@settings(max_examples=40, deadline=None)
def test_every_plan_that_is_no_worse_finds_room(problem):
    """Nodes hold what it puts there, and windows of a better plan leave no more of them."""
    plan = active(problem, order_of(keys(problem, "sjf")))
    every = list(queue_of(problem).room())
    within = list(queue_of(problem, times_of(problem).in_ticks(plan.start)).room())
    assert len(every) == len(within) == len(problem)
    for job, (most, fewer) in enumerate(zip(every, within, strict=True)):
        assert (fewer <= most).all()
        assert all(units <= fewer[node] for node, units in plan.nodes(job))


def test_it_stops_in_time():
    with pytest.raises(TimeOver):
        list(queue_of(instance([[4]], [([2], 1, 5, 0)]), seconds=0.0).room())
