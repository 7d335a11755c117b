"""What the studies share, and runs in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asa
from asa.core.arrays import Floats
from asa.core.errors import BackendError, GraphError, InvalidInput, UnknownName
from asa.core.event import (
    Believed,
    Event,
    JobEnded,
    Learned,
    Predicted,
    Quoted,
    RunEnded,
    RunStarted,
    RunState,
    SubmitRefused,
    TaskDone,
    TaskPaused,
)
from asa.core.job import JobRequest, Resources
from asa.core.registry import STRATEGIES
from asa.lab.backend.scene import SimulationOptions
from asa.lab.backend.simulated import Simulated
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.run import simulate
from asa.lab.study import Estimate, Figure, TimedDispatcher, clocked, estimate, need, read_rows
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import summarise
from asa.workflows.graph import make_graph

# -- Study ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    name: str
    seconds: float | None
    parts: tuple[Measured, ...] = ()


ROWS = [Measured("a", 0.5), Measured("b", None)]


def lines(rows: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{"what": row.name} for row in rows]


def write(rows: Sequence[Measured], path: str | Path) -> None:
    Path(path).write_text(" ".join(row.name for row in rows))


def test_rows_are_shown_and_drawn(tmp_path: Path) -> None:
    figure = Figure(ROWS, lines, write)
    assert figure.table() == [{"what": "a"}, {"what": "b"}]
    figure.draw(tmp_path / "figure.txt")
    assert (tmp_path / "figure.txt").read_text() == "a b"


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    kept = tmp_path / "rows.json"
    kept.write_text(json.dumps(Figure(ROWS, lines, write).to_json()))
    assert read_rows(kept, lambda parts, **values: Measured(**values)) == ROWS


def test_rows_within_rows_are_written() -> None:
    inside = {"name": "a", "seconds": 0.5, "parts": ()}
    (row,) = Figure([Measured("c", 1.0, (ROWS[0],))], lines, write).to_json()["rows"]
    assert row == {"name": "c", "seconds": 1.0, "parts": (inside,)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"rows": []}', "has no rows"),
        ('{"rows": [{"name": "a", "speed": 3}]}', "is not what asa figure --json writes of this figure"),
        ('{"rows": [{"name": "a"}]}', "is not what asa figure --json writes of this figure"),
        ('{"rows": [3]}', "is not what asa figure --json writes of this figure"),
        ('{"lines": []}', "is not what asa figure --json writes of this figure"),
        ("[]", "is not what asa figure --json writes of this figure"),
        ("rows", "is not what asa figure --json writes of this figure"),
        (None, "is not what asa figure --json writes of this figure"),
    ],
)
def test_files_that_hold_something_else(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "rows.json").write_text(text)
    with pytest.raises(InvalidInput, match=f"rows.json {said}"):
        read_rows(tmp_path / "rows.json", Measured)


def mean(values: Floats) -> Floats:
    return np.asarray(values.mean((-2, -1)))


def test_the_interval_of_a_mean_is_that_of_the_normal_law() -> None:
    values = np.random.default_rng(1).normal(100.0, 10.0, size=(400, 1))
    found = estimate(mean, values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.15)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for trial in range(200):
        found = estimate(mean, rng.normal(0.0, 1.0, size=(30, 1)), seed=trial)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0.0 <= found.high
    assert 0.88 <= inside / 200 <= 0.99


def test_pairs_stay_together() -> None:
    base = np.random.default_rng(3).uniform(1.0, 100.0, size=(10, 1))
    found = estimate(lambda values: values[..., 0].sum(-1) / values[..., 1].sum(-1), np.hstack([base, 2 * base]))
    assert found == Estimate(0.5, 0.5, 0.5)


def test_one_seed_has_no_interval() -> None:
    assert estimate(mean, np.array([[3.0]])) == Estimate(3.0)


def test_what_is_no_number_is_null_in_json() -> None:
    assert json.loads(json.dumps(Estimate(float("nan")).to_json())) == {"value": None, "low": None, "high": None}


def test_what_is_no_number_is_a_dash_in_words() -> None:
    assert str(Estimate(float("nan"))) == "-"


def test_no_seeds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one or more seeds"):
        estimate(mean, np.empty((0, 2)))


JOBS = Workload.of(submit=[0, 1, 2, 3], run=[10, 10, 5, 20], cores=[6, 8, 2, 2], walltime=[10, 10, 5, 20])


def test_a_call_is_timed_by_both_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {"perf_counter": 10.0, "process_time": 3.0}
    for name in clocks:
        monkeypatch.setattr(f"asa.lab.study.time.{name}", lambda name=name: clocks[name])

    def work(first: int, second: int) -> int:
        clocks["perf_counter"] += 2.0
        clocks["process_time"] += 3.5
        return first - second

    assert clocked(work, 7, 4) == (3, 2.0, 3.5)


def test_each_decision_is_timed_and_none_is_changed() -> None:
    asked = []

    class Noted(Easy):
        def decide(self, view: Any) -> Any:
            found = super().decide(view)
            asked.append((len(view.waiting), len(found)))
            return found

    timed = TimedDispatcher(Noted())
    schedule = simulate(JOBS, Cluster.of(8), timed)
    assert np.array_equal(schedule.start, simulate(JOBS, Cluster.of(8), "easy").start)
    assert [(each.waiting, each.decided) for each in timed.timings] == asked
    assert {decided for _, decided in asked} >= {1, 2}, "starts, and starts beside a promise"
    assert all(each.seconds > 0 and each.cpu_s >= 0 for each in timed.timings)


@pytest.mark.parametrize(("needs_estimates", "window"), [(True, 30.0), (False, 0.0)])
def test_simulators_take_it_for_what_is_inside(needs_estimates: bool, window: float) -> None:
    class Rule:
        pass

    rule: Any = Rule()
    if needs_estimates:
        rule.needs_estimates, rule.window = True, window
    timed = TimedDispatcher(rule)
    assert (timed.needs_estimates, timed.window) == (needs_estimates, window)


def test_what_is_not_installed_is_named() -> None:
    need("json")
    with pytest.raises(InvalidInput, match=r"no_such_library is not installed: pip install 'asa-hpc\[learn\]'"):
        need("json", "no_such_library")


# -- Virtual ----------------------------------------------------------------------------------------------------------


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
    """All but what is noted for those who look on: a run in memory has no store, and no quote."""
    return [(type(event).__name__, event.at) for event in events if not isinstance(event, Believed | Quoted)]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "asa:dependency=predicted"])
def test_it_is_the_same_run_as_the_one_on_disk(busy: Simulated, tmp_path: Path, strategy: str) -> None:
    events = run_virtual(WORKFLOW, busy.copy(), strategy)
    run = asa.run(WORKFLOW, backend=busy.copy(), strategy=strategy, state=tmp_path)
    run.wait()
    assert course(events) == course([event for _, event in run.events()])
    assert summarise(events).makespan_s == run.summary.makespan_s


def test_run_times_may_follow_from_what_is_known_of_the_arguments(busy: Simulated) -> None:
    """Each task has its own element, and no other result."""
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


def test_tasks_go_on_in_the_next_allocation(busy: Simulated) -> None:
    @asa.stage(cores=8, walltime="1h", run_time="150m", checkpoint=True)
    def long(x: int) -> None: ...

    events = run_virtual(long.map(range(2)), busy.copy(), "auto")
    paused = [event for event in events if isinstance(event, TaskPaused)]
    done = {event.index: event.at - event.started for event in events if isinstance(event, TaskDone)}
    assert all(
        sum(each.at - each.started for each in paused if each.index == index) + last_s == pytest.approx(9000)
        for index, last_s in done.items()
    )
    assert len(paused) >= 4 and len(done) == 2


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


def test_strategies_expect_the_given_run_times(busy: Simulated) -> None:
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


def test_a_run_that_is_refused_leaves_the_queue_to_the_one_that_has_it(tmp_path: Path) -> None:
    queue = Simulated(nodes=1, cores=8, warmup=0)
    queue.enter()
    with pytest.raises(InvalidInput, match="leave executor= out"):
        asa.submit(square(1), backend=queue, executor="local", state=tmp_path)
    with pytest.raises(BackendError, match="is busy with another run"):
        queue.enter(patience_s=0.01)


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
    assert missing == ["poll_s"], "which no test needs"


def test_a_forecast_learns_from_the_queue_that_was_seen_when_a_job_was_submitted(busy: Simulated) -> None:
    """Without the queue of then it would never know how much of their wall times jobs use."""
    waits = MemoryWaits("forecast:futures=1")
    estimator = waits.of(Resources(cores=8), 3600.0)
    assert estimator.state()["sightings"]["at"] is None
    run_virtual(WORKFLOW, busy.copy(), "stagger:estimator=forecast,futures=1", waits=waits)
    assert estimator.state()["sightings"]["at"] is not None
