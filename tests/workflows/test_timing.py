"""When jobs are asked for, used and let go under each strategy, to the second of virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.clock import ManualClock
from asa.core.decision import Predict, StrategyDecision, Wake
from asa.core.errors import BackendError
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    Predicted,
    Queued,
    Released,
    RunEnded,
    RunState,
    SubmitRefused,
    Submitting,
    TaskDone,
    TaskFailed,
    TaskPaused,
    TasksLaunched,
)
from asa.core.job import DependencyKind, JobState, QueueRegime
from asa.core.view import WorkflowView
from asa.metrics.workflow import summarise
from asa.strategies.asking import ask_for, lacks_allocation
from asa.strategies.places import SETTLE_S
from asa.workflows import runner
from asa.workflows.runner import Decider, Runner
from tests.workflows import world
from tests.workflows.world import Crash, Terms, World

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


def same_wait(wait_s: float, *tokens: str) -> Any:
    """So long for jobs of these tokens [s], else none."""
    return lambda request: wait_s if request.token in tokens else 0.0


@pytest.mark.parametrize(
    ("strategy", "options", "courses", "ended"),
    [
        # a wait anew for every stage
        ("per-stage", {"wait": 50.0}, [(0.0, ()), (60.0, ()), (120.0, ())], 180.0),
        # one wait of 50 s, three tasks of 10 s
        ("asa:dependency=upfront", {"wait": 50.0}, [(0.0, ()), (0.0, ("run.0",)), (0.0, ("run.1",))], 80.0),
        # At the expected end less the predicted wait. Wall times are taken for run times: first runs from 50 to 150, so
        # second goes in at 150 - 30. It ends at 130 already, second starts at 170: third goes in at 170 + 200 - 30.
        (
            "asa:dependency=predicted",
            {"wait": 50.0, "predicted_wait_s": 30.0, "run_time": run_times(first=80.0, second=190.0)},
            [(0.0, ()), (120.0, ("run.0",)), (340.0, ("run.1",))],
            400.0,
        ),
        # Waits of 250 s are longer than first and second run: third's job goes in while second's still waits.
        (
            "cascade",
            {
                "wait": same_wait(250.0, "run.1", "run.2"),
                "predicted_wait_s": 250.0,
                "run_time": run_times(first=95.0, second=190.0),
            },
            [(0.0, ()), (0.0, ("run.0",)), (200.0, ("run.1",))],
            460.0,
        ),
    ],
)
def test_when_each_strategy_asks_for_the_stages_of_a_chain(
    tmp_path: Path, strategy: str, options: dict[str, Any], courses: list[tuple[float, tuple[str, ...]]], ended: float
) -> None:
    world = World(tmp_path, chain(), strategy, **{"run_time": run_times()} | options)
    world.succeed()
    names = [("first",), ("second",), ("third",)]
    assert asked(world) == [(at, name, after) for (at, after), name in zip(courses, names, strict=True)]
    on = [tuple(item.on.token for item in event.request.dependencies) for event in world.events(Submitting)]
    assert on == [after for _, after in courses]
    assert [event.at - START for event in world.events(RunEnded)] == [ended]
    waits = [event.predicted_wait_s for event in world.events(Submitting)]
    assert waits == [options.get("predicted_wait_s")] * 3 or strategy == "cascade"
    assert bool(world.events(Predicted)) == ("predicted_wait_s" in options)


def test_big_job_waits_once_for_the_peak_and_the_sum(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "big-job", wait=50.0, run_time=run_times())
    world.succeed()
    (event,) = world.events(Submitting)
    assert (event.request.resources.cores, event.request.walltime_s) == (4, 600.0)
    assert event.stages == ("first", "second", "third")
    assert [event.at - START for event in world.events(RunEnded)] == [80.0]


def test_a_big_job_too_long_for_the_site_goes_on_in_a_second_one(tmp_path: Path) -> None:
    times = run_times(first=90.0, second=190.0, third=200.0)
    world = World(tmp_path, chain(), "big-job", longest_s=300.0, wait=50.0, run_time=times)
    world.succeed()
    assert [event.request.walltime_s for event in world.events(Submitting)] == [300.0, 300.0]
    assert [event.stages for event in world.events(Submitting)] == [("first", "second", "third"), ("third",)]


def test_upfront_in_a_diamond_depends_on_both(tmp_path: Path) -> None:
    top = first(0)
    workflow = second([first(top), first(top)])
    world = World(tmp_path, workflow, "asa:dependency=upfront", wait=50.0)
    world.succeed()
    assert [(stages, after) for _, stages, after in asked(world)] == [
        (("first",), ()),
        (("first-2",), ("run.0",)),
        (("first-3",), ("run.0",)),
        (("second",), ("run.1", "run.2")),
    ]


def test_predicted_trusts_the_progress_of_a_stage_more_than_its_wall_time(tmp_path: Path) -> None:
    """Ten tasks, two at a time, of 8 s: a fifth is done at 8 s, which makes 40 s in all, not 100."""
    options = {"wait": same_wait(20.0, "run.1"), "predicted_wait_s": 20.0, "run_time": run_times(first=8.0)}
    world = World(tmp_path, second(first.map(range(10))), "asa:dependency=predicted", **options)
    world.succeed()
    (_, (at, stages, _)) = asked(world)
    assert stages == ("second",)
    assert at == pytest.approx(20.0, abs=4.0)
    assert world.events(RunEnded)[0].at - START <= 55.0


def test_naive_cancels_a_job_that_comes_too_early_and_asks_again_a_few_times(tmp_path: Path) -> None:
    options = {"predicted_wait_s": 60.0, "run_time": run_times(first=95.0)}
    world = World(tmp_path, second(first(0)), "asa-naive:grace_s=10", **options)
    world.succeed()
    cancelled = world.events(Cancelled)
    assert [event.reason for event in cancelled] == ["it came before its stage and idled for 10 s"] * 3
    assert [at for at, _, _ in asked(world)] == pytest.approx([0.0, 40.0, 50.0, 60.0, 95.0], abs=2.0)
    states = {event.allocation: event.state for event in world.events(JobEnded)}
    assert [states[event.allocation] for event in cancelled] == [JobState.CANCELLED] * 3
    assert len(world.waits.learned) == 5, "a job that was cancelled has waited, too"


def test_naive_keeps_what_comes_just_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, second(first(0)), "asa-naive", predicted_wait_s=5.0, run_time=run_times(first=99.0))
    world.succeed()
    assert not world.events(Cancelled)
    assert len(world.batch.jobs()) == 2


@pytest.mark.parametrize("strategy", ["asa", "asa:dependency=upfront", "cascade"])
def test_a_site_without_dependencies_gets_none(tmp_path: Path, strategy: str) -> None:
    world = World(tmp_path, chain(), strategy, dependencies=frozenset({DependencyKind.AFTER_ANY}), predicted_wait_s=9.0)
    world.succeed()
    assert not any(event.request.dependencies for event in world.events(Submitting))


# ------------------------------------------------------------------------------------------------- the pool


def early(tmp_path: Path, *, shared: bool) -> World:
    """Second's allocation of four cores comes at once, while first has eight tasks for its two cores."""
    options = {"predicted_wait_s": 1000.0, "shared": shared, "run_time": run_times()}
    world = World(tmp_path, second(first.map(range(8))), "asa:dependency=none", **options)
    assert world.succeed() == sum(range(1, 9))
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


