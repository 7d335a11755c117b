"""Runs whose jobs may go to several queues: what is chosen is logged, resumed and explained."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import GraphError
from asa.core.event import AllocationStarted, Cancelled, Event, JobEnded, Released, Requeued, SubmitRefused, Submitting
from asa.core.job import JobRequest, JobState, Options, QueueRegime
from asa.core.queues import QueueTerms
from asa.core.run import FoldedRun
from asa.metrics.workflow import summary
from asa.workflows.explain import explain
from asa.workflows.learned import LearnedWaits
from asa.workflows.stage import Node, stage
from tests.workflows.world import Crash, World

QUEUES: dict[str, dict[str, Any]] = {"core": {}, "long": {"longest_s": 7200.0}, "low": {"preemptible": True}}
WHERE = "core|long|low"


def _square(x: int) -> int:
    return x * x


def _total(xs: list[int]) -> int:
    return sum(xs)


def several(where: str = WHERE, walltime: str = "10m", **options: Any) -> Node:
    squares = stage(cores=4, walltime=walltime, name="squares", partition=where, **options)(_square)
    return stage(walltime="10m", name="total", partition=where)(_total)(squares.map(range(10)))


def partition(options: Options) -> str:
    return dict(options)["partition"]


def waits(**seconds: float) -> Any:
    return lambda request: seconds.get(partition(request.options), 0.0)


def world(path: Path, **options: Any) -> World:
    return World(path, options.pop("workflow", several()), queues=QUEUES, run_time=lambda task: 3.0, **options)


def asked(world: World) -> list[tuple[str, str]]:
    return [(event.stages[0], partition(event.request.options)) for event in world.events(Submitting)]


def test_the_choice_is_logged_explained_and_the_same_after_replay(tmp_path: Path) -> None:
    once = QueueTerms(price={"core": 1.0, "low": 0.1}, preempted={"low": 0.0}, twice=False)
    run = world(tmp_path, terms=once)
    assert run.succeed() == sum(x * x for x in range(10))
    assert asked(run) == [("squares", "low"), ("total", "low")]
    told = explain(run.replay(), run.clock.now())
    assert "squares: queue low: an unknown wait" in told and "price 0.1 a core-hour" in told
    folded = FoldedRun()
    for event in run.events(Event):
        folded.on(event)
    assert {partition(held.request.options) for held in folded.pool.ever.values()} == {"low"}


def test_what_breaks_a_limit_is_left_out_and_what_fits_nowhere_is_refused(tmp_path: Path) -> None:
    run = world(tmp_path, workflow=several("long|core", walltime="3h"), terms=QueueTerms(twice=False))
    run.succeed()
    assert asked(run) == [("squares", "core"), ("total", "long")]
    assert "long is left out" in run.events(Submitting)[0].why
    bounded = replace(run.batch.capabilities(), apart=lambda options: replace(run.batch.capabilities(), longest_s=60.0))
    with pytest.raises(GraphError, match=r"stage 'squares': it fits none of its queues: .* wall time of 00:01:00"):
        run.graph.check(bounded)


@pytest.mark.parametrize("strategy", ["per-stage", "stagger", "auto"])
def test_of_two_requests_the_first_to_start_is_used_and_the_other_withdrawn(tmp_path: Path, strategy: str) -> None:
    run = world(tmp_path, strategy=strategy, wait=waits(core=300.0, long=20.0))
    assert run.succeed() == sum(x * x for x in range(10))
    first, second = run.events(Submitting)[:2] if strategy != "auto" else _pair(run)
    assert partition(first.request.options) == "core" and second.instead == first.allocation
    assert partition(second.request.options) == "long"
    started = [event.allocation for event in run.events(AllocationStarted)]
    assert second.allocation in started and first.allocation not in started
    (withdrawn,) = [event for event in run.events(Cancelled) if event.allocation == first.allocation]
    assert f"{second.allocation} started first" in withdrawn.reason
    if strategy != "auto":  # whose second stage waits for the first one's job, and is asked for once
        assert run.clock.now() - 1000.0 < 200.0, "nothing waits for the one that was withdrawn"


def _pair(run: World) -> tuple[Submitting, Submitting]:
    second = next(event for event in run.events(Submitting) if event.instead)
    return next(event for event in run.events(Submitting) if event.allocation == second.instead), second


def test_of_two_that_start_at_once_one_ends_unused(tmp_path: Path) -> None:
    run = world(tmp_path, wait=waits(core=70.0, long=70.0))
    run.succeed()
    _, second = _pair(run)
    assert second.allocation in {event.allocation for event in run.events(AllocationStarted)}
    (unused,) = [event for event in run.events(Cancelled, Released) if event.allocation == second.allocation]
    assert "asked for elsewhere" in unused.reason
    report = summary(run.replay())
    job = next(job for job in report.jobs if job.token == second.allocation)
    assert job.core_hours_used == 0 and job.reason == unused.reason
    assert all(count == 1 for count in Counter(run.nodes.begun).values())


def test_a_second_request_that_is_refused_costs_nothing(tmp_path: Path) -> None:
    refuse = lambda request: "no account there" if partition(request.options) == "long" else None  # noqa: E731
    run = world(tmp_path, wait=waits(core=50.0), refuse=refuse, workflow=several("core|long"))
    assert run.succeed() == sum(x * x for x in range(10))
    assert len(run.events(SubmitRefused)) == 2
    assert {stage.attempts for stage in run.replay().stages.values()} == {1}


def test_where_no_more_jobs_may_be_in_the_queue_the_second_request_is_left_out(tmp_path: Path) -> None:
    for known in (True, False):
        folder = tmp_path / str(known)
        folder.mkdir(mode=0o700)
        run = world(folder, wait=waits(core=50.0, long=50.0), most_jobs=1, known=known)
        assert run.succeed() == sum(x * x for x in range(10))
        assert bool(run.events(SubmitRefused)) == (not known)


@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_at_any_event_loses_no_task_and_no_job(tmp_path: Path, after: bool) -> None:
    def fresh(name: str) -> World:
        Path(tmp_path, name).mkdir(mode=0o700)
        return world(Path(tmp_path, name), wait=waits(core=90.0, long=40.0, low=80.0))

    whole = fresh("whole")
    whole.succeed()
    assert sum(bool(event.instead) for event in whole.events(Submitting)) == 2
    for at in range(whole.logged):
        torn = fresh(f"torn-{at}")
        with pytest.raises(Crash):
            torn.drive(at, after=after)
        torn.clock.wait(threading.Event(), torn.clock.now() + 2.0)
        assert torn.succeed() == sum(x * x for x in range(10))
        assert all(count == 1 for count in Counter(torn.nodes.begun).values()), f"begun again after event {at}"
        for request, status in torn.batch.jobs():
            assert status.state.final, f"{request.token} is left after a crash at event {at}"


@pytest.mark.parametrize("regime", [item for item in QueueRegime if item is not QueueRegime.IMMEDIATE])
@pytest.mark.parametrize("strategy", ["auto", "hold", "asa", "big-job"])
def test_jobs_that_hold_places_together_are_in_one_queue(tmp_path: Path, strategy: str, regime: QueueRegime) -> None:
    """Of an array all elements, and one that takes all of them."""
    squares = stage(cores=4, walltime="10m", name="squares", partition=WHERE)(_square)
    total = stage(walltime="3h", name="total", partition=WHERE)(_total)
    workflow = total(squares.map(range(10)))
    run = world(tmp_path, workflow=workflow, strategy=strategy, regime=regime, wait=waits(core=60.0, long=20.0))
    assert run.succeed() == sum(x * x for x in range(10))
    arrays: dict[str, set[str]] = {}
    for event in run.events(Submitting):
        if event.request.array:
            arrays.setdefault(event.request.array, set()).add(partition(event.request.options))
        assert event.request.walltime_s <= 7200.0 or partition(event.request.options) != "long"
    assert all(len(queues) == 1 and queues != {"long"} for queues in arrays.values())
    assert (strategy != "hold" or regime is not QueueRegime.LIMITS) or arrays
    assert all(status.state.final for _, status in run.batch.jobs())


def test_preempted_work_is_done_again_and_costs_no_retry(tmp_path: Path) -> None:
    """Whether the job is requeued or ends; how often that happened counts in the next choice."""
    run = world(tmp_path, workflow=several("low|core"), terms=QueueTerms(price={"low": 0.1}, twice=False))
    run.at(1.0, lambda: run.batch.requeue_for("run.0", 5.0))
    assert run.succeed() == sum(x * x for x in range(10))
    assert len(run.events(Requeued)) == 1 and run.replay().failed == 0
    assert run.replay().pool.ever["run.0"].preempted == 1
    first, last = run.events(Submitting)
    assert partition(first.request.options) == "low"
    assert "preempted 0.25 times an hour" in first.why and "preempted 0.5 times an hour" in last.why


def test_a_stage_whose_jobs_are_preempted_again_and_again_is_not_given_up(tmp_path: Path) -> None:
    run = world(tmp_path, workflow=several("low"), terms=QueueTerms(twice=False))
    for number in range(5):
        take = partial(run.batch.fail, f"run.{number}", JobState.PREEMPTED, "preempted")
        run.at(1.0 + 2.0 * number, take)
    assert run.succeed() == sum(x * x for x in range(10))
    assert [event.state for event in run.events(JobEnded)][:5] == [JobState.PREEMPTED] * 5


def test_how_often_jobs_were_preempted_is_remembered_for_later_runs(tmp_path: Path) -> None:
    run = world(tmp_path, workflow=several("low|core"), terms=QueueTerms(price={"low": 0.1}, twice=False))
    run.at(1.0, lambda: run.batch.requeue_for("run.0", 5.0))
    run.succeed()
    book = LearnedWaits(tmp_path / "learned.db", "fixed-share", run.batch.capabilities())
    for _ in range(2):  # each job counts once
        book.learn_survival(run.replay())
    times, hours = book.survival((("partition", "low"),))
    assert times == 1 and 0 < hours < 0.1
    assert book.survival((("partition", "core"),))[0] == 0


def test_a_request_without_a_choice_is_in_the_queue_that_it_names() -> None:
    where = several("core")
    request = JobRequest("a", replace(where.stage.needs.resources, options=where.stage.needs.options), 60.0, ())
    assert request.options == (("partition", "core"),)
