"""Constraint programming: models of a queue, and the planners that solve them."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools", reason="the solver is an extra: cp")

import math
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import AsaError, InvalidInput
from asa.core.job import Resources
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.cp.boxes import Layout
from asa.lab.dispatchers.cp.dispatchers import Hcp19, Pcp19, Pcp20, allocate
from asa.lab.dispatchers.cp.model import FINEST_S, NEVER, CapacityAfter, CpQueue, times_of, windows
from asa.lab.dispatchers.cp.planner import CpDispatcher
from asa.lab.dispatchers.cp.solver import SolverBudget, TimeOver, solve_interruptibly
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import held
from asa.lab.dispatchers.planning.schemes import active, keys, order_of
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.planning.instances import best, instance, instances
from tests.lab.dispatchers.views import Job, node_view, slot_view
from tests.lab.simulator.validate import violations as broken

# -- Model ------------------------------------------------------------------------------------------------------------


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
                    assert (taken == 0).sum() in (0, left), "all of it, or nothing while no job could use it"


def test_the_fullest_of_those_that_are_free_are_last():
    problem = instance([[4]] * 4, [([2], 1, 5, 0)], [(0, [1], 1, 9), (1, [4], 1, 9), (2, [2], 1, 9)])
    assert layout(problem).nodes.tolist() == [1, 3, 0, 2]


def test_it_stops_in_time_layout():
    with pytest.raises(TimeOver):
        layout(instance([[4]], [([2], 1, 5, 0)]), seconds=0.0)


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


# -- Planner ----------------------------------------------------------------------------------------------------------

WHOLE = ("pcp20", "pcp19")
"""Those that see the nodes."""
NAMES = (*WHOLE, "hcp19")
LONG_S = 60.0


def planned(name, problem, seconds=LONG_S, **options):
    found = DISPATCHERS.load(name)(**options).solve(problem, seconds)
    if found.plan is not None:
        assert violations(problem, found.plan) == []
        objective = found.plan.objective(problem)
        assert found.bound is None or found.bound <= objective + 1e-9
        assert found.status != "optimal" or found.bound == objective
    return found


@pytest.mark.parametrize("warm", [True, False])
@given(problem=instances(most_jobs=4, most_nodes=2, most_units=2))
@settings(max_examples=12, deadline=None)
def test_what_is_proven_is_the_exhaustive_optimum(warm, problem):
    assume(len(problem))
    optimum = best(problem)
    for name in NAMES:
        found = planned(name, problem, warm=warm)
        assert found.plan.objective(problem) >= optimum - 1e-9
        assert found.bound is None or found.bound <= optimum + 1e-9
        if found.status == "optimal" or name in WHOLE:
            assert (found.status, found.plan.objective(problem)) == ("optimal", pytest.approx(optimum))


SIX = instance(
    [[4, 4], [4, 2]],
    [([2, 1], 2, 5, 3), ([3, 2], 1, 2, 0), ([1, 0], 1, 7, 9), ([4, 2], 1, 1, 1), ([2, 2], 1, 3, 4), ([1, 1], 3, 4, 0)],
    [(0, [3, 1], 1, 2), (1, [2, 1], 1, 3)],
)
OPTIMUM_OF_SIX = 2.861507936507936
"""`best` says so, in `test_six_jobs`."""


@pytest.mark.slow
def test_six_jobs():
    for name in WHOLE:
        assert planned(name, SIX, warm=False).plan.objective(SIX) == pytest.approx(OPTIMUM_OF_SIX)
    assert best(SIX) == pytest.approx(OPTIMUM_OF_SIX)


@pytest.mark.slow
@given(problem=instances(most_jobs=6, most_nodes=2, most_units=2))
@settings(max_examples=8, deadline=None)
def test_what_is_proven_of_up_to_six_jobs(problem):
    assume(len(problem) >= 5)
    for name in NAMES:
        assert planned(name, problem, warm=False).bound <= best(problem) + 1e-9
        assert name not in WHOLE or planned(name, problem).plan.objective(problem) == pytest.approx(best(problem))


def with_jobs(problem, jobs, nodes=None, more=0):
    """The same jobs in another order, on nodes in another order, and on more nodes, like the first."""
    nodes = np.arange(len(problem.capacity)) if nodes is None else np.array(nodes)
    rows = [
        (int(np.flatnonzero(nodes == first)[0]), tuple(problem.demands[kind].tolist()), units, at)
        for at, (first, _, units, kind) in zip(problem.release_at.tolist(), problem.release.tolist(), strict=True)
    ]
    capacity = problem.capacity[nodes].tolist() + [problem.capacity[0].tolist()] * more
    return instance(
        capacity,
        [
            (
                problem.demands[problem.kind[job]].tolist(),
                int(problem.units[job]),
                problem.duration[job],
                problem.waited[job],
            )
            for job in jobs
        ],
        rows,
    )


@pytest.mark.parametrize("name", WHOLE)
def test_a_model_of_which_the_solver_would_lose_a_variable(name):
    """CP-SAT 9.15 raises IndexError when it looks for symmetry in the last model of this one."""
    problem = instance([[3, 0], [1, 0]], [([2, 0], 1, 8, 0), ([3, 0], 1, 4, 0), ([3, 0], 1, 7, 0)])
    found = planned(name, problem, warm=False)
    assert (found.status, found.plan.objective(problem)) == ("optimal", pytest.approx(best(problem)))


@pytest.mark.parametrize("name", WHOLE)
@given(jobs=st.permutations(range(6)), nodes=st.permutations(range(2)))
@settings(max_examples=5, deadline=None)
def test_names_and_numbers_do_not_matter(name, jobs, nodes):
    assert planned(name, with_jobs(SIX, jobs, nodes)).bound == pytest.approx(planned(name, SIX).bound)


@pytest.mark.parametrize("name", WHOLE)
def test_a_larger_machine_is_no_worse(name):
    reached = [planned(name, with_jobs(SIX, range(6), more=more)).bound for more in range(3)]
    assert reached == sorted(reached, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_queue_has_an_empty_plan(name):
    found = planned(name, instance([[1]], []))
    assert (found.status, found.bound) == ("optimal", 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_no_time(name):
    for seconds in (0.0, 1e-9):
        cold, warm = planned(name, SIX, seconds, warm=False), planned(name, SIX, seconds)
        assert (cold.plan, cold.status, cold.notes["by"]) == (None, "unknown", None)
        assert (warm.status, warm.notes["by"]) == ("feasible", "warm start")
        assert cold.notes["out of time"] == "while building"


@pytest.mark.parametrize("name", NAMES)
def test_what_notes_tell(name):
    problem = instance([[2]], [([2], 1, 5, 0), ([1], 1, 2, 0), ([1], 1, 2, 0)])
    for warm, by in ((False, "cp"), (True, "warm start")):
        notes = planned(name, problem, warm=warm).notes
        assert notes["by"] == by
        assert notes["variables"] >= 3 and notes["constraints"] >= 4
        assert notes["build_s"] > 0 and notes["solve_s"] > 0


def test_an_improved_plan_is_called_one():
    """The list begins with what is small; the optimum lets the large job pass first."""
    draw = np.random.default_rng(0)
    for _ in range(30):
        jobs = [([int(draw.integers(1, 4))], 1, int(draw.integers(1, 9)), 0) for _ in range(5)]
        problem = instance([[3], [3]], jobs)
        found = planned("pcp19", problem)
        if found.notes["by"] == "improved":
            return
    pytest.fail("never better than the list")


@pytest.mark.parametrize("name", NAMES)
def test_times_that_are_no_multiples_of_anything(name):
    """They are rounded up: nothing is proven of them."""
    jobs = [([1], 1, math.pi, 0), ([1], 1, math.e, 1), ([2], 1, 1 / 3, 0), ([1], 2, 2.0, 0)]
    problem = instance([[2], [1]], jobs, [(0, [1], 1, math.sqrt(2))])
    found = planned(name, problem, warm=False)
    assert (found.status, found.bound) == ("feasible", None)


@pytest.mark.parametrize("name", NAMES)
def test_what_all_share(name):
    jobs = [([1], 1, 5, 0, 0, 0, [2]), ([1], 1, 5, 0, 0, 0, [2]), ([1], 2, 5, 0, 0, 0, [1])]
    found = planned(name, instance([[9], [9]], jobs, [(0, [1], 1, 3, [1])], shared=[3]), warm=False)
    assert sorted(found.plan.start.tolist()) == [0.0, 5.0, 10.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_takes_nothing(name):
    """Such as one of what jobs share, which are never used up."""
    found = planned(name, instance([[1], [1]], [([0], 3, 5, 0), ([1], 2, 5, 0), ([1], 1, 5, 0)]), warm=False)
    assert sorted(found.plan.start.tolist()) == [0.0, 0.0, 5.0]


@pytest.mark.parametrize("name", NAMES)
def test_memory_in_bytes(name):
    """Products of amounts and times stay within what the solver can count, as far as amounts are multiples."""
    gib, day = 2**30, 86_400
    jobs = [([1, 100 * gib], 4, day * length, 0) for length in (9, 5, 7, 3)]
    found = planned(name, instance([[64, 256 * gib]] * 8, jobs, [(0, [1, 7 * gib], 1, day)]), warm=False)
    assert found.status == "optimal"


@pytest.mark.parametrize("name", NAMES)
def test_what_can_never_run(name):
    with pytest.raises(AsaError, match="job 0 can never run here"):
        planned(name, instance([[2]], [([3], 1, 5, 0)]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": math.inf}, "seconds is inf"),
        ({"workers": 0}, "workers is 0"),
        ({"workers": 10_001}, "workers is 10001: a whole number from 1 to 10,000 expected"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_out_of_range(name, options, words):
    with pytest.raises(AsaError, match=words):
        DISPATCHERS.load(name)(**options)


def test_its_time_is_that_of_a_single_instance_as_well():
    """`asa dispatch` asks for it where there is no --time-limit."""
    assert DISPATCHERS.create("pcp20").default_limit_s == 10.0
    assert DISPATCHERS.create("hcp19:seconds=0.5").default_limit_s == 0.5


def test_without_the_solver(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(AsaError, match=r"needs ortools: pip install 'asa-hpc\[cp\]'"):
        planned("pcp20", SIX)


def test_beside_highs(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", sys)
    with pytest.raises(AsaError, match="cannot be loaded into one process"):
        planned("pcp20", SIX)


@pytest.mark.parametrize("name", NAMES)
def test_who_starts_now(name):
    view = node_view([Job(3, estimate=50.0), Job(1, estimate=10.0)], free=[[2], [1], [1]])
    started = DISPATCHERS.create(name).decide(view)
    assert [start.job for start in started] == [0, 1]
    view = slot_view([Job(3, estimate=50.0), Job(2, estimate=10.0), Job(1, estimate=5.0)], free=3, total=4)
    assert DISPATCHERS.create(name).decide(view) == [Start(1), Start(2)]


@pytest.mark.parametrize("name", NAMES)
def test_nodes_that_are_down_and_queues_of_resources(name):
    dispatcher = DISPATCHERS.create(name)
    view = node_view([Job(3, estimate=5.0), Job(1, estimate=10.0)], free=[[1], [1]])  # the others are gone
    assert [start.job for start in dispatcher.decide(view)] == [1]
    assert dispatcher.decide(node_view([Job(3, estimate=5.0)], free=[[1], [1]])) == []
    queue = tuple(QueuedJob(key, Resources(cores=2), length, 0.0) for key, length in (("a", 90.0), ("b", 10.0)))
    assert dispatcher.decide(QueueView(5.0, Resources(cores=2), queue, ())) == [Start("b")]
    assert dispatcher.decide(QueueView(5.0, Resources(cores=2), (), ())) == []


def test_any_way_of_looking_for_plans_will_do():
    """The rest is the dispatcher's: the best offer is kept, what is proven is reported, and time may run out."""
    good, better = (ListPlan(rule=rule).solve(SIX, 0.0).plan for rule in ("fcfs", "dense"))
    assert better.objective(SIX) < good.objective(SIX)

    def looks(search):
        for plan in (good, better, good):
            search.offer(plan)
        search.bound = 0.0
        raise TimeOver

    found = CpDispatcher(looks, warm=False).solve(SIX, LONG_S)
    assert found.plan is better and found.status == "feasible"
    assert found.bound == pytest.approx(SIX.slowdown(np.zeros(len(SIX))).mean())
    assert found.notes == {"by": "cp", "out of time": "while building"}


