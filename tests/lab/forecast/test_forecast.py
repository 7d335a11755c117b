"""Forecasts of waits: one future, many, and what is learned from looks at a queue."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.backfill import planned
from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.registry import ESTIMATORS
from asa.core.units import DAY
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, BackfillRule, Easy, Fcfs
from asa.lab.forecast import sightings
from asa.lab.forecast.futures import SHORTEST_S, Ahead, Coming, planned_s, visible
from asa.lab.forecast.lookahead import MOST, Correction, Lookahead
from asa.lab.forecast.sightings import GAP_S, LEAST_S, LifeTable, Sightings, coming
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings
from asa.lab.virtual import MemoryWaits
from asa.testing import estimators as suite

# -- Queues -----------------------------------------------------------------------------------------------------------

CORES = 8

# Whole numbers: sums and differences of times are exact, so that "equal" can mean equal.
jobs = st.lists(
    st.tuples(
        st.integers(0, 300),  # submission
        st.integers(1, CORES),
        st.integers(1, 200),  # wall time
        st.integers(1, 100),  # percent of it that is used
    ),
    min_size=1,
    max_size=40,
)


def machine(made: list[tuple[int, int, int, int]]) -> Engine:
    """A machine of eight cores to which these jobs are submitted, after one at time 0."""
    made = [(0, 1, 1, 100), *made]
    submit, cores, walltime, used = (list(column) for column in zip(*made, strict=True))
    run = [max(1, asked * percent // 100) for asked, percent in zip(walltime, used, strict=True)]
    workload = Workload.of(submit=submit, run=run, cores=cores, walltime=walltime)
    return Engine(workload, Cluster.of(nodes=2, cores=CORES // 2), MachineSettings())


def waiting(key: str, cores: int, walltime_s: float, submitted: float = 0.0) -> QueuedJob:
    return QueuedJob(key, Resources(cores), walltime_s, submitted)


def running(key: str, cores: int, ends: float) -> RunningJob:
    return RunningJob(key, Resources(cores), ends)


def queue(
    now: float, waits: tuple[QueuedJob, ...] = (), runs: tuple[RunningJob, ...] = (), cores: int = CORES
) -> QueueView:
    return QueueView(now, Resources(cores), waits, runs)


def steady(looks: int = 400, share: float = 0.25, every_s: float = 60.0) -> list[QueueView]:
    """Looks at a queue whose jobs, one every look, ask for an hour and use the same share of it."""
    hour, found = 3600.0, []
    for look in range(looks):
        now = look * every_s
        born = np.arange(0, look + 1) * every_s
        runs = tuple(running(f"j{k}", 1, at + hour) for k, at in enumerate(born) if now - at < share * hour)
        found.append(queue(now, runs=runs, cores=100))
    return found


# -- Futures ----------------------------------------------------------------------------------------------------------


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
    assert planned_s(view, cores, float(walltime)) == planned(view).earliest(Resources(cores), walltime) - view.now
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
def test_no_job_waits_on_an_empty_machine(now: int) -> None:
    view = QueueView(float(now), Resources(CORES), (), ())
    assert Ahead.of(visible(view), CORES, 10.0).wait(EASY, NOTHING, NOTHING) == 0.0
    assert planned_s(view, CORES, 10.0) == 0.0


def test_short_jobs_submitted_later_are_backfilled_and_delay_no_reservation() -> None:
    view = queue(0.0, (waiting("a", CORES, 100.0),), (running("b", 4, 50.0),))
    later = Coming(np.array([1.0]), np.array([4]), np.array([49.0]), np.array([49.0]))
    ahead = Ahead.of(visible(view), 4, 500.0)
    assert ahead.wait(EASY, np.array([50.0]), np.array([80.0])) == 130.0
    assert ahead.wait(EASY, np.array([50.0]), np.array([80.0]), later) == 130.0


# -- Sightings --------------------------------------------------------------------------------------------------------

shares = st.floats(0.0, 1.0)


def taught(shares: np.ndarray, step: float = 0.02) -> LifeTable:
    """A table that has watched jobs which use these shares, look by look."""
    table = LifeTable()
    for begin in np.arange(0.0, 1.0, step):
        live = shares[shares > begin]
        end = np.minimum(begin + step, 1.0)
        table.add(np.full(len(live), begin), np.full(len(live), end), live <= end)
    return table


def quantiles(table: LifeTable, chances: list[float], used: float = 0.0) -> np.ndarray:
    return table.share(np.full(len(chances), used), np.array(chances))


def test_it_learns_a_distribution() -> None:
    drawn = np.random.default_rng(1).beta(0.5, 1.5, 1500)
    chances = [0.1, 0.25, 0.5, 0.75, 0.9]
    assert quantiles(taught(drawn), chances) == pytest.approx(np.quantile(drawn, chances), abs=0.03)


def test_what_has_been_used_is_a_condition() -> None:
    drawn = np.random.default_rng(1).uniform(0, 1, 1500)
    late = drawn[drawn > 0.6]
    chances = [0.25, 0.5, 0.75]
    assert quantiles(taught(drawn), chances, used=0.6) == pytest.approx(np.quantile(late, chances), abs=0.04)


def test_jobs_that_still_run_are_not_missed() -> None:
    """Of jobs that use a tenth or all of their wall times, watched until they have used a third, only the first end."""
    table = LifeTable()
    for begin, end in ((0.0, 0.09), (0.09, 0.11), (0.11, 0.33)):
        jobs = np.arange(1000) < (1000 if end < 0.2 else 500)
        ended = (np.arange(1000) % 2 == 0) & (end == 0.11)
        live = jobs.sum()
        table.add(np.full(live, begin), np.full(live, end), ended[:live])
    assert quantiles(table, [0.45])[0] < 0.12
    assert quantiles(table, [0.55])[0] > 0.33


def test_it_begins_with_any_share_as_likely_as_any_other() -> None:
    chances = [0.1, 0.3, 0.5, 0.7, 0.9]
    assert quantiles(LifeTable(), chances) == pytest.approx(chances, abs=0.03)


def test_what_is_old_fades() -> None:
    table = taught(np.full(2000, 0.9))
    for _ in range(10):
        table.add(np.full(1000, 0.0), np.full(1000, 0.1), np.full(1000, True))
    assert quantiles(table, [0.9])[0] < 0.2


@given(
    st.lists(st.tuples(shares, shares, st.booleans()), max_size=50), shares, st.floats(0, 0.999), st.floats(0, 0.999)
)
def test_shares_are_bounded_and_grow_with_the_chance(
    seen: list[tuple[float, float, bool]], used: float, one: float, other: float
) -> None:
    table = LifeTable()
    if seen:
        begin, end, ended = (np.array(column) for column in zip(*seen, strict=True))
        table.add(np.minimum(begin, end), np.maximum(begin, end), ended)
    low, high = quantiles(table, sorted([one, other]), used)
    assert used <= low <= high <= 1.0


def test_a_state_is_restored_as_it_was() -> None:
    table, other = taught(np.full(100, 0.3)), LifeTable()
    other.restore(json.loads(json.dumps(table.state())))
    assert other.state() == table.state()


@pytest.mark.parametrize("column", ["ends", "passed"])
@pytest.mark.parametrize("wrong", [[1.0], [-1.0] * 40, [float("nan")] * 40])
def test_a_broken_state_is_refused(column: str, wrong: list[float]) -> None:
    table = taught(np.full(100, 0.3))
    before = table.state()
    with pytest.raises(InvalidInput, match=f"'{column}'.*40 numbers"):
        table.restore(before | {column: wrong})
    assert table.state() == before


def after(*views: QueueView) -> Sightings:
    seen = Sightings()
    for view in views:
        seen.see(visible(view))
    return seen


def median(seen: Sightings, used: float = 0.0) -> float:
    return float(seen.table.share(np.array([used]), np.array([0.5]))[0])


def test_how_much_jobs_use_is_learned_from_looks() -> None:
    assert median(after(*steady(share=0.25))) == pytest.approx(0.25, abs=0.03)
    assert median(after(*steady(share=0.7))) == pytest.approx(0.7, abs=0.03)


def test_a_look_that_is_not_newer_tells_nothing() -> None:
    views = steady(50)
    seen = after(*views)
    before = seen.state()
    for view in (views[-1], views[3], queue(10.0)):
        seen.see(visible(view))
    assert seen.state() == before


def test_a_job_seen_waiting_has_started_a_wall_time_before_its_end() -> None:
    seen = after(queue(0.0, (waiting("a", 1, 1000.0),)))
    used, asked = seen.used(visible(queue(300.0, runs=(running("a", 1, 1100.0),))))
    assert (used.tolist(), asked.tolist()) == ([0.2], [1000.0])


def test_a_job_that_came_and_started_between_two_looks_has_run_half_the_time() -> None:
    seen = after(queue(0.0))
    used, asked = seen.used(visible(queue(100.0, runs=(running("a", 1, 1050.0),))))
    assert (used.tolist(), asked.tolist()) == ([0.05], [1000.0])


def test_a_job_that_ran_before_the_first_look_has_used_half() -> None:
    used, asked = Sightings().used(visible(queue(0.0, runs=(running("a", 1, 500.0),))))
    assert (used.tolist(), asked.tolist()) == ([0.5], [1000.0])
    after_one = after(queue(0.0, runs=(running("a", 1, 500.0),)))
    used, _ = after_one.used(visible(queue(100.0, runs=(running("a", 1, 500.0),))))
    assert used.tolist() == [0.5], "it is no new job"


def test_an_old_view_may_be_asked_about_once_more() -> None:
    old = queue(0.0, (waiting("a", 1, 60.0),), (running("b", 1, 50.0),))
    seen = after(old, queue(500.0, runs=(running("b", 1, 900.0), running("c", 1, 700.0))))
    used, asked = seen.used(visible(queue(100.0, runs=(running("b", 1, 130.0), running("c", 1, 130.0)))))
    assert ((used >= 0) & (used <= 1) & (asked >= 30)).all()


@settings(max_examples=40)
@given(jobs, st.integers(5, 60))
def test_starts_are_known_to_within_the_time_between_looks(made: list[tuple[int, int, int, int]], every: int) -> None:
    engine, seen = machine(made), Sightings()
    first = engine.now
    for now in range(int(first), 400, every):
        engine.dispatch(Easy().native, until=now)
        view = engine.view()
        look = visible(view.plain())
        used, asked = seen.used(look)
        for row, share, walltime in zip(look.running, used.tolist(), asked.tolist(), strict=True):
            job = view.jobs[row]
            if job["started"] > first:
                assert share * walltime == pytest.approx(now - job["started"], abs=every)
                assert walltime == pytest.approx(job["walltime"], abs=every)
        seen.see(look)


@settings(max_examples=40)
@given(jobs, st.integers(5, 60))
def test_everybody_who_is_seen_to_come_is_remembered_once(made: list[tuple[int, int, int, int]], every: int) -> None:
    engine, seen = machine(made), Sightings()
    first, known = set[int | str](), set[int | str]()
    for now in range(0, 800, every):
        engine.dispatch(Easy().native, until=now)
        look = visible(engine.view().plain())
        first = {*look.running, *look.waiting} if now == 0 else first
        known |= {*look.running, *look.waiting} - first
        seen.see(look)
    came, since = seen.recent()
    assert len(came) == len(known)
    assert since == 0.0
    assert (np.diff(came[:, 0]) >= -every).all()


def test_after_a_gap_no_submission_is_known() -> None:
    seen = after(*steady(50))
    assert len(seen.recent()[0]) == 49
    late = 49 * 60.0 + GAP_S + 1
    seen.see(visible(queue(late, (waiting("x", 1, 60.0, late - 5.0),))))
    came, since = seen.recent()
    assert (len(came), since) == (0, late)


def test_of_a_queue_too_long_to_remember_no_running_job_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "JOBS", 2)
    crowd = tuple(running(f"j{k}", 1, 1000.0) for k in range(5))
    seen = after(queue(0.0, runs=crowd), queue(10.0, (waiting("new", 1, 60.0, 5.0),), crowd))
    assert seen.recent()[0].tolist() == [[5.0, 1.0, 60.0]]
    assert len(seen.state()["running"]) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "ARRIVALS", 20)
    seen = after(*steady(100))
    came, since = seen.recent()
    assert len(came) == 20
    assert since < came[0, 0], "all that came since then is remembered"
    assert (np.diff(came[:, 0]) > 0).all()


def test_a_state_survives_json() -> None:
    seen, again = after(*steady(30), queue(1e6, (waiting("a", 2, 50.0),), (running("b", 1, 2e6),))), Sightings()
    written = json.dumps(seen.state(), allow_nan=False)
    again.restore(json.loads(written))
    assert json.dumps(again.state()) == written
    for each in (seen, again):
        each.see(visible(queue(1e6 + 60, runs=(running("a", 2, 1e6 + 100), running("c", 1, 2e6)))))
    assert again.state() == seen.state()


def test_a_first_state_survives_json() -> None:
    again = after(*steady(10))
    again.restore(json.loads(json.dumps(Sightings().state(), allow_nan=False)))
    assert again.state() == Sightings().state()
    assert again.at == -math.inf


@pytest.mark.parametrize("key", list(Sightings().state()))
def test_an_incomplete_state_is_refused(key: str) -> None:
    seen = after(*steady(10))
    before = seen.state()
    with pytest.raises(InvalidInput, match=key):
        seen.restore({other: value for other, value in before.items() if other != key})
    assert seen.state() == before


def watched(looks: int = 400) -> Sightings:
    seen = Sightings()
    for view in steady(looks):
        seen.see(visible(view))
    return seen


def test_as_many_come_as_came() -> None:
    seen = watched()
    others = coming(seen, seen.at, seen.at + 36_000.0, np.random.default_rng(1))
    assert len(others.submit) == pytest.approx(600, abs=3)
    assert (np.diff(others.submit) >= 0).all()
    assert seen.at <= others.submit[0] and others.submit[-1] < seen.at + 36_000
    assert set(others.cores.tolist()) == {1}
    assert others.walltime_s == pytest.approx(np.full(len(others.cores), 3600.0), rel=0.02)
    assert (others.run_s <= others.walltime_s).all()


def test_longer_times_than_were_seen_are_filled() -> None:
    seen = watched()
    others = coming(seen, 1e6, 1e6 + 5 * 24_000.0, np.random.default_rng(1))
    assert len(others.submit) == pytest.approx(2000, abs=20)
    assert others.submit[-1] > 1e6 + 4.9 * 24_000.0


def test_futures_differ_and_a_seed_repeats_them() -> None:
    seen = watched()
    one, other, again = (coming(seen, 0.0, 9000.0, np.random.default_rng(seed)) for seed in (1, 2, 1))
    assert one.run_s.tolist() != other.run_s.tolist()
    assert one.run_s.tolist() == again.run_s.tolist()


def test_too_little_says_nothing() -> None:
    rng = np.random.default_rng(1)
    assert len(coming(Sightings(), 0.0, 100.0, rng).submit) == 0
    seen = watched(int(LEAST_S / 60))
    assert len(coming(seen, seen.at, seen.at + 100.0, rng).submit) == 0
    assert len(coming(watched(), 50.0, 50.0, rng).submit) == 0


def test_without_submissions_none_are_expected() -> None:
    seen = Sightings()
    for now in np.arange(0, 5 * LEAST_S, 600.0).tolist():
        seen.see(visible(queue(now)))
    assert len(coming(seen, seen.at, seen.at + 1e5, np.random.default_rng(1)).submit) == 0


# -- Lookahead --------------------------------------------------------------------------------------------------------

times = st.floats(0.0, 1e7)


@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_it_finds_the_factor_with_the_least_absolute_error(true: float) -> None:
    rng = np.random.default_rng(1)
    said = rng.lognormal(8, 1, 4000)
    waits = said * true * rng.lognormal(0, 0.5, 4000)
    correction = Correction(0.02)
    for forecast, wait in zip(said.tolist(), waits.tolist(), strict=True):
        correction.learn(forecast, wait)
    factors = np.geomspace(0.25, 4, 100)
    best = factors[np.abs(said[:, None] * factors - waits[:, None]).sum(axis=0).argmin()]
    assert correction.factor == pytest.approx(best, rel=0.15)


@given(st.lists(st.tuples(times, times)), st.floats(0, 1))
def test_the_factor_is_bounded(seen: list[tuple[float, float]], step: float) -> None:
    correction = Correction(step)
    for forecast, wait in seen:
        correction.learn(forecast, wait)
    assert 0.999 / MOST <= correction.factor <= 1.001 * MOST


def test_forecasts_of_nothing_and_right_ones_change_nothing() -> None:
    correction = Correction(0.5)
    correction.learn(0.0, 1e6)
    correction.learn(70.0, 70.0)
    assert correction.factor == 1.0


def test_the_state_of_a_forecast_survives_json() -> None:
    one, other = Correction(0.1), Correction(0.1)
    for state in (one.state, lambda: one.learn(10.0, 30.0) or one.state()):
        written = json.dumps(state(), allow_nan=False)
        other.restore(json.loads(written))
        assert json.dumps(other.state()) == written
    assert other.factor == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    "wrong", [{}, {"log": 0.0}, {"log": 9.0, "mean_s": 1.0}, {"log": 0.0, "mean_s": -1.0}, {"log": "x", "mean_s": None}]
)
def test_a_broken_state_of_a_forecast_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no state of a correction"):
        Correction(0.1).restore(wrong)


def job(view: QueueView | None, cores: int = CORES, walltime_s: float = 600.0) -> Context:
    return Context(0.0 if view is None else view.now, cores=cores, walltime_s=walltime_s, queue=view)


def busy(now: float = 0.0) -> QueueView:
    """A full machine, and a job as large that waits."""
    return queue(now, (waiting("w", CORES, 1000.0),), (running("r", CORES, now + 1000.0),))


MAKERS = {
    "learned": lambda seed: Lookahead(seed=seed, futures=2, quantile=0.8, base="median"),
    "requested": lambda seed: Lookahead(seed=seed, runs="requested", step=0, base="last"),
}
CASES = [(name, check) for name in MAKERS for check in suite.CHECKS]
CASES.remove(("requested", suite.check_state_is_bounded))  # thousands of forecasts, and nothing that the other lacks


@pytest.mark.slow
@pytest.mark.parametrize(("name", "check"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_conformance(name: str, check: Callable[[suite.Make], None]) -> None:
    check(MAKERS[name])


@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_with_exact_requests_and_no_submissions_the_forecast_is_exact(
    made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine([(min(at, until), size, asked, 100) for at, size, asked, _ in made])
    rule = Easy().native
    engine.dispatch(rule, until=until)
    view = engine.view().plain()
    said = Lookahead(runs="requested").predict(job(view, cores, float(walltime)))
    row = operations.submit(engine, run=1.0, walltime=float(walltime), units=cores)
    while math.isnan(engine.state.jobs["started"][row]):
        engine.dispatch(rule)
    assert said == engine.state.jobs["started"][row] - view.now


def test_what_jobs_were_seen_to_use_shortens_the_wait() -> None:
    taught = Lookahead()
    for view in steady(share=0.1):
        taught.see(view)
    context = job(busy(1e6))
    assert taught.predict(context) < 0.6 * Lookahead().predict(context) < 0.8 * 2000.0


def test_a_job_that_fits_now_starts_now_in_every_future() -> None:
    view = queue(0.0, runs=(running("r", CORES - 2, 1000.0),))
    assert Lookahead().waits(visible(view), 2, 60.0).tolist() == [0.0]
    assert Lookahead().predict(job(view, 2), quantile=0.99) == 0.0


@settings(max_examples=20)
@given(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6))
def test_quantiles_do_not_cross(quantiles: list[float]) -> None:
    said = [Lookahead(futures=7).predict(job(busy()), quantile) for quantile in sorted(quantiles)]
    assert said == sorted(said)
    assert all(0 <= each <= 2000 for each in said)


def test_its_own_quantile_is_the_default() -> None:
    context = job(busy())
    assert Lookahead(quantile=0.9).predict(context) == Lookahead().predict(context, 0.9)
    assert Lookahead().predict(context, 0.1) < Lookahead().predict(context) < Lookahead().predict(context, 0.9)


def test_the_futures_of_one_look_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    wait = Ahead.wait
    monkeypatch.setattr(Ahead, "wait", lambda *given: tried.append(found := wait(*given)) or found)
    estimator, context = Lookahead(futures=7), job(busy())
    said = [estimator.predict(context, quantile) for quantile in (0.1, 0.9)]
    assert len(tried) == 1 + 7
    assert said == [Lookahead(futures=7).predict(job(busy()), quantile) for quantile in (0.1, 0.9)]

    tried.clear()
    for view in steady(share=0.1):
        estimator.see(view)
    taught = estimator.predict(context, 0.9)
    assert len(tried) == 1 + 7 and taught < said[1], "what was seen since makes other futures"
    estimator.restore(Lookahead(futures=7).state())
    assert estimator.predict(context, 0.9) == said[1]


def test_futures_are_tried_once_in_virtual_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a table is looked at, by a context of its own each time."""
    tried: list[float] = []
    wait = Ahead.wait
    monkeypatch.setattr(Ahead, "wait", lambda *given: tried.append(found := wait(*given)) or found)
    engine = machine([(0, CORES, 100, 50), (0, CORES, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    waits = MemoryWaits("forecast:futures=7")
    context = Context(10.0, cores=CORES, walltime_s=60.0).looked(engine.view())
    early, late = waits.predict(Resources(CORES), 60.0, context, [0.1, 0.9])
    assert early < late and len(tried) == 1 + 7
    engine.dispatch(Easy().native, until=60)
    later = Context(60.0, cores=CORES, walltime_s=60.0).looked(engine.view())
    assert waits.copy().predict(Resources(CORES), 60.0, later, [0.9])[0] < late


@pytest.mark.parametrize("context", [None, job(None), job(busy(), CORES + 1)], ids=["none", "unseen", "too large"])
def test_the_base_answers_where_it_cannot(context: Context | None) -> None:
    estimator, base = Lookahead(base="last"), ESTIMATORS.create("last")
    for each in (estimator, base):
        each.learn(1234.0)
    assert estimator.predict(context) == base.predict(context) == 1234.0


def test_the_queue_of_a_plain_context_is_learned_from_and_a_table_is_not() -> None:
    views = steady(share=0.1)
    taught, seen, table = Lookahead(), Lookahead(), Lookahead()
    for view in views:
        taught.learn(10.0, context=job(view))
        seen.see(view)
    assert taught.state()["sightings"] == seen.state()["sightings"] != Lookahead().state()["sightings"]
    engine = machine([(0, 8, 100, 50), (0, 8, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    table.learn(10.0, context=job(engine.view()))  # type: ignore[arg-type]
    assert table.state()["sightings"] == Lookahead().state()["sightings"]
    table.see(engine.view())
    assert table.state()["sightings"]["at"] == 10.0


def test_forecasts_that_are_always_too_short_grow() -> None:
    context = job(busy())
    fresh = Lookahead().predict(context)
    for step, grown in ((0.05, True), (0.0, False)):
        estimator = Lookahead(step=step)
        for _ in range(10):
            estimator.learn(1e5, context=context)
        assert (estimator.predict(context) > 1.5 * fresh) is grown
        assert estimator.predict(job(queue(0.0))) == 0.0, "a job that fits still starts at once"


def test_asking_teaches_nothing_and_is_repeatable() -> None:
    estimator = Lookahead()
    for view in steady(100):
        estimator.see(view)
    before = json.dumps(estimator.state())
    said = {estimator.predict(job(busy(1e5))) for _ in range(3)}
    assert len(said) == 1
    assert json.dumps(estimator.state()) == before


def test_a_state_and_a_copy_go_on_alike() -> None:
    author, reader = Lookahead(seed=3), Lookahead(seed=8)
    for view in steady(100):
        author.see(view)
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    others = [reader, pickle.loads(pickle.dumps(author)), copy.deepcopy(author)]
    for estimator in (author, *others):
        estimator.see(busy(6100.0))
        estimator.learn(50.0, 40.0, job(busy(6160.0)))
    for other in others:
        assert other.predict(job(busy(6200.0))) == author.predict(job(busy(6200.0)))
        assert other.state() == author.state()


@pytest.mark.parametrize("key", list(Lookahead().state()))
def test_an_incomplete_state_is_refused_and_changes_nothing(key: str) -> None:
    estimator = Lookahead()
    estimator.see(busy())
    before = estimator.state()
    with pytest.raises(InvalidInput, match=f"no '{key}'"):
        estimator.restore({other: value for other, value in before.items() if other != key})
    assert estimator.state() == before


def test_seeds_make_other_futures() -> None:
    assert len({Lookahead(seed=seed, futures=2).predict(job(busy())) for seed in range(5)}) > 1


def test_a_dispatcher_may_be_given() -> None:
    view = queue(0.0, (waiting("w", CORES, 1000.0),), (running("r", CORES - 1, 1000.0),))
    small = job(view, 1, 500.0)
    assert Lookahead(runs="requested").predict(small) == 0.0, "backfilled"
    for dispatcher in ("fcfs", Backfill(0)):
        assert Lookahead(runs="requested", dispatcher=dispatcher).predict(small) == 2000.0


def test_options_out_of_bounds_are_refused() -> None:
    for wrong, words in (
        ({"runs": "guessed"}, "learned, requested"),
        ({"futures": 0}, "futures is 0"),
        ({"quantile": 1.0}, "quantile is 1.0"),
        ({"step": -0.1}, "step is -0.1"),
        ({"dispatcher": "random"}, "no backfilling rule"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Lookahead(**wrong)
    for option in ("base", "dispatcher"):
        with pytest.raises(UnknownName):
            Lookahead(**{option: "nobody"})


def test_it_has_a_name_and_is_pooled() -> None:
    estimator = ESTIMATORS.create("forecast:futures=3,base=last", seed=4)
    assert isinstance(estimator, Lookahead)
    assert estimator.pooled


def test_the_median_of_many_futures_is_steady() -> None:
    said = [Lookahead(seed=seed, futures=15).predict(job(busy())) for seed in range(20)]
    exact = np.median(Lookahead(futures=400).waits(visible(busy()), CORES, 600.0))
    assert np.mean(said) == pytest.approx(exact, rel=0.1)
