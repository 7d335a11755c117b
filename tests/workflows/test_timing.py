"""When jobs are asked for, used and let go, to the second of virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.event import (
    Cancelled,
    JobEnded,
    Learned,
    Predicted,
    Released,
    RunEnded,
    RunState,
    Submitting,
    TasksLaunched,
)
from asa.core.job import DependencyKind, JobState, QueueRegime
from tests.workflows.world import Crash, World

START = 1000.0


@asa.stage(cores=2, walltime=100)
def first(x: int) -> int:
    return x + 1


@asa.stage(cores=4, walltime=200)
def second(x: Any) -> int:
    return x if isinstance(x, int) else sum(x)


@asa.stage(cores=1, walltime=300)
def third(x: int) -> int:
    return -x


def chain() -> Any:
    return third(second(first(0)))


def asked(world: World) -> list[tuple[float, tuple[str, ...], tuple[str, ...]]]:
    return [(event.at - START, event.stages, event.after) for event in world.events(Submitting)]


def run_times(**seconds: float) -> Any:
    return lambda task: seconds.get(task.stage, 10.0)


# ------------------------------------------------------------------------------------------------ strategies


def test_per_stage_waits_anew_for_every_stage(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "per-stage", wait=50.0, run_time=run_times())
    assert world.drive() is RunState.SUCCEEDED
    assert asked(world) == [(0.0, ("first",), ()), (60.0, ("second",), ()), (120.0, ("third",), ())]
    assert [event.at - START for event in world.events(RunEnded)] == [180.0]


def test_big_job_waits_once_for_the_peak_and_the_sum(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "big-job", wait=50.0, run_time=run_times())
    assert world.drive() is RunState.SUCCEEDED
    (event,) = world.events(Submitting)
    assert (event.request.resources.cores, event.request.walltime_s) == (4, 600.0)
    assert event.stages == ("first", "second", "third")
    assert [event.at - START for event in world.events(RunEnded)] == [80.0]


def test_a_big_job_too_long_for_the_site_goes_on_in_a_second_one(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        chain(),
        "big-job",
        longest_s=300.0,
        wait=50.0,
        run_time=run_times(first=90.0, second=190.0, third=200.0),
    )
    assert world.drive() is RunState.SUCCEEDED
    assert [event.request.walltime_s for event in world.events(Submitting)] == [300.0, 300.0]
    assert [event.stages for event in world.events(Submitting)] == [("first", "second", "third"), ("third",)]


def test_upfront_puts_all_stages_in_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "asa:dependency=upfront", wait=50.0, run_time=run_times())
    assert world.drive() is RunState.SUCCEEDED
    assert asked(world) == [
        (0.0, ("first",), ()),
        (0.0, ("second",), ("run.0",)),
        (0.0, ("third",), ("run.1",)),
    ]
    on = [[item.on.token for item in event.request.dependencies] for event in world.events(Submitting)]
    assert on == [[], ["run.0"], ["run.1"]]
    assert [event.at - START for event in world.events(RunEnded)] == [80.0], "one wait of 50 s, three tasks of 10 s"
    assert not world.events(Predicted), "which needs no prediction"


def test_upfront_in_a_diamond_depends_on_both(tmp_path: Path) -> None:
    top = first(0)
    workflow = second([first(top), first(top)])
    world = World(tmp_path, workflow, "asa:dependency=upfront", wait=50.0)
    assert world.drive() is RunState.SUCCEEDED
    assert [(stages, after) for _, stages, after in asked(world)] == [
        (("first",), ()),
        (("first-2",), ("run.0",)),
        (("first-3",), ("run.0",)),
        (("second",), ("run.1", "run.2")),
    ]


def test_predicted_submits_at_the_expected_end_less_the_predicted_wait(tmp_path: Path) -> None:
    """Wall times are taken for run times: first runs from 50 to 150, so second goes in at 150 - 30."""
    world = World(
        tmp_path,
        chain(),
        "asa:dependency=predicted",
        wait=50.0,
        predicted_wait_s=30.0,
        run_time=run_times(first=80.0, second=190.0),
    )
    assert world.drive() is RunState.SUCCEEDED
    # first ends at 130 already, second starts at 170: third goes in at 170 + 200 - 30, and starts at 390
    assert asked(world) == [(0.0, ("first",), ()), (120.0, ("second",), ("run.0",)), (340.0, ("third",), ("run.1",))]
    assert [event.predicted_wait_s for event in world.events(Submitting)] == [30.0, 30.0, 30.0]
    assert [event.at - START for event in world.events(RunEnded)] == [400.0]


def test_predicted_trusts_the_progress_of_a_stage_more_than_its_wall_time(tmp_path: Path) -> None:
    """Ten tasks, two at a time, of 8 s: a fifth is done at 8 s, which makes 40 s in all, not 100."""
    world = World(
        tmp_path,
        second(first.map(range(10))),
        "asa:dependency=predicted",
        wait=lambda request: 20.0 if request.token == "run.1" else 0.0,
        predicted_wait_s=20.0,
        run_time=run_times(first=8.0),
    )
    assert world.drive() is RunState.SUCCEEDED
    (_, (at, stages, _)) = asked(world)
    assert stages == ("second",)
    assert at == pytest.approx(20.0, abs=4.0)
    assert world.events(RunEnded)[0].at - START <= 55.0


def test_cascade_asks_for_stages_further_on_in_time(tmp_path: Path) -> None:
    """Waits of 250 s are longer than first and second run: third's job has to go in while second's still waits."""
    world = World(
        tmp_path,
        chain(),
        "cascade",
        wait=lambda request: 0.0 if request.token == "run.0" else 250.0,
        predicted_wait_s=250.0,
        run_time=run_times(first=95.0, second=190.0),
    )
    assert world.drive() is RunState.SUCCEEDED
    assert asked(world) == [(0.0, ("first",), ()), (0.0, ("second",), ("run.0",)), (200.0, ("third",), ("run.1",))]


@pytest.mark.parametrize("attempts", [3])
def test_naive_withdraws_what_comes_too_early_and_asks_again_a_few_times(tmp_path: Path, attempts: int) -> None:
    world = World(
        tmp_path,
        second(first(0)),
        "asa-naive:grace_s=10",
        predicted_wait_s=60.0,
        run_time=run_times(first=95.0),
    )
    assert world.drive() is RunState.SUCCEEDED
    withdrawn = world.events(Cancelled)
    assert [event.reason for event in withdrawn] == ["it came before its stage and idled for 10 s"] * attempts
    assert [at for at, _, _ in asked(world)] == pytest.approx([0.0, 40.0, 50.0, 60.0, 95.0], abs=2.0)
    states = {event.allocation: event.state for event in world.events(JobEnded)}
    assert [states[event.allocation] for event in withdrawn] == [JobState.CANCELLED] * attempts
    assert len(world.waits.learned) == 2 + attempts, "a job that was withdrawn has waited, too"


def test_naive_keeps_what_comes_just_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, second(first(0)), "asa-naive", predicted_wait_s=5.0, run_time=run_times(first=99.0))
    assert world.drive() is RunState.SUCCEEDED
    assert not world.events(Cancelled)
    assert len(world.batch.jobs()) == 2


@pytest.mark.parametrize("strategy", ["asa", "asa:dependency=upfront", "cascade"])
def test_a_site_without_dependencies_gets_none(tmp_path: Path, strategy: str) -> None:
    world = World(tmp_path, chain(), strategy, dependencies=frozenset({DependencyKind.AFTER_ANY}), predicted_wait_s=9.0)
    assert world.drive() is RunState.SUCCEEDED
    assert not any(event.request.dependencies for event in world.events(Submitting))


# ------------------------------------------------------------------------------------------------- the pool


def early(tmp_path: Path, *, shared: bool) -> World:
    """Second's allocation of four cores comes at once, while first has eight tasks for its two cores."""
    world = World(
        tmp_path,
        second(first.map(range(8))),
        "asa:dependency=none",
        predicted_wait_s=1000.0,
        shared=shared,
        run_time=lambda _task: 10.0,
    )
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == sum(range(1, 9))
    return world


