"""Whole runs whose places in the queue are held, kept and lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import BackendError
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    Queued,
    Released,
    RunState,
    SubmitRefused,
    Submitting,
    TasksLaunched,
)
from asa.core.job import QueueRegime
from asa.metrics.workflow import summarise
from asa.strategies.places import SETTLE_S
from tests.workflows.world import World


@asa.stage(cores=2, walltime="10m")
def begin(n: int) -> list[int]:
    return list(range(n))


@asa.stage(cores=4, walltime="10m")
def work(x: int) -> int:
    return x * x


@asa.stage(cores=1, walltime="10m")
def end(xs: list[int]) -> int:
    return sum(xs)


def chain() -> Any:
    return end(work.map(begin(5)))


def world(directory: Path, regime: QueueRegime, strategy: str = "hold", **more: Any) -> World:
    return World(directory, chain(), strategy, regime=regime, wait=100.0, run_time=lambda _task: 50.0, **more)


def starts(found: World) -> dict[str, float]:
    """When each stage's first task was launched."""
    times: dict[str, float] = {}
    for event in found.events(TasksLaunched):
        times.setdefault(event.stage, event.at)
    return times


@pytest.mark.parametrize("regime", [item for item in QueueRegime if item is not QueueRegime.IMMEDIATE])
def test_stages_start_one_after_another_without_another_wait(tmp_path: Path, regime: QueueRegime) -> None:
    """Their jobs have waited, as long as everybody's, while the stages before them did."""
    found = world(tmp_path, regime)
    assert found.drive() is RunState.SUCCEEDED
    assert found.result() == 30
    asked = found.events(Submitting)
    assert [event.stages for event in asked] == [("begin",), ("work",), ("end",)]
    assert asked[-1].at < 1020.0, "all of them at the start"
    times = starts(found)
    assert times["begin"] == pytest.approx(1100.0, abs=20.0)
    assert times["work"] == pytest.approx(times["begin"] + 50.0, abs=20.0)
    assert times["end"] == pytest.approx(times["work"] + 100.0, abs=20.0)
    assert not found.events(Cancelled)


def test_where_limits_are_enforced_the_stages_are_one_array(tmp_path: Path) -> None:
    found = world(tmp_path, QueueRegime.LIMITS)
    found.drive()
    assert {event.request.array for event in found.events(Submitting)} == {"begin+2"}
    assert [status.handle.array_index for _, status in found.batch.jobs()] == [0, 1, 2]
    assert [event.request.resources.cores for event in found.events(Submitting)] == [2, 4, 4]
    (change,) = found.events(Amending)
    assert (change.allocation, change.resources.cores) == ("run.2", 1), "its own size, once it is the next"
    assert change.throttle is None, "the batch system lets the next one go by itself"
    assert [job.cores for job in summarise(found.events(Event)).jobs] == [2, 4, 1]
    assert {event.reason for event in found.events(Queued)} >= {"JobArrayTaskLimit"}


def test_where_they_are_not_a_dependent_job_has_a_begin_time_at_hand(tmp_path: Path) -> None:
    found = world(tmp_path, QueueRegime.MULTIFACTOR)
    found.drive()
    asked = found.events(Submitting)
    assert [event.after for event in asked] == [(), ("run.0",), ("run.1",)]
    assert [event.request.begin is None for event in asked] == [True, False, False]
    assert asked[1].request.begin == asked[1].at + SETTLE_S
    done = {event.allocation: event.at for event in found.events(Released)}
    assert [(event.at, event.allocation, event.after) for event in found.events(Amending)] == [
        (done["run.0"], "run.1", ()),
        (done["run.1"], "run.2", ()),
    ], "as soon as the stage before is done"


@pytest.mark.parametrize("regime", [QueueRegime.MULTIFACTOR, QueueRegime.LIMITS])
def test_a_job_whose_place_was_held_teaches_no_wait(tmp_path: Path, regime: QueueRegime) -> None:
    found = world(tmp_path, regime)
    found.drive()
    assert [event.censored for event in found.events(Learned)] == [False, True, True]
    assert list(found.waits.learned) == ["run.0"]