def test_an_allocation_is_released_as_soon_as_its_stage_is_done(tmp_path: Path) -> None:
    world = World(tmp_path, chain(), "per-stage", wait=50.0, run_time=run_times())
    world.drive()
    assert [event.at - START for event in world.events(Released)] == [60.0, 120.0, 180.0]
    ends = world.events(JobEnded)
    assert [event.at - START for event in ends] == [60.0, 120.0, 180.0]
    assert {event.state for event in ends} == {JobState.COMPLETED}, "so that jobs that depend on it start"


def test_a_pending_job_that_no_stage_needs_is_cancelled(tmp_path: Path) -> None:
    """First's tasks run in second's allocation, which comes sooner."""
    world = World(
        tmp_path,
        [first(0), second(0)],
        wait=lambda request: 500.0 if request.resources.cores == 2 else 5.0,
        run_time=lambda _task: 10.0,
    )
    world.succeed()
    (event,) = world.events(Cancelled)
    assert (event.allocation, event.at - START) == ("run.0", 15.0)


def test_an_allocation_drains_and_is_released_before_the_wall_time(tmp_path: Path) -> None:
    """5 % of 100 s before it no more tasks are launched."""
    world = World(tmp_path, first.options(cores=1).map(range(120)), run_time=run_times(first=1.0))
    world.succeed()
    assert max(event.at for event in world.events(TasksLaunched) if event.allocation == "run.0") - START <= 95.0
    assert 94.0 <= world.events(Released)[0].at - START <= 96.0
    assert {event.state for event in world.events(JobEnded)} == {JobState.COMPLETED}


