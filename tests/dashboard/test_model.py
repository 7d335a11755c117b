"""The page's model of a run: what reports and `asa explain` say, at any time of the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.event import (
    Believed,
    ContainersSeen,
    ContainerUse,
    Event,
    Learned,
    NodeJoined,
    RunEnded,
    RunState,
    TaskDone,
    Trouble,
)
from asa.dashboard.document import Document, difference, patched
from asa.dashboard.feed import RunModel
from asa.metrics.workflow import summarise
from asa.testing.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec

STAGES = (
    MadeStage("first", 4, 9, 40, (), 120, 60),
    MadeStage("second", 2, 3, 30, ("first",), 90, 100, 100, lost_after_s=20),
    MadeStage("third", 2, 4, 10, ("second",), 5, None, 0, bad_tasks=1),
)
LOG = run_log(STAGES)


def telling() -> list[Event]:
    """The same run, with beliefs and containers in its log."""
    found: list[Event] = []
    for number, event in enumerate(LOG):
        found.append(event)
        if isinstance(event, Learned):
            weights = ((event.wait_s, 0.75), (event.wait_s + number, 0.25))
            found.append(
                Believed(event.at, f"hpc2n/batch/{number}/1h", "fixed-share", number, event.wait_s, 30.0, weights)
            )
        if isinstance(event, NodeJoined):
            found.append(ContainersSeen(event.at, (ContainerUse(f"c{number}", event.node, 28.0, number / 10, 0.0),)))
    return found


TELLING = telling()


def folded(events: Sequence[Event]) -> RunModel:
    model = RunModel()
    for event in events:
        model.on(event)
    return model


def test_numbers_are_those_of_reports() -> None:
    model, run = folded(LOG), summarise(LOG)
    shown = model.document(model.last)
    assert shown["run"]["state"] == "succeeded"
    assert shown["run"]["core_hours_charged"] == pytest.approx(run.core_hours_charged, abs=1e-5)
    assert shown["run"]["big_job_core_hours"] == pytest.approx(run.big_job_core_hours, abs=1e-5)
    for stage in run.stages:
        row = shown["stages"][stage.name]
        assert (row["done"], row["tasks"], row["state"]) == (stage.done, stage.tasks, stage.state.value)
        assert row["perceived_wait_s"] == pytest.approx(stage.perceived_wait_s, abs=1e-3)
    assert [row["id"] for row in shown["jobs"].values()] == [job.job_id for job in run.jobs]
    assert model.bars == len(run.attempts)


def test_bars_are_the_runs_of_tasks() -> None:
    model, run = folded(LOG), summarise(LOG)
    names = model.document(model.last)["names"]
    for bar, attempt in zip(model.bars_from(0), run.attempts, strict=True):
        stage, index, job, node, cores, start, end, outcome = bar
        assert names["stages"][int(stage)] == attempt.stage
        assert names["jobs"][int(job)] == attempt.allocation
        assert names["nodes"][int(node)] == attempt.node
        assert (index, cores, outcome) == (attempt.index, attempt.cores, attempt.outcome)
        assert start == pytest.approx(attempt.started - run.start.at, abs=1e-3)
        assert end == pytest.approx(attempt.ended - run.start.at, abs=1e-3)


@settings(max_examples=25)
@given(st.lists(st.integers(0, len(TELLING)), max_size=5))
def test_increments_make_the_whole(cuts: list[int]) -> None:
    model, seen = RunModel(), 0
    shown: Document = {}
    bars: list[list[float]] = []
    for cut in sorted({*cuts, len(TELLING)}):
        for event in TELLING[seen:cut]:
            model.on(event)
        seen = cut
        now = model.document(model.last)
        change = json.loads(json.dumps(difference(shown, now), allow_nan=False))
        shown = patched(shown, change)
        bars += model.bars_from(len(bars)) if model.plan else []
    whole = folded(TELLING)
    expected = {table: dict(rows) for table, rows in whole.document(whole.last).items() if rows}
    assert {table: rows for table, rows in shown.items() if rows} == json.loads(json.dumps(expected))
    assert bars == whole.bars_from(0)


@settings(max_examples=25)
@given(st.integers(2, len(LOG)))
def test_any_beginning_of_a_log_can_be_shown(count: int) -> None:
    model = folded(LOG[:count])
    shown = model.document(model.last + 1.0)
    json.dumps(shown, allow_nan=False)
    assert set(shown["why"]) - {""} == {stage.name for stage in STAGES}
    for token, tasks in shown["underway"].items():
        assert sum(cores for _, _, cores, _ in tasks) <= shown["jobs"][token]["cores"]
        assert shown["jobs"][token]["state"] == "running"
    done = sum(isinstance(event, TaskDone) for event in LOG[:count])
    assert sum(row["done"] for row in shown["stages"].values()) == done


def test_a_stage_says_why_it_does_not_run() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 1), stage_spec("b", 2, 1, "a")),
        *job_asked(10.0, "j", 2, "a", predicted=30.0),
    ]
    shown = folded(log).document(40.0)
    assert "has been in the queue for 30 s" in shown["why"]["a"]
    assert shown["why"]["b"].startswith("waits for a")
    assert shown["jobs"]["j"]["predicted"] == 40.0


def test_a_silent_batch_system_is_told() -> None:
    log = [*run_begins(stage_spec("a", 2, 1)), Trouble(1.0, "slurm_load_jobs error: <b>no</b>")]
    assert folded(log).document(2.0)["run"]["trouble"] == "slurm_load_jobs error: <b>no</b>"


def test_nothing_is_shown_before_the_first_event() -> None:
    model = RunModel()
    assert model.document(0.0) == {}
    assert model.bars == 0
    assert not model.over


def test_a_wait_of_a_job_that_the_log_does_not_have_belongs_to_no_geometry() -> None:
    (row,) = folded([*run_begins(stage_spec("a", 2, 1)), Learned(9.0, "j", "a", 3.0)]).document(9.0)["waits"].values()
    assert (row["wait_s"], row["geometry"]) == (3.0, None)


def test_a_run_is_over_once_its_last_job_is() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 1)),
        *job_asked(10.0, "j", 2, "a"),
        RunEnded(20.0, RunState.CANCELLED, "enough"),
    ]
    assert not folded(log).over
    assert folded(LOG).over


def test_a_strategy_of_somebodys_own_can_be_shown() -> None:
    begins = run_begins(stage_spec("a", 2, 1))
    shown = folded([replace(begins[0], strategy="<mine.Strategy object>"), begins[1]]).document(0.0)  # type: ignore[type-var]
    assert shown["run"]["strategy"] == "<mine.Strategy object>"
    assert shown["why"]["a"]


def test_montage_is_shown() -> None:
    model = folded(run_log(montage(4)))
    shown = model.document(model.last)
    assert len(shown["stages"]) == 9
    assert [row["position"] for row in shown["stages"].values()] == list(range(9))
    assert len(shown["waits"]) == len(shown["jobs"]) == 10
    assert shown["waits"]["montage-3fa1.3"]["geometry"] == "hpc2n/batch/84/15m"


@settings(max_examples=25)
@given(st.integers(2, len(TELLING)))
def test_beliefs_and_containers_are_the_last_that_were_told(count: int) -> None:
    model = folded(TELLING[:count])
    shown = model.document(model.last)
    told = {event.geometry: event for event in TELLING[:count] if isinstance(event, Believed)}
    assert {name: row["at"] for name, row in shown["beliefs"].items()} == {
        name: pytest.approx(event.at, abs=1e-3) for name, event in told.items()
    }
    seen = {use.node for event in TELLING[:count] if isinstance(event, ContainersSeen) for use in event.seen}
    nodes = {row["node"] for row in shown["nodes"].values()}
    assert {row["node"] for row in shown["containers"].values()} == seen & nodes
    assert all(row["limit_cores"] == 28.0 for row in shown["containers"].values())
    assert ("beliefs" in shown["run"]["tells"]) is bool(told)
    past = model.document(model.last, past=True)["beliefs"]
    assert past == shown["beliefs"] if told else all(row["replayed"] for row in past.values())


def test_the_past_of_a_log_that_does_not_tell_is_replayed() -> None:
    model = folded(LOG)
    now, then = model.document(model.last), model.document(model.last, past=True)
    assert (now["run"]["tells"], now["beliefs"], now["containers"]) == ([], {}, {})
    assert {name: (row["jobs"], row["replayed"]) for name, row in then["beliefs"].items()} == {
        "hpc2n/batch/4/1h": (1, True),
        "hpc2n/batch/2/15m": (3, True),
    }
    assert {**then, "beliefs": {}} == {**now, "beliefs": {}}


def test_of_a_strategy_of_somebodys_own_no_estimator_is_made_up() -> None:
    log = [replace(LOG[0], strategy="<mine.Strategy object>"), *LOG[1:]]  # type: ignore[call-arg]
    model = folded(log)
    assert model.document(model.last, past=True)["beliefs"] == {}
