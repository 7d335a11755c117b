"""Runs of this version and of earlier ones, and what these said of them: today's code says the same.

`tests/fixtures/runs` has the event log and the settings of each, and beside them the numbers, the words and the export
that the commit that it names made of it. Where that was wrong, `WRONG` says so.

``python -m tests.test_recorded_runs`` records runs of the formats as they are, once one of these has a new version.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import AsaError, StateError
from asa.core.event import VERSION, Event
from asa.core.run import FoldedRun
from asa.integrations.wfformat import wfformat
from asa.log import proc
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.metrics.workflow import summarise
from asa.workflows.assemble import restore_plan
from asa.workflows.explain import explain
from asa.workflows.run import open_run, resume
from asa.workflows.settings import SETTINGS_VERSION, load_settings, save_settings
from tests.waiting import until

KEPT = Path(__file__).parent / "fixtures" / "runs"
NAMES = sorted(path.name.removesuffix(".json") for path in KEPT.glob("*.json"))

WRONG = {
    # A call that fails does not fail the stage that stands for all calls, whose run succeeds; the stage ends with it.
    ("calls", "state"), ("calls", "ended"), ("calls", "error"), ("calls", "run_time_s"), ("sim-calls", "ended"),
    ("sim-calls", "run_time_s"),
    *((name, key) for name in ("calls", "sim-calls") for key in ("makespan_s",)),
    # A wait counted although something of the critical path ran meanwhile.
    *((name, "total_perceived_wait_s") for name in ("sim-asa", "sim-auto", "sim-per-stage")),
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


def folded(events: list[Event]) -> FoldedRun:
    run = FoldedRun()
    for event in events:
        run.on(event)
    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_a_run_are_those_it_had(name: str, tmp_path: Path) -> None:
    directory, said = kept(name, tmp_path)
    numbers = json.loads(json.dumps(summarise(events_of(directory)).to_json()))
    for was, stage in zip(said["summary"].pop("stages"), numbers.pop("stages"), strict=True):
        differ = {key for key, value in was.items() if stage[key] != value and (name, key) not in WRONG}
        assert not differ, {key: (was[key], stage[key]) for key in differ}
    for was, job in zip(said["summary"].pop("jobs"), numbers.pop("jobs"), strict=True):
        if "asked_cores" not in was:
            assert job.pop("asked_cores") == job["cores"], "its log does not say how many it was given"
        assert job == was
    differ = {key for key, value in said["summary"].items() if numbers[key] != value and (name, key) not in WRONG}
    assert not differ, {key: (said["summary"][key], numbers[key]) for key in differ}


@pytest.mark.parametrize("name", NAMES)
def test_its_words_and_its_export_are_those_it_had(name: str, tmp_path: Path) -> None:
    directory, said = kept(name, tmp_path)
    events = events_of(directory)
    with EventLog(directory.events) as log:
        words = explain(restore_plan(name, log), max(event.at for event in events))
    if "\ntasks: " not in said["explain"]:  # it was said before failed tasks were counted and listed
        words = "\n".join(line for line in words.splitlines() if not re.match("tasks: |  [^ ]", line) or "File" in line)
    assert words == said["explain"]
    assert json.loads(json.dumps(wfformat(events, "0")["workflow"])) == said["wfformat"]


def test_a_run_of_an_older_version_is_not_resumed_and_says_why(tmp_path: Path) -> None:
    directory, _ = kept("killed", tmp_path)
    versions = rf"was started by another version of ASA \(its log is of version 1, not {VERSION}\)"
    with pytest.raises(StateError, match=versions):
        resume(directory.name, state=tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_happened_in_it_that_cannot_happen(name: str, tmp_path: Path) -> None:
    run = folded(events_of(kept(name, tmp_path)[0]))
    assert run.illegal == []
    assert run.closed == (name.rpartition("-")[2] != "killed")


# ---------------------------------------------------------------- runs of this version


FLOW = """
import os, time
import asa

@asa.stage(walltime="10m", run_time="5s")
def numbers(n): return list(range(n))

@asa.stage(walltime="10m", run_time="60s")
def square(x):
    while x == 3 and os.environ.get("HANG"): time.sleep(0.1)
    if x == 3 and os.environ.get("FAIL"): raise ValueError("as it should be")
    return x * x

@asa.stage(walltime="10m", run_time="5s")
def total(xs): return sum(xs)

workflow = total(square.map(numbers(4)))
"""
CALLS = """
import sys
from asa.integrations.futures import PoolExecutor
with PoolExecutor(sys.argv[1], state=sys.argv[2]) as pool:
    assert list(pool.map(abs, range(-4, 0))) == [4, 3, 2, 1]