@pytest.mark.parametrize("strategy", ["asa-naive:grace_s=1", "asa:dependency=none,grace_s=1"])
def test_a_job_with_live_work_is_never_cancelled(tmp_path: Path, strategy: str) -> None:
    """A shared pool gives an early allocation work; then it is not idle, however long its grace is over."""
    options = {"predicted_wait_s": 1000.0, "run_time": lambda task: 7.0 + task.index % 3}
    world = World(tmp_path, second(first.map(range(40))), strategy, **options)
    busy: dict[str, set[tuple[str, int]]] = {}

    def watch(event: Any) -> None:
        if isinstance(event, TasksLaunched):
            for start, stop in event.ranges:
                busy.setdefault(event.allocation, set()).update((event.stage, n) for n in range(start, stop))
        elif isinstance(event, Cancelled):
            assert not busy.get(event.allocation)
        elif hasattr(event, "index"):
            busy.get(event.allocation, set()).discard((event.stage, event.index))

    world.after_event = watch
    world.succeed()


# ------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("regime", list(QueueRegime))
def test_only_waits_that_the_queue_made_are_learned(tmp_path: Path, regime: QueueRegime) -> None:
    """second's job waits for first's to end, and a moment longer; third's queue is longer than second runs.

    Where dependents age, it is not known when they would have started without that.
    """
    waits = {"run.0": 50.0, "run.1": 50.0, "run.2": 300.0}
    options = {"wait": lambda request: waits[request.token], "run_time": run_times(), "regime": regime}
    world = World(tmp_path, chain(), "asa:dependency=upfront", **options)
    world.succeed()
    learned = {event.allocation: (event.wait_s, event.censored) for event in world.events(Learned)}
    if regime is QueueRegime.IMMEDIATE:  # where there is no queue nothing is learned
        assert not learned and not world.waits.learned
        return
    assert learned["run.0"] == (50.0, False)
    if regime.dependents_age:
        assert learned["run.1"] == (60.0, True) and learned["run.2"] == (300.0, True)
    else:
        assert not learned["run.1"][1] and learned["run.1"][0] < 10.0 < learned["run.2"][0] < 300.0
    assert world.waits.learned == {token: wait_s for token, (wait_s, censored) in learned.items() if not censored}


@pytest.mark.parametrize("crash_at", range(0, 40, 3))
def test_a_wait_is_learned_once_across_drivers(tmp_path: Path, crash_at: int) -> None:
    world = World(tmp_path, chain(), "per-stage", wait=50.0, regime=QueueRegime.LIMITS)
    try:
        world.drive(crash_at)
    except Crash:
        world.drive()
    learned = [event.allocation for event in world.events(Learned)]
    assert len(learned) == len(set(learned)) == 3


# Held places in the queue.


@asa.stage(cores=2, walltime="10m")
def begin(n: int) -> list[int]:
    return list(range(n))


@asa.stage(cores=4, walltime="10m")
def work(x: int) -> int:
    return x * x


@asa.stage(cores=1, walltime="10m")
def end(xs: list[int]) -> int:
    return sum(xs)


def mapped() -> Any:
    return end(work.map(begin(5)))


def holding(directory: Path, regime: QueueRegime, strategy: str = "hold", **more: Any) -> World:
    return World(directory, mapped(), strategy, regime=regime, wait=100.0, run_time=lambda _task: 50.0, **more)


def starts(found: World) -> dict[str, float]:
    """When each stage's first task was launched."""
    times: dict[str, float] = {}
    for event in found.events(TasksLaunched):
        times.setdefault(event.stage, event.at)
    return times


@pytest.mark.parametrize("regime", [item for item in QueueRegime if item is not QueueRegime.IMMEDIATE])
def test_stages_start_one_after_another_without_another_wait(tmp_path: Path, regime: QueueRegime) -> None:
    """Their jobs have waited, as long as all others, while the stages before them did."""
    found = holding(tmp_path, regime)
    assert found.succeed() == 30
    asked = found.events(Submitting)
    assert [event.stages for event in asked] == [("begin",), ("work",), ("end",)]
    assert asked[-1].at < 1020.0, "all of them at the start"
    times = starts(found)
    assert times["begin"] == pytest.approx(1100.0, abs=20.0)
    assert times["work"] == pytest.approx(times["begin"] + 50.0, abs=20.0)
    assert times["end"] == pytest.approx(times["work"] + 100.0, abs=20.0)
    assert not found.events(Cancelled)


