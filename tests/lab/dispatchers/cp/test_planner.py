import math
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.errors import AsaError
from asa.core.job import Resources
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.cp.dispatchers import Hcp19, allocate
from asa.lab.dispatchers.cp.planner import CpDispatcher
from asa.lab.dispatchers.cp.solver import TimeOver, solve_interruptibly
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.schemes import active, keys, order_of
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.simulator.run import simulate
from asa.lab.simulator.validate import violations as broken
from tests.lab.dispatchers.planning.instances import best, instance, instances
from tests.lab.dispatchers.views import Job, node_view, slot_view

pytest.importorskip("ortools", reason="the solver is an extra: cp")

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
def test_nobody_waits(name):
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
    """Such as one of what jobs share, of which nobody takes anything away."""
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
    """The rest is the dispatcher's: the best offer is kept, what is proven is told, and time may run out."""
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


class Endless:
    """A solver that goes on until it is told to stop."""

    def __init__(self):
        self.parameters, self.stopped = SimpleNamespace(catch_sigint_signal=True), threading.Event()

    def solve(self, model):
        assert self.stopped.wait(60.0), "nobody stopped it"

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
