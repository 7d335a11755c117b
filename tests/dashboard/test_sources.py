"""What there is to look at, and what is said of what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from asa.core.errors import RunNotFound
from asa.core.event import RunStarted
from asa.dashboard.sources import QueueLog, Sources
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.testing.runlogs import run_begins, stage_spec

BEGUN = run_begins(stage_spec("a", 1, 1))
LINE = '{"at": 0.0, "decision": "Start", "job": "h", "nodes": []}\n'


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_without_runs_it_is_said_how_to_get_one(empty: Path) -> None:
    with pytest.raises(RunNotFound, match=f"there are no runs in {empty}: start one with asa run"):
        Sources(empty).find("")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("queues", "night-1", "no queue 'night-1'"),
        ("cats", "montage-3fa1", "no queue"),
        ("runs", "mont", "no run 'mont'"),
    ],
)
def test_what_is_opened_is_named_in_full(state: Path, kind: str, name: str, said: str) -> None:
    with pytest.raises(RunNotFound, match=said):
        Sources(state).open(kind, name)


def test_runs_without_a_driver_are_listed_as_such(empty: Path) -> None:
    RunDirectory.create(empty, "too-early")
    with EventLog(RunDirectory.create(empty, "begun").events) as log:
        log.append(BEGUN)
    rows = {row["name"]: row for row in Sources(empty).listed()}
    assert rows["begun"]["state"] == rows["too-early"]["state"] == "interrupted"
    assert "workflow" in rows["begun"] and "workflow" not in rows["too-early"]
    with RunDirectory.open(empty, "begun").lock():
        assert {row["name"]: row["state"] for row in Sources(empty).listed()}["begun"] == "running"


@pytest.mark.parametrize(("executor", "follows"), [("virtual", False), ("local", True)])
def test_time_goes_on_in_runs_that_go_by_the_clock(empty: Path, executor: str, follows: bool) -> None:
    directory = RunDirectory.create(empty, "now")
    with EventLog(directory.events) as log:
        log.append([replace(event, executor=executor) if isinstance(event, RunStarted) else event for event in BEGUN])
    feed = Sources(empty).open("runs", "now")
    with directory.lock():
        feed.advance()
        assert feed.look().written
        assert feed.look().live == follows
    feed.close()


def test_a_queues_log_is_read_again_only_when_it_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch(0o600)
    path.write_text(LINE)
    log = QueueLog(path, lambda found: [json.loads(line) for line in found.read_text().splitlines() if line[0] == "{"])
    assert len(list(log.read(0))) == 1
    path.write_text("x" * len(LINE))
    assert len(list(log.read(0))) == 1 and not list(log.read(1))
    path.write_text(LINE * 2)
    assert [number for number, _ in log.read(1)] == [2]