def test_where_limits_are_enforced_the_stages_are_one_array(tmp_path: Path) -> None:
    found = holding(tmp_path, QueueRegime.LIMITS)
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
    found = holding(tmp_path, QueueRegime.MULTIFACTOR)
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
def test_the_wait_of_a_held_place_is_not_learned(tmp_path: Path, regime: QueueRegime) -> None:
    found = holding(tmp_path, regime)
    found.drive()
    assert [event.censored for event in found.events(Learned)] == [False, True, True]
    assert list(found.waits.learned) == ["run.0"]


@pytest.mark.parametrize("regime", [QueueRegime.MULTIFACTOR, QueueRegime.LIMITS])
def test_a_place_that_is_not_kept_is_given_up(tmp_path: Path, regime: QueueRegime) -> None:
    found = holding(tmp_path, regime, ages=lambda _request: False)
    assert found.succeed() == 30
    lost = [event for event in found.events(Cancelled) if event.displaced]
    assert [event.allocation for event in lost] == ["run.1", "run.2"]
    assert {stage.displaced for name, stage in found.runner.plan.stages.items() if name != "begin"} == {1}
    assert len(found.events(Submitting)) == 5, "asked for again, as the paper does"


def test_a_site_that_takes_no_arrays_gets_single_jobs(tmp_path: Path) -> None:
    found = holding(
        tmp_path,
        QueueRegime.LIMITS,
        refuse=lambda request: "Job array specification invalid" if request.array else None,
    )
    assert found.succeed() == 30
    assert len(found.events(SubmitRefused)) == 3
    assert {event.request.array for event in found.events(Submitting)[3:]} == {""}


def test_a_site_that_takes_no_change_gets_single_jobs(tmp_path: Path) -> None:
    found = holding(tmp_path, QueueRegime.LIMITS, "hold:technique=parked")
    found.batch.break_next("update", BackendError("Access/permission denied"), times=2)
    found.succeed()
    assert [event.refused for event in found.events(Amended)][:2] == ["Access/permission denied"] * 2
    (why, *_rest) = [event.reason for event in found.events(Cancelled) if event.displaced]
    assert why == "its place in the queue is lost: Access/permission denied"


def test_with_a_lead_only_the_next_element_may_start_early(tmp_path: Path) -> None:
    found = holding(tmp_path, QueueRegime.LIMITS, "hold:lead_s=1000,grace_s=1000")
    found.succeed()
    throttled = [event.throttle for event in found.events(Amending) if event.throttle]
    assert throttled[:2] == [2, 1]
    begun = {event.allocation: event.started for event in found.events(AllocationStarted)}
    ended = {event.allocation: event.at for event in found.events(JobEnded)}
    assert begun["run.1"] < ended["run.0"] <= begun["run.2"]


def test_parked_jobs_are_unparked_when_their_stage_may_begin(tmp_path: Path) -> None:
    found = holding(tmp_path, QueueRegime.LIMITS, "hold:technique=parked")
    found.succeed()
    assert [(event.allocation, event.parked) for event in found.events(Amending)] == [
        ("run.1", True),
        ("run.2", True),
        ("run.1", False),
        ("run.2", False),
    ]


@pytest.mark.parametrize("regime", [QueueRegime.MULTIFACTOR, QueueRegime.LIMITS])
def test_a_stage_whose_predecessor_failed_does_not_run(tmp_path: Path, regime: QueueRegime) -> None:
    found = holding(tmp_path, regime, fault=lambda task, _attempt: "no" if task.stage == "work" else None)
    found.fail()
    assert "end" not in starts(found)


def test_the_plan_says_what_the_strategy_does(tmp_path: Path) -> None:
    from asa.workflows.explain import explain

    said: list[str] = []
    found = holding(tmp_path, QueueRegime.LIMITS, "auto:patience=0.01")
    found.at(120.0, lambda: said.append(explain(found.runner.plan, found.clock.now())))
    found.drive()
    assert said[0].startswith("strategy: places in the queue (limits) are held by the technique 'array'\n")
    assert "(JobArrayTaskLimit: as many elements of its job array run as may at a time)" in said[0]


