from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.job import Resources
from asa.core.view import QueueView
from asa.lab.dispatchers.backfill import Backfill, Easy, Fcfs, Rule
from asa.lab.forecast.futures import Ahead, Coming, planned_s
from asa.lab.forecast.visible import visible
from asa.lab.simulator import edits
from tests.lab.forecast.queues import CORES, jobs, machine, queue, running, waiting

EASY = Rule(1.0)
NOTHING = np.zeros(0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [Easy(), Fcfs(), Easy(limit=3), Backfill(math.inf)], ids=lambda rule: str(rule.native))
@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_who_knows_all_run_times_and_arrivals_foretells_exactly_what_the_simulator_does(
    rule: Backfill, made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine(made)
    engine.drive(rule.native, until=until)
    jobs, fates = engine.state.jobs, engine.state.fates
    view, now = engine.view(), engine.now
    rows = np.flatnonzero(jobs["submit"] > now)
    later = Coming(jobs["submit"][rows], jobs["cores"][rows], jobs["walltime"][rows], fates["run"][rows])
    left = jobs["started"][view.active] + fates["run"][view.active] - now
    run = fates["run"][view.waiting]
    said = Ahead.of(visible(view.plain()), cores, float(walltime)).wait(rule.native, left, run, later)
    row = edits.submit(engine, run=1.0, walltime=float(walltime), units=cores)
    engine.drive(rule.native, until=now)  # jobs of this very instant, before the others that come at it
    engine.drive(rule.native)
    while math.isnan(engine.state.jobs["started"][row]):
        engine.drive(rule.native)
    assert said == engine.state.jobs["started"][row] - now


@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_the_plan_is_that_of_a_profile_with_everybody_in_front(
    made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine(made)
    engine.drive(Easy().native, until=until)
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
    engine.drive(Easy().native, until=10)
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
