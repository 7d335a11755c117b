"""What is damaged is named and set apart: never a wrong value, never a traceback, and other runs go on."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from binascii import crc32
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from asa.backends.local import Local
from asa.cli.main import main
from asa.core.context import Context
from asa.core.errors import AsaError, StateError
from asa.core.event import Cancelled, ResultsLost, Submitted, Submitting, TaskDone
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, JobStatus, QueueRegime, Resources
from asa.core.run import FoldedRun, TaskState
from asa.estimators.waits import Waits
from asa.log.database import LearnedStore
from asa.log.events import EventLog
from asa.log.values import load, write_value
from asa.workflows.assemble import restore_plan
from asa.workflows.learned import LearnedWaits
from asa.workflows.run import open_run, resume

FILE = """
import os, time
import asa

@asa.stage
def numbers(n): return list(range(n))

@asa.stage
def square(x):
    if x == 5 and os.environ.get("HANG"): time.sleep(600)
    return x * x

@asa.stage
def long(xs): return list(xs) * 10000

workflow = long(square.map(numbers(6)))
"""
VALUE = [0, 1, 4, 9, 16, 25] * 10000
"""Too long for the log: it is in a file."""
SQUARES = {index: index * index for index in range(6)}

FLIPS = int(os.environ.get("ASA_FLIPS", "40"))
"""Bits flipped in each file; others with another seed."""
SEED = int(os.environ.get("ASA_FLIPS_SEED", "1"))


@dataclass(frozen=True)
class Runs:
    """A state directory with a finished run, one that was killed, and one that stays as it is."""

    state: Path
    finished: str
    killed: str
    other: str

    def folder(self, name: str) -> Path:
        return self.state / "runs" / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    place = tmp_path_factory.mktemp("damage")
    state = place / "state"
    state.mkdir(mode=0o700)
    (place / "flow.py").write_text(FILE)

    def go(name: str, **environment: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "asa", "run", str(place / "flow.py"), "--name", name]
        environ = os.environ | {"ASA_STATE_DIR": str(state)} | environment
        return subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, start_new_session=True)

    for name in ("other", "finished"):
        assert go(name).wait() == 0
    doomed = go("killed", HANG="1")
    names = {path.name.rpartition("-")[0]: path.name for path in (state / "runs").iterdir()}
    until = time.monotonic() + 60
    while time.monotonic() < until:
        names = {path.name.rpartition("-")[0]: path.name for path in (state / "runs").iterdir()}
        with contextlib.suppress(AsaError, KeyError):
            if sum(stage.done for stage in folded(state / "runs" / names["killed"]).stages.values()) == 6:
                break
        time.sleep(0.2)
    doomed.kill()
    doomed.wait()
    for pid, words in command_lines():  # its supervisor would keep the task that hangs for the next driver
        if str(state / "runs" / names["killed"]) in words:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    folded(state / "runs" / names["killed"])  # what is read once is all in the log's file, where bits are flipped
    return Runs(state, names["finished"], names["killed"], names["other"])


def folded(folder: Path) -> FoldedRun:
    with EventLog(folder / "events.db") as log:
        return restore_plan(folder.name, log)


@contextlib.contextmanager
def as_before(folder: Path) -> Iterator[None]:
    """Whatever happens to the files in a folder, they are the same again.

    They are new ones: SQLite knows a file by its number, and a connection may still be open that was not closed yet.
    """
    kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    try:
        yield
    finally:
        for path in folder.iterdir():
            if path.is_file() and path not in kept:
                path.unlink()
        for path, data in kept.items():
            draft = path.with_name(f"{path.name}.again")
            draft.write_bytes(data)
            draft.chmod(0o600)
            draft.replace(path)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database, behind the back of its owner."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def flips(path: Path, seed: int) -> Iterator[tuple[int, int]]:
    """Places in a file, and what to change there; those of rows more often than their number says."""
    chance, size = random.Random(seed), path.stat().st_size
    data = path.read_bytes()
    used = [at for at in range(size) if data[at]]
    for _ in range(FLIPS):
        yield chance.choice(used), 1 << chance.randrange(8)


def flip(path: Path, at: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def right_or_named(right: Callable[[], bool], names: str) -> None:
    """It is right, or raises an error that names what is damaged."""
    try:
        well = right()
    except StateError as error:
        well = re.search(names, str(error)) is not None
    assert well


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["runs", "--json", "-"]) == 0
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


@pytest.mark.timeout(60 + 2 * FLIPS)
@pytest.mark.parametrize("which", ["finished", "killed"])
def test_any_flipped_bit_of_an_event_log_gives_no_wrong_value(
    runs: Runs, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(runs.state))
    name = getattr(runs, which)
    folder = runs.folder(name)
    noticed = 0
    with as_before(folder):
        open_run(runs.other, state=runs.state).result()
        for at, mask in flips(folder / "events.db", SEED):
            with as_before(folder):
                flip(folder / "events.db", at, mask)
                rows = listed(capsys)
                assert rows[runs.other]["state"] == "succeeded" and set(rows) == {
                    runs.other,
                    runs.finished,
                    runs.killed,
                }
                noticed += rows[name]["state"] == "damaged"
                for command in ("explain", "clean"):
                    assert main([command, name] if command == "explain" else [command]) in (0, 1)
                if which == "finished":
                    with contextlib.suppress(AsaError):
                        assert open_run(name, state=runs.state).result() == VALUE, (at, mask)
                with contextlib.suppress(AsaError), EventLog(folder / "events.db") as log:
                    plan = restore_plan(name, log)
                    stage = plan.stages["square"]
                    done = [index for index, state in enumerate(stage.tasks) if state == TaskState.DONE]
                    lost = {index: why for (_, index), why in log.lost({"square": done}).items()}
                    found = {index: load(log.value("square", index)) for index in done if index not in lost}
                    assert found.items() <= SQUARES.items(), (at, mask)
    assert noticed > FLIPS / 10


def test_reading_a_log_ends_whatever_bits_of_its_tree_of_pages_are_flipped(tmp_path: Path) -> None:
    """Pages that point to one another were read for ever: `asa clean` did not end."""
    path = tmp_path / "whole.db"
    with EventLog(path) as log:
        for number in range(200):
            log.append([Cancelled(float(number), f"job {number}", "tired")])
    data = path.read_bytes()
    tree = [at for page in range(0, len(data), 4096) for at in range(page, page + 108) if data[at]]
    damaged = tmp_path / "damaged.db"
    for at, bit in itertools.product(tree, (0, 3, 6)):
        damaged.write_bytes(data)
        damaged.chmod(0o600)
        flip(damaged, at, 1 << bit)
        with contextlib.suppress(AsaError), EventLog(damaged) as log:
            numbers = [number for number, _ in log.readable()[0]]
            assert numbers == sorted(set(numbers)), (at, bit)
            with contextlib.suppress(AsaError):
                assert len(list(log.each(Cancelled))) <= 200


def test_a_flipped_bit_of_a_result_file_is_named_and_the_task_runs_again(runs: Runs) -> None:
    folder = runs.folder(runs.finished)
    (file,) = (folder / "values").glob("long-*.pkl")
    size, chance = file.stat().st_size, random.Random(SEED)
    with as_before(folder / "values"):
        for at in [0, size - 1, size // 2, *(chance.randrange(size) for _ in range(FLIPS))]:
            with as_before(folder / "values"):
                flip(file, at, 1 << chance.randrange(8))
                names = rf"(?s)run {runs.finished}: .*'long'.*{file.name}"
                right_or_named(lambda: open_run(runs.finished, state=runs.state).result() == VALUE, names)


def damage_square(folder: Path) -> None:
    with opened(folder / "events.db") as connection:
        sql = "UPDATE results SET data = x'80054b022e' WHERE stage = 'square' AND task = 3"
        assert connection.execute(sql).rowcount == 1


def test_what_nothing_needs_any_more_does_not_run_again(runs: Runs) -> None:
    """The stage that needed it is done."""
    folder = runs.folder(runs.finished)
    with as_before(folder), as_before(folder / "values"):
        damage_square(folder)
        again = resume(runs.finished, state=runs.state)
        assert again.result(60) == VALUE
        again.wait()
        assert not [event for _, event in again.events() if isinstance(event, ResultsLost)]


@pytest.mark.parametrize("damage", ["file", "gone", "both"])
def test_what_is_damaged_runs_again(runs: Runs, tmp_path: Path, damage: str) -> None:
    """What the value was made of is looked at when the value has to be made again."""
    name, state = runs.finished, runs.state
    folder = runs.folder(name)
    with as_before(folder), as_before(folder / "values"):
        (file,) = (folder / "values").glob("long-*.pkl")
        if damage == "both":
            damage_square(folder)
        if damage == "file":
            flip(file, 1000, 4)
        else:
            file.unlink()
        again = resume(name, state=state)
        assert again.result(60) == VALUE
        again.wait()
        lost = [event for _, event in again.events() if isinstance(event, ResultsLost)]
        both = damage == "both"
        assert [event.tasks for event in lost] == [(*[("square", 3)] * both, ("long", 0))]
        assert ("task 3 of stage 'square'" if both else file.name) in lost[0].reason
        assert open_run(name, state=state).result() == VALUE
        assert folded(folder).illegal == []


def test_of_a_run_that_succeeded_only_its_value_is_needed(runs: Runs) -> None:
    folder = runs.folder(runs.finished)
    with as_before(folder):
        with opened(folder / "events.db") as connection:
            connection.execute("UPDATE results SET data = x'80054b022e' WHERE stage = 'square' AND task = 3")
        with EventLog(folder / "events.db") as log:
            before = log.last
            again = resume(runs.finished, state=runs.state)
            assert again.result(60) == VALUE == again.result(60)
            assert log.last == before and log.lost({"square": [2, 3]}).keys() == {("square", 3)}


def test_results_lost_while_those_behind_them_had_begun(runs: Runs) -> None:
    """A killed run: `square` has five of six results, and one that it was made of is damaged."""
    folder = runs.folder(runs.killed)
    with as_before(folder), as_before(folder / "values"):
        with opened(folder / "events.db") as connection:
            connection.execute(
                "UPDATE results SET data = x'80054b022e' WHERE stage IN ('numbers', 'square') AND task = 0"
            )
        again = resume(runs.killed, state=runs.state)
        assert again.result(90) == VALUE
        again.wait()
        assert folded(folder).illegal == []


def test_a_result_is_found_though_its_stage_is_damaged_in_the_index(runs: Runs) -> None:
    folder = runs.folder(runs.killed)
    data, seen = (folder / "events.db").read_bytes(), 0
    for at in (found.start() for found in re.finditer(b"square", data)):
        with as_before(folder), contextlib.suppress(AsaError):
            flip(folder / "events.db", at, 1)
            with EventLog(folder / "events.db") as log:
                lost = log.lost({"square": range(5)})
                kept = [index for index in range(5) if ("square", index) not in lost]
                assert [load(log.value("square", index)) for index in kept] == [SQUARES[index] for index in kept]
                seen += 1
    assert seen > 5


def test_one_damaged_run_hides_no_other(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    shutil.copytree(runs.state, state, ignore=shutil.ignore_patterns("*.sock", "driver.lock"))
    monkeypatch.setenv("ASA_STATE_DIR", str(state))
    (state / "runs" / runs.killed / "events.db").write_bytes(b"no database" * 1000)
    (state / "runs" / runs.killed / "events.db-wal").unlink(missing_ok=True)  # all may be read from that
    (state / "runs" / "empty").mkdir(mode=0o700)
    (state / "runs" / "a-file").write_text("")
    open_to_others = state / "runs" / "open"
    shutil.copytree(state / "runs" / runs.other, open_to_others)
    (open_to_others / "events.db").chmod(0o644)
    rows = listed(capsys)
    assert rows[runs.finished]["state"] == rows[runs.other]["state"] == "succeeded"
    assert {name for name, row in rows.items() if row["state"] == "damaged"} == {runs.killed, "open", "a-file"}
    assert runs.killed in rows[runs.killed]["problem"] and "damaged" in rows[runs.killed]["problem"]
    assert main(["runs"]) == 0
    assert "asa doctor --runs" in capsys.readouterr().out
    assert main(["clean"]) == 1
    said = capsys.readouterr()
    assert "not everything could be looked at" in said.err and runs.killed in said.err
    assert main(["top", runs.finished, "--once"]) in (0, 1, 2)
    assert main(["explain", runs.killed]) == 1
    assert runs.killed in capsys.readouterr().err


def test_jobs_of_a_damaged_run_are_found_and_cancelled(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings are damaged, and an event before its jobs were submitted: its log says where they are."""
    monkeypatch.setenv("ASA_STATE_DIR", str(runs.state))
    folder = runs.folder(runs.killed)
    with as_before(folder), as_before(folder / "backend"):
        handle = JobHandle("7", "lost.0", 0.0)
        job = Submitting(1.0, "lost.0", JobRequest("lost.0", Resources(1), 60.0, argv=("sleep", "60")), ("long",))
        with EventLog(folder / "events.db") as log:
            log.append([job, Submitted(1.0, "lost.0", handle)])
            last = log.last
        with opened(folder / "events.db") as connection:
            connection.execute("UPDATE events SET fields = fields || ' ' WHERE seq IN (2, 3)")
        flip(folder / "settings", 100, 1)
        record = JobStatus(handle, JobState.PENDING)
        monkeypatch.setattr(Local, "query", lambda _, them: [replace(record, handle=each) for each in them])
        gone: list[JobHandle] = []
        monkeypatch.setattr(Local, "cancel", lambda _, handles: gone.extend(handles))
        assert main(["clean", "--cancel", "--force", "--json", "-"]) == 1
        said = json.loads(capsys.readouterr().out)
        assert "event 2 is damaged" in said["unread"][runs.killed]
        assert {row["run"] for row in said["rows"]} == {runs.killed} and all(row["cancelled"] for row in said["rows"])
        assert handle in gone
        with EventLog(folder / "events.db") as log:
            assert isinstance(log.latest(Cancelled), Cancelled) and log.last > last