@pytest.mark.parametrize("regime", [QueueRegime.MULTIFACTOR, QueueRegime.LIMITS])
def test_a_place_that_is_not_kept_is_given_up(tmp_path: Path, regime: QueueRegime) -> None:
    found = world(tmp_path, regime, ages=lambda _request: False)
    assert found.drive() is RunState.SUCCEEDED
    assert found.result() == 30
    lost = [event for event in found.events(Cancelled) if event.displaced]
    assert [event.allocation for event in lost] == ["run.1", "run.2"]
    assert {stage.displaced for name, stage in found.runner.plan.stages.items() if name != "begin"} == {1}
    assert len(found.events(Submitting)) == 5, "asked for again, as the paper does"


def test_a_site_that_takes_no_arrays_gets_single_jobs(tmp_path: Path) -> None:
    found = world(
        tmp_path,
        QueueRegime.LIMITS,
        refuse=lambda request: "Job array specification invalid" if request.array else None,
    )
    assert found.drive() is RunState.SUCCEEDED
    assert found.result() == 30
    assert len(found.events(SubmitRefused)) == 3
    assert {event.request.array for event in found.events(Submitting)[3:]} == {""}


def test_a_site_that_takes_no_change_gets_single_jobs(tmp_path: Path) -> None:
    found = world(tmp_path, QueueRegime.LIMITS, "hold:technique=parked")
    found.batch.break_next("update", BackendError("Access/permission denied"), times=2)
    assert found.drive() is RunState.SUCCEEDED
    assert [event.refused for event in found.events(Amended)][:2] == ["Access/permission denied"] * 2
    (why, *_rest) = [event.reason for event in found.events(Cancelled) if event.displaced]
    assert why == "its place in the queue is lost: Access/permission denied"


def test_with_a_lead_the_next_element_is_let_go_early_and_the_one_after_it_is_not(tmp_path: Path) -> None:
    found = world(tmp_path, QueueRegime.LIMITS, "hold:lead_s=1000,grace_s=1000")
    assert found.drive() is RunState.SUCCEEDED
    throttled = [event.throttle for event in found.events(Amending) if event.throttle]
    assert throttled[:2] == [2, 1]
    begun = {event.allocation: event.started for event in found.events(AllocationStarted)}
    ended = {event.allocation: event.at for event in found.events(JobEnded)}
    assert begun["run.1"] < ended["run.0"] <= begun["run.2"]


def test_parked_jobs_are_let_go_when_their_stage_may_begin(tmp_path: Path) -> None:
    found = world(tmp_path, QueueRegime.LIMITS, "hold:technique=parked")
    assert found.drive() is RunState.SUCCEEDED
    assert [(event.allocation, event.parked) for event in found.events(Amending)] == [
        ("run.1", True),
        ("run.2", True),
        ("run.1", False),
        ("run.2", False),
    ]


@pytest.mark.parametrize("regime", [QueueRegime.MULTIFACTOR, QueueRegime.LIMITS])
def test_a_stage_whose_predecessor_failed_does_not_run(tmp_path: Path, regime: QueueRegime) -> None:
    found = world(tmp_path, regime, fault=lambda task, _attempt: "no" if task.stage == "work" else None)
    assert found.drive() is RunState.FAILED
    assert "end" not in starts(found)
    assert all(status.state.final for _, status in found.batch.jobs()), "nothing is left in the queue"


def test_the_plan_says_what_the_strategy_does(tmp_path: Path) -> None:
    from asa.workflows.explain import explain

    said: list[str] = []
    found = world(tmp_path, QueueRegime.LIMITS, "auto")
    found.at(120.0, lambda: said.append(explain(found.runner.plan, found.clock.now())))
    found.drive()
    assert said[0].startswith("strategy: places in the queue (limits) are held by the technique 'array'\n")
    assert "(JobArrayTaskLimit: as many elements of its job array run as may at a time)" in said[0]