"""
VALUE = 14
KINDS = "finished", "failed", "partial", "killed", "resumed", "sim", "sim-failed", "calls"


def present() -> dict[str, int]:
    """The versions of the formats that a kept run is in."""
    with tempfile.TemporaryDirectory() as place:
        EventLog(Path(place, "events.db")).close()
        with sqlite3.connect(Path(place, "events.db")) as connection:
            ((tables,),) = connection.execute("PRAGMA user_version")
    return {"events": VERSION, "tables": tables, "settings": SETTINGS_VERSION}


def prefix() -> str:
    return "v{events}.{tables}.{settings}".format(**present())


def test_there_is_a_run_of_each_kind_in_the_formats_as_they_are() -> None:
    wanted = {f"{prefix()}-{kind}" for kind in KINDS}
    assert wanted <= set(NAMES), "a format has a new version: python -m tests.test_recorded_runs"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "calls"])
def test_a_run_of_this_version_goes_on_to_its_value(kind: str, tmp_path: Path) -> None:
    directory, said = kept(f"{prefix()}-{kind}", tmp_path)
    if said["python"] != list(sys.version_info[:2]):
        pytest.skip(f"ITS FUNCTIONS ARE THOSE OF PYTHON {said['python'][0]}.{said['python'][1]}")
    (directory.path / "jobs").mkdir(mode=0o700)
    if kind == "sim-failed":
        with pytest.raises(AsaError, match="as it should be"):
            open_run(directory.name, state=tmp_path).result()
    elif kind in ("killed", "failed", "partial"):
        assert resume(directory.name, state=tmp_path).result(60) == VALUE
    else:
        assert open_run(directory.name, state=tmp_path).result() == VALUE


def record() -> None:
    """Record runs of each kind, free of what they say of this machine, in the formats as they are."""
    for old in KEPT.glob(f"{prefix()}-*"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="recorded-") as place:
        for kind in KINDS:
            for number in range(9):  # on a busy machine a driver may leave before its jobs have ended
                directory = _recorded(kind, Path(place, str(number)))
                events = events_of(directory)
                if folded(events).closed == (kind != "killed"):
                    break
            save_settings(directory, replace(load_settings(directory), sys_path=(), workdir="/tmp"))
            with EventLog(directory.events) as log:
                words = explain(restore_plan(directory.name, log), max(event.at for event in events))
            commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
            said = {
                "commit": commit.stdout.strip(), "run": directory.name, "python": sys.version_info[:2],
                "summary": summarise(events).to_json(), "explain": words, "wfformat": wfformat(events, "0")["workflow"],
            }  # fmt: skip
            name = f"{prefix()}-{kind}"
            (KEPT / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")
            with tarfile.open(KEPT / f"{name}.tar.xz", "w:xz") as packed:
                for path in [directory.events, directory.settings, *sorted(directory.path.glob("[fv]*s/*"))]:
                    data = path.read_bytes()
                    member = tarfile.TarInfo(str(path.relative_to(directory.path.parent)))
                    member.size, member.mode = len(data), 0o600
                    packed.addfile(member, io.BytesIO(data))


def _recorded(kind: str, place: Path) -> RunDirectory:
    """A run of this kind, that has ended."""
    flow, python, state = place / "flow.py", place / "python", place / "state" / kind
    state.mkdir(mode=0o700, parents=True)
    flow.write_text(FLOW)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')  # its path is in the log
    python.chmod(0o700)
    begin = f"import sys; sys.executable = {str(python)!r}; "
    backend = "sim:hpc2n" if kind.startswith("sim") else "local:cores=2"
    environ = os.environ | {"ASA_STATE_DIR": str(state)}
    if kind == "calls":
        subprocess.run([sys.executable, "-c", begin + CALLS, backend, str(state)], check=True, cwd=place)
    else:
        main = begin + "from asa.cli.main import main; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", main, "run", str(flow), "--name", kind, "--backend", backend]
        words += ["--keep-going"] * (kind == "partial")
        broken = {
            "failed": {"FAIL": "1"},
            "partial": {"FAIL": "1"},
            "sim-failed": {"FAIL": "1"},
            "killed": {"HANG": "1"},
            "resumed": {"HANG": "1"},
        }
        driver = subprocess.Popen(words, cwd=place, env=environ | broken.get(kind, {}), stdout=subprocess.DEVNULL)
        if kind in ("killed", "resumed"):
            until(lambda: _done(state) == 4)  # numbers, and three squares
            driver.kill()
        driver.wait()
    (name,) = [path.name for path in (state / "runs").iterdir()]
    for pid, _ in proc.living():  # its supervisor would keep what hangs for the next driver
        if str(state).encode() in (proc.environment(pid) or b"") and kind in ("killed", "resumed"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if kind == "resumed":
        subprocess.run([sys.executable, "-c", main, "resume", name], env=environ, check=True, stdout=subprocess.DEVNULL)
    return RunDirectory.open(state, name)


def _done(state: Path) -> int:
    with suppress(AsaError, OSError, StopIteration):
        directory = RunDirectory.open(state, next((state / "runs").iterdir()).name)
        return sum(stage.done for stage in folded(events_of(directory)).stages.values())
    return 0


if __name__ == "__main__":
    record()
