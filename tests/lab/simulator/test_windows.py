"""Windows: times at which nodes are kept from jobs; the engine against the slow scheduler of the partitions' tests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import NodeRun, Reserve, Start
from asa.core.errors import IllegalDecision, InvalidInput
from asa.lab.core.cluster import Cluster, NodeWindow
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.decisions import DecisionSample
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from tests.lab.simulator.cases import workloads
from tests.lab.simulator.test_partitions import check_agreement, partitioned
from tests.lab.simulator.validate import violations


@st.composite
def windowed(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs of three users, and a machine with partitions whose nodes are kept from them now and then."""
    jobs, cluster = draw(partitioned())
    jobs = replace(
        jobs,
        user=np.array(draw(st.lists(st.integers(-1, 1), min_size=len(jobs), max_size=len(jobs)))),
        labels={**jobs.labels, "user": ("ann", "bob")},
    )
    windows = []
    for number in range(draw(st.integers(1, 4))):
        start, lasts = draw(st.integers(-3, 25)), draw(st.integers(1, 9))
        nodes = draw(st.sets(st.integers(0, cluster.nodes - 1)))
        users = draw(st.sampled_from([(), (), ("bob",), ("ann", "bob")]))
        windows.append(NodeWindow(start, start + lasts, tuple(nodes), f"w{number}", users))
    return jobs, replace(cluster, windows=tuple(windows))


@pytest.mark.parametrize("depth", [0, 1, 2, math.inf])
@given(case=windowed())
def test_compiled_loop_pull_loop_and_slow_scheduler_agree(depth: float, case: tuple[Workload, Cluster]) -> None:
    check_agreement(*case, depth)


@pytest.mark.parametrize(
    ("dispatcher", "settings"),
    [
        ("easy", {"instant": "one-by-one"}),
        ("easy", {"predictor": "last-two"}),
        ("conservative", {"predictor": "oracle"}),
        ("easy++", {}),
        ("random", {}),
        ("binpacking", {}),
        ("knapsack", {}),
    ],
)
@given(case=windowed())
def test_no_job_runs_in_a_window_on_its_nodes(
    dispatcher: str, settings: dict[str, str], case: tuple[Workload, Cluster]
) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, dispatcher, **settings)
    assert violations(schedule) == []
    for row, run in schedule.placements or ():
        for window in cluster.windows:
            nodes = set(window.nodes or range(cluster.nodes)) & set(range(run.first, run.last + 1))
            if nodes and jobs.label("user", row) not in window.users:
                assert schedule.end[row] <= window.start or schedule.start[row] >= window.end


@pytest.mark.parametrize("depth", [0, 1, math.inf])
@given(jobs=workloads())
def test_windows_that_are_over_or_far_away_change_nothing(depth: float, jobs: Workload) -> None:
    """On single nodes: there the machine without windows is one of slots, whose reservations may find other nodes."""
    one = Cluster.of(nodes=1, cores=5)
    away = replace(one, windows=(NodeWindow(-9, 0), NodeWindow(1e6, 2e6, (0,))))
    np.testing.assert_array_equal(
        simulate(jobs, one, Backfill(depth)).start, simulate(jobs, away, Backfill(depth)).start
    )


# -- One by one -------------------------------------------------------------------------------------------------------


def work(*jobs: tuple[float, float, int], **columns: object) -> Workload:
    """Jobs as (submission, wall time, cores); they run as long."""
    submit, wall, cores = zip(*jobs, strict=True)
    return Workload.of(submit=submit, run=np.nan_to_num(wall, nan=5.0), walltime=wall, cores=cores, **columns)


def machine(*windows: NodeWindow) -> Cluster:
    return replace(Cluster.of(nodes=4), windows=windows)


def test_a_job_starts_if_it_is_over_when_the_window_begins_and_else_after_it() -> None:
    jobs = work((0, 10, 2), (0, 10.5, 1), (0, 9, 2), (12, 1, 1))
    assert simulate(jobs, machine(NodeWindow(10, 20)), "easy").start.tolist() == [0.0, 20.0, 0.0, 20.0]


def test_on_other_nodes_jobs_go_on() -> None:
    jobs = work((0, 15, 3), (0, 15, 2), (0, 5, 2))
    schedule = simulate(jobs, machine(NodeWindow(10, 20, (0, 1))), "easy")
    # 3 nodes are to be had after the window only; 2 are beside it, before it the others
    assert schedule.start.tolist() == [20.0, 0.0, 0.0]
    assert schedule.placements is not None
    assert schedule.placements.of(1) == [NodeRun(2, 3, 1)]


