from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import NodeRun
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.nwp import Nwp, runs
from asa.lab.placement.tjap.instance import Placed, Window
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.simulator.run import simulate
from asa.lab.simulator.validate import violations
from tests.lab.dispatchers.views import Job, node_view, queue_view, slot_view

TREE = "4x2x2"


@dataclass
class Seen:
    """A placement method that keeps what it is asked."""

    windows: list[Window]

    def place(self, window: Window) -> Placed:
        self.windows.append(window)
        return Sequential().place(window)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 25))
    submit = np.cumsum([draw(st.integers(0, 20)) for _ in range(count)])
    run = [draw(st.integers(1, 80)) for _ in range(count)]
    cores = [draw(st.integers(1, 9)) for _ in range(count)]
    return Workload.of(submit=submit + 0.5, run=run, cores=cores, walltime=run)


def by_hand(jobs: Workload, nodes: int, window: int, most: int) -> list[float]:
    """When each job starts: the authors' loop, period by period, in plain Python."""
    start = [math.nan] * len(jobs)
    waited = [0] * len(jobs)
    queue: list[int] = []
    coming, now = list(range(len(jobs))), 0
    while coming or queue:
        now += window
        while coming and jobs.submit[coming[0]] < now:
            queue.append(coming.pop(0))
        idle = nodes - sum(
            jobs.cores[job] for job in range(len(jobs)) if start[job] <= now < start[job] + jobs.run[job]
        )
        queue.sort(key=lambda job: (-waited[job], jobs.cores[job]))
        wide = 0
        while queue and jobs.cores[queue[0]] <= idle and (wide < most or jobs.cores[queue[0]] == 1):
            job = queue.pop(0)
            wide += jobs.cores[job] > 1
            idle -= jobs.cores[job]
            start[job] = now
        for job in queue:
            waited[job] += 1
    return start


@settings(deadline=None, max_examples=60)
@given(workloads(), st.sampled_from([10, 30]), st.integers(1, 4))
def test_jobs_start_when_the_authors_loop_starts_them(jobs: Workload, window: int, most: int) -> None:
    rule = Nwp(window=window, method="seq", most=most, topology=TREE)
    schedule = simulate(jobs, Cluster.of(nodes=16), rule)
    assert schedule.start.tolist() == by_hand(jobs, 16, window, most)
    assert not violations(schedule)


METHODS = ("seq", "scas", "sa", "dcas-alns", "free", "together")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_where_jobs_are_does_not_change_when_they_start(method: str) -> None:
    rng = np.random.default_rng(3)
    run = rng.integers(5, 200, 60)
    jobs = Workload.of(submit=rng.integers(0, 9, 60).cumsum(), run=run, cores=rng.integers(1, 9, 60), walltime=run)
    first = simulate(jobs, Cluster.of(nodes=16), f"nwp:window=20,method=seq,topology={TREE}")
    here = simulate(jobs, Cluster.of(nodes=16), f"nwp:window=20,method={method},topology={TREE},leaf=0.1,pod=0.01")
    assert here.start.tolist() == first.start.tolist()
    assert not violations(here)


def test_who_waits_for_most_windows_comes_first_then_the_smallest() -> None:
    jobs = [Job(6, submit=95.0), Job(2, submit=95.0), Job(7, submit=50.0), Job(1, submit=96.0), Job(5, submit=95.0)]
    rule = Nwp(window=30, method="seq", topology="2x2x4")
    started = [start.job for start in rule.decide(slot_view(jobs, free=16, total=16, now=120.0))]
    # 7 nodes of an earlier window, then 1, 2, 5 of this one; 6 do not fit into the one that is left.
    assert started == [2, 1, 4, 3]


def test_nothing_behind_one_that_does_not_fit_starts() -> None:
    jobs = [Job(12, submit=10.0), Job(1, submit=95.0)]
    view = node_view(jobs, free=[[1]] * 8 + [[0]] * 8, cluster=Cluster.of(nodes=16), now=120.0)
    assert Nwp(window=30, method="seq", topology=TREE).decide(view) == []


