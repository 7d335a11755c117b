from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.cp.boxes import Layout
from asa.lab.dispatchers.cp.dispatchers import Pcp19, Pcp20
from asa.lab.dispatchers.cp.model import FINEST_S, NEVER, CapacityAfter, CpQueue, times_of, windows
from asa.lab.dispatchers.cp.solver import SolverBudget, TimeOver
from asa.lab.dispatchers.planning.instance import held
from asa.lab.dispatchers.planning.schemes import active, keys, order_of
from asa.lab.dispatchers.planning.verify import violations
from tests.lab.dispatchers.planning.instances import best, instance, instances


def times(durations, ends=()):
    jobs = [([1], 1, length, 0) for length in durations]
    return times_of(instance([[9]], jobs, [(0, [1], 1, end) for end in ends]))


@pytest.mark.parametrize(
    ("durations", "ends", "tick", "ticks"),
    [
        ([60, 90], [30], 30.0, [2, 3]),
        ([7, 5], [3], 1.0, [7, 5]),
        ([0.5, 1.25], [0.75], 0.25, [2, 5]),
        ([86_400, 3_600], [], 3_600.0, [24, 1]),
    ],
)
def test_the_longest_tick(durations, ends, tick, ticks):
    found = times(durations, ends)
    assert found.exact and found.tick == pytest.approx(tick)
    assert found.duration.tolist() == ticks
    assert found.horizon == sum(ticks) + sum(round(end / tick) for end in ends)


def test_times_without_a_tick_are_rounded_up():
    found = times([np.pi, 1e-6], [np.e])
    assert (found.exact, found.tick) == (False, FINEST_S)
    assert (found.duration.tolist(), found.release.tolist()) == ([3217, 1], [2784])


def test_very_long_times_have_longer_ticks():
    found = times([1e12 + 0.5, 1.0])
    assert not found.exact and found.duration[0] < 2**40 and found.duration[1] == 1


@given(instances(), st.floats(0.01, 100.0))
def test_plans_of_the_rounded_instance_are_plans(problem, factor):
    """And their starts are whole ticks."""
    odd = replace(problem, duration=problem.duration * factor, release_at=problem.release_at * factor)
    found = times_of(odd)
    plan = active(found.rounded(odd), order_of(keys(odd, "dense")))
    assert violations(odd, plan) == []
    assert (found.in_ticks(plan.start) * found.tick == plan.start).all()


def test_times_that_never_end():
    with pytest.raises(InvalidInput, match="job 1 takes inf s"):
        times([5.0, np.inf])
    with pytest.raises(InvalidInput, match="what runs ends after inf s"):
        times([5.0], [np.inf])


def test_costs_are_slowdowns_but_for_a_millionth():
    found = times([10, 35, 86_400], [100])
    start = np.array([3, 7, 17_280])
    assert found.cost(start) / found.scale == pytest.approx((start / found.duration).sum(), rel=1e-6)
    assert found.cost(start) / found.scale <= (start / found.duration).sum()


def test_costs_stay_small_enough():
    found = times([1.0] * 50 + [1e9] * 50)
    assert found.cost(np.full(100, found.horizon)) < 2**62
    assert (found.weight[:50] > 0).all()


@given(instances())
@settings(max_examples=40, deadline=None)
def test_the_first_start_is_that_of_a_plan_of_one(problem):
    times = times_of(problem)
    for job, early in enumerate(windows(problem, times).early.tolist()):
        alone = active(problem, np.array([job]))
        assert early * times.tick == alone.start[job]


@given(instances())
@settings(max_examples=40, deadline=None)
def test_plans_that_are_no_worse_are_within(problem):
    times = times_of(problem)
    plans = [active(problem, order_of(keys(problem, rule))) for rule in ("dense", "sjf", "fcfs", "pcp")]
    for known in plans:
        found = windows(problem, times, times.in_ticks(known.start))
        for plan in plans:
            if plan.objective(problem) <= known.objective(problem):
                assert (found.early * times.tick <= plan.start + 1e-9).all()
                assert (plan.start <= found.late * times.tick + 1e-9).all()


def test_what_never_fits():
    problem = instance([[2]], [([3], 1, 5, 0), ([2], 1, 5, 0)], [(0, [1], 1, 4)])
    ahead = CapacityAfter(problem)
    assert [ahead.first(0), ahead.first(1)] == [NEVER, 1]


def queue_of(problem, known=None, seconds=60.0):
    times = times_of(problem)
    return CpQueue(problem, times, windows(problem, times, known), SolverBudget(seconds))


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


def layout(problem, seconds=60.0):
    times = times_of(problem)
    return Layout(CpQueue(problem, times, windows(problem, times), SolverBudget(seconds)))


@given(instances())
@settings(max_examples=40, deadline=None)
def test_what_blocks_leave_free_is_what_nodes_have_left_in_one_piece(problem):
    if not len(problem):
        return
    found, times, ahead = layout(problem), times_of(problem), CapacityAfter(problem)
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


def test_it_stops_in_time_layout():
    with pytest.raises(TimeOver):
        layout(instance([[4]], [([2], 1, 5, 0)]), seconds=0.0)


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
    monkeypatch.setattr("asa.lab.dispatchers.cp.dispatchers.better", lambda search: None)
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
