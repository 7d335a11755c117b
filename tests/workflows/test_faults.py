"""What goes wrong outside of a run: nodes fail, and jobs end or vanish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import AllocationStarted, JobEnded, Learned, Requeued, RunEnded, RunState, Submitting, TaskFailed
from asa.core.job import JobHandle, JobState, JobStatus
from tests.workflows.squares import check_clean, message, square, squares, total
from tests.workflows.world import Crash, World


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "asa-naive"])
def test_node_failure(tmp_path: Path, strategy: str, silent: bool) -> None:
    world = World(tmp_path, total(squares(8)), strategy, run_time=lambda _task: 5.0, silent=silent)
    world.at(7.0, lambda: world.batch.fail("run.0"))
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == sum(x * x for x in range(8))
    assert world.states()[0] == "node_fail"
    assert all(event.infrastructure for event in world.events(TaskFailed))
    check_clean(world)


def test_nodes_that_keep_failing_end_the_run_with_the_last_reason(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), run_time=lambda _task: 5.0)

    def fail(event: Any) -> None:
        if isinstance(event, AllocationStarted):
            world.at(2.0, lambda: world.batch.fail(event.allocation))

    world.told = fail
    assert world.drive() is RunState.FAILED
    assert "3 allocations in a row ended before they finished a task; the last: job 3 ended as node_fail" in message(
        world
    )
    assert world.states() == ["node_fail"] * 3
    check_clean(world)


@pytest.mark.parametrize("joins_s", [0.0, 3.0])
@pytest.mark.parametrize("pause_s", [0.0, 30.0])
def test_a_requeued_job_goes_on_when_it_starts_again(tmp_path: Path, joins_s: float, pause_s: float) -> None:
    """Also when the batch system was not asked between the end of the old and the start of the new one."""
    world = World(tmp_path, squares(12), run_time=lambda _task: 5.0, joins=lambda _token: joins_s, wait=10.0)

    world.at(18.0, lambda: world.batch.requeue_for("run.0", pause_s))
    assert world.drive() is RunState.SUCCEEDED, message(world)
    assert world.states() == ["completed"], "one job does it all"
    assert len(world.events(Requeued)) == 1
    assert world.clock.now() - 1000.0 < 90.0
    assert [event.wait_s for event in world.events(Learned)] == [10.0], "the second wait is not the queue's"
    check_clean(world)


def test_a_job_that_vanishes_counts_as_lost_and_is_replaced(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), run_time=lambda _task: 10.0)
    world.at(12.0, lambda: world.batch.vanish("run.0"))
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == sum(x * x for x in range(8))
    lost = world.events(JobEnded)[0]
    assert (lost.allocation, lost.state) == ("run.0", JobState.LOST)
    check_clean(world)


@pytest.mark.parametrize("strategy", ["asa:dependency=upfront", "asa:dependency=predicted", "cascade"])
def test_a_pending_job_that_vanishes_does_not_drag_its_successors_down(tmp_path: Path, strategy: str) -> None:
    """A job that waits for one that is not known any more is refused at once, well before that one counts as lost."""
    world = World(tmp_path, total(squares(4)), strategy, wait=100.0, run_time=lambda _task: 5.0)
    world.at(50.0, lambda: world.batch.vanish("run.0"))
    assert world.drive() is RunState.SUCCEEDED, message(world)
    assert len(world.events(Submitting)) <= 5
    check_clean(world)


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront"])
@pytest.mark.parametrize("seconds", [50.0, 102.0])
def test_a_job_cancelled_by_somebody_else_is_not_asked_for_again(tmp_path: Path, strategy: str, seconds: float) -> None:
    """While it waits, or runs and has been of no use yet: whoever cancelled it meant it."""
    world = World(tmp_path, total(squares(4)), strategy, wait=100.0, run_time=lambda _task: 20.0)
    handle = world.batch.find
    world.at(seconds, lambda: world.batch.cancel([handle(["run.0"])["run.0"]]))
    assert world.drive() is RunState.FAILED
    assert message(world).startswith("stage 'square' failed: job 1 ended as cancelled (cancelled while it ")
    assert message(world).endswith("skipped because of it: total"), "one failure, told once"
    assert world.events(RunEnded)[-1].stage == "square"
    check_clean(world)


def test_a_useful_job_cancelled_by_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    """Who cancels it wants it to stop; a resume goes on with what is not done."""
    world = World(tmp_path, squares(6), run_time=lambda _task: 10.0)
    world.at(15.0, lambda: world.batch.cancel([world.batch.find(["run.0"])["run.0"]]))
    assert world.drive() is RunState.FAILED
    assert world.states() == ["cancelled"]
    assert world.drive() is RunState.SUCCEEDED
    assert world.states() == ["cancelled", "completed"]


def test_a_waiting_job_cancelled_by_somebody_else_while_its_predecessor_runs(tmp_path: Path) -> None:
    """It may have gone with the job it waited for, as far as can be told; so it is asked for once more, on its own."""
    world = World(tmp_path, total(squares(6)), "asa:dependency=upfront", run_time=lambda _task: 10.0)
    world.at(15.0, lambda: world.batch.cancel([world.batch.find(["run.1"])["run.1"]]))
    assert world.drive() is RunState.SUCCEEDED
    assert [event.stages for event in world.events(Submitting)] == [("square",), ("total",), ("total",)]
    assert world.events(Submitting)[2].after == ()


def test_a_controller_that_forgets_for_a_while_that_it_started_a_job(tmp_path: Path) -> None:
    """It was killed, and its saved state was older than the start; the job's nodes know nothing of that."""
    world = World(tmp_path, square.options(walltime=600).map(range(24)), run_time=lambda task: 10.0)
    query = world.batch.query

    def forgetful(handles: Sequence[JobHandle]) -> list[JobStatus]:
        found = query(handles)
        if not 1030.0 <= world.clock.now() < 1090.0:
            return found
        running = JobState.RUNNING
        return [
            replace(item, state=JobState.PENDING, started=None) if item.state is running else item for item in found
        ]

    world.batch.query = forgetful  # type: ignore[method-assign]
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == [x * x for x in range(24)]
    assert len(world.events(Requeued)) == 1
    assert len(world.events(Submitting)) == 1
    check_clean(world)


def test_a_job_requeued_while_no_driver_was_there_keeps_its_place(tmp_path: Path) -> None:
    world = World(tmp_path, squares(4), run_time=lambda _task: 5.0)
    with pytest.raises(Crash):
        world.drive(6)
    assert world.events(AllocationStarted)
    world.batch.requeue_for("run.0", 500.0)
    assert world.drive() is RunState.SUCCEEDED
    assert world.states() == ["completed"]
    assert len(world.events(Requeued)) == 1
    check_clean(world)
