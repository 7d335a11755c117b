"""What goes wrong outside of a run: jobs, nodes, and a batch system that does not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import BackendError
from asa.core.event import (
    AllocationStarted,
    Cancelled,
    JobEnded,
    Learned,
    Requeued,
    RunEnded,
    RunState,
    StageFailed,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, QueueRegime
from asa.core.task import Task
from tests.workflows.world import Crash, World

AWAY = BackendError("slurm_load_jobs error: Unable to contact slurm controller", transient=True)


@asa.stage(cores=2, walltime=60)
def square(x: int) -> int:
    return x * x


@asa.stage(walltime=60)
def total(xs: list[int]) -> int:
    return sum(xs)


def squares(count: int) -> Any:
    return square.map(range(count))


def message(world: World) -> str:
    return str(world.events(RunEnded)[-1].message)


def launches(world: World) -> Counter[tuple[str, int]]:
    return Counter(
        (event.stage, index)
        for event in world.events(TasksLaunched)
        for start, stop in event.ranges
        for index in range(start, stop)
    )


def check_clean(world: World) -> None:
    """Nothing done twice, nothing left behind, every allocation's story told to its end."""
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values(), default=1) == 1
    assert all(status.state.final for _, status in world.batch.jobs())
    asked = [event.allocation for event in world.events(Submitting)]
    assert len(asked) == len(set(asked))
    assert sorted(asked) == sorted(event.allocation for event in world.events(JobEnded, SubmitRefused))


# ------------------------------------------------------------------------------------------------- wall time


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "cascade"])
def test_tasks_left_at_the_wall_time_are_run_in_a_new_allocation(tmp_path: Path, strategy: str, silent: bool) -> None:
    def run_time(task: Task) -> float:
        return 50.0 if task.index == 2 and (task.stage, task.index) not in seen else 10.0

    seen: set[tuple[str, int]] = set()
    world = World(tmp_path, total(squares(24)), strategy, run_time=run_time, silent=silent, wait=5.0)
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == sum(x * x for x in range(24))
    check_clean(world)
    ends = [event.state for event in world.events(JobEnded)]
    assert len([state for state in ends if state in (JobState.COMPLETED, JobState.TIMEOUT)]) >= 2
    assert all(event.infrastructure for event in world.events(TaskFailed)), "no retry is used up"


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("left_running", [False, True])
def test_a_task_cut_off_by_the_wall_time_is_run_again(tmp_path: Path, silent: bool, left_running: bool) -> None:
    """Task 2 starts late and is still running when the wall time comes; nobody is to blame."""

    def run_time(task: Task) -> float:
        return 50.0 if task.index == 2 else 20.0

    world = World(tmp_path, square.map(range(4 if left_running else 3)), run_time=run_time, silent=silent)
    assert world.drive() is RunState.SUCCEEDED
    assert world.states()[0] == "timeout"
    assert launches(world)["square", 2] == 2
    check_clean(world)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_task_longer_than_the_wall_time_fails_its_stage(tmp_path: Path, retries: int, silent: bool) -> None:
    def run_time(task: Task) -> float:
        return 61.0 if task.index == 1 else 5.0

    stage = square.options(retries=retries)
    world = World(tmp_path, total(stage.map(range(6))), run_time=run_time, silent=silent)
    assert world.drive() is RunState.FAILED
    assert "task 1 ran for 1 min and reached the wall time: raise walltime=" in message(world)
    assert "skipped because of it: total" in message(world)
    assert launches(world)["square", 1] == 1 + retries, "each try costs a whole wall time"
    check_clean(world)


def test_tasks_almost_as_long_as_the_wall_time_all_run(tmp_path: Path) -> None:
    """Nothing would ever be launched after the first task if its length were held against fresh allocations."""
    world = World(tmp_path, square.map(range(6)), run_time=lambda _task: 58.0)
    assert world.drive() is RunState.SUCCEEDED
    assert world.states() == ["completed"] * 3
    assert max(launches(world).values()) == 1


def test_an_allocation_in_which_nothing_fits_any_more_is_let_go(tmp_path: Path) -> None:
    world = World(tmp_path, square.map(range(4)), run_time=lambda _task: 35.0, wait=100.0)
    assert world.drive() is RunState.SUCCEEDED
    first, second = world.events(Submitting)
    assert second.at - first.at == pytest.approx(135.0, abs=2.0), "asked for at once, not when the first one drains"


def test_a_new_allocation_is_asked_for_when_the_old_one_drains(tmp_path: Path) -> None:
    """Also while a long task is still running in it and nothing else happens."""

    def run_time(task: Task) -> float:
        return 59.5 if task.index == 0 else 11.0

    world = World(tmp_path, squares(8), run_time=run_time, wait=100.0)
    assert world.drive() is RunState.SUCCEEDED
    first, second = world.events(Submitting)
    assert second.at - first.at == pytest.approx(157.0, abs=1.5), "3 s before the wall time"


def test_successors_survive_that_a_stage_needs_many_allocations(tmp_path: Path) -> None:
    """Each of its jobs ends badly, and takes the job that waits for it along."""

    def run_time(task: Task) -> float:
        return 20.0 if task.stage == "square" else 1.0

    long = square.options(cores=1)
    for strategy in ("asa:dependency=upfront", "asa:dependency=predicted", "cascade"):
        directory = tmp_path / strategy
        directory.mkdir(mode=0o700)
        world = World(directory, total(long.map(range(7))), strategy, run_time=run_time)

        def kill_when_useful(event: Any, world: World = world) -> None:
            if isinstance(event, TaskDone) and event.stage == "square" and event.index < 6:
                world.at(0.1, lambda: world.batch.fail(event.allocation))

        world.told = kill_when_useful
        assert world.drive() is RunState.SUCCEEDED, message(world)
        assert world.states().count("node_fail") >= 6
        check_clean(world)


# ---------------------------------------------------------------------------------------------- nodes and jobs


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


# -------------------------------------------------------------------------------------------- the batch system


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
    world = World(tmp_path, squares(2))
    world.batch.break_next("submit", AWAY, times=3)
    heard: list[str] = []
    for seconds in (0.5, 1000.0):
        world.at(seconds, lambda: heard.append(world.runner.watch.trouble))
    world.run_time = lambda _task: 1.0
    assert world.drive() is RunState.SUCCEEDED
    assert heard == [str(AWAY)]
    assert world.runner.watch.trouble == ""


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
    assert len(world.events(Learned)) == 2
    assert (learned["run.0"].wait_s, learned["run.0"].censored) == (30.0, False)
    assert learned["run.1"].censored
    assert world.waits.learned == {"run.0": 30.0}
    assert not world.events(StageFailed)
