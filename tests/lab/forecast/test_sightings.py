from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.lab.dispatchers.backfill import Easy
from asa.lab.forecast import sightings
from asa.lab.forecast.futures import visible
from asa.lab.forecast.sightings import GAP_S, LEAST_S, LifeTable, Sightings, coming
from tests.lab.forecast.queues import jobs, machine, queue, running, steady, waiting

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


def test_a_state_comes_back_as_it_was() -> None:
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


def test_after_a_gap_nobody_is_known_to_have_come() -> None:
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


def test_nobody_comes_where_nobody_came() -> None:
    seen = Sightings()
    for now in np.arange(0, 5 * LEAST_S, 600.0).tolist():
        seen.see(visible(queue(now)))
    assert len(coming(seen, seen.at, seen.at + 1e5, np.random.default_rng(1)).submit) == 0
