"""Runs of an earlier version, and what that version said of them: today's code says the same.

`tests/fixtures/runs` has the event log and the settings of each, and beside them the numbers, the words and the export
that commit 931c5e1 made of it. Where that was wrong, `WRONG` says so.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import StateError
from asa.core.event import Event
from asa.core.run import FoldedRun
from asa.integrations.wfformat import wfformat
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.metrics.workflow import summarise
from asa.workflows.assemble import restore_plan
from asa.workflows.explain import explain
from asa.workflows.run import resume

KEPT = Path(__file__).parent / "fixtures" / "runs"
NAMES = sorted(path.name.removesuffix(".json") for path in KEPT.glob("*.json"))

WRONG = {
    # A call that fails does not fail the stage that stands for all calls, whose run succeeds; the stage ends with it.
    ("calls", "state"), ("calls", "ended"), ("calls", "error"), ("calls", "run_time_s"), ("sim-calls", "ended"),
    ("sim-calls", "run_time_s"),
    *((name, key) for name in ("calls", "sim-calls") for key in ("makespan_s",)),
}  # fmt: skip


def kept(name: str, state: Path) -> tuple[RunDirectory, dict[str, Any]]:
    """The run, unpacked in a state directory, and what was said of it."""
    (state / "runs").mkdir(parents=True, mode=0o700, exist_ok=True)
    with tarfile.open(KEPT / f"{name}.tar.xz") as packed:
        for member in packed.getmembers():
            place = state / "runs" / member.name
            place.parent.mkdir(mode=0o700, exist_ok=True)
            source = packed.extractfile(member)
            assert source is not None
            place.write_bytes(source.read())
            place.chmod(0o600)
    said = json.loads((KEPT / f"{name}.json").read_text())
    return RunDirectory.open(state, said["run"]), said


def events_of(directory: RunDirectory) -> list[Event]:
    with EventLog(directory.events) as log:
        return [event for _, event in log.read()]


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_a_run_are_those_it_had(name: str, tmp_path: Path) -> None:
    directory, said = kept(name, tmp_path)
    numbers = json.loads(json.dumps(summarise(events_of(directory)).to_json()))
    for was, stage in zip(said["summary"].pop("stages"), numbers.pop("stages"), strict=True):
        differ = {key for key, value in was.items() if stage[key] != value and (name, key) not in WRONG}
        assert not differ, {key: (was[key], stage[key]) for key in differ}
    for was, job in zip(said["summary"].pop("jobs"), numbers.pop("jobs"), strict=True):
        assert job.pop("asked_cores") == job["cores"], "its log does not say how many it was given"
        assert job == was
    differ = {key for key, value in said["summary"].items() if numbers[key] != value and (name, key) not in WRONG}
    assert not differ, {key: (said["summary"][key], numbers[key]) for key in differ}


@pytest.mark.parametrize("name", NAMES)
def test_its_words_and_its_export_are_those_it_had(name: str, tmp_path: Path) -> None:
    directory, said = kept(name, tmp_path)
    events = events_of(directory)
    with EventLog(directory.events) as log:
        assert explain(restore_plan(name, log), max(event.at for event in events)) == said["explain"]
    assert json.loads(json.dumps(wfformat(events, "0")["workflow"])) == said["wfformat"]


def test_a_run_of_an_older_version_is_not_resumed_and_says_why(tmp_path: Path) -> None:
    directory, _ = kept("killed", tmp_path)
    with pytest.raises(StateError, match=r"was started by another version of ASA \(its log is of version 1, not 2\)"):
        resume(directory.name, state=tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_happened_in_it_that_cannot_happen(name: str, tmp_path: Path) -> None:
    run = FoldedRun()
    for event in events_of(kept(name, tmp_path)[0]):
        run.on(event)
    assert run.illegal == []
    assert run.closed == (name != "killed")
