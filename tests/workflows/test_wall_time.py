"""Tasks and the wall time of their allocations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asa.core.event import JobEnded, RunState, Submitting, TaskDone, TaskFailed
from asa.core.job import JobState
from asa.core.task import Task
from tests.workflows.squares import check_clean, launches, message, square, squares, total
from tests.workflows.world import World


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