def test_the_method_sees_the_idle_nodes_and_jobs_of_several_nodes() -> None:
    method = Seen([])
    view = node_view([Job(3), Job(1), Job(2)], [[1], [0], [1], [1], [1], [1], [1], [0]], cluster=Cluster.of(nodes=8))
    starts = Nwp(method=method, topology="2x2x2").decide(view)
    (window,) = method.windows
    assert window.idle.tolist() == [0, 2, 3, 4, 5, 6] and window.sizes.tolist() == [2, 3]
    assert window.groups.tolist() == [[0, 1, 1, 2, 2, 3], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    assert window.hops.tolist() == [1.0, 3.0, 5.0]
    assert [(start.job, start.nodes) for start in starts] == [
        (2, (NodeRun(0, 0, 1), NodeRun(2, 2, 1))),
        (0, (NodeRun(3, 5, 1),)),
        (1, (NodeRun(6, 6, 1),)),
    ]


def test_with_a_potential_jobs_of_one_node_are_placed_too() -> None:
    method = Seen([])
    view = node_view([Job(3), Job(1)], [[1]] * 8, cluster=Cluster.of(nodes=8))
    Nwp(method=method, topology="2x2x2", hops="paper", leaf=0.1, pod=0.02).decide(view)
    (window,) = method.windows
    assert window.sizes.tolist() == [3, 1] and window.potential == (0.1, 0.02)
    assert window.hops.tolist() == [2.0, 4.0, 6.0]


def test_jobs_get_whole_nodes() -> None:
    cluster = Cluster.of(nodes=4, cores=4)
    jobs = [Job(6), Job(3, per_node=2)]
    view = node_view(jobs, [[4], [3], [4], [4]], cluster=cluster)
    starts = Nwp(method="seq", topology="2x2").decide(view)
    # Node 1 is not idle. Two nodes for six cores; the other job would need two, for two cores each.
    assert [(start.job, start.nodes) for start in starts] == [(0, (NodeRun(0, 0, 4), NodeRun(2, 2, 2)))]


def test_without_nodes_to_be_seen_it_chooses_jobs_only() -> None:
    starts = Nwp(method="seq").decide(queue_view([Job(4), Job(3), Job(9)], free=8, total=16))
    assert [(start.job, start.nodes) for start in starts] == [(1, ()), (0, ())]


def test_nobody_waits() -> None:
    assert Nwp(method="seq").decide(queue_view([], free=8, total=16)) == []


def test_it_decides_at_the_ends_of_windows_and_once_at_each() -> None:
    asked: list[float] = []

    class Watched(Nwp):
        def decide(self, view: Any) -> Any:
            asked.append(view.now)
            return super().decide(view)

    jobs = Workload.of(submit=[3, 4, 5, 200], run=[10, 10, 130, 5], cores=[2, 2, 2, 4], walltime=[10, 10, 130, 5])
    schedule = simulate(jobs, Cluster.of(nodes=4), Watched(window=30, method="seq", most=1, topology="2x2"))
    assert schedule.start.tolist() == [30.0, 60.0, 90.0, 240.0]
    assert asked == [30.0, 60.0, 90.0, 210.0, 240.0]


def test_a_foresighted_method_puts_jobs_beside_those_that_end_when_they_do() -> None:
    # Two racks of five; a long and a short job hold three nodes of one each. Then comes one of each kind again.
    long, short = 3000.0, 100.0
    run = [long, short, long, short]
    jobs = Workload.of(submit=[1, 31, 61, 61], run=run, cores=[3, 3, 2, 2], walltime=run)
    rule = "nwp:window=30,method=together,topology=2x5,fade=100,leaf=0.5"
    schedule = simulate(jobs, Cluster.of(nodes=10), rule)
    rack = {row: run.first // 5 for row, run in placed(schedule)}
    assert rack[0] != rack[1] and rack[2] == rack[0] and rack[3] == rack[1]


def placed(schedule: Any) -> Iterator[tuple[int, NodeRun]]:
    return iter(schedule.placements)


def test_it_needs_estimates_only_where_its_method_does() -> None:
    assert Nwp(method="together").needs_estimates and not Nwp(method="free").needs_estimates
    jobs = Workload.of(submit=[0], run=[1], cores=[2])
    with pytest.raises(InvalidInput, match="no requested time"):
        simulate(jobs, Cluster.of(nodes=4), "nwp:method=together")
    assert simulate(jobs, Cluster.of(nodes=4), "nwp:method=seq").start.tolist() == [0.0]


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("nwp:window=0", InvalidInput, "window=0"),
        ("nwp:most=-1", InvalidInput, "most=-1"),
        ("nwp:leaf=-0.1", InvalidInput, "leaf=-0.1"),
        ("nwp:hops=miles", UnknownName, "miles"),
        ("nwp:method=magic", UnknownName, "magic"),
        ("nwp:method=scas,speed=3", UnknownName, "speed"),
    ],
)
def test_bad_options_are_named(spec: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        DISPATCHERS.create(spec)


def test_options_for_a_method_that_is_given_itself_are_refused() -> None:
    with pytest.raises(InvalidInput, match="iterations"):
        Nwp(method=Sequential(), iterations=3)


@pytest.mark.parametrize(
    ("cluster", "topology", "says"),
    [
        (Cluster(np.array([[1], [2]])), "", "equal ones"),
        (Cluster(np.array([[1], [1]]), partitions={"a": (0,), "b": (1,)}), "", "equal ones"),
        (Cluster.of(nodes=9), "2x4", "the machine has 9"),
        (Cluster.of(nodes=9), "no-such-file.conf", "no-such-file.conf"),
    ],
)
def test_machines_that_it_does_not_know_are_refused(cluster: Cluster, topology: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Nwp(method="seq", topology=topology).decide(node_view([Job(1)], cluster.capacity.tolist(), cluster=cluster))


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(1, 4), st.data())
def test_runs_hold_all_units_and_no_node_more_than_its_share(nodes: set[int], each: int, data: st.DataObject) -> None:
    units = data.draw(st.integers(each * (len(nodes) - 1) + 1, each * len(nodes)))
    found = runs(np.array(sorted(nodes)), each, units)
    given_to = {node: run.units for run in found for node in range(run.first, run.last + 1)}
    assert given_to.keys() == nodes and sum(given_to.values()) == units and max(given_to.values()) <= each
