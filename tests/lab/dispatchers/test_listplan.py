import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import NodeRun, Start
from asa.core.errors import AsaError
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.simulator.run import simulate
from asa.lab.simulator.validate import violations
from tests.lab.dispatchers.planning.instances import instance
from tests.lab.dispatchers.views import Job, node_view, slot_view


@pytest.mark.slow
def test_who_starts_now_and_where():
    view = node_view([Job(3, estimate=50.0), Job(1, estimate=10.0)], free=[[2], [1], [1]])
    assert ListPlan(rule="sjf").decide(view) == [
        Start(0, (NodeRun(0, 2, 1),)),
        Start(1, (NodeRun(0, 0, 1),)),
    ]


def test_nodes_do_not_matter_on_a_machine_of_slots():
    view = slot_view([Job(3, estimate=50.0), Job(2, estimate=10.0), Job(1, estimate=5.0)], free=3, total=4)
    assert ListPlan(rule="sjf").decide(view) == [Start(1), Start(2)]


def test_a_queue_of_resources():
    queue = tuple(QueuedJob(name, Resources(cores=2), length, 0.0) for name, length in (("a", 90.0), ("b", 10.0)))
    view = QueueView(now=5.0, capacity=Resources(cores=2), queue=queue, running=())
    assert ListPlan().decide(view) == [Start("b")]
    assert ListPlan().decide(QueueView(5.0, Resources(cores=2), (), ())) == []


def test_overdue():
    problem = instance([[1]], [([1], 1, 100.0, 250.0), ([1], 1, 1.0, 0.0), ([1], 1, 10.0, 30.0)])
    assert np.argsort(ListPlan(overdue=2.0).keys(problem)).tolist() == [0, 2, 1], "50 s overdue, and 10 s"
    assert np.argsort(ListPlan().keys(problem)).tolist() == [1, 2, 0]


def test_searching_leaves_the_overdue_where_they_are():
    problem = instance([[1]], [([1], 1, 100.0, 250.0), ([1], 1, 1.0, 0.0), ([1], 1, 10.0, 30.0)])
    plan = ListPlan(overdue=2.0).solve(problem, 0.01).plan
    assert plan.start.tolist() == [0.0, 110.0, 100.0], "the short one first would be better by far"


def waits(schedule):
    return schedule.start - schedule.workload.submit


@pytest.mark.parametrize("scheme", ["active", "non-delay"])
def test_an_endless_stream_of_narrow_jobs_does_not_starve_a_wide_one(scheme):
    """Every 2.5 s a job of 10 s on one of four cores: they are never all free, and always something shorter waits."""
    narrow, cluster, wide = 400, Cluster.of(nodes=1, cores=4), 1
    submit, run, cores = 2.5 * np.arange(narrow), np.full(narrow, 10.0), np.ones(narrow, np.int64)
    submit, run, cores = np.insert(submit, wide, 1.0), np.insert(run, wide, 11.0), np.insert(cores, wide, 4)
    jobs = Workload.of(submit=submit, run=run, walltime=run, cores=cores)
    starved = waits(simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf"))[wide]
    served = waits(simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf,overdue=3"))[wide]
    assert starved > 2.5 * (narrow - 1), "until the stream ends"
    assert served <= 3 * 11.0 + 11.0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["active", "non-delay"])
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([1.0, 2.0]))
@settings(max_examples=25, deadline=None)
def test_no_wait_is_longer_than_was_promised(scheme, seed, overdue, longer):
    """`overdue` times the duration, and the longest duration for itself and for each that was overdue before."""
    draw, count = np.random.default_rng(seed), 60
    run = draw.integers(1, 40, count).astype(float)
    submit, expected = np.sort(draw.integers(0, 300, count)).astype(float), run * longer
    demands, kind = np.array([[1, 1], [2, 4], [4, 0]]), draw.integers(0, 3, count)
    jobs = Workload.of(
        submit=submit, run=run, walltime=expected, units=draw.integers(1, 4, count), demands=demands, kind=kind,
        resources=("cores", "memory"),
    )  # fmt: skip
    cluster = Cluster(np.array([[4, 8], [4, 8], [8, 4]]), ("cores", "memory"))
    schedule = simulate(jobs, cluster, f"listplan:scheme={scheme},rule=sjf,overdue={overdue}")
    assert violations(schedule) == []
    since = submit + overdue * expected
    for job in range(count):
        before = (since <= since[job]) & (schedule.start >= since[job])
        assert waits(schedule)[job] <= overdue * expected[job] + max(1, before.sum()) * expected.max() + 1e-9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "sjv"}, "rule 'sjv'"),
        ({"scheme": "lazy"}, "scheme 'lazy'"),
        ({"overdue": -1.0}, "overdue is -1.0"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"seconds": 1.0, "scheme": "non-delay"}, "for active plans only"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(AsaError, match=words):
        ListPlan(**options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["", ":scheme=non-delay", ":rule=pcp,overdue=3", ":scheme=non-delay,overdue=2", ":seconds=0.001"]
)
@pytest.mark.parametrize("nodes", [True, False])
def test_it_brings_a_trace_to_its_end(options, nodes):
    draw = np.random.default_rng(3)
    count = 120
    run = draw.integers(1, 60, count).astype(float)
    columns = {"submit": np.sort(draw.integers(0, 900, count)), "run": run}
    columns["walltime"] = run * draw.uniform(0.7, 2, count)
    if nodes:
        cluster = Cluster(np.array([[4, 8], [4, 8], [8, 4]]), ("cores", "memory"))
        demands = np.array([[1, 1], [2, 4], [4, 0]])
        kind = draw.integers(0, 3, count)
        jobs = Workload.of(**columns, units=draw.integers(1, 3, count), demands=demands, kind=kind)
    else:
        cluster = Cluster.of(nodes=4, cores=4)
        jobs = Workload.of(**columns, cores=draw.integers(1, 16, count))
    schedule = simulate(jobs, cluster, f"listplan{options}", overrun="allow")
    assert violations(schedule) == []
    assert schedule.ran.all()
    assert math.isfinite(schedule.end.max())