def test_doctor_saves_what_can_be_read(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(runs.state))
    folder = runs.folder(runs.finished)
    with as_before(folder):
        with opened(folder / "events.db") as connection:
            connection.execute("UPDATE events SET fields = replace(fields, 'square', 'squire') WHERE seq = 9")
        damaged = (folder / "events.db").read_bytes()
        with pytest.raises(StateError, match="event 9 is damaged"):
            resume(runs.finished, state=runs.state)
        assert main(["doctor", "--runs"]) == 1
        said = capsys.readouterr().err
        assert f"{runs.finished}:" in said and "event 9 is damaged" in said and "were saved" in said
        (aside,) = folder.glob("events.db.damaged-*")
        assert aside.read_bytes() == damaged
        assert main(["doctor", "--runs"]) == 0
        again = resume(runs.finished, state=runs.state)
        assert again.result(60) == VALUE
        again.wait()
        assert folded(folder).illegal == []


# ---------------------------------------------------------------- what was learned

SITE = Capabilities("site", "core", QueueRegime.LIMITS)
SIZE = Resources(4)


def lessons(path: Path, count: int = 3) -> LearnedWaits:
    learned = LearnedWaits(path, "fixed-share", SITE)
    for number in range(count):
        learned.learn(JobRequest(f"t{number}", SIZE, 3600.0, argv=()), 100.0)
    return learned


