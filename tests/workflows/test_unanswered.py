"""A batch system that refuses, or does not answer; supervisors that do not join."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.errors import BackendError
from asa.core.event import Cancelled, JobEnded, Learned, RunState, StageFailed, Submitted, Submitting, TaskDone, Trouble
from asa.core.job import JobRequest, JobState, QueueRegime
from asa.workflows.explain import explain
from tests.workflows.squares import check_clean, message, squares, total
from tests.workflows.world import Crash, World

AWAY = BackendError("slurm_load_jobs error: Unable to contact slurm controller", transient=True)


def test_a_refusal_ends_the_run_with_the_sites_own_words(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(4)), refuse=lambda _request: "sbatch: error: Invalid account")
    assert world.drive() is RunState.FAILED
    assert message(world) == (
        "stage 'square' failed: the batch system refused the job: sbatch: error: Invalid account\n"
        "skipped because of it: total"
    )
    assert len(world.events(Submitting)) == 1, "asking again would not help"


def test_the_refusal_of_a_later_stage_spares_the_earlier_ones(tmp_path: Path) -> None:
    def refuse(request: JobRequest) -> str | None:
        return "too few cores" if request.resources.cores == 1 else None

    world = World(tmp_path, total(squares(4)), "asa:dependency=upfront", refuse=refuse)
    assert world.drive() is RunState.FAILED
    assert message(world) == "stage 'total' failed: the batch system refused the job: too few cores"
    assert len(world.events(TaskDone)) == 4


def test_a_job_refused_only_because_of_its_dependency_is_asked_for_later(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        total(squares(4)),
        "asa:dependency=upfront",
        refuse=lambda request: "Job dependency problem" if request.dependencies else None,
        run_time=lambda _task: 10.0,
    )
    assert world.drive() is RunState.SUCCEEDED
    assert [event.after for event in world.events(Submitting)] == [(), ("run.0",), ()]
    check_clean(world)


@pytest.mark.parametrize("call", ["submit", "query", "cancel", "find"])
@pytest.mark.parametrize("times", [1, 6])
def test_a_batch_system_that_does_not_answer_for_a_while(tmp_path: Path, call: str, times: int) -> None:
    """Tasks go on meanwhile, and what was asked is done in the end, once."""
    world = World(tmp_path, total(squares(8)), "asa:dependency=upfront", run_time=lambda _task: 10.0)
    world.batch.break_next(call, AWAY, times=times)
    assert world.drive() is RunState.SUCCEEDED
    assert len(world.batch.jobs()) == 2
    check_clean(world)


def test_trouble_is_told_while_it_lasts(tmp_path: Path) -> None:
    world = World(tmp_path, squares(2), run_time=lambda _task: 30.0)
    world.batch.break_next("submit", AWAY, times=3)
    heard: list[list[str]] = []

    def ask() -> None:
        """The driver's own plan, and one that has nothing but the log."""
        plans = (world.runner.plan, world.replay())
        heard.append([explain(plan, world.clock.now()).splitlines()[-1] for plan in plans])

    for seconds in (0.5, 20.0):
        world.at(seconds, ask)
    assert world.drive() is RunState.SUCCEEDED
    told, later = heard
    assert told == [f"the batch system does not answer: {AWAY}"] * 2
    assert later[0] == later[1] and "running" in later[0]
    assert [event.error for event in world.events(Trouble)] == [str(AWAY), ""]


def test_a_submission_whose_answer_was_lost_is_not_repeated(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)))
    world.batch.break_next("submit", AWAY, times=2, after=True)
    assert world.drive() is RunState.SUCCEEDED
    assert [request.token for request, _ in world.batch.jobs()] == ["run.0", "run.1"]
    assert [event.handle.job_id for event in world.events(Submitted)] == ["1", "2"]
    check_clean(world)


def test_a_supervisor_that_never_joins_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), joins=lambda _token: None)
    assert world.drive() is RunState.FAILED
    assert "3 allocations in a row ended before they finished a task; the last: job 3 ended as timeout" in message(
        world
    )
    assert f"its output is in {tmp_path}/run.2.out" in message(world), "which says why it did not join"


def test_a_supervisor_that_joins_after_its_release_goes_at_once(tmp_path: Path) -> None:
    """The second stage is done in the first one's allocation before its own node has joined."""
    joins = {"run.0": 0.0, "run.1": 20.0}
    world = World(
        tmp_path,
        total(squares(2)),
        "asa:dependency=none",
        predicted_wait_s=60.0,
        joins=joins.__getitem__,
        run_time=lambda task: 10.0 if task.stage == "square" else 2.0,
    )
    assert world.drive() is RunState.SUCCEEDED
    ended = {event.allocation: event for event in world.events(JobEnded)}
    assert ended["run.1"].state is JobState.COMPLETED
    assert ended["run.1"].at - 1000.0 < 35.0
    check_clean(world)


def test_a_cancellation_that_a_dead_driver_had_announced_is_carried_out(tmp_path: Path) -> None:
    """It was logged, and then the driver died before the batch system was told."""

    def fresh(name: str) -> World:
        (tmp_path / name).mkdir(mode=0o700)
        return World(
            tmp_path / name, total(squares(2)), "asa-naive:grace_s=10", predicted_wait_s=30.0, run_time=lambda _: 50.0
        )

    whole = fresh("whole")
    whole.drive()
    kinds = [type(event) for _, event in whole.log.read()]
    torn = fresh("torn")
    with pytest.raises(Crash):
        torn.drive(kinds.index(Cancelled) - 1, after=True)
    assert len(torn.events(Cancelled)) == 1
    withdrawn = torn.events(Cancelled)[0].allocation
    assert torn.drive() is RunState.SUCCEEDED
    states = {request.token: status.state for request, status in torn.batch.jobs()}
    assert states[withdrawn] is JobState.CANCELLED
    check_clean(torn)


@pytest.mark.parametrize("regime", list(QueueRegime))
def test_every_wait_is_taught_once_or_censored(tmp_path: Path, regime: QueueRegime) -> None:
    """The second job starts as the first one ends: that says nothing of the queue."""
    world = World(tmp_path, total(squares(4)), "asa:dependency=upfront", wait=30.0, regime=regime)
    assert world.drive() is RunState.SUCCEEDED
    learned = {event.allocation: event for event in world.events(Learned)}
    if regime is QueueRegime.IMMEDIATE:  # nothing is learned where there is no queue
        assert not learned and not world.waits.learned
        return
    assert len(world.events(Learned)) == 2
    assert (learned["run.0"].wait_s, learned["run.0"].censored) == (30.0, False)
    assert learned["run.1"].censored
    assert world.waits.learned == {"run.0": 30.0}
    assert not world.events(StageFailed)