@pytest.mark.parametrize("regime", [item for item in QueueRegime if item is not QueueRegime.IMMEDIATE])
def test_auto_merges_stages_where_an_allocation_costs_more_than_idle_cores(tmp_path: Path, regime: QueueRegime) -> None:
    from asa.workflows.explain import explain

    apart, found = holding(tmp_path / "apart", regime, "auto"), holding(tmp_path / "merged", regime, "auto")
    found.fixed_s = 2000.0, 2000.0
    assert apart.succeed() == found.succeed() == 30
    (job,) = found.events(Submitting)
    assert job.stages == ("begin", "work", "end") and job.request.resources.cores == 4
    assert [item.stages for item in apart.events(Submitting)] == [("begin",), ("work",), ("end",)]
    said = explain(found.runner.plan, found.clock.now()).splitlines()[-1]
    assert said.startswith("begin, work, end: one allocation of 4 cores for these 3 stages: expected to end")
    assert "core-seconds" in said and "one allocation" not in explain(apart.runner.plan, apart.clock.now())


# Every strategy, and what the runner asks of a plan.


STRATEGIES = [
    "big-job",
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=predicted",
    "asa-naive",
    "cascade",
    "hold:technique=aged-afterok",
    "hold:technique=array",
    "hold:technique=parked",
    "stagger",
    "auto",
]


@asa.stage(cores=4, walltime="10m")
def big(x: int) -> int:
    return x * x


@asa.stage(walltime="5m")
def total(xs: list[int]) -> int:
    return sum(xs)


@asa.stage(cores=2, walltime="5m")
def spread(n: int) -> list[int]:
    return list(range(n))


def workflow() -> Any:
    return total(big.map(spread(7)))


class Narrow:
    """A plan that has what `Decider` names, and nothing else."""

    def __init__(self, plan: Decider) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        assert not name.startswith("_") and name in vars(Decider), f"no decider need have {name!r}"
        return getattr(self._plan, name)


def test_the_runner_asks_no_more_of_a_plan_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "Runner", lambda plan, *others, **more: Runner(Narrow(plan), *others, **more))
    found = World(tmp_path, workflow(), "asa:dependency=predicted", wait=20.0, lends=Terms(cores=4))
    found.succeed()
    with pytest.raises(AssertionError, match="outcome"):
        _ = found.runner.plan.outcome


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("regime", [QueueRegime.FIFO, QueueRegime.LIMITS])
def test_every_strategy_gets_the_result(tmp_path: Path, strategy: str, regime: QueueRegime) -> None:
    found = World(tmp_path, workflow(), strategy, regime=regime, wait=20.0, predicted_wait_s=5.0, on_disk=True)
    assert found.succeed() == sum(x * x for x in range(7))


class PassingClock(ManualClock):
    """Time passes at every look."""

    def now(self) -> float:
        self._now += 0.001
        return self._now


class SoonAfter:
    """Asks for what lacks an allocation, but only some time after it was asked first."""

    estimator, own_pools = "last", False

    def __init__(self, seconds: float) -> None:
        self.seconds, self.due = seconds, math.inf

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        self.due = min(self.due, view.now + self.seconds)
        if view.now < self.due:
            return [Wake(self.due)]
        return [ask_for(item) for item in view.stages if lacks_allocation(item)]


@pytest.mark.parametrize("seconds", [0.0005, 0.0015, 10.0])
def test_a_time_to_wake_up_that_comes_right_after_the_decision_is_not_missed(tmp_path: Path, seconds: float) -> None:
    found = World(tmp_path, spread(7), SoonAfter(seconds), clock=PassingClock(1000.0))
    found.succeed()


class Stubborn:
    """Asks for the same prediction for ever."""

    estimator, own_pools = "last", False

    def decide(self, view: WorkflowView) -> Sequence[StrategyDecision]:
        return [Predict(view.stages[0].spec.name, 0.5)]


def test_a_strategy_that_never_has_enough_ends_the_run_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ROUNDS_MOST", 20)
    found = World(tmp_path, spread(7), Stubborn())
    with pytest.raises(AssertionError, match=r"the plan keeps deciding the same: \[Predict"):
        found.drive()


# The driver dies around every single event of a run.


def world_in(directory: Path, strategy: str) -> World:
    directory.mkdir(mode=0o700)
    return World(directory, workflow(), strategy, wait=20.0, predicted_wait_s=5.0)