def test_a_shared_pool_uses_an_early_allocation_for_tasks_that_are_ready(tmp_path: Path) -> None:
    world = early(tmp_path, shared=True)
    in_second = [e for e in world.events(TasksLaunched) if e.stage == "first" and e.allocation == "run.1"]
    assert sum(stop - start for event in in_second for start, stop in event.ranges) >= 4
    assert world.events(RunEnded)[0].at - START == 30.0, "six at a time, then two, then second"


def test_per_stage_pools_keep_to_their_own(tmp_path: Path) -> None:
    world = early(tmp_path, shared=False)
    assert {(event.stage, event.allocation) for event in world.events(TasksLaunched)} == {
        ("first", "run.0"),
        ("second", "run.1"),
    }
    assert world.events(RunEnded)[0].at - START == 50.0


def test_an_allocation_is_let_go_as_soon_as_its_stage_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "per-stage", wait=50.0, run_time=run_times())
    world.drive()
    assert [event.at - START for event in world.events(Released)] == [60.0, 120.0, 180.0]
    ends = world.events(JobEnded)
    assert [event.at - START for event in ends] == [60.0, 120.0, 180.0]
    assert {event.state for event in ends} == {JobState.COMPLETED}, "so that jobs that depend on it start"


def test_a_pending_job_that_nobody_needs_any_more_is_cancelled(tmp_path: Path) -> None:
    """First's tasks run in second's allocation, which comes sooner."""
    world = World(
        tmp_path,
        [first(0), second(0)],
        wait=lambda request: 500.0 if request.resources.cores == 2 else 5.0,
        run_time=lambda _task: 10.0,
    )
    assert world.drive() is RunState.SUCCEEDED
    (event,) = world.events(Cancelled)
    assert (event.allocation, event.at - START) == ("run.0", 15.0)


