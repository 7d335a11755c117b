"""Runs in memory."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import BackendError, GraphError, InvalidInput, UnknownName
from asa.core.event import (
    Believed,
    Event,
    JobEnded,
    Learned,
    Predicted,
    RunEnded,
    RunStarted,
    RunState,
    SubmitRefused,
    TaskDone,
)
from asa.core.job import JobRequest, Resources
from asa.core.registry import STRATEGIES
from asa.lab.backend import simulated
from asa.lab.backend.scene import SimulationOptions
from asa.lab.backend.simulated import Simulated
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import summarise
from asa.workflows.graph import make_graph


@asa.stage(cores=8, walltime="1h", run_time="10m")
def square(x: int) -> None: ...


@asa.stage(cores=16, walltime="30m", run_time=lambda xs, factor=1.0: 600.0 * factor)
def total(xs: Any, factor: float = 1.0) -> None: ...


@asa.stage(cores=8, walltime="1h", run_time=lambda x, y: 60.0 * (x + 1) if y is None else 1.0)
def slower(x: int, y: Any) -> None: ...


WORKFLOW = total(square.map(range(20)), factor=0.5)


@pytest.fixture(scope="module")
def busy() -> Simulated:
    queue = Simulated(nodes=4, cores=8, load=0.9, seed=2, warmup=2.5, days=6)
    queue.sleep(0)
    return queue


def course(events: list[Event]) -> list[tuple[str, float]]:
    """All but what is told for those who look on: a run in memory has no store to tell of."""
    return [(type(event).__name__, event.at) for event in events if not isinstance(event, Believed)]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "asa:dependency=predicted"])
def test_it_is_the_same_run_as_the_one_on_disk(busy: Simulated, tmp_path: Path, strategy: str) -> None:
    events = run_virtual(WORKFLOW, busy.copy(), strategy)
    run = asa.run(WORKFLOW, backend=busy.copy(), strategy=strategy, state=tmp_path)
    run.wait()
    assert course(events) == course([event for _, event in run.events()])
    assert summarise(events).makespan_s == run.summary.makespan_s


def test_run_times_may_follow_from_what_is_known_of_the_arguments(busy: Simulated) -> None:
    """Each task has its own element, and nobody else's result."""
    events = run_virtual(slower.map(range(3), square.map(range(3))), busy.copy(), "per-stage")
    taken = {event.index: event.at - event.started for event in events if isinstance(event, TaskDone)}
    assert {index: round(seconds) for index, seconds in taken.items() if seconds < 500} == {0: 60, 1: 120, 2: 180}


def test_the_log_is_whole(busy: Simulated) -> None:
    events = run_virtual(make_graph(WORKFLOW), busy.copy(), "per-stage", name="mine")
    assert isinstance(events[0], RunStarted)
    assert (events[0].run, events[0].pool) == ("mine", "shared")
    assert [event.state for event in events if isinstance(event, RunEnded)] == [RunState.SUCCEEDED]
    assert isinstance(events[-1], JobEnded)
    assert {stage.name: stage.run_time_s for stage in summarise(events).stages} == {"square": 1800.0, "total": 300.0}


def test_pools(busy: Simulated) -> None:
    assert run_virtual(WORKFLOW, busy.copy(), "per-stage", pool="per-stage")[0].pool == "per-stage"  # type: ignore[attr-defined]
    assert run_virtual(WORKFLOW, busy.copy(), "asa-naive")[0].pool == "per-stage"  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="pool must be"):
        run_virtual(WORKFLOW, busy.copy(), pool="mine")


def test_what_is_learned_is_used(busy: Simulated) -> None:
    waits, strategy = MemoryWaits("last"), "asa:dependency=predicted"
    first = run_virtual(WORKFLOW, busy.copy(), strategy, waits=waits)
    taught = {event.stage: event.wait_s for event in first if isinstance(event, Learned) and not event.censored}
    second = run_virtual(WORKFLOW, busy.copy(), strategy, waits=waits.copy())
    predicted = {event.stage: event.wait_s for event in second if isinstance(event, Predicted)}
    assert predicted == taught
    assert predicted["square"] > 0
    third = run_virtual(WORKFLOW, busy.copy(), strategy, waits=waits)
    assert course(third) == course(second), "a copy that learns teaches the original nothing"


def test_strategies_expect_the_run_times_they_are_told(busy: Simulated) -> None:
    events = run_virtual(
        WORKFLOW, busy.copy(), run_time=lambda stage, _walltime_s: 1800.0 if stage == "square" else 300.0
    )
    assert isinstance(events[0], RunStarted)
    assert [spec.run_time_s for spec in events[0].stages] == [1800.0, 300.0]


def test_a_queue_is_free_again_whatever_happened(busy: Simulated) -> None:
    queue = busy.copy()
    with pytest.raises(GraphError):
        run_virtual(square.options(cores=64)(1), queue)
    with pytest.raises(InvalidInput, match="no run time"):
        run_virtual(asa.stage(lambda: None)(), queue)
    with pytest.raises(UnknownName):
        run_virtual(WORKFLOW, queue, "no-such-strategy")
    assert run_virtual(square(1), queue)


def test_a_run_that_is_refused_leaves_the_queue_to_the_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "_PATIENCE_S", 0.01)
    queue = Simulated(nodes=1, cores=8, warmup=0)
    queue.enter()
    with pytest.raises(InvalidInput, match="leave executor= out"):
        asa.submit(square(1), backend=queue, executor="local", state=tmp_path)
    with pytest.raises(BackendError, match="is busy with another run"):
        queue.enter()


def test_a_run_that_fails_says_so(busy: Simulated) -> None:
    queue = busy.copy()
    queue.sleep(7 * 86400)
    events = run_virtual(WORKFLOW, queue)
    assert any(isinstance(event, SubmitRefused) for event in events)
    assert [event.state for event in events if isinstance(event, RunEnded)] == [RunState.FAILED]


def test_geometries_are_learned_apart() -> None:
    waits = MemoryWaits("last")
    waits.learn(JobRequest("a", Resources(8), 3600.0, ()), 7.0)
    assert waits.predict(Resources(8), 2000.0) == [7.0]
    assert waits.predict(Resources(8), 4000.0) == waits.predict(Resources(9), 3600.0) == [0.0]


def test_the_howto_runs_as_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "simulated-backend.md"
    (example,) = [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]
    exec(example, {"__name__": "example"})


def test_the_howto_tells_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "simulated-backend.md").read_text()
    missing = [
        item.name for item in fields(SimulationOptions) if f"`{item.name}" not in page and f"{item.name}=" not in page
    ]
    assert missing == ["poll_s"], "which nobody needs"


def test_a_forecast_learns_from_the_queue_that_was_seen_when_a_job_was_submitted(busy: Simulated) -> None:
    """Without the queue of then it would never know how much of their wall times jobs use."""
    waits = MemoryWaits("forecast:futures=1")
    estimator = waits.of(Resources(cores=8), 3600.0)
    assert estimator.state()["sightings"]["at"] is None
    run_virtual(WORKFLOW, busy.copy(), "stagger:estimator=forecast,futures=1", waits=waits)
    assert estimator.state()["sightings"]["at"] is not None