@pytest.mark.parametrize("dispatcher", ["fcfs", "easy", "conservative"])
def test_a_job_too_wide_beside_a_window_is_passed_over_and_one_that_others_block_is_not(dispatcher: str) -> None:
    kept = machine(NodeWindow(10, 20, (0,)))
    wide = work((0, 15, 4), (0, 40, 2), (1, 30, 1))
    assert simulate(wide, kept, dispatcher).start.tolist() == [40.0, 0.0, 1.0], "as by Slurm's main scheduler"
    narrow = work((0, 15, 2), (0, 15, 2), (1, 40, 1))
    assert simulate(narrow, kept, dispatcher).start.tolist() == [0.0, 15.0, 15.0 if dispatcher == "fcfs" else 1.0]


def test_a_reservation_is_promised_for_after_the_window() -> None:
    engine = Engine(work((0, 4, 4), (1, 8, 4), (1, 5, 1)), machine(NodeWindow(10, 20)))
    engine.advance()
    engine.apply([Start(0)])
    view = engine.advance()
    assert Easy().decide(view) == [Reserve(1, 20.0)]


def test_a_job_without_a_wall_time_waits_for_the_last_window_to_be_over() -> None:
    jobs = work((0, math.nan, 1), (0, 5, 1))
    windows = NodeWindow(50, 60, (0, 1)), NodeWindow(80, 90, (2, 3))
    assert simulate(jobs, machine(*windows), "easy").start.tolist() == [60.0, 0.0]


def test_wall_times_count_not_what_is_predicted() -> None:
    jobs = replace(work((0, 20, 1), (0, 20, 1)), run=np.array([5.0, 5.0]))
    assert simulate(jobs, machine(NodeWindow(10, 12)), "easy", predictor="oracle").start.tolist() == [12.0, 12.0]


def test_some_users_may_start_in_a_window() -> None:
    jobs = work((0, 20, 1), (0, 20, 1), (0, 20, 1), user=[0, 1, -1], labels={"user": ("ann", "bob")})
    window = NodeWindow(10, 15, users=("bob", "nobody"))
    assert simulate(jobs, machine(window), "easy").start.tolist() == [15.0, 0.0, 15.0]
    engine = Engine(jobs, machine(window))
    row = operations.submit(engine, run=20, walltime=20, units=1, user=1, watched=False)
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][row] == 0.0


def test_a_decision_that_reaches_into_a_window_is_illegal() -> None:
    engine = Engine(work((0, 11, 2)), machine(NodeWindow(10, 20, (0,), "pumps")))
    engine.advance()
    with pytest.raises(IllegalDecision, match="window 'pumps' keeps nodes from it"):
        engine.apply([Start(0, (NodeRun(0, 1, 1),))])
    engine.apply([Start(0)])
    assert engine.schedule().placements.of(0) == [NodeRun(1, 2, 1)]


def test_a_copy_has_the_same_windows() -> None:
    engine = Engine(work((0, 11, 4)), machine(NodeWindow(10, 20)))
    engine.copy().dispatch(Easy().numbers)
    assert engine.now == 0.0
    engine.dispatch(Easy().numbers)
    assert engine.schedule().start.tolist() == [20.0]


def test_dispatchers_that_cannot_plan_windows_refuse_them() -> None:
    jobs, windows = work((0, 11, 4)), machine(NodeWindow(10, 20))
    with pytest.raises(InvalidInput, match="plans know no windows: take a backfilling rule"):
        simulate(jobs, windows, "listplan")
    with pytest.raises(InvalidInput, match="one partition without windows expected"):
        simulate(jobs, windows, "nwp")
    with pytest.raises(InvalidInput, match="cannot be saved: files of instances know no partitions, no windows"):
        simulate(jobs, windows, "easy", watch=DecisionSample(3))


def test_laws_of_windows_are_checked() -> None:
    schedule = simulate(work((0, 11, 2)), machine())
    after = replace(schedule, cluster=machine(NodeWindow(10, 20, (1,), "pumps")))
    assert violations(after) == [
        "job 1 starts at 0 s and may run until 11 s: window 'pumps' keeps some of its nodes from 10 to 20 s"
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((5, 5), "window 'w' has start 5 and end 5: finite times .* the end after the start"),
        ((5, math.inf), "end inf"),
        ((math.nan, 5), "start nan"),
    ],
)
def test_a_window_has_sensible_times(values: tuple[float, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        NodeWindow(*values, name="w")


@pytest.mark.parametrize("nodes", [(4,), (-1, 2)])
def test_a_window_is_of_nodes_that_there_are(nodes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="window 'w' must name nodes between 0 and 3"):
        machine(NodeWindow(0, 1, nodes, "w"))
