import numpy as np
import pytest
from hypothesis import given, settings

from asa.lab.dispatchers.cp.layout import Layout
from asa.lab.dispatchers.cp.schedule import Queue
from asa.lab.dispatchers.cp.solver import Budget, TimeOver
from asa.lab.dispatchers.cp.times import times_of
from asa.lab.dispatchers.cp.windows import Ahead, windows
from tests.lab.dispatchers.planning.instances import instance, instances


def layout(problem, seconds=60.0):
    times = times_of(problem)
    return Layout(Queue(problem, times, windows(problem, times), Budget(seconds)))


@given(instances())
@settings(max_examples=40, deadline=None)
def test_what_blocks_leave_free_is_what_nodes_have_left_in_one_piece(problem):
    if not len(problem):
        return
    found, times, ahead = layout(problem), times_of(problem), Ahead(problem)
    scale = np.maximum(np.gcd.reduce(problem.demands, axis=0), 1)
    for resource in range(len(problem.resources)):
        for each in found.classes:
            for place in range(each.first, each.last + 1):
                low, high = each.position(place, resource), each.position(place + 1, resource)
                for over, at in enumerate([0, *times.release.tolist()]):
                    blocks = [b for b in found.blocks(resource) if b.begin <= at < b.end and place in b.places]
                    taken = np.zeros(high - low, dtype=int)
                    for block in blocks:
                        taken[max(block.low - low, 0) : block.low + block.height - low] += 1
                    assert (taken <= 1).all() and (np.diff(taken) >= 0).all()
                    over = int(np.searchsorted(times.release, at, side="right"))
                    left = ahead.free(over)[found.nodes[place], resource] // scale[resource]
                    assert (taken == 0).sum() in (0, left), "all of it, or nothing while nobody could use it"


def test_the_fullest_of_those_that_are_free_are_last():
    problem = instance([[4]] * 4, [([2], 1, 5, 0)], [(0, [1], 1, 9), (1, [4], 1, 9), (2, [2], 1, 9)])
    assert layout(problem).nodes.tolist() == [1, 3, 0, 2]


def test_it_stops_in_time():
    with pytest.raises(TimeOver):
        layout(instance([[4]], [([2], 1, 5, 0)]), seconds=0.0)
