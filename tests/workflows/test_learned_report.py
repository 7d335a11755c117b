"""What a run's estimator believes is posted for its log: when a geometry is met, and whenever it was taught."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from asa.core.clock import ManualClock
from asa.core.context import Context
from asa.core.event import Believed, Event
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.core.registry import ESTIMATORS
from asa.workflows.learned import LearnedWaits, estimator_of, weights

SITE = Capabilities(site="s", partition="core", regime=QueueRegime.FIFO)
SIZE, HOUR = Resources(4), 3600.0
NAME = "s/core/4/1h"


class Reported:
    """A run's view of a store, and what it posts."""

    def __init__(self, path: Path, estimator: str = "fixed-share") -> None:
        self.clock, self.events = ManualClock(1000.0), list[Event]()
        self.learned = LearnedWaits(path / "learned.db", estimator, SITE)
        self.learned.report(self.events.extend, self.clock)

    def predict(self, *quantiles: float | None) -> list[float]:
        return self.learned.predict(SIZE, HOUR, Context(0.0, SIZE.cores, HOUR), quantiles or (None,))

    def learn(self, token: str, wait_s: float) -> None:
        self.learned.learn(JobRequest(token, SIZE, HOUR, ()), wait_s)

    @property
    def told(self) -> list[Believed]:
        return [event for event in self.events if isinstance(event, Believed)]


def test_a_geometry_is_told_of_when_it_is_met_and_when_it_was_taught(tmp_path: Path) -> None:
    run, single = Reported(tmp_path), ESTIMATORS.create("fixed-share", seed=0)
    assert run.predict() == run.predict(0.5)
    (met,) = run.told
    assert (met.at, met.geometry, met.estimator, met.jobs, met.last_wait_s) == (1000.0, NAME, "fixed-share", 0, None)
    assert met.weights == tuple(weights(single.state()))
    run.clock.wait(threading.Event(), 1100.0)
    run.learn("job", 600.0)
    single.learn(600.0)
    run.predict()
    taught = run.told[-1]
    assert len(run.told) == 2
    assert (taught.at, taught.jobs, taught.last_wait_s) == (1100.0, 1, 600.0)
    assert taught.weights == tuple(weights(single.state()))
    assert taught.predicted_s == pytest.approx(single.predict(), abs=1e-3)


def test_what_another_run_has_taught_is_told_when_it_is_used(tmp_path: Path) -> None:
    run, other = Reported(tmp_path), Reported(tmp_path)
    run.predict()
    for number in range(5):
        other.learn(f"other.{number}", 7000.0)
    assert [event.jobs for event in run.told] == [0]
    run.predict()
    assert [event.jobs for event in run.told] == [0, 5]
    assert run.told[-1] == other.told[-1]
    assert [event.jobs for event in other.told] == [1, 2, 3, 4, 5]


def test_estimators_that_draw_are_told_of_without_drawing_for_them(tmp_path: Path) -> None:
    quiet, told = tmp_path / "quiet", tmp_path / "told"
    quiet.mkdir()
    told.mkdir()
    run, alone = Reported(told, "algorithm1"), LearnedWaits(quiet / "learned.db", "algorithm1", SITE)
    for number in range(12):
        job = JobRequest(f"job.{number}", SIZE, HOUR, ())
        context = Context(0.0, SIZE.cores, HOUR)
        assert run.predict() == alone.predict(SIZE, HOUR, context)
        run.learn(job.token, 60.0 * number)
        alone.learn(job, 60.0 * number)
    assert [event.jobs for event in run.told] == list(range(13))
    assert all(event.weights for event in run.told)


def test_pooled_estimators_have_what_they_said(tmp_path: Path) -> None:
    run = Reported(tmp_path, "leader")
    (said,) = run.predict()
    run.learn("job", 600.0)
    met, taught = run.told
    assert (met.weights, met.jobs, met.predicted_s) == ((), 0, pytest.approx(said, abs=1e-3))
    assert (taught.jobs, taught.last_wait_s, taught.predicted_s) == (1, 600.0, met.predicted_s)


def test_nothing_is_told_where_nobody_asks(tmp_path: Path) -> None:
    learned = LearnedWaits(tmp_path / "learned.db", "fixed-share", SITE)
    learned.learn(JobRequest("job", SIZE, HOUR, ()), 60.0)
    assert learned.predict(SIZE, HOUR, Context(0.0)) is not None


def test_options_of_an_estimator_may_come_in_any_order() -> None:
    state = ESTIMATORS.create("fixed-share", seed=0)
    state.learn(600.0)
    record = {"states": {"last": {}, "fixed-share:alpha=0.01,eta=30.0": state.state()}}
    found = estimator_of("fixed-share:eta=30.0,alpha=0.01", record)
    assert found is not None and found.state() == state.state()