def check_nothing_lost_or_doubled(world: World) -> None:
    assert world.result() == sum(x * x for x in range(7))
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values()) == 1
    assert all(status.state.final for _, status in world.batch.jobs()), "no job is left behind"
    asked = [event.allocation for event in world.events(Submitting)]
    assert sorted(asked) == sorted(set(asked)), "no token is used twice"
    assert {event.allocation for event in world.events(JobEnded)} == set(asked)
    taught = {event.allocation: event.wait_s for event in world.events(Learned) if not event.censored}
    assert world.waits.learned == taught, "what the log calls learned was learned"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_crash_around_every_event_changes_nothing(tmp_path: Path, strategy: str) -> None:
    whole = world_in(tmp_path / "whole", strategy)
    whole.drive()
    check_nothing_lost_or_doubled(whole)
    for number in range(whole.logged):
        for after in (False, True):
            world = world_in(tmp_path / f"{number}-{after}", strategy)
            with pytest.raises(Crash):
                world.drive(number, after=after)
            world.succeed()
            check_nothing_lost_or_doubled(world)


@pytest.mark.slow
def test_crash_after_crash(tmp_path: Path) -> None:
    world = world_in(tmp_path / "run", "asa:dependency=upfront")
    crashes = 0
    outcome: Any = None
    while outcome is None:
        try:
            outcome = world.drive(crash_at=6)  # every driver lives for seven events
        except Crash:
            crashes += 1
            assert crashes < 100, "a run whose drivers keep dying still gets on"
    assert outcome is RunState.SUCCEEDED
    check_nothing_lost_or_doubled(world)
    assert crashes > 5


# A task longer than its wall time, whose driver dies around every event.


@asa.stage(walltime=100, checkpoint=True)
def slow(x: int) -> int:
    return x * x


def long_world(directory: Path, strategy: str) -> World:
    directory.mkdir(mode=0o700)
    flow = total(slow.map([2, 3]))
    needs_s = {"slow": 250.0}
    regime = QueueRegime.LIMITS if "array" in strategy else QueueRegime.FIFO
    return World(
        directory, flow, strategy, wait=20.0, predicted_wait_s=5.0, regime=regime, cores=4,
        run_time=lambda task: needs_s.get(task.stage, 1.0),
    )  # fmt: skip


def check_gone_on(world: World) -> None:
    assert world.result() == 13
    assert max(Counter((event.stage, event.index) for event in world.events(TaskDone)).values()) == 1
    assert not world.events(TaskFailed), "a pause is none"
    ran_s: dict[int, float] = {}
    for event in [*world.events(TaskPaused), *world.events(TaskDone)]:
        if event.stage == "slow":
            ran_s[event.index] = ran_s.get(event.index, 0.0) + event.at - event.started
    assert all(250.0 <= each < 320.0 for each in ran_s.values()), "what was saved is not done again"
    assert all(status.state.final for _, status in world.batch.jobs()), "no job is left behind"
    assert not world.replay().illegal


LONG_STRATEGIES = ["big-job", "per-stage", "asa:dependency=predicted", "stagger", "hold:technique=array", "auto"]


@pytest.mark.parametrize("strategy", LONG_STRATEGIES)
def test_a_task_longer_than_its_wall_time_goes_on_under_each_strategy(tmp_path: Path, strategy: str) -> None:
    world = long_world(tmp_path / "run", strategy)
    world.drive()
    check_gone_on(world)
    if strategy == "auto":
        pauses = sorted(event.at for event in world.events(TaskPaused))
        begun = sorted(event.at for event in world.events(TasksLaunched) if event.stage == "slow")
        assert max(min(at - pause for at in begun if at >= pause) for pause in pauses) <= 2.0, (
            "in a place that was held"
        )


@pytest.mark.slow
@pytest.mark.timeout(900)  # of which a tenth is work: the rest waits for the disk
@pytest.mark.parametrize("strategy", ["per-stage", "hold:technique=array", "auto"])
def test_a_crash_around_every_event_of_a_long_task_changes_nothing(tmp_path: Path, strategy: str) -> None:
    whole = long_world(tmp_path / "whole", strategy)
    whole.drive()
    for number in range(whole.logged):
        for after in (False, True):
            world = long_world(tmp_path / f"{number}-{after}", strategy)
            with pytest.raises(Crash):
                world.drive(number, after=after)
            world.succeed()
            check_gone_on(world)