@pytest.mark.parametrize("name", NAMES)
def test_it_brings_a_trace_to_its_end(name):
    draw, count = np.random.default_rng(3), 12
    run = draw.integers(1, 60, count).astype(float)
    cluster = Cluster(np.array([[4, 8], [4, 8], [8, 4]]), ("cores", "memory"))
    jobs = Workload.of(
        submit=np.sort(draw.integers(0, 90, count)), run=run, walltime=run * draw.uniform(0.7, 2, count),
        units=draw.integers(1, 3, count), demands=np.array([[1, 1], [2, 4], [4, 0]]), kind=draw.integers(0, 3, count),
    )  # fmt: skip
    schedule = simulate(jobs, cluster, f"{name}:seconds=0.2,workers=1", overrun="allow")
    assert broken(schedule) == []
    assert schedule.ran.all()


@given(instances())
@settings(max_examples=40, deadline=None)
def test_whatever_the_starts_are_all_jobs_find_nodes_and_none_begins_early(problem):
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


class Endless:
    """A solver that goes on until it is stopped."""

    def __init__(self):
        self.parameters, self.stopped = SimpleNamespace(catch_sigint_signal=True), threading.Event()

    def solve(self, model):
        assert self.stopped.wait(60.0), "it was not stopped"

    def stop_search(self):
        self.stopped.set()


def test_an_interrupt_stops_the_search(monkeypatch):
    def interrupted(future):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    solver = Endless()
    with pytest.raises(KeyboardInterrupt):
        solve_interruptibly(solver, None)
    assert solver.stopped.is_set() and not solver.parameters.catch_sigint_signal
