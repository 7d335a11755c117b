"""A twin of a queue: what it says of starts is what the simulator makes of the same queue."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.backend.simulated import Simulated
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.forecast.futures import visible
from asa.lab.forecast.twin import COMPARED, Snapshot, Twin
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import HELD, StopReason
from tests.lab.simulator.test_kinds import kinds
from tests.lab.simulator.test_limits import in_accounts, limited
from tests.lab.simulator.test_preemption import preempting
from tests.lab.traces.shared import shared_file

CORES = 8

# Whole numbers: sums and differences of times are exact, so that "equal" can mean equal.
jobs = st.lists(
    st.tuples(
        st.integers(0, 300),  # submission
        st.integers(1, CORES),
        st.integers(1, 200),  # wall time
        st.integers(1, 120),  # percent of it that it would run
    ),
    min_size=1,
    max_size=40,
)
policies = st.sampled_from([*COMPARED, "easy:order=sjf,threshold=100", "backfill:depth=3,limit=5"])


def truth(engine: Engine, seen: Snapshot) -> dict[str, Any]:
    """What a snapshot does not show: what is left of the run times of running jobs [s], run times of waiting ones [s],
    and the jobs to come."""
    state, rows = engine.state, np.array(seen.keys, dtype=np.int64)
    run = np.minimum(state.job_states["run"], state.job_states["stop"])
    active, waiting = rows[: seen.running], rows[seen.running :]
    left = state.jobs["started"][active] + run[active] - engine.now
    later = engine.workload.take(np.arange(state.world[0]["arrival"], len(engine.workload)))
    labels = {**engine.workload.labels, "partition": tuple(engine.cluster.partitions)}
    coming = replace(later, labels=labels, demands=state.demands, resources=engine.cluster.resources)
    return {"left_s": left, "run_s": run[waiting], "coming": coming}


def to_the_end(engine: Engine, dispatcher: str, seen: Snapshot) -> Floats:
    """When the simulator itself starts the jobs that wait, on a copy of the machine."""
    engine = engine.copy()
    engine.state.world[0]["dirty"] = 1  # with another dispatcher, or thresholds, there is something to decide at once
    while engine.dispatch(rule_of(dispatcher)) is not StopReason.OVER:
        pass
    starts: Floats = engine.state.jobs["started"][np.array(seen.keys[seen.running :], dtype=np.int64)]
    return starts


@settings(max_examples=150, deadline=None)
@given(made=jobs, moment=st.integers(0, 400), before=policies, then=policies)
def test_with_true_run_times_the_twin_is_the_simulator(
    made: list[tuple[int, int, int, int]], moment: int, before: str, then: str
) -> None:
    submit, cores, walltime, percent = (list(column) for column in zip((0, 1, 1, 100), *made, strict=True))
    run = [max(1, asked * part // 100) for asked, part in zip(walltime, percent, strict=True)]
    workload = Workload.of(submit=submit, run=run, cores=cores, walltime=walltime)
    engine = Engine(workload, Cluster.of(nodes=2, cores=CORES // 2), MachineSettings())
    engine.dispatch(rule_of(before), float(moment))
    seen = Snapshot.of_engine(engine)
    twin = Twin.of(seen, **truth(engine, seen))
    expected = to_the_end(engine, then, seen)
    np.testing.assert_array_equal(twin.under(then).starts, expected)
    np.testing.assert_array_equal(twin.under(then).starts, expected)  # the twin itself is where it was


@settings(max_examples=150, deadline=None)
@given(
    case=st.one_of(kinds(), in_accounts(), limited(), preempting()),
    moment=st.integers(0, 12),
    before=policies,
    then=policies,
    exact=st.booleans(),
)
def test_so_it_is_on_machines_with_nodes_that_differ_partitions_windows_and_limits(
    case: tuple[Workload, Cluster], moment: int, before: str, then: str, exact: bool
) -> None:
    jobs, cluster = case
    walltime = np.nan_to_num(jobs.walltime, nan=5.0)
    jobs = replace(jobs, walltime=walltime, run=walltime if exact else jobs.run)
    engine = Engine(jobs, cluster, MachineSettings())
    engine.dispatch(rule_of(before), float(moment))
    assume(not (engine.state.job_states["status"][: len(jobs)] == HELD).any())  # preempted, and kept back for a while
    seen = Snapshot.of_engine(engine)
    twin = Twin.of(seen, **truth(engine, seen))
    np.testing.assert_array_equal(twin.under(then).starts, to_the_end(engine, then, seen))
    if exact:  # by their limits, as no job is submitted any more
        world = engine.state.world[0]
        world["arrivals"] = world["arrival"]
        np.testing.assert_array_equal(Twin.of(seen).under(then).starts, to_the_end(engine, then, seen))


def test_like_nodes_become_one_node_with_partitions_and_what_runs_kept() -> None:
    cluster = replace(Cluster.of(6, 2), partitions={"a": Partition((0, 1, 2, 3)), "b": Partition((2, 3, 4, 5))})
    jobs = Workload.of(
        submit=[0, 0, 0, 0], run=[50] * 4, walltime=[50, 60, 70, 80], cores=[8, 3, 4, 2], partition=[0, 1, 1, 0],
        labels={"partition": ("a", "b")},
    )  # fmt: skip
    engine = Engine(jobs, cluster, MachineSettings())
    engine.dispatch(rule_of("fcfs"), 1.0)
    seen = Snapshot.of_engine(engine)
    coarse = seen.coarse()
    assert coarse.cluster.capacity.tolist() == [[4], [4], [4]]
    assert [each.nodes for each in coarse.cluster.partitions.values()] == [(0, 1), (1, 2)]
    assert coarse.cores_used == seen.cores_used == 11
    for name in COMPARED:
        np.testing.assert_array_equal(Twin.of(coarse).under(name).starts, Twin.of(seen).under(name).starts)


@pytest.mark.shared
@pytest.mark.parametrize("dispatcher", COMPARED[:4])
def test_the_middle_of_a_log_goes_on_in_the_twin_as_in_the_queue(dispatcher: str) -> None:
    path = shared_file("swf", "KTH-SP2-1996-2.swf.gz")
    queue = Simulated(trace=path, dispatcher=dispatcher, warmup=150.0, days=400.0)
    queue.enter()
    while (view := queue.look().plain()) and len(view.queue) < 20:
        queue.sleep(6 * 3600.0)
    seen = Snapshot.of_engine(queue.engine)
    found = Twin.of(seen, **truth(queue.engine, seen)).under(dispatcher).starts
    queue.sleep(60 * 86400.0)
    started = queue.engine.state.jobs["started"][np.array(seen.keys[seen.running :])]
    assert len(started) >= 20
    np.testing.assert_array_equal(found, started)
    by_limits = Twin.of(seen).under(dispatcher)
    assert by_limits.waits.mean() > (started - seen.submitted[seen.running :]).mean()


@settings(max_examples=150, deadline=None)
@given(made=jobs, moment=st.integers(0, 400), before=policies, then=policies)
def test_by_limits_the_twin_is_the_simulator_whose_jobs_run_until_their_limits(
    made: list[tuple[int, int, int, int]], moment: int, before: str, then: str
) -> None:
    """Conservative plans, too, which are made once and not carried out."""
    submit, cores, walltime, _ = (list(column) for column in zip((0, 1, 1, 100), *made, strict=True))
    workload = Workload.of(submit=submit, run=walltime, cores=cores, walltime=walltime)
    engine = Engine(workload, Cluster.of(nodes=2, cores=CORES // 2), MachineSettings())
    engine.dispatch(rule_of(before), float(moment))
    world = engine.state.world[0]
    world["arrivals"] = world["arrival"]  # no further arrivals
    seen = Snapshot.of_engine(engine)
    np.testing.assert_array_equal(Twin.of(seen).under(then).starts, to_the_end(engine, then, seen))


# -- Queues that no simulator has made ---------------------------------------------------------------------------------


def twin_of(view: QueueView) -> Twin:
    return Twin.of(Snapshot.of(visible(view)))


def waiting(key: str, cores: int, walltime_s: float, submitted: float = 0.0) -> QueuedJob:
    return QueuedJob(key, Resources(cores), walltime_s, submitted)


def test_the_order_is_that_of_the_view_and_waits_count_from_the_submission() -> None:
    queue = (waiting("late", 8, 50.0, 90.0), waiting("early", 8, 70.0, 10.0))
    view = QueueView(100.0, Resources(CORES), queue, (RunningJob("r", Resources(1), 120.0),))
    found = twin_of(view).under("fcfs")
    assert found.starts.tolist() == [120.0, 170.0]
    assert found.waits.tolist() == [30.0, 160.0]
    row = found.to_json()
    assert row == {"dispatcher": "fcfs", "mean_wait_s": 95.0, "p90_wait_s": 147.0, "max_wait_s": 160.0, "never": 0}


def test_a_job_beyond_its_threshold_comes_first_however_long_it_is() -> None:
    queue = (waiting("short", 8, 10.0, 0.0), waiting("old", 8, 100.0, -61 * 3600.0))
    twin = twin_of(QueueView(0.0, Resources(CORES), queue, ()))
    assert twin.under("easy:order=sjf").starts.tolist() == [0.0, 10.0]
    assert twin.under("easy:order=sjf,threshold=60h").starts.tolist() == [100.0, 0.0]


def test_a_job_that_is_too_large_never_starts_and_counts_in_no_mean() -> None:
    view = QueueView(0.0, Resources(CORES), (waiting("vast", 9, 10.0), waiting("small", 8, 10.0)), ())
    for dispatcher in COMPARED:
        found = twin_of(view).under(dispatcher)
        assert math.isnan(found.starts[0])
        assert found.starts[1] == 0.0
        assert (found.to_json()["never"], found.to_json()["mean_wait_s"]) == (1, 0.0)
    none = twin_of(QueueView(0.0, Resources(CORES), (waiting("vast", 9, 10.0),), ())).under("easy")
    assert (none.to_json()["never"], none.to_json()["mean_wait_s"]) == (1, None)


def test_an_empty_queue_has_no_waits() -> None:
    for running in ((), (RunningJob("r", Resources(1), 120.0),)):
        row = twin_of(QueueView(5.0, Resources(CORES), (), running)).under("easy").to_json()
        assert (row["mean_wait_s"], row["never"]) == (None, 0)


def test_jobs_on_nodes_that_go_down_run_on_beside_more_than_fits() -> None:
    running = tuple(RunningJob(f"r{k}", Resources(4), 100.0 + k) for k in range(3))  # 12 of 8 cores
    found = twin_of(QueueView(0.0, Resources(CORES), (waiting("a", 8, 10.0),), running)).under("easy")
    assert found.starts.tolist() == [101.0]


def test_thousands_of_running_jobs_start_at_once_and_no_other_beside_them() -> None:
    running = tuple(RunningJob(k, Resources(1), 100.0) for k in range(3000))
    queue = tuple(waiting(f"w{k}", 1, 10.0) for k in range(500))
    twin = twin_of(QueueView(0.0, Resources(3100), queue, running))
    assert twin.engine.state.world[0]["running"] == 3000
    starts = twin.under("easy").starts
    assert (starts == 0.0).sum() == 100
    assert starts.max() == 40.0


def test_what_makes_no_sense_is_refused() -> None:
    twin = twin_of(QueueView(0.0, Resources(CORES), (waiting("a", 1, 10.0),), ()))
    for wrong in ([], [math.nan], [-1.0], [math.inf], [1.0, 2.0]):
        with pytest.raises(InvalidInput, match="run_s: 1 finite numbers"):
            Twin.of(twin.seen, run_s=np.array(wrong))
    with pytest.raises(InvalidInput, match="no backfilling rule"):
        twin.under("listplan")
    with pytest.raises(UnknownName):
        twin.under("esay")
