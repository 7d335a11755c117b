from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Rule, rule_of
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Settings
from asa.lab.studies.oracle import RESOLUTION_S, Foreseen, Need, oracle
from asa.lab.studies.probes import Kind, started, submit

FCFS, EASY = rule_of("fcfs"), rule_of("easy")


def queue(jobs: int, seed: int, rate_s: float = 100.0, priority: str = "fifo") -> Engine:
    """Eight cores on which jobs wait for some hundred seconds."""
    rng = np.random.default_rng(seed)
    run = rng.integers(20, 400, jobs)
    work = Workload.of(
        submit=np.sort(rng.uniform(0, rate_s * jobs, jobs)), run=run, cores=rng.integers(1, 6, jobs), walltime=run * 1.5
    )
    engine = Engine(work, Cluster.of(nodes=1, cores=8), Settings(priority=priority))
    engine.drive(EASY, until=rate_s * jobs / 4)
    return engine


def stages(*cores: int, run_time_s: float = 150.0) -> list[Need]:
    names = [f"s{k}" for k in range(len(cores))]
    return [
        Need(name, Kind(count, 2 * run_time_s), run_time_s, (names[k - 1],) if k else ())
        for k, (name, count) in enumerate(zip(names, cores, strict=True))
    ]


def brute_force(engine: Engine, rule: Rule, two: list[Need], step: float) -> float:
    """The earliest end of a workflow of two stages over all times of submission of the second."""
    best = np.inf
    for lead in itertools.count():
        at = engine.now + lead * step
        copy = engine.copy()
        rows = [submit(copy, two[0].kind, two[0].run_time_s), submit(copy, two[1].kind, two[1].run_time_s, at)]
        first, second = started(copy, rule, rows)
        if second >= first + two[0].run_time_s:
            best = min(best, second + two[1].run_time_s)
        if at > first + two[0].run_time_s:
            return best
    raise AssertionError("unreachable")


@pytest.mark.parametrize("seed", range(6))
def test_two_stages_end_as_early_as_any_submission_lets_them(seed: int) -> None:
    engine, two = queue(120, seed), stages(3, 4)
    found = oracle(engine, FCFS, two)
    assert found[-1].ended <= brute_force(engine, FCFS, two, step=2.0) + RESOLUTION_S


@settings(max_examples=25)
@given(st.integers(0, 1000), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_every_stage_starts_when_it_is_ready_or_later_and_the_engine_is_left_alone(seed: int, cores: list[int]) -> None:
    engine = queue(60, seed)
    now, jobs = engine.now, int(engine.state.world[0]["jobs"])
    found = oracle(engine, EASY, stages(*cores))
    assert (engine.now, int(engine.state.world[0]["jobs"])) == (now, jobs)
    for before, stage in itertools.pairwise(found):
        assert stage.ready == before.ended
        assert stage.started >= stage.ready - 1e-6
        assert now <= stage.submitted <= stage.ready
    assert found[0].ready == now


def test_what_it_promises_comes_true() -> None:
    engine, needs = queue(120, 3), stages(5, 2, 6)
    found = oracle(engine, EASY, needs)
    rows: list[int] = []
    for stage in found:
        after = rows[-1:] if stage.gated else []
        rows.append(submit(engine, stage.need.kind, stage.need.run_time_s, stage.submitted, after))
    assert started(engine, EASY, rows) == [stage.started for stage in found]


def dependent(engine: Engine, needs: list[Need]) -> float:
    """The end of a workflow whose jobs are all submitted at its begin, each depending on the one before."""
    copy, rows = engine.copy(), list[int]()
    for need in needs:
        rows.append(submit(copy, need.kind, need.run_time_s, after=rows[-1:]))
    return started(copy, EASY, rows)[-1] + needs[-1].run_time_s


def test_where_dependent_jobs_keep_their_place_it_can_use_that_too() -> None:
    gains = []
    for seed in range(8):
        needs = stages(4, 6)
        ageing = oracle(queue(100, seed), EASY, needs)
        assert ageing[-1].ended <= dependent(queue(100, seed), needs) + 1e-6
        other = oracle(queue(100, seed, priority="multifactor:regime=limits"), EASY, needs)
        assert not any(stage.gated for stage in other)
        gains.append(other[-1].ended - ageing[-1].ended)
    assert min(gains) >= -1e-6


def test_an_idle_machine_needs_no_foresight() -> None:
    engine = Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(nodes=1, cores=8), Settings())
    found = oracle(engine, EASY, stages(8, 1, 8))
    assert [stage.started for stage in found] == [0.0, 150.0, 300.0]
    assert found[-1].span.wait_s == 0.0


def test_it_never_ends_later_than_asking_when_ready() -> None:
    for seed in range(5):
        engine, needs = queue(100, seed), stages(4, 6)
        one_by_one = engine.copy()
        ends = 0.0
        for need in needs:
            one_by_one.drive(EASY, until=max(one_by_one.now, ends))
            (start,) = started(one_by_one, EASY, [submit(one_by_one, need.kind, need.run_time_s)])
            ends = start + need.run_time_s
        assert oracle(engine, EASY, needs)[-1].ended <= ends + 1e-6


def test_stages_side_by_side_wait_for_their_own() -> None:
    engine = Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(nodes=1, cores=8), Settings())
    needs = [
        Need("a", Kind(2, 100.0), 50.0),
        Need("b", Kind(2, 100.0), 80.0),
        Need("c", Kind(2, 100.0), 10.0, ("a", "b")),
    ]
    found: list[Foreseen] = oracle(engine, EASY, needs)
    assert [stage.started for stage in found] == [0.0, 0.0, 80.0]
