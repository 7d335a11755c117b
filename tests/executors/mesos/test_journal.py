"""What is durable: the journal, and effects that wait for it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from executors.mesos import commit
from executors.mesos.commit import GroupCommit, StreamRecord
from executors.mesos.effects import Close, CopyRow, KeepRow, Send
from executors.mesos.journal import Entry, Journal, entries
from executors.mesos.messages import message

# ---------------------------------------------------------------------- journal


TABLES = st.sampled_from(["frameworks", "tasks"])
KEYS = st.text(st.characters() | st.sampled_from('"\\\0\ud800'), max_size=3)  # half a character, as JSON may have it
ROWS = st.none() | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
KEEPS = st.lists(st.builds(KeepRow, TABLES, KEYS, ROWS), max_size=6)


def modelled(transactions: list[list[KeepRow]]) -> list[KeepRow]:
    """The same with a dictionary: a row keeps its place until it is removed."""
    found: dict[tuple[str, str], Any] = {}
    for keeps in transactions:
        last = {(table, key): row for table, key, row in keeps}
        for place, row in last.items():
            if row is None:
                found.pop(place, None)
            else:
                found[place] = row
    return [KeepRow(*place, row) for place, row in found.items()]


@given(transactions=st.lists(KEEPS, max_size=5))
def test_what_was_kept_comes_back_in_order(
    transactions: list[list[KeepRow]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pool") / "master.db"
    journal = Journal(path)
    for keeps in transactions:
        journal.keep(keeps)
    assert journal.rows() == modelled(transactions)
    journal.close()
    again = Journal(path)
    assert again.rows() == modelled(transactions)
    again.close()


def test_a_row_may_change_once_it_is_an_entry(tmp_path: Path) -> None:
    row = {"state": "TASK_STAGING"}
    made = entries([KeepRow("tasks", "t1", row)])
    row["state"] = "TASK_RUNNING"
    journal = Journal(tmp_path / "master.db")
    journal.write(made)
    assert journal.rows() == [KeepRow("tasks", "t1", {"state": "TASK_STAGING"})]
    journal.close()


def _keep_and_die(path: Path) -> None:
    journal = Journal(path)
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    journal.keep([KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": 1})])
    os.kill(os.getpid(), signal.SIGKILL)


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_keep_and_die, args=(tmp_path / "master.db",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    journal = Journal(tmp_path / "master.db")
    assert journal.rows() == [KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": 1})]
    journal.close()


def test_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "master.db")
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    with pytest.raises(ValueError, match="JSON"):
        journal.keep([KeepRow("tasks", "t1", {"n": 2}), KeepRow("tasks", "t2", {"n": float("nan")})])
    assert journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
    journal.close()


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"a":'])
def test_a_damaged_row_says_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    journal = Journal(path)
    journal.keep([KeepRow("tasks", "t1", {"n": 1})])
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE kept SET row = ?", (text,))
    connection.close()
    again = Journal(path, "what runs here")
    with pytest.raises(StateError, match=r"master\.db is damaged .* move it away, .* known of what runs here$"):
        again.rows()
    again.close()


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"no database" * 500)
    path.chmod(0o600)
    with pytest.raises(StateError, match="no database of ASA: move it away"):
        Journal(path)


def test_secrets_of_others_are_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    Journal(path).close()
    path.chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        Journal(path)


def test_rows_are_json_for_people_to_read(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    journal = Journal(path)
    journal.keep([KeepRow("agents", "A-S0", {"hostname": "n1"})])
    journal.close()
    with sqlite3.connect(path) as connection:
        ((text,),) = connection.execute("SELECT row FROM kept").fetchall()
    connection.close()
    assert json.loads(text) == {"hostname": "n1"}


# ---------------------------------------------------------------------- commit


HEARTBEAT = message("HEARTBEAT")
SENT = StreamRecord("s", b'20\n{"type":"HEARTBEAT"}')


class Fragile(Journal):
    full = False
    written = 0

    def write(self, entries: Sequence[Entry]) -> None:
        if self.full:
            raise StateError("the disk is full")
        self.written += 1
        super().write(entries)


class Bench:
    def __init__(self, path: Path, strict: bool) -> None:
        self.journal = Fragile(path / "j.db")
        self.done: list[Any] = []
        self.commit: GroupCommit[str] = GroupCommit(self.journal, self.done.extend, strict=strict)


def play(path: Path, story: Callable[[Bench], Awaitable[None]], *, strict: bool = True) -> None:
    async def run() -> None:
        bench = Bench(path, strict)
        running = asyncio.create_task(bench.commit.run())
        async with asyncio.timeout(10.0):
            await story(bench)
        running.cancel()
        bench.journal.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RETRY_S", 0.01)


def test_without_rows_all_is_done_at_once_and_in_order(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        assert bench.commit.carry_out([Send("s", HEARTBEAT), "start", Close("s")]) is None
        assert bench.done == [SENT, "start", StreamRecord("s", None)]

    play(tmp_path, story)


def test_rows_that_wait_are_written_with_urgent_ones(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.commit.carry_out([KeepRow("t", "1", {}), "first"], lazily=True)
        await asyncio.sleep(0)
        assert bench.journal.written == 0
        durable = bench.commit.carry_out([KeepRow("t", "2", {}), "second"])
        assert durable is not None
        await durable.wait()
        assert (bench.journal.written, bench.done) == (1, ["first", "second"])

    play(tmp_path, story)


def test_what_comes_with_a_copy_does_not_wait_for_it(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        durable = bench.commit.carry_out([CopyRow("t", "1", {}), "first"], lazily=True)
        assert bench.done == ["first"] and bench.journal.written == 0 and durable is not None
        bench.commit.carry_out(["second"])
        assert bench.done == ["first", "second"], "nor does what comes later"
        await durable.wait()
        assert bench.journal.rows() == [KeepRow("t", "1", {})] and bench.commit.pending is None

    play(tmp_path, story)


def test_behind_what_waits_a_copy_waits_too(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        durable = bench.commit.carry_out([CopyRow("t", "2", {}), "second"])
        assert bench.done == [] and durable is not None
        told: list[list[Any]] = []
        durable.then(lambda: told.append(list(bench.done)))
        await durable.wait()
        assert told == [["first", "second"]], "in order, and before anybody is told"

    play(tmp_path, story)


@pytest.mark.parametrize("strict", [True, False])
def test_a_copy_that_cannot_be_written_is_written_when_it_can(strict: bool, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.journal.full = True
        bench.commit.carry_out([CopyRow("t", "1", {}), "first"])
        while bench.commit.trouble is None:
            await asyncio.sleep(0.001)
        assert bench.done == ["first"] and bench.commit.pending is not None
        bench.journal.full = False
        await bench.commit.durable()
        assert bench.journal.rows() == [KeepRow("t", "1", {})] and bench.commit.trouble is None

    play(tmp_path, story, strict=strict)


def test_rows_that_are_not_urgent_are_written_soon(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.commit.carry_out([KeepRow("t", "1", {}), "first"], lazily=True)
        await bench.commit.durable()
        assert bench.journal.rows() == [KeepRow("t", "1", {})] and bench.done == ["first"]

    play(tmp_path, story)


def test_without_strictness_only_those_wait_who_want_it_durable(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.journal.full = True
        first = bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while not bench.done:
            await asyncio.sleep(0.001)
        assert bench.commit.trouble == "the disk is full"
        assert first is not None and not first.is_set()
        assert bench.commit.carry_out(["second"]) is first, "it is not durable yet"
        assert bench.done == ["first", "second"]
        with pytest.raises(StateError):
            bench.commit.flush()
        bench.journal.full = False
        await first.wait()
        await bench.commit.durable()
        assert bench.commit.trouble is None and bench.done == ["first", "second"]
        assert bench.journal.rows() == [KeepRow("t", "1", {})]

    play(tmp_path, story, strict=False)


def test_with_strictness_everything_waits(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.journal.full = True
        first = bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while bench.commit.trouble is None:
            await asyncio.sleep(0.001)
        bench.commit.carry_out(["second"])
        await asyncio.sleep(0)
        assert bench.done == [] and first is not None
        bench.journal.full = False
        await first.wait()
        while len(bench.done) < 2:
            await asyncio.sleep(0.001)
        assert bench.done == ["first", "second"]

    play(tmp_path, story)


@pytest.mark.parametrize("strict", [True, False])
def test_flushing_does_what_is_left_at_once(strict: bool, tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        durable = bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        bench.commit.flush()
        assert bench.done == ["first"] and bench.journal.rows() == [KeepRow("t", "1", {})]
        assert durable is not None and durable.is_set()

    play(tmp_path, story, strict=strict)


def test_what_cannot_be_flushed_is_not_done_and_not_forgotten(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.journal.full = True
        durable = bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        with pytest.raises(StateError, match="the disk is full"):
            bench.commit.flush()
        assert bench.done == [] and durable is not None and not durable.is_set()
        bench.journal.full = False
        bench.commit.flush()
        assert bench.done == ["first"] and bench.journal.rows() == [KeepRow("t", "1", {})] and durable.is_set()

    play(tmp_path, story)


def test_what_was_being_written_when_it_was_to_end_is_flushed(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path, strict=True)
        bench.journal.full = True
        running = asyncio.create_task(bench.commit.run())
        first = bench.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while bench.commit.trouble is None:
            await asyncio.sleep(0.001)
        bench.commit.carry_out([KeepRow("t", "2", {}), "second"])
        running.cancel()
        await asyncio.wait([running])
        assert bench.done == []
        bench.journal.full = False
        bench.commit.flush()
        assert bench.done == ["first", "second"] and first is not None and first.is_set()
        assert bench.journal.rows() == [KeepRow("t", "1", {}), KeepRow("t", "2", {})]
        bench.journal.close()

    asyncio.run(run())