def test_no_task_is_launched_shortly_before_the_wall_time(tmp_path: Path) -> None:
    """5 % of 100 s."""
    world = World(tmp_path, first.options(cores=1).map(range(60)), run_time=lambda _task: 1.0)
    assert world.drive() is RunState.SUCCEEDED
    starts = [event.at for event in world.events(TasksLaunched) if event.allocation == "run.0"]
    assert max(starts) - START <= 95.0
    assert {event.state for event in world.events(JobEnded)} == {JobState.COMPLETED}


def test_an_allocation_drains_and_is_released_before_the_wall_time(tmp_path: Path) -> None:
    world = World(tmp_path, first.options(cores=1).map(range(120)), run_time=lambda _task: 1.0)
    assert world.drive() is RunState.SUCCEEDED
    released = world.events(Released)[0]
    assert 94.0 <= released.at - START <= 96.0
    assert {event.state for event in world.events(JobEnded)} == {JobState.COMPLETED}


@pytest.mark.parametrize("strategy", ["asa-naive:grace_s=1", "asa:dependency=none,grace_s=1"])
def test_a_job_with_live_work_is_never_cancelled(tmp_path: Path, strategy: str) -> None:
    """A shared pool gives an early allocation work; then it is not idle, however long its grace is over."""
    world = World(
        tmp_path,
        second(first.map(range(40))),
        strategy,
        predicted_wait_s=1000.0,
        run_time=lambda task: 7.0 + task.index % 3,
    )
    busy: dict[str, set[tuple[str, int]]] = {}

    def watch(event: Any) -> None:
        if isinstance(event, TasksLaunched):
            for start, stop in event.ranges:
                busy.setdefault(event.allocation, set()).update((event.stage, n) for n in range(start, stop))
        elif isinstance(event, Cancelled):
            assert not busy.get(event.allocation)
        elif hasattr(event, "index"):
            busy.get(event.allocation, set()).discard((event.stage, event.index))

    world.told = watch
    assert world.drive() is RunState.SUCCEEDED


# ------------------------------------------------------------------------------------------------- learning


def test_only_waits_that_the_queue_made_are_taught(tmp_path: Path) -> None:
    """second's job waits for first's to end, and a moment longer; third's queue is longer than second runs."""
    world = World(
        tmp_path,
        chain(),
        "asa:dependency=upfront",
        wait=lambda request: {"run.0": 50.0, "run.1": 50.0, "run.2": 300.0}[request.token],
        run_time=run_times(),
    )
    assert world.drive() is RunState.SUCCEEDED
    learned = {event.allocation: (event.wait_s, event.censored) for event in world.events(Learned)}
    assert learned == {"run.0": (50.0, False), "run.1": (60.0, True), "run.2": (300.0, False)}
    assert world.waits.learned == {"run.0": 50.0, "run.2": 300.0}


@pytest.mark.parametrize("crash_at", range(0, 40, 3))
def test_a_wait_is_taught_once_whoever_drives(tmp_path: Path, crash_at: int) -> None:
    world = World(tmp_path, chain(), "per-stage", wait=50.0, regime=QueueRegime.LIMITS)
    try:
        world.drive(crash_at)
    except Crash:
        world.drive()
    learned = [event.allocation for event in world.events(Learned)]
    assert len(learned) == len(set(learned)) == 3


def test_where_there_is_no_queue_nothing_is_learned(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "big-job", regime=QueueRegime.IMMEDIATE)
    assert world.drive() is RunState.SUCCEEDED
    assert not world.events(Learned) and not world.waits.learned
