from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.job import Resources
from asa.core.units import DAY
from asa.core.view import QueueView
from asa.lab.dispatchers.backfill import Backfill, BackfillRule, Easy, Fcfs
from asa.lab.forecast.futures import SHORTEST_S, Ahead, Coming, planned_s, visible
from asa.lab.simulator import operations
from tests.lab.forecast.queues import CORES, jobs, machine, queue, running, waiting


@given(jobs, st.integers(0, 600))
def test_a_table_and_a_plain_view_show_the_same(made: list[tuple[int, int, int, int]], until: int) -> None:
    engine = machine(made)
    engine.dispatch(Easy().native, until=until)
    table, view = visible(engine.view()), visible(engine.view().plain())
    assert (table.now, table.cores, table.running, table.waiting) == (view.now, view.cores, view.running, view.waiting)
    for column in ("running_cores", "left_s", "waiting_cores", "walltime_s", "submitted"):
        assert getattr(table, column).tolist() == getattr(view, column).tolist()
    assert np.isnan(view.started).all(), "a user does not see when jobs started"
    assert (table.started <= table.now).all()


def test_a_table_is_copied() -> None:
    engine = machine([(0, 8, 100, 50), (0, 8, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    seen = visible(engine.view())
    before = seen.started.tolist(), seen.walltime_s.tolist(), seen.running_cores.tolist()
    engine.dispatch(Easy().native)
    assert (seen.started.tolist(), seen.walltime_s.tolist(), seen.running_cores.tolist()) == before


def test_a_job_past_its_wall_time_is_about_to_end() -> None:
    seen = visible(queue(100.0, runs=(running("a", 1, 40.0),)))
    assert seen.left_s.tolist() == [SHORTEST_S]


def test_unknown_wall_times_are_the_longest_seen() -> None:
    seen = visible(queue(0.0, (waiting("a", 1, math.nan), waiting("b", 1, 500.0)), (running("c", 1, math.inf),)))
    assert seen.walltime_s.tolist() == [500.0, 500.0]
    assert seen.left_s.tolist() == [500.0]
    assert visible(queue(0.0, (waiting("a", 1, math.inf),))).walltime_s.tolist() == [DAY]


def test_an_empty_queue_has_no_columns() -> None:
    seen = visible(queue(5.0))
    assert (seen.running, seen.waiting, seen.left_s.shape, seen.walltime_s.shape) == ((), (), (0,), (0,))


EASY = BackfillRule(1.0)
NOTHING = np.zeros(0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Easy(), Fcfs(), Easy(limit=3), Backfill(math.inf)], ids=lambda rule: str(rule.native))
@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_who_knows_all_run_times_and_arrivals_foretells_exactly_what_the_simulator_does(
    rule: Backfill, made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine(made)
    engine.dispatch(rule.native, until=until)
    jobs, job_states = engine.state.jobs, engine.state.job_states
    view, now = engine.view(), engine.now
    rows = np.flatnonzero(jobs["submit"] > now)
    later = Coming(jobs["submit"][rows], jobs["cores"][rows], jobs["walltime"][rows], job_states["run"][rows])
    left = jobs["started"][view.active] + job_states["run"][view.active] - now
    run = job_states["run"][view.waiting]
    said = Ahead.of(visible(view.plain()), cores, float(walltime)).wait(rule.native, left, run, later)
    row = operations.submit(engine, run=1.0, walltime=float(walltime), units=cores)
    engine.dispatch(rule.native, until=now)  # jobs of this very instant, before the others that come at it
    engine.dispatch(rule.native)
    while math.isnan(engine.state.jobs["started"][row]):
        engine.dispatch(rule.native)
    assert said == engine.state.jobs["started"][row] - now


@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_the_plan_is_that_of_a_profile_with_everybody_in_front(
    made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine(made)
    engine.dispatch(Easy().native, until=until)
    view = engine.view().plain()
    seen = visible(view)
    ends = (view.now + seen.left_s).tolist()
    profile = Profile(
        view.capacity, view.now, [(job.resources, end) for job, end in zip(view.running, ends, strict=True)]
    )
    for job in view.queue:
        profile.reserve(job.resources, profile.earliest(job.resources, job.walltime_s), job.walltime_s)
    assert planned_s(view, cores, float(walltime)) == profile.earliest(Resources(cores), walltime) - view.now
    assert planned_s(engine.view(), cores, float(walltime)) == planned_s(view, cores, float(walltime))


def test_a_job_larger_than_the_machine_never_starts() -> None:
    view = queue(0.0, runs=(running("a", CORES, 10.0),))
    assert Ahead.of(visible(view), CORES + 1, 10.0).wait(EASY, np.array([10.0]), NOTHING) == math.inf
    assert planned_s(view, CORES + 1, 10.0) == math.inf


def test_a_machine_that_shrank_takes_its_running_jobs_one_after_the_other() -> None:
    view = queue(0.0, runs=(running("a", CORES, 10.0), running("b", CORES, 30.0)))
    assert planned_s(view, 1, 10.0) == 40.0


def test_the_view_is_left_as_it_is() -> None:
    engine = machine([(0, 8, 100, 50), (1, 8, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    before = engine.view().plain()
    planned_s(engine.view(), 4, 60.0)
    assert engine.view().plain() == before


@given(st.integers(0, 10_000))
def test_an_empty_machine_makes_nobody_wait(now: int) -> None:
    view = QueueView(float(now), Resources(CORES), (), ())
    assert Ahead.of(visible(view), CORES, 10.0).wait(EASY, NOTHING, NOTHING) == 0.0
    assert planned_s(view, CORES, 10.0) == 0.0


def test_short_jobs_that_come_later_are_backfilled_and_delay_nobody_who_has_a_reservation() -> None:
    view = queue(0.0, (waiting("a", CORES, 100.0),), (running("b", 4, 50.0),))
    later = Coming(np.array([1.0]), np.array([4]), np.array([49.0]), np.array([49.0]))
    ahead = Ahead.of(visible(view), 4, 500.0)
    assert ahead.wait(EASY, np.array([50.0]), np.array([80.0])) == 130.0
    assert ahead.wait(EASY, np.array([50.0]), np.array([80.0]), later) == 130.0
