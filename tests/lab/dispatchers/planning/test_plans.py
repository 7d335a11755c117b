import gzip
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.bound import lower_bound
from asa.lab.dispatchers.planning.instance import QueuePlan, example, from_view, read_instance
from asa.lab.dispatchers.planning.schemes import (
    RULES,
    SLOTS,
    active,
    improve,
    keys,
    nondelay,
    order_of,
    reserving,
    share,
)
from asa.lab.dispatchers.planning.verify import violations
from tests.lab.dispatchers.planning.instances import (
    active_slowly,
    best,
    instance,
    instances,
    nondelay_slowly,
    reserving_slowly,
)
from tests.lab.dispatchers.views import Job, node_view, slot_view

SCHEMES = {"active": (active, active_slowly), "non-delay": (nondelay, nondelay_slowly)}


@pytest.mark.parametrize("scheme", SCHEMES)
@given(instances(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_plans_are_those_of_a_plain_planner(scheme, problem, random):
    order = random.sample(range(len(problem)), len(problem))
    quick, slow = SCHEMES[scheme]
    plan = quick(problem, np.array(order, dtype=np.int64))
    assert violations(problem, plan) == []
    assert plan.start.tolist() == slow(problem, order).tolist()


@given(instances(), st.randoms(use_true_random=False), st.data())
@settings(max_examples=60, deadline=None)
def test_plans_with_reservations_are_those_of_a_plain_planner(problem, random, data):
    jobs = len(problem)
    order = np.array(random.sample(range(jobs), jobs), dtype=np.int64)
    may = np.array(data.draw(st.lists(st.booleans(), min_size=jobs, max_size=jobs)), dtype=np.bool_)
    plan = reserving(problem, order, may)
    assert violations(problem, plan) == []
    assert plan.start.tolist() == reserving_slowly(problem, order.tolist(), may).tolist()
    now = reserving(problem, order, may, now=True)
    assert (now.start == 0).tolist() == (plan.start == 0).tolist()


@given(instances(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_both_schemes_are_one_with_reservations_for_all_or_none(problem, random):
    jobs = len(problem)
    order = np.array(random.sample(range(jobs), jobs), dtype=np.int64)
    everybody, nobody = np.ones(jobs, np.bool_), np.zeros(jobs, np.bool_)
    assert reserving(problem, order, everybody).start.tolist() == active(problem, order).start.tolist()
    assert reserving(problem, order, nobody).start.tolist() == nondelay(problem, order).start.tolist()


@pytest.mark.slow
@given(instances(most_jobs=4, most_nodes=2, most_units=2))
@settings(max_examples=25, deadline=None)
def test_nothing_is_below_the_bound_nor_better_than_the_best(problem):
    if not len(problem):
        return
    optimum, bound = best(problem), lower_bound(problem)
    assert bound <= optimum + 1e-9
    for rule in RULES:
        assert active(problem, order_of(keys(problem, rule))).objective(problem) >= optimum - 1e-9


@given(instances())
@settings(max_examples=30, deadline=None)
def test_only_what_starts_now_is_the_same_as_of_the_whole_plan(problem):
    order = order_of(keys(problem, "dense"))
    for whole, part in (
        (active(problem, order), active(problem, order, now=True)),
        (nondelay(problem, order), nondelay(problem, order, until=0.0)),
    ):
        assert (part.start == 0).tolist() == (whole.start == 0).tolist()
        for job in np.flatnonzero(part.start == 0).tolist():
            assert part.nodes(job) == whole.nodes(job)


@given(instances(), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_searching_never_makes_it_worse_and_always_finds_the_same(problem, seed):
    key = keys(problem, "sjf")
    first = active(problem, order_of(key)).objective(problem)
    plan, tried = improve(problem, key, tries=6, seed=seed)
    assert violations(problem, plan) == []
    assert plan.objective(problem) <= first + 1e-12
    assert tried <= 6
    again, _ = improve(problem, key, tries=6, seed=seed)
    assert again.start.tolist() == plan.start.tolist()


@given(instances(), st.sampled_from(sorted(RULES)), st.sampled_from([0.0, 0.005]))
@settings(max_examples=30, deadline=None)
def test_of_both_schemes_the_better_plan_is_kept(problem, rule, seconds):
    plans = {name: ListPlan(rule=rule, scheme=name).solve(problem, 0.0).plan for name in SCHEMES}
    found = ListPlan(rule=rule, scheme="both").solve(problem, seconds)
    assert violations(problem, found.plan) == []
    best = min(plan.objective(problem) for plan in plans.values())
    if seconds:
        assert found.plan.objective(problem) <= best + 1e-12
    else:
        assert found.plan.objective(problem) == best
        assert found.plan.start.tolist() == plans[found.notes["scheme"]].start.tolist()


def test_each_scheme_is_the_better_one_somewhere():
    """Where a wide job waits, that is the active one; where its reservation keeps others out, the non-delay one."""
    wide_first = [([1], 2, 1.0, 0.0), *(([1], 1, 100.0, 0.0) for _ in range(4))]
    fills = [([1], 2, 10.0, 0.0), ([1], 1, 10.5, 0.0)]
    for jobs, ends, scheme in ((wide_first, 5.0, "active"), (fills, 10.0, "non-delay")):
        problem = instance([[1], [1]], jobs, running=[(0, [1], 1, ends)])
        found = ListPlan(rule="sjf", scheme="both").solve(problem, 0.0)
        assert found.notes["scheme"] == scheme
        other = next(name for name in SCHEMES if name != scheme)
        assert found.plan.objective(problem) < ListPlan(rule="sjf", scheme=other).solve(problem, 0.0).plan.objective(
            problem
        )


def test_a_decision_starts_what_the_better_plan_starts():
    view = node_view([Job(2, estimate=10.0), Job(1, estimate=10.5)], free=[[1], [0]])
    starts = {scheme: ListPlan(rule="sjf", scheme=scheme).decide(view) for scheme in (*SCHEMES, "both")}
    better = ListPlan(rule="sjf", scheme="both").solve(from_view(view), 0.0).notes["scheme"]
    assert starts["both"] == starts[better]


def test_keys_that_drift_stay_numbers():
    """Both jobs wait, and start together whatever their keys: every trial is kept, and the next one goes on from it."""
    problem = instance([[2]], [([1], 1, 9.0, 0.0), ([1], 1, 900.0, 0.0)], running=[(0, [2], 1, 5.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan, tried = improve(problem, np.array([1e307, 1e-307]), tries=300)
    assert tried == 300 and plan.start.tolist() == [5.0, 5.0]


def test_a_wide_job_does_not_wait_for_all_that_are_longer():
    """Non-delay planning lets long jobs in as long as the wide one does not fit; an active plan does not."""
    jobs = [([1], 2, 1.0, 0.0), *(([1], 1, 100.0, 0.0) for _ in range(4))]
    problem = instance([[1], [1]], jobs, running=[(0, [1], 1, 5.0)])
    order = order_of(keys(problem, "sjf"))
    assert nondelay(problem, order).start[0] >= 100.0
    assert active(problem, order).start[0] == 5.0


def test_what_the_machine_has_as_a_whole_is_shared_by_all_nodes():
    """Of 100 W a running job draws 60 until 5 s, a waiting one 40 at most beside it."""
    jobs = [([1], 2, 10.0, 0.0, 0, 0, [35]), ([1], 1, 10.0, 0.0, 0, 0, [40]), ([1], 1, 10.0, 0.0)]
    problem = instance([[9], [9], [9]], jobs, running=[(0, [1], 1, 5.0, [60])], shared=[100])
    for plan in (nondelay(problem, np.arange(3)), active(problem, np.arange(3))):
        assert violations(problem, plan) == []
    assert nondelay(problem, np.arange(3)).start.tolist() == [10.0, 0.0, 0.0]
    assert active(problem, np.arange(3)).start.tolist() == [5.0, 15.0, 0.0]


def test_the_bound_knows_what_is_shared():
    """Four jobs that draw half of the power each run in two rounds, whatever the nodes have."""
    problem = instance([[9], [9]], [([1], 1, 10.0, 0.0, 0, 0, [50])] * 4, shared=[100])
    plan = active(problem, np.arange(4))
    assert plan.objective(problem) == pytest.approx(1.5)
    assert lower_bound(problem) == pytest.approx(1.5)


def test_durations_too_short_to_be_seen_beside_the_time():
    """1e9 s and 1e-9 s more are the same number."""
    jobs = [([1], 2, 1e-9, 0.0), ([1], 2, 1e-9, 0.0), ([1], 1, 1e-9, 0.0)]
    problem = instance([[1], [1]], jobs, running=[(0, [1], 1, 1e9), (1, [1], 1, 1e9)])
    for plan in (active(problem, np.arange(3)), nondelay(problem, np.arange(3))):
        assert plan.start.tolist() == [1e9] * 3


def test_more_stretches_than_there_was_room_for():
    jobs = [([1], 1, float(length), 0.0) for length in range(1, 200)]
    problem = instance([[2]], jobs)
    plan = active(problem, np.arange(len(problem)))
    assert violations(problem, plan) == []


def test_the_bound_knows_what_nodes_hold():
    """Jobs of more than half a node need a node each, though together they need less than all nodes have."""
    jobs = [([3], 1, 10.0, 0.0) for _ in range(8)]
    problem = instance([[5], [5]], jobs)
    plan = active(problem, np.arange(8))
    assert plan.objective(problem) == pytest.approx(2.5)
    assert lower_bound(problem) == pytest.approx(2.5)


def test_the_bound_counts_what_unequal_nodes_have():
    """Ten cores in all, and not two nodes of nine."""
    problem = instance([[9], [1]], [([1], 1, 10.0, 0.0) for _ in range(20)])
    plan = active(problem, np.arange(20))
    assert plan.objective(problem) == pytest.approx(1.5)
    assert lower_bound(problem) == pytest.approx(1.5)


def test_the_bound_is_exact_for_one_machine():
    """Smith's rule."""
    jobs = [([1], 1, length, waited) for length, waited in ((3.0, 1.0), (1.0, 5.0), (2.0, 0.0))]
    problem = instance([[1]], jobs, running=[(0, [1], 1, 4.0)])
    plan = active(problem, order_of(keys(problem, "sjf")))
    assert lower_bound(problem) == pytest.approx(plan.objective(problem))


def test_more_different_nodes_than_are_kept_in_mind():
    draw, nodes = np.random.default_rng(0), 2 * SLOTS
    draws = (draw.integers(1, most, size=90).tolist() for most in (900, 60, 50))
    jobs = [([need], units, float(duration), 0.0) for need, units, duration in zip(*draws, strict=True)]
    problem = instance([[k + 1] for k in range(nodes)], jobs)
    order = order_of(keys(problem, "sjf"))
    plan = nondelay(problem, order)
    assert violations(problem, plan) == []
    assert plan.start.tolist() == reserving(problem, order, np.zeros(len(problem), np.bool_)).start.tolist()
    assert len(np.unique(plan.start)) > 5


def test_rules():
    problem = instance([[4]], [([1], 1, 5.0, 0.0), ([4], 1, 4.0, 9.0), ([1], 2, 4.0, 1.0)])
    orders = {rule: order_of(keys(problem, rule)).tolist() for rule in RULES}
    assert orders == {"dense": [0, 2, 1], "sjf": [1, 2, 0], "pcp": [1, 2, 0], "fcfs": [1, 2, 0]}


def test_what_a_job_takes_of_the_machine():
    problem = instance([[4]], [([1], 2, 5.0, 0.0, 0, 0, [3]), ([1], 1, 5.0, 0.0)], shared=[12])
    assert share(problem).tolist() == [1.0, 0.25]


def test_a_rule_that_does_not_exist_is_named():
    with pytest.raises(UnknownName, match=r"unknown rule 'sfj'.*did you mean 'sjf'"):
        keys(example(), "sfj")


GOOD = {
    "cap": [[4, 8], [4, 8]],
    "running": [{"rn": 2, "req": [2, 1], "end": 30, "alloc": [[0, 1], [1, 1]], "id": "r"}],
    "queue": [{"rn": 1, "req": [4, 2], "d": 60, "q": -5, "id": "a"}, {"rn": 3, "req": [1, 0], "d": 10, "q": 0}],
}


def write(tmp_path, packed=False, **changes):
    data = json.dumps(GOOD | changes).encode()
    path = tmp_path / "instance.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file(tmp_path, packed):
    found = read_instance(write(tmp_path, packed))
    assert found.names == ("a", 1)
    assert found.free.tolist() == [[2, 7], [2, 7]]
    assert (found.duration.tolist(), found.waited.tolist()) == ([60.0, 10.0], [5.0, 0.0])
    assert found.need[found.sort].tolist() == [[4, 2], [1, 0]]
    assert (found.release_at.tolist(), found.release.tolist()) == ([30.0], [[0, 1, 1, 0]])


def test_what_the_machine_has_as_a_whole(tmp_path):
    running = [{**GOOD["running"][0], "shared": {"power": 200}}]
    queue = [{**GOOD["queue"][0], "shared": {"licences": 2}}, GOOD["queue"][1]]
    found = read_instance(write(tmp_path, shared={"power": 500, "licences": 2}, running=running, queue=queue))
    assert (found.shared.tolist(), found.shared_names) == ([500, 2], ("power", "licences"))
    assert found.shared_demands[found.kind].tolist() == [[0, 2], [0, 0]]
    assert found.pool.tolist() == [100, 2]
    assert found.drawn.tolist() == [[400, 0]], "by one row: its two nodes are neighbours"
    without = read_instance(write(tmp_path))
    assert without.shared.shape == (0,) and without.shared_demands.shape == (3, 0)


def asks(**changes):
    return {"shared": {"power": 100}, "queue": [GOOD["queue"][1] | {"id": "x"} | changes]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (asks(shared={"power": 40}), "'x' can never run here: it draws 120 power, but the machine has 100"),
        (asks(shared={"power": -1}), "a unit of job 'x' has -1 of the shared resource 'power'"),
        (asks(shared={"steam": 1}), "job 'x' draws 'steam', which the machine does not have: expected .'power'"),
        (asks() | {"shared": {"power": 0.5}}, "the machine has 0.5 of the shared resource 'power'"),
        (
            {"shared": {"power": 100}, "running": [GOOD["running"][0] | {"shared": {"power": 60}}]},
            "job 'r' needs more than the machine has: .* of 100 power are left -20 power",
        ),
        ({"queue": [{"rn": 1, "req": [5, 0], "d": 60, "q": 0, "id": "big"}]}, "'big' can never run here.*holds 0"),
        ({"queue": [{"rn": 9, "req": [1, 0], "d": 60, "q": 0, "id": "big"}]}, "it has 9 units.*holds 8"),
        ({"queue": [{"rn": 1, "req": [-1, 0], "d": 60, "q": 0, "id": "neg"}]}, "a unit of job 'neg' needs -1 cores"),
        ({"queue": [{"rn": 1, "req": [0, 0], "d": 60, "q": 0, "id": "nil"}]}, "a unit of job 'nil' needs 0 cores"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": 0, "q": 0, "id": "short"}]}, "'short' has 0 seconds"),
        ({"queue": [{"rn": 0, "req": [1, 0], "d": 5, "q": 0, "id": "none"}]}, "'none' has 0 units"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": 5, "q": 3, "id": "early"}]}, "'early' is submitted after now"),
        ({"queue": [{"rn": 1, "req": [1], "d": 5, "q": 0, "id": "thin"}]}, "'thin' has req .*2 whole numbers"),
        ({"queue": [{"rn": 1, "req": [1.5, 0], "d": 5, "q": 0, "id": "half"}]}, "'half' has req .*2 whole numbers"),
        ({"running": [{"rn": 1, "req": [2, 1], "end": 0, "alloc": [[0, 1]]}]}, "job 0 is expected to end at 0 s"),
        ({"running": [{"rn": 2, "req": [2, 1], "end": 9, "alloc": [[0, 1]], "id": "r"}]}, "'r' has 2 units, and 1 on"),
        ({"running": [{"rn": 1, "req": [-2, 1], "end": 9, "alloc": [[0, 1]], "id": "r"}]}, "'r' needs -2 cores"),
        ({"running": [{"rn": 1, "req": [2, 1], "end": 9, "alloc": [[7, 1]]}]}, "on node 7: .*from 0 to 1"),
        ({"running": [{"rn": 3, "req": [2, 1], "end": 9, "alloc": [[0, 3]]}]}, "job 0 needs more than node 0 has"),
        ({"queue": 3}, "Expected cap, running, queue"),
        ({"queue": [{"rn": 1, "req": [1, 0], "q": 0, "id": "x"}]}, r"^/.*\.json: job 'x' has d None: a number"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": "10m", "q": 0, "id": "x"}]}, "job 'x' has d '10m'"),
        ({"running": [{"rn": 1, "req": [2, 1], "alloc": [[0, 1]], "id": "r"}]}, "running job 'r' has end None"),
    ],
)
def test_what_makes_no_sense(tmp_path, changes, words):
    with pytest.raises(InvalidInput, match=words):
        read_instance(write(tmp_path, **changes))


def test_no_such_file(tmp_path):
    with pytest.raises(InvalidInput, match=r"^[^:]*none\.json: No such file or directory. Expected"):
        read_instance(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(InvalidInput, match="Expected a JSON file"):
        read_instance(tmp_path / "text.json")


def test_views():
    jobs = [Job(2, submit=90.0, estimate=30.0), Job(1, submit=100.0, estimate=np.inf)]
    slots = from_view(slot_view(jobs, free=3, total=4))
    assert slots.capacity.shape == (1, 1) and slots.free.tolist() == [[3]]
    assert (slots.waited.tolist(), slots.duration.tolist()) == ([10.0, 0.0], [30.0, 1e9])
    nodes = from_view(node_view([Job(2, kind=1), Job(1)], free=[[8], [3]], demands=[[1], [2]]))
    assert nodes.need[nodes.sort].tolist() == [[2], [1]]
    assert nodes.free.tolist() == [[8], [3]], "the rest stays held"
    assert all(found.shared.shape == (0,) and found.drawn.shape[1] == 0 for found in (slots, nodes))


def test_a_queue_of_resources():
    view = QueueView(
        now=10.0,
        capacity=Resources(cores=8, gpus=1),
        queue=(QueuedJob("a", Resources(cores=4), 60.0, 4.0), QueuedJob("b", Resources(cores=4, gpus=1), 60.0, 5.0)),
        running=(RunningJob("r", Resources(cores=6), ends=9.0),),
    )
    found = from_view(view)
    assert found.free.tolist() == [[2, 1]]
    assert found.release_at.tolist() == [1.0], "it is late"
    assert found.need[found.sort].tolist() == [[4, 0], [4, 1]]
    assert found.waited.tolist() == [6.0, 5.0]


PROBLEM = instance(
    [[2], [2]], [([1], 2, 5.0, 0.0, 1, 0), ([2], 1, 3.0, 0.0, 0, 1)], [(1, [1], 1, 4.0)], members=[[1, 1], [1, 0]]
)
GOOD_of_verify = [[0, 0, 1], [0, 1, 1], [1, 0, 1]]


def test_a_plan_that_keeps_all_laws():
    assert violations(PROBLEM, QueuePlan(np.array([0.0, 5.0]), np.array(GOOD_of_verify))) == []


@pytest.mark.parametrize(
    ("start", "where", "law"),
    [
        ([0.0, 4.0], GOOD_of_verify, "node 0 is asked for 3 cores"),
        ([np.nan, 5.0], GOOD_of_verify, "job 0 starts at nan s"),
        ([-1.0, 5.0], GOOD_of_verify, "job 0 starts at -1 s"),
        ([0.0, 5.0], GOOD_of_verify[1:], "job 0 has 1 units on its nodes: it asked for 2"),
        ([0.0, 5.0], [[0, 0, 2], [1, 0, 1]], "job 0 has 2 units on a node: 1 at most"),
        ([0.0, 5.0], [*GOOD_of_verify[:2], [1, 1, 1]], "job 1 is on node 1, which is not of its partition"),
        ([0.0, 5.0], [*GOOD_of_verify, [0, 0, 0]], "job 0 has 0 units on node 0"),
    ],
)
def test_laws(start, where, law):
    found = violations(PROBLEM, QueuePlan(np.array(start), np.array(where)))
    assert any(law.replace("cores", "r0") in line for line in found), found


def test_what_the_machine_has_as_a_whole_verify():
    problem = instance(
        [[2], [2]], [([1], 2, 5.0, 0.0, 0, 0, [3]), ([1], 1, 5.0, 0.0)], [(1, [1], 1, 4.0, [5])], shared=[10]
    )
    where = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1]])
    assert violations(problem, QueuePlan(np.array([4.0, 0.0]), where)) == []
    found = violations(problem, QueuePlan(np.array([3.0, 0.0]), where))
    assert found == ["the machine is asked for 11 s0 at 3 s: it has 10"]
