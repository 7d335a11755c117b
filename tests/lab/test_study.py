"""Figures, intervals, timed decisions, and libraries for learning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.run import simulate
from asa.lab.study import Estimate, Figure, TimedDispatcher, clocked, estimate, need, read_rows


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
