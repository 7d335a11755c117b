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
from asa.lab.forecast.sightings import GAP_S, Sightings
from asa.lab.forecast.visible import visible
from tests.lab.forecast.queues import jobs, machine, queue, running, steady, waiting


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
        engine.drive(Easy().native, until=now)
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
        engine.drive(Easy().native, until=now)
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
