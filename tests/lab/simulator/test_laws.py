"""What holds for every workload: the machine's laws, and what each dispatcher promises."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Reserve
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Conservative, Easy, Fcfs
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.replay import lines, replay
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Settings
from asa.lab.simulator.validate import violations
from tests.lab.simulator.cases import SLOTS, Readable, mixed, pull, workloads

DEPTHS = (0, 1, 2, math.inf)
machine = Cluster.of(nodes=SLOTS)


def same(one: object, other: object) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("overrun", ["clip", "allow"])
@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads())
def test_schedules_keep_the_laws_and_everything_ends(depth: float, overrun: str, jobs: Workload) -> None:
    schedule = simulate(jobs, machine, Backfill(depth), overrun=overrun)
    assert violations(schedule) == []
    assert schedule.ran.all()
    late = jobs.run > jobs.walltime
    assert (schedule.outcome == list(JobState).index(JobState.TIMEOUT)).tolist() == (
        late.tolist() if overrun == "clip" else [False] * len(jobs)
    )


@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads(), limit=st.sampled_from([2, math.inf]))
def test_compiled_loop_pull_loop_and_readable_rule_agree(depth: float, jobs: Workload, limit: float) -> None:
    rule = Backfill(depth, limit)
    driven = simulate(jobs, machine, rule)
    pulled = pull(jobs, machine, rule)
    assert same(driven.start, pulled.start)
    assert driven.placements is not None and pulled.placements is not None
    assert same(driven.placements.runs, pulled.placements.runs)
    assert same(driven.start, pull(jobs, machine, Readable(rule)).start)


@pytest.mark.parametrize("depth", DEPTHS)
@given(jobs=workloads())
def test_tables_and_objects_give_the_same_decisions(depth: float, jobs: Workload) -> None:
    rule = Backfill(depth)
    engine = Engine(jobs, machine)
    while (view := engine.advance()) is not None:
        decisions = rule.decide(view)
        assert decisions == list(Readable(rule).decide(view))
        engine.apply(decisions)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sjf", "largest-area", "wfp3", "f1"])
@given(jobs=workloads(), threshold=st.sampled_from([1e-9, 30.0, math.inf]))
def test_orders_agree_between_compiled_and_pull_loop(order: str, jobs: Workload, threshold: float) -> None:
    rule = Easy(order=order, threshold=threshold)
    assert same(simulate(jobs, machine, rule).start, pull(jobs, machine, rule).start)


@pytest.mark.slow
@pytest.mark.parametrize("depth", DEPTHS)
@given(case=mixed())
def test_unequal_nodes_keep_the_laws(depth: float, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    schedule = simulate(jobs, cluster, Backfill(depth))
    assert violations(schedule) == []
    refused = schedule.outcome == list(JobState).index(JobState.FAILED)
    assert (schedule.ran | refused).all()
    assert same(schedule.start, pull(jobs, cluster, Backfill(depth)).start)


@given(jobs=workloads())
def test_node_scan_equals_slot_scan_where_nothing_is_reserved(jobs: Workload) -> None:
    """A partition of all nodes makes the engine look at nodes; nothing else changes."""
    with_nodes = dataclasses.replace(machine, partitions={"all": tuple(range(SLOTS))})
    assert same(simulate(jobs, machine, Fcfs()).start, simulate(jobs, with_nodes, Fcfs()).start)


@given(jobs=workloads())
def test_fcfs_starts_in_order(jobs: Workload) -> None:
    assert (np.diff(simulate(jobs, machine, Fcfs()).start) >= 0).all()


@given(jobs=workloads(exact=True))
def test_conservative_delays_nobody_beyond_fcfs(jobs: Workload) -> None:
    assert (simulate(jobs, machine, Conservative()).start <= simulate(jobs, machine, Fcfs()).start).all()


def broken_promises(jobs: Workload, cluster: Cluster) -> list[int]:
    """Jobs that started later than they were promised while they were the head of the queue."""
    engine, promised = Engine(jobs, cluster), {}
    while (view := engine.advance()) is not None:
        decisions = Easy().decide(view)
        promised.update({d.job: d.at for d in decisions if isinstance(d, Reserve) and d.job == view.waiting[0]})
        engine.apply(decisions)
    start = engine.schedule().start
    return [row for row, at in promised.items() if start[row] > at]


@given(jobs=workloads())
def test_the_head_never_starts_later_than_its_shadow_time(jobs: Workload) -> None:
    assert broken_promises(jobs, machine) == []


@given(case=mixed())
def test_nor_does_it_on_unequal_nodes(case: tuple[Workload, Cluster]) -> None:
    assert broken_promises(*case) == []


@given(jobs=workloads(), scale=st.sampled_from([0.5, 4.0, 1024.0]))
def test_scaling_time_scales_the_schedule(jobs: Workload, scale: float) -> None:
    scaled = dataclasses.replace(jobs, submit=jobs.submit * scale, run=jobs.run * scale, walltime=jobs.walltime * scale)
    for depth in DEPTHS:
        assert same(
            simulate(jobs, machine, Backfill(depth)).start * scale, simulate(scaled, machine, Backfill(depth)).start
        )


@given(jobs=workloads(), seed=st.integers(0, 99))
def test_job_numbers_change_nothing(jobs: Workload, seed: int) -> None:
    numbers = np.random.default_rng(seed).permutation(len(jobs)) + 1
    renamed = dataclasses.replace(jobs, number=numbers)
    assert same(simulate(jobs, machine, Easy()).start, simulate(renamed, machine, Easy()).start)


@settings(max_examples=50)
@given(jobs=workloads())
def test_the_log_tells_the_schedule(jobs: Workload) -> None:
    engine = Engine(jobs, machine, Settings())
    rule = Easy().native
    assert rule is not None
    engine.drive(rule)
    start, end = replay(lines(engine), len(jobs))
    assert same(start, engine.schedule().start)
    assert same(end, engine.schedule().end)


def test_so_it_does_of_a_job_that_had_to_wait_again() -> None:
    engine = Engine(Workload.of(submit=[0], run=[5], cores=[1], walltime=[9]), Cluster.of(nodes=1))
    edits.fail_node(engine, 0, at=2.0, back=7.0)
    rule = Fcfs().native
    assert rule is not None
    engine.drive(rule)
    start, end = replay(lines(engine), 1)
    assert (start.tolist(), end.tolist()) == ([7.0], [12.0])
    until_then = [line for line in lines(engine) if line.at < 7.0]
    assert "requeued" in [line.kind for line in until_then]
    assert np.isnan(replay(until_then, 1)).all()
