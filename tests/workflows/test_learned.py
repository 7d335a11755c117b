"""What runs learn of queues, and what their estimators predict."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.backfill import Profile, planned
from asa.core.clock import ManualClock
from asa.core.context import Context
from asa.core.event import Believed, Event
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, JobStatus, Options, QueueRegime, Resources
from asa.core.registry import ESTIMATORS as KNOWN
from asa.core.run import FoldedRun, Held, Pool, StageProgress
from asa.core.stage import StageSpec, StageState
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.workflows.learned import FIXED_S, PLANNED_MOST, Contexts, LearnedWaits, estimator_of, fixed_times, weights

SITE = Capabilities(site="s", partition="core", regime=QueueRegime.FIFO)
SIZE, HOUR = Resources(4), 3600.0
ESTIMATORS = ["fixed-share", "algorithm1:sampling=greedy"]

OTHER_RUN = """
import sys
from pathlib import Path
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.workflows.learned import LearnedWaits

path, estimator, first = sys.argv[1:]
run = LearnedWaits(Path(path), estimator, Capabilities(site="s", partition="core", regime=QueueRegime.FIFO))
for number in range(int(first), int(first) + 20):
    run.learn(JobRequest(f"other.{number}", Resources(4), 3600.0, ()), 5000.0)
"""


def learned(path: Path, estimator: str = "fixed-share") -> LearnedWaits:
    return LearnedWaits(path / "learned.db", estimator, SITE)


def job(token: str) -> JobRequest:
    return JobRequest(token, SIZE, HOUR, ())


def predicted(run: LearnedWaits) -> list[float]:
    return run.predict(SIZE, HOUR, Context(0.0, SIZE.cores, HOUR))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_waits_learned_by_one_run_are_predicted_by_another(tmp_path: Path, estimator: str) -> None:
    left, right, alone = learned(tmp_path, estimator), learned(tmp_path, estimator), Path(tmp_path / "alone")
    alone.mkdir()
    single = learned(alone, estimator)
    before = predicted(left)
    for number in range(40):
        wait_s = 900.0 + number
        (left, right)[number % 2].learn(job(f"run.{number}"), wait_s)
        single.learn(job(f"run.{number}"), wait_s)
        assert predicted(left) == predicted(right)
    assert predicted(right) == predicted(single), "as if one run had seen it all"
    assert predicted(right) != before


def test_a_job_reported_by_two_runs_is_learned_once(tmp_path: Path) -> None:
    left, right, single = (
        learned(tmp_path),
        learned(tmp_path),
        LearnedWaits(tmp_path / "single.db", "fixed-share", SITE),
    )
    for run in (left, right, left):
        run.learn(job("run.0"), 5000.0)
    single.learn(job("run.0"), 5000.0)
    assert predicted(left) == predicted(right) == predicted(single)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_runs_in_other_processes_at_the_same_time(tmp_path: Path, estimator: str) -> None:
    here, single = learned(tmp_path, estimator), LearnedWaits(tmp_path / "single.db", estimator, SITE)
    words = [sys.executable, "-c", OTHER_RUN, str(tmp_path / "learned.db"), estimator]
    others = [subprocess.Popen([*words, str(first)]) for first in (0, 20)]
    for number in range(20):
        here.learn(job(f"here.{number}"), 5000.0)
    assert [other.wait(60) for other in others] == [0, 0]
    for number in range(60):
        single.learn(job(f"run.{number}"), 5000.0)
    assert predicted(here) == predicted(single), "no wait is lost, whichever run learned it"


def test_run_times_are_shared_as_well(tmp_path: Path) -> None:
    done = StageProgress(
        StageSpec("a", SIZE, Resources(), HOUR, HOUR / 4), 1, state=StageState.DONE, started=10.0, ended=70.0
    )
    run = FoldedRun()
    run.stages["a"] = done
    left, right = learned(tmp_path), learned(tmp_path)
    right.run_time("w")("a", HOUR)
    left.learn_run_times(run, "w")
    assert right.run_time("w")("a", HOUR) == learned(tmp_path).run_time("w")("a", HOUR) != HOUR


def ended(key: str, **more: Any) -> Held:
    """An allocation for stage a, ready at 10 s: it came at 12 s, had tasks from 13 to 20 s, and ended at 21.5 s."""
    held = Held(job(key), ("a",), (), 0.0, None, started=12.0, used=13.0, idle_since=20.0, ended=21.5)
    held.job, held.runs, held.hosts = JobState.COMPLETED, [(12.0, 21.5)], {"n1": None}
    for name, value in more.items():
        setattr(held, name, value)
    return held


def finished(*jobs: Held) -> FoldedRun:
    run = FoldedRun()
    run.stages["a"] = StageProgress(StageSpec("a", SIZE, Resources(), HOUR, HOUR), 1, ready=10.0)
    run.pool.ever = {held.key: held for held in jobs}
    return run


def test_what_an_allocation_takes_beside_its_tasks() -> None:
    wide = ended("wide", hosts={"n1": None, "n2": None}, used=14.0)
    assert fixed_times(finished(ended("one"), wide)) == ([2.5], [3.5])
    assert fixed_times(finished(ended("early", started=2.0))) == ([4.5], []), "it waited for its stage until 10 s"
    for more in ({"job": JobState.TIMEOUT}, {"lender": "other"}, {"used": None}, {"runs": []}):
        assert fixed_times(finished(ended("x", **more))) == ([], []), more


def test_what_it_takes_is_asked_for_where_the_run_has_not_seen_the_end(tmp_path: Path) -> None:
    """A run of seconds is over before it asks again how its jobs stand."""
    handle = JobHandle("7", "x", 0.0)
    missed = {"started": None, "ended": None, "runs": [], "job": JobState.RUNNING, "handle": handle, "released": 20.0}
    seen = JobStatus(handle, JobState.COMPLETED, started=12.0, ended=21.5)
    run = finished(ended("x", **missed))
    assert fixed_times(run, {"x": seen}) == ([2.5], [])
    for other in ({"state": JobState.RUNNING, "ended": None}, {"state": JobState.TIMEOUT}, {"restarts": 1}):
        assert fixed_times(run, {"x": replace(seen, **other)}) == ([], []), other
    asked: list[JobHandle] = []
    book = learned(tmp_path)
    book.learn_run_times(run, "w", lambda handles: [asked.extend(handles), [seen]][1])
    assert asked == [handle] and book.fixed_s() == (2.5, FIXED_S[1])
    book.learn_run_times(finished(ended("y")), "w", lambda handles: pytest.fail("all ends were seen"))


def test_runs_learn_what_allocations_take_and_share_it(tmp_path: Path) -> None:
    left, right = learned(tmp_path), learned(tmp_path)
    assert right.fixed_s() == FIXED_S
    left.learn_run_times(finished(*(ended(str(at), ended=20.0 + at) for at in (1.0, 2.0, 90.0))), "w")
    assert right.fixed_s() == (3.0, FIXED_S[1]), "the median: one that ended late is no rule"
    at_once = LearnedWaits(tmp_path / "learned.db", "fixed-share", Capabilities("s", regime=QueueRegime.IMMEDIATE))
    assert at_once.fixed_s() == (0.0, 0.0)


# What is posted for the log.


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
    def posted(self) -> list[Believed]:
        return [event for event in self.events if isinstance(event, Believed)]


def test_beliefs_are_posted_for_a_new_geometry_and_after_each_wait(tmp_path: Path) -> None:
    run, single = Reported(tmp_path), KNOWN.create("fixed-share", seed=0)
    assert run.predict() == run.predict(0.5)
    (met,) = run.posted
    assert (met.at, met.geometry, met.estimator, met.jobs, met.last_wait_s) == (1000.0, NAME, "fixed-share", 0, None)
    assert met.weights == tuple(weights(single.state()))
    run.clock.wait(threading.Event(), 1100.0)
    run.learn("job", 600.0)
    single.learn(600.0)
    run.predict()
    taught = run.posted[-1]
    assert len(run.posted) == 2
    assert (taught.at, taught.jobs, taught.last_wait_s) == (1100.0, 1, 600.0)
    assert taught.weights == tuple(weights(single.state()))
    assert taught.predicted_s == pytest.approx(single.predict(), abs=1e-3)


def test_waits_learned_by_another_run_are_posted_when_they_are_used(tmp_path: Path) -> None:
    run, other = Reported(tmp_path), Reported(tmp_path)
    run.predict()
    for number in range(5):
        other.learn(f"other.{number}", 7000.0)
    assert [event.jobs for event in run.posted] == [0]
    run.predict()
    assert [event.jobs for event in run.posted] == [0, 5]
    assert run.posted[-1] == other.posted[-1]
    assert [event.jobs for event in other.posted] == [1, 2, 3, 4, 5]


def test_posting_draws_no_random_numbers(tmp_path: Path) -> None:
    quiet, reporting = tmp_path / "quiet", tmp_path / "reporting"
    quiet.mkdir()
    reporting.mkdir()
    run, alone = Reported(reporting, "algorithm1"), LearnedWaits(quiet / "learned.db", "algorithm1", SITE)
    for number in range(12):
        job = JobRequest(f"job.{number}", SIZE, HOUR, ())
        context = Context(0.0, SIZE.cores, HOUR)
        assert run.predict() == alone.predict(SIZE, HOUR, context)
        run.learn(job.token, 60.0 * number)
        alone.learn(job, 60.0 * number)
    assert [event.jobs for event in run.posted] == list(range(13))
    assert all(event.weights for event in run.posted)


def test_pooled_estimators_post_their_prediction(tmp_path: Path) -> None:
    run = Reported(tmp_path, "context")
    (said,) = run.predict()
    run.learn("job", 600.0)
    met, taught = run.posted
    assert (met.weights, met.jobs, met.predicted_s) == ((), 0, pytest.approx(said, abs=1e-3))
    assert (taught.jobs, taught.last_wait_s, taught.predicted_s) == (1, 600.0, met.predicted_s)


def test_nothing_is_posted_without_a_reader(tmp_path: Path) -> None:
    learned = LearnedWaits(tmp_path / "learned.db", "fixed-share", SITE)
    learned.learn(JobRequest("job", SIZE, HOUR, ()), 60.0)
    assert learned.predict(SIZE, HOUR, Context(0.0)) is not None


def test_options_of_an_estimator_may_come_in_any_order() -> None:
    state = KNOWN.create("fixed-share", seed=0)
    state.learn(600.0)
    record = {"states": {"last": {}, "fixed-share:alpha=0.01,eta=30.0": state.state()}}
    found = estimator_of("fixed-share:eta=30.0,alpha=0.01", record)
    assert found is not None and found.state() == state.state()


# Contexts.


class Looks:
    """A watch that looks at the queue when a test says so."""

    def __init__(self) -> None:
        self.view = QueueView(0.0, Resources(4), (), (RunningJob("a", Resources(4), 300.0),))

    def seen(self, options: Options = ()) -> QueueView | None:
        return self.view


def test_the_queue_that_is_looked_at_is_the_one_that_the_job_would_be_in() -> None:
    """Also for stages that name a single partition; where it cannot be seen, nothing is said of it."""
    low: Options = (("partition", "low"),)
    free = QueueView(0.0, Resources(8), (), ())

    class TwoQueues(Looks):
        def seen(self, options: Options = ()) -> QueueView | None:
            return {(): self.view, low: free}.get(options)

    looks: Any = TwoQueues()
    contexts = Contexts(Pool(), looks.seen)
    assert contexts.of(Resources(2), 60.0, 0.0).planned_s == 300.0
    there = contexts.of(Resources(2, options=low), 60.0, 0.0)
    assert (there.planned_s, there.free_cores) == (0.0, 8)
    unseen = contexts.of(Resources(2, options=(("partition", "gpu"),)), 60.0, 0.0)
    assert (unseen.planned_s, unseen.queue) == (None, None)


def test_the_planned_wait_is_computed_once_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real queue in plain Python: the driver does not wait until the laboratory's functions are compiled."""
    looked: list[float] = []

    def plan(queue: QueueView) -> Profile:
        looked.append(queue.now)
        return planned(queue)

    monkeypatch.setattr("asa.workflows.learned.planned", plan)
    monkeypatch.setattr("asa.lab.forecast.futures.planned_s", lambda *_: pytest.fail("it is compiled"))
    looks: Any = Looks()
    contexts = Contexts(Pool(), looks.seen)
    for cores in (2, 4, 5, 2, 4, 5):
        assert contexts.of(Resources(cores), 60.0, 0.0).planned_s == (300.0 if cores <= 4 else None)
    looks.view = replace(looks.view, now=30.0)
    assert contexts.of(Resources(2), 60.0, 30.0).planned_s == 270.0
    assert looked == [0.0, 30.0]
    looks.view = replace(looks.view, queue=(QueuedJob("b", Resources(1), 60.0, 0.0),) * (PLANNED_MOST + 1))
    assert contexts.of(Resources(2), 60.0, 30.0).planned_s is None and looked == [0.0, 30.0]
