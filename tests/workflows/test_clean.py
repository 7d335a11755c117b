from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.event import Cancelled, DriverStarted, RunEnded, RunState, Submitted, Submitting
from asa.core.job import JobRequest, JobState, Refused, Resources
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.workflows.clean import backend_of, leftovers
from asa.workflows.settings import Settings, save_settings

LATE = ("late", "later")


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that is over."""
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    run = RunDirectory.create(tmp_path, "night")
    save_settings(run, Settings(None, "night", "local:cores=1,dispatcher=easy"))
    with EventLog(run.events) as log:
        log.append([DriverStarted(time.time(), 1, "n1"), RunEnded(time.time(), RunState.SUCCEEDED)])
    return run


@pytest.fixture
def left(done: RunDirectory, tmp_path: Path) -> Iterator[RunDirectory]:
    """The same, with two jobs in its queue; when the driver died, the log did not have the handle of the second."""
    backend = backend_of(done)
    handles = backend.submit([JobRequest(token, Resources(1), 60.0, ("true",), str(tmp_path)) for token in LATE])
    with EventLog(done.events) as log:
        for token, handle in zip(LATE, handles, strict=True):
            assert not isinstance(handle, Refused)
            log.append([Submitting(time.time(), token, JobRequest(token, Resources(1), 60.0, ("true",), ""), ("one",))])
        log.append([Submitted(time.time(), LATE[0], handles[0])])
    yield done
    backend.cancel(list(handles))
    backend.close()


def cleaned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["clean", *words]) == 0
    return capsys.readouterr().out


def cancelled(run: RunDirectory) -> list[str]:
    """What the log says was cancelled."""
    with EventLog(run.events) as log:
        return [event.allocation for _, event in log.read() if isinstance(event, Cancelled)]


def test_who_only_looks_starts_nothing_whatever_dispatcher_the_run_has(left: RunDirectory, tmp_path: Path) -> None:
    assert [item.status.state for item in leftovers(tmp_path)] == [JobState.PENDING] * 2
    assert cancelled(left) == []


def test_jobs_of_a_run_that_is_done_are_listed_and_cancelled_when_told_to(
    left: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = cleaned(capsys)
    assert said.count(left.name) == 2 and "pending" in said and "no job is left behind" not in said
    assert "cancel them with 'asa clean --cancel'" in said and "asa resume" not in said
    assert main(["clean", "--cancel", "--json", "-"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["run"], row["resumable"], row["cancelled"]) for row in rows] == [(left.name, False, True)] * 2
    assert sorted(cancelled(left)) == sorted(LATE)
    assert list(leftovers(tmp_path)) == []
    assert "no job is left behind" in cleaned(capsys)


def test_jobs_that_a_resumed_run_would_use_are_cancelled_by_force_only(
    left: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLog(left.events) as log:
        log.append([DriverStarted(time.time(), 1, "n1")])
    kept = "a resumable run's jobs are used by 'asa resume RUN'; --cancel --force cancels them, too"
    said = cleaned(capsys, "--cancel")
    assert kept in said and "cancel them with" not in said
    assert cancelled(left) == [] and len(list(leftovers(tmp_path))) == 2
    assert kept not in cleaned(capsys, "--cancel", "--force")
    assert list(leftovers(tmp_path)) == []


def test_a_run_that_is_driven_is_left_alone(left: RunDirectory, tmp_path: Path) -> None:
    with left.lock():
        assert list(leftovers(tmp_path)) == []
