"""Workflows of every shape, tasks that fail, runs that are cancelled and resumed, leases."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import GraphError
from asa.core.event import (
    Cancelled,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    NodeJoined,
    Recalled,
    Released,
    RunEnded,
    RunState,
    StageExpanded,
    StageFailed,
    Submitting,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState, Resources
from asa.core.task import Task
from tests.workflows.world import Crash, Terms, World


@asa.stage(cores=2, walltime=600)
def numbers(count: int) -> Any:
    return list(range(count)) if count >= 0 else -count


@asa.stage(cores=2, walltime=600)
def square(x: int, offset: int = 0) -> int:
    return x * x + offset


@asa.stage(cores=2, walltime=600)
def product(x: int, y: int) -> int:
    return x * y


@asa.stage(walltime=600)
def total(xs: list[int], *more: Any) -> int:
    return sum(xs) + sum(more)


def done(world: World) -> dict[str, int]:
    return dict(Counter(event.stage for event in world.events(TaskDone)))


# --------------------------------------------------------------------------------------------------- shapes


def test_a_width_is_known_from_a_result(tmp_path: Path) -> None:
    world = World(tmp_path, total(square.map(numbers(5))))
    assert world.succeed() == 30
    assert [(event.stage, event.width) for event in world.events(StageExpanded)] == [("square", 5)]


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "cascade"])
def test_an_empty_list_makes_a_stage_without_tasks(tmp_path: Path, strategy: str) -> None:
    world = World(tmp_path, [total(square.map(square.map(numbers(0)))), total(square.map([]))], strategy)
    assert world.succeed() == [0, 0]
    assert done(world) == {"numbers": 1, "total": 1, "total-2": 1}


def test_a_stage_without_tasks_gets_no_job(tmp_path: Path) -> None:
    world = World(tmp_path, total(square.map(numbers(0))), "per-stage")
    world.succeed()
    assert [event.stages for event in world.events(Submitting)] == [("numbers",), ("total",)]


def test_a_workflow_of_nothing_but_an_empty_map_ends_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, square.map([]))
    assert world.succeed() == []
    assert not world.batch.jobs()


def test_nested_maps_and_common_arguments(tmp_path: Path) -> None:
    xs = numbers(4)
    world = World(tmp_path, product.map(square.map(xs, offset=total([1, 2])), square.map(xs)))
    assert world.succeed() == [(x * x + 3) * x * x for x in range(4)]


def test_a_diamond(tmp_path: Path) -> None:
    top = numbers(3)
    left, right = square.map(top), square.map(top, offset=1)
    world = World(tmp_path, {"sum": total(left, total(right)), "left": left})
    assert world.succeed() == {"sum": 13, "left": [0, 1, 4]}
    assert done(world) == {"numbers": 1, "square": 3, "square-2": 3, "total": 1, "total-2": 1}


def test_a_stage_starts_only_when_both_of_its_predecessors_are_done(tmp_path: Path) -> None:
    def run_time(task: Task) -> float:
        return {"square": 10.0, "square-2": 40.0}.get(task.stage, 1.0)

    world = World(tmp_path, product(square(2), square(3)), run_time=run_time)
    assert world.succeed() == 36
    (launched,) = (event for event in world.events(TasksLaunched) if event.stage == "product")
    assert launched.at >= 1040.0


def test_after_orders_stages_that_share_no_data(tmp_path: Path) -> None:
    first, second = square(2), square(3)
    world = World(tmp_path, [second.after(first), first], run_time=lambda _task: 25.0)
    assert world.succeed() == [9, 4]
    assert [event.at for event in world.events(TaskDone)] == [1025.0, 1050.0]


def test_a_stage_mapped_over_a_value_that_is_no_list_fails(tmp_path: Path) -> None:
    world = World(tmp_path, [total(square.map(numbers(-7))), square(5)])
    said = world.fail()
    assert said == (
        "stage 'square' failed: stage 'square' is mapped over the result of stage 'numbers', which is no list but int: "
        "return a list there, or call 'square' without .map\nskipped because of it: total"
    )
    assert done(world) == {"numbers": 1, "square-2": 1}, "what does not depend on it goes on"
    assert [event.stages for event in world.events(Submitting)] == [("numbers",), ("square-2",)], "and no job for it"


@pytest.mark.parametrize(
    "node",
    [
        product.map(numbers(2), [1, 2, 3]),
        product.map([1, 2, 3], numbers(2)),
        product.map(square.map([1, 2, 3]), numbers(2)),
        product.map([], numbers(2)),
        product.map(numbers(3), square.map(numbers(2))),
    ],
)
def test_a_stage_mapped_over_lists_of_different_lengths(tmp_path: Path, node: Any) -> None:
    world = World(tmp_path, node)
    said = world.fail()
    assert "stage 'product' maps over lists of different lengths: [" in said
    assert "product" not in done(world)


@pytest.mark.parametrize("columns", [([1, 2, 3], square.map([1, 2])), (square.map([1, 2]), square.map([1, 2, 3]))])
def test_known_lists_of_different_lengths_are_refused_before_the_run(columns: Any) -> None:
    with pytest.raises(GraphError, match=r"stage 'product' maps over lists of different lengths: \[2, 3\]"):
        asa.run(product.map(*columns))


def test_an_argument_that_cannot_travel_fails_only_its_stage(tmp_path: Path) -> None:
    """Those that are known beforehand are refused before the run; this one is further down the list."""
    import threading

    world = World(tmp_path, [square.map([1, threading.Lock()]), total([1])])
    said = world.fail()
    (failed,) = world.events(StageFailed)
    assert failed.stage == "square"
    assert "argument 0 of stage 'square' cannot be sent to another process" in said
    assert done(world)["total"] == 1


def test_a_long_chain(tmp_path: Path) -> None:
    node: Any = square.map([1, 0])
    for _ in range(100):
        node = square.map(node)
    world = World(tmp_path, node, "big-job", longest_s=600_000.0)
    assert world.succeed() == [1, 0]


# ------------------------------------------------------------------------------------------- tasks that fail


def test_a_task_that_fails_is_tried_again_while_it_has_retries_left(tmp_path: Path) -> None:
    def fault(task: Task, attempt: int) -> str | None:
        return f"attempt {attempt}" if task.index == 1 and attempt <= 2 else None

    world = World(tmp_path, square.options(retries=2).map([1, 2, 3]), fault=fault)
    assert world.succeed() == [1, 4, 9]
    assert [event.error for event in world.events(TaskFailed)] == ["RuntimeError: attempt 1", "RuntimeError: attempt 2"]


def test_a_task_without_retries_left_fails_its_stage_and_skips_what_follows(tmp_path: Path) -> None:
    def fault(task: Task, _attempt: int) -> str | None:
        return "no such band: 7" if (task.stage, task.index) == ("square", 1) else None

    bad = total(square.options(retries=1).map([1, 2, 3]))
    world = World(tmp_path, [total([1], bad), total(product.map([1, 2], [3, 4]))], fault=fault)
    said = world.fail()
    assert said.startswith("stage 'square' failed: task 1 on node node: RuntimeError: no such band: 7")
    assert said.endswith("skipped because of it: total, total-2")
    assert world.events(RunEnded)[-1].stage == "square"
    assert len(world.events(TaskFailed)) == 2
    assert done(world)["total-3"] == 1, "independent branches go on"


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "asa-naive", "cascade"])
def test_resuming_after_the_fault_was_removed_runs_only_what_is_missing(tmp_path: Path, strategy: str) -> None:
    broken = True

    def fault(task: Task, _attempt: int) -> str | None:
        return "broken" if broken and (task.stage, task.index) == ("square", 1) else None

    world = World(tmp_path, total(square.map(numbers(4))), strategy, fault=fault)
    world.fail()
    before = done(world)
    broken = False
    assert world.succeed() == 14
    assert before["numbers"] == 1
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values()) == 1


def test_resuming_while_the_fault_is_still_there_fails_again(tmp_path: Path) -> None:
    world = World(tmp_path, total(square.map([1, 2])), fault=lambda task, _attempt: "broken" if task.index else None)
    world.fail()
    world.fail()
    assert len(world.events(TaskFailed)) == 2
    assert done(world) == {"square": 1}


# ------------------------------------------------------------------------------------------ cancel and resume


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "asa-naive", "cascade"])
@pytest.mark.parametrize("seconds", [3.0, 11.0, 33.0, 52.0])
def test_cancelled_in_the_middle_and_resumed(tmp_path: Path, strategy: str, seconds: float) -> None:
    world = World(tmp_path, total(square.map(numbers(6))), strategy, wait=10.0, run_time=lambda _task: 10.0)
    world.at(seconds, lambda: world.runner.cancel("by hand"))
    assert world.drive() is RunState.CANCELLED
    assert world.message == "by hand"
    running = [event.allocation for event in world.events(Released)]
    ended = {event.allocation: event.state for event in world.events(JobEnded)}
    assert all(ended[allocation] is JobState.COMPLETED for allocation in running), "released, not killed"
    assert world.succeed() == 55
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values()) == 1


def test_cancelling_a_run_that_has_ended_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, square(3))
    world.drive()
    world.runner.cancel("too late")
    assert world.succeed() == 9


# Runs in a named pool.


CORE = Resources()
LEASE = "run.lease-1"


def world_in(path: Path, count: int = 8, **more: Any) -> World:
    given = {"wait": 300.0, "run_time": lambda task: 20.0, "lends": Terms()} | more
    return World(path, square.options(cores=4).map(range(count)), "per-stage", **given)


def places(world: World) -> list[str]:
    """Where tasks were done, each place once."""
    return list(dict.fromkeys(event.allocation for event in world.events(TaskDone)))


def test_a_run_may_end_before_its_own_job_starts(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    world.succeed()
    assert places(world) == [LEASE]
    assert world.states() == ["cancelled"]
    assert world.lender.asked == [(CORE, 8), (CORE, 4), (CORE, 2), (CORE, 1), (None, 0)], "as the tasks end one by one"
    assert [event.allocation for event in world.events(Released)] == [LEASE]


def test_tasks_go_on_elsewhere_after_a_recall(tmp_path: Path) -> None:
    world = world_in(tmp_path, wait=30.0, lends=Terms(recall_s=5.0, delay_s=25.0))
    world.succeed()
    assert places(world) == [LEASE, "run.0"]
    assert world.result() == [x * x for x in range(8)]
    assert max(world.attempts.values()) == 1, "no task is lost"


@pytest.mark.parametrize("silent", [False, True])
def test_tasks_lost_with_a_lease_run_again(tmp_path: Path, silent: bool) -> None:
    lends = Terms(lasts_s=45.0, delay_s=20.0)
    world = world_in(tmp_path, 4, silent=silent, lends=lends, run_time=lambda task: 50.0, wait=60.0)
    world.succeed()
    assert world.events(LeaseEnded)[0].reason == "the agent is gone"
    assert places(world) == ["run.0"]


@pytest.mark.parametrize("at", [Leased, NodeJoined, TasksLaunched, Recalled])
def test_a_driver_that_takes_over_neither_adopts_nor_cancels_leases(tmp_path: Path, at: type[Event]) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    terms = Terms(recall_s=10.0)
    for path in (whole, torn):
        path.mkdir(mode=0o700)
    first = world_in(whole, lends=terms)
    first.drive()
    number = next(n for n, (_, event) in enumerate(first.log.read()) if isinstance(event, at)) - 1  # after RunStarted
    world = world_in(torn, lends=terms)
    with pytest.raises(Crash):
        world.drive(number)
    assert world.succeed() == first.result()
    assert [event.allocation for event in world.events(JobEnded, Cancelled)] == ["run.0", "run.0"]
    leases = [event.allocation for event in world.events(Leased)]
    assert len(leases) == len(set(leases)) > 1


def test_a_chain_of_hundreds_of_stages_runs(tmp_path: Path) -> None:
    node = square(0, offset=1)
    for number in range(249):
        node = total.options(name=f"total{number}", cores=1)([node], 1)
    assert asa.run(node, backend="local:cores=2", state=tmp_path).result() == 250


def test_an_allocation_of_its_own_serves_a_stage_first(tmp_path: Path) -> None:
    """The side branch is declared first, and would fill whatever has room."""

    @asa.stage(cores=2)
    def side(x: int) -> None:
        time.sleep(0.3)

    depth = side.options(name="depth")
    both = [side.map(range(12)), depth.map(range(3))]
    run = asa.run(both, backend="local:cores=4", strategy="per-stage", state=tmp_path)
    events = [event for _, event in run.events() if isinstance(event, Submitting | TasksLaunched)]
    own = {event.stages[0]: event.allocation for event in events if isinstance(event, Submitting)}
    launches = [event for event in events if isinstance(event, TasksLaunched)]
    last = max(place for place, event in enumerate(launches) if event.stage == "depth")
    assert all(event.stage == "depth" for event in launches[:last] if event.allocation == own["depth"])
    assert {event.allocation for event in launches if event.stage == "depth"} >= {own["depth"]}


def test_on_one_machine_stages_that_wait_for_none_run_side_by_side(tmp_path: Path) -> None:
    def meet(own: str, other: str) -> bool:
        (tmp_path / own).touch()
        until = time.monotonic() + 60.0
        while not (tmp_path / other).exists() and time.monotonic() < until:
            time.sleep(0.01)
        return (tmp_path / other).exists()

    one, two = (asa.stage(meet, name=name) for name in ("one", "two"))
    run = asa.run([one("a", "b"), two("b", "a")], backend="local:cores=2", state=tmp_path / "state")
    assert run.result() == [True, True]
    assert len([event for _, event in run.events() if isinstance(event, Submitting)]) == 1