@pytest.mark.parametrize("which", ["finished", "killed"])
def test_events_that_are_lost_at_the_end_are_noticed(
    runs: Runs, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their results are still there."""
    monkeypatch.setenv("ASA_STATE_DIR", str(runs.state))
    name = getattr(runs, which)
    folder = runs.folder(name)
    with as_before(folder), as_before(folder / "values"):
        with EventLog(folder / "events.db") as log:
            events, last = [event for _, event in log.read()], log.last
        first = next(number for number, event in enumerate(events, 1) if isinstance(event, TaskDone))
        with opened(folder / "events.db") as connection:
            connection.execute("DELETE FROM events WHERE seq > ?", (first + 2,))
        lost = f"events {first + 3} to {last} are missing"
        with pytest.raises(StateError, match=lost):
            resume(name, state=runs.state)
        assert listed(capsys)[name]["state"] == "damaged"
        assert main(["clean"]) == 1  # which may write into the log
        assert main(["doctor", "--runs"]) == 1
        said = capsys.readouterr().err
        assert lost in said and re.search(r"1 results were saved", said)
        assert main(["doctor", "--runs"]) == 0
        again = resume(name, state=runs.state)
        assert again.result(90) == VALUE
        again.wait()
        assert folded(folder).illegal == []


def test_events_behind_a_long_gap_are_found_soon(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with EventLog(path) as log:
        log.append([Cancelled(float(number), f"job.{number}", "") for number in range(30_000)])
        assert log.problems() == []
    with opened(path) as connection:
        connection.execute("DELETE FROM events WHERE seq BETWEEN 101 AND 20000")
        connection.execute("UPDATE events SET fields = '' WHERE seq BETWEEN 25001 AND 25100")
    began = time.process_time()
    with EventLog(path) as log:
        found, wrong = log.readable()
    assert [number for number, _ in found] == [*range(1, 101), *range(20_001, 25_001), *range(25_101, 30_001)]
    assert "event 101 is missing" in wrong[0] and len(wrong) == 101
    pages = path.stat().st_size // 4096
    with open(path, "r+b") as file:  # whole pages, one of them high in the tree
        for page in range(pages // 4, pages // 2):
            file.seek(4096 * page)
            file.write(os.urandom(4096))
    with EventLog(path) as log:
        found, wrong = log.readable()
        assert found[0][0] == 1 and found[-1][0] == 30_000 and 3000 < len(found) < 10_100
    assert time.process_time() - began < 10.0


def test_any_flipped_bit_of_what_was_learned_fails_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    learned = lessons(folder / "learned.db")
    context = Context(0.0, 4, 3600.0)
    (right,) = learned.predict(SIZE, 3600.0, context)
    learned.close()
    nothing = LearnedWaits(tmp_path / "none.db", "fixed-share", SITE).predict(SIZE, 3600.0, context)[0]
    assert right != nothing
    seen = set()
    for at, mask in flips(folder / "learned.db", SEED):
        with as_before(folder):
            flip(folder / "learned.db", at, mask)
            flipped = LearnedWaits(folder / "learned.db", "fixed-share", SITE)
            (said,) = flipped.predict(SIZE, 3600.0, context)
            assert said in (right, nothing), (at, mask)
            seen.add(said)
            flipped.learn(JobRequest("new", SIZE, 3600.0, argv=()), 100.0)
            flipped.learn_run_times(FoldedRun(), "w")
            flipped.run_time("w")("s", 10.0)
            with contextlib.suppress(AsaError):
                flipped.close()
            with contextlib.suppress(StateError), contextlib.closing(LearnedStore(folder / "learned.db")) as store:
                Waits(store).table()
    assert seen == {right, nothing}


def test_a_damaged_record_is_named_by_waits_and_saved_by_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    learned = lessons(tmp_path / "learned.db")
    learned.learn(JobRequest("t9", Resources(64), 3600.0, argv=()), 7.0)
    learned.close()
    with opened(tmp_path / "learned.db") as connection:
        sql = "UPDATE records SET value = replace(value, '100', '101') WHERE instr(value, '\"jobs\": 3') > 0"
        assert connection.execute(sql).rowcount == 1
    assert main(["waits"]) == 0
    said = capsys.readouterr().out
    assert "damaged, and not used: waits site/core/" in said and "7" in said
    assert main(["doctor", "--runs"]) == 1
    assert "1 records were saved" in capsys.readouterr().err
    assert main(["doctor", "--runs"]) == 0


def test_a_damaged_lesson_is_named_and_the_others_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    path = tmp_path / "learned.db"
    with contextlib.closing(LearnedStore(path)) as store:
        for job in range(3):
            assert store.learn_once("waits", f"job{job}", lambda record: {"jobs": (record or {"jobs": 0})["jobs"] + 1})
    with opened(path) as connection:
        assert connection.execute("UPDATE seen SET token = 'job7' WHERE token = 'job1'").rowcount == 1
    assert main(["doctor", "--runs"]) == 1
    said = capsys.readouterr().err
    assert "which jobs have been learned from is damaged for 1 of them" in said and "1 records were saved" in said
    assert main(["doctor", "--runs"]) == 0
    with contextlib.closing(LearnedStore(path)) as store:
        assert store.get("waits") == {"jobs": 3}
        assert [store.learn_once("waits", f"job{job}", lambda record: record) for job in (0, 2, 1)] == [
            False, False, True,
        ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_without_checksums_gets_them(tmp_path: Path, version: int) -> None:
    path = tmp_path / "learned.db"
    with opened(path) as connection:
        connection.execute("CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute(
            "CREATE TABLE seen (key TEXT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (key, token)) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO records VALUES ('waits', '{\"jobs\": 3}')")
        connection.execute("INSERT INTO seen VALUES ('waits', 'job1')")
        if version == 2:
            connection.execute("ALTER TABLE records ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
            connection.execute("UPDATE records SET crc = ?", (crc32(b'waits{"jobs": 3}'),))
        connection.execute(f"PRAGMA user_version = {version}")
    path.chmod(0o600)
    with contextlib.closing(LearnedStore(path)) as store:
        assert store.get("waits") == {"jobs": 3} and store.problems() == []
        assert not store.learn_once("waits", "job1", lambda record: None)
        store.update("waits", lambda record: {"jobs": (record or {})["jobs"] + 1})
    with contextlib.closing(LearnedStore(path)) as store:
        assert store.get("waits") == {"jobs": 4} and store.problems() == []


def test_no_process_waits_for_what_is_computed(tmp_path: Path) -> None:
    """An estimator that takes its time, as one that compiles itself, keeps no other run waiting."""
    store, other = LearnedStore(tmp_path / "learned.db"), LearnedStore(tmp_path / "learned.db", busy_s=0.0)
    calls = []

    def slow(record: dict[str, Any] | None) -> dict[str, Any]:
        calls.append(record)
        if len(calls) == 1:
            other.update("waits", lambda _: {"jobs": 10})
        return {"jobs": (record or {"jobs": 0})["jobs"] + 1}

    assert store.learn_once("waits", "token", slow)
    assert calls == [None, {"jobs": 10}] and store.get("waits") == {"jobs": 11}
    assert not store.learn_once("waits", "token", slow)


def test_a_change_that_others_always_forestall_is_made_in_the_end(tmp_path: Path) -> None:
    store, other = LearnedStore(tmp_path / "learned.db"), LearnedStore(tmp_path / "learned.db", busy_s=0.0)

    def forestalled(record: dict[str, Any] | None) -> dict[str, Any]:
        with contextlib.suppress(StateError):  # in the end the store is locked
            other.update("n", lambda known: {"n": (known or {"n": 0})["n"] + 1})
        return {"n": (record or {"n": 0})["n"] + 100}

    store.update("n", forestalled)
    assert 100 < store.get("n")["n"] < 110  # type: ignore[index]


@pytest.mark.parametrize("trouble", ["locked", "damaged", "read-only place"])
def test_a_lesson_that_cannot_be_kept_fails_no_run(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("asa.workflows.learned.BUSY_S", 0.05)
    path = tmp_path / "learned.db"
    holder = None
    if trouble == "locked":
        LearnedStore(path).close()
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    elif trouble == "damaged":
        path.write_bytes(b"no database" * 1000)
        path.chmod(0o600)
    else:
        path = tmp_path / "absent" / "learned.db"
    learned = lessons(path, 5)
    before = LearnedWaits(tmp_path / "none.db", "fixed-share", SITE).predict(SIZE, 3600.0, Context(0.0, 4, 3600.0))
    assert learned.predict(SIZE, 3600.0, Context(0.0, 4, 3600.0)) != before, "the run has its own lessons for itself"
    assert "is not kept" in caplog.text
    learned.close()
    if holder is not None:
        holder.close()


# ---------------------------------------------------------------- folders and files


def test_a_folder_that_is_deleted_ends_its_run(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (tmp_path / "nap.py").write_text(
        "import asa, time\n@asa.stage\ndef nap(x):\n    time.sleep(.5)\n    return x\nworkflow = nap.map(range(200))\n"
    )
    words = [sys.executable, "-m", "asa", "run", str(tmp_path / "nap.py")]
    environ = os.environ | {"ASA_STATE_DIR": str(state)}
    driver = subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def some_done() -> bool:
        found = list((state / "runs").glob("*")) if (state / "runs").is_dir() else []
        with contextlib.suppress(AsaError):
            return any(folded(each).stages["nap"].done for each in found)
        return False

    wait_for(some_done)
    (folder,) = (state / "runs").iterdir()
    shutil.rmtree(folder)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert f"its folder {folder} was deleted or moved while it ran" in said
    assert "Traceback" not in said and "free some space" not in said and "free space" not in said, said
    wait_for(lambda: not any(str(folder) in words for _, words in command_lines()))


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def command_lines() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes().decode(errors="replace")


def test_a_value_in_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "v.pkl"
    write_value(path, pickle.dumps(list(range(100))))
    assert load(str(path)) == list(range(100))
    for at in range(path.stat().st_size):
        with as_before(tmp_path):
            flip(path, at, 1)
            right_or_named(lambda: load(str(path)) == list(range(100)), str(path))
    for size in range(path.stat().st_size):
        with as_before(tmp_path):
            os.truncate(path, size)
            right_or_named(lambda: load(str(path)) == list(range(100)), str(path))


def test_settings_are_checked_and_have_a_version(runs: Runs) -> None:
    folder = runs.folder(runs.finished)
    settings = folder / "settings"
    with as_before(folder):
        data = settings.read_bytes()
        for at in range(0, len(data), 7):
            settings.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(StateError, match=r"settings is (damaged|of version)"):
                open_run(runs.finished, state=runs.state).result()
        settings.write_bytes(re.sub(rb"settings \d", b"settings 9", data, count=1))
        with pytest.raises(StateError, match=r"settings is of version 9, this version of ASA reads \d+"):
            resume(runs.finished, state=runs.state)
