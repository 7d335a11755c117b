"""Effects carried out in groups; what servers make of it is tested with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import StateError
from executors.mesos import commit
from executors.mesos.commit import GroupCommit, Parcel
from executors.mesos.effects import Close, CopyRow, KeepRow, Send
from executors.mesos.journal import Entry, Journal
from executors.mesos.messages import message

HEARTBEAT = message("HEARTBEAT")
SENT = Parcel("s", b'20\n{"type":"HEARTBEAT"}')


class Fragile(Journal):
    full = False
    written = 0

    def write(self, entries: Sequence[Entry]) -> None:
        if self.full:
            raise StateError("the disk is full")
        self.written += 1
        super().write(entries)


class Ground:
    def __init__(self, path: Path, strict: bool) -> None:
        self.journal = Fragile(path / "j.db")
        self.done: list[Any] = []
        self.commit: GroupCommit[str] = GroupCommit(self.journal, self.done.extend, strict=strict)


def play(path: Path, story: Callable[[Ground], Awaitable[None]], *, strict: bool = True) -> None:
    async def run() -> None:
        ground = Ground(path, strict)
        running = asyncio.create_task(ground.commit.run())
        async with asyncio.timeout(10.0):
            await story(ground)
        running.cancel()
        ground.journal.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RETRY_S", 0.01)


def test_without_rows_all_is_done_at_once_and_in_order(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        assert ground.commit.carry_out([Send("s", HEARTBEAT), "start", Close("s")]) is None
        assert ground.done == [SENT, "start", Parcel("s", None)]

    play(tmp_path, story)


def test_what_nobody_waits_for_goes_with_what_somebody_does(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.commit.carry_out([KeepRow("t", "1", {}), "first"], lazily=True)
        await asyncio.sleep(0)
        assert ground.journal.written == 0
        durable = ground.commit.carry_out([KeepRow("t", "2", {}), "second"])
        assert durable is not None
        await durable.wait()
        assert (ground.journal.written, ground.done) == (1, ["first", "second"])

    play(tmp_path, story)


def test_what_comes_with_a_copy_does_not_wait_for_it(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        durable = ground.commit.carry_out([CopyRow("t", "1", {}), "first"], lazily=True)
        assert ground.done == ["first"] and ground.journal.written == 0 and durable is not None
        ground.commit.carry_out(["second"])
        assert ground.done == ["first", "second"], "nor does what comes later"
        await durable.wait()
        assert ground.journal.rows() == [KeepRow("t", "1", {})] and ground.commit.pending is None

    play(tmp_path, story)


def test_behind_what_waits_a_copy_waits_too(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        durable = ground.commit.carry_out([CopyRow("t", "2", {}), "second"])
        assert ground.done == [] and durable is not None
        told: list[list[Any]] = []
        durable.then(lambda: told.append(list(ground.done)))
        await durable.wait()
        assert told == [["first", "second"]], "in order, and before anybody is told"

    play(tmp_path, story)


@pytest.mark.parametrize("strict", [True, False])
def test_a_copy_that_cannot_be_written_is_written_when_it_can(strict: bool, tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.journal.full = True
        ground.commit.carry_out([CopyRow("t", "1", {}), "first"])
        while ground.commit.trouble is None:
            await asyncio.sleep(0.001)
        assert ground.done == ["first"] and ground.commit.pending is not None
        ground.journal.full = False
        await ground.commit.durable()
        assert ground.journal.rows() == [KeepRow("t", "1", {})] and ground.commit.trouble is None

    play(tmp_path, story, strict=strict)


def test_what_nobody_waits_for_is_written_soon(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.commit.carry_out([KeepRow("t", "1", {}), "first"], lazily=True)
        await ground.commit.durable()
        assert ground.journal.rows() == [KeepRow("t", "1", {})] and ground.done == ["first"]

    play(tmp_path, story)


def test_without_strictness_only_those_wait_who_want_it_durable(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.journal.full = True
        first = ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while not ground.done:
            await asyncio.sleep(0.001)
        assert ground.commit.trouble == "the disk is full"
        assert first is not None and not first.is_set()
        assert ground.commit.carry_out(["second"]) is first, "it is not durable yet"
        assert ground.done == ["first", "second"]
        with pytest.raises(StateError):
            ground.commit.flush()
        ground.journal.full = False
        await first.wait()
        await ground.commit.durable()
        assert ground.commit.trouble is None and ground.done == ["first", "second"]
        assert ground.journal.rows() == [KeepRow("t", "1", {})]

    play(tmp_path, story, strict=False)


def test_with_strictness_everything_waits(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.journal.full = True
        first = ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while ground.commit.trouble is None:
            await asyncio.sleep(0.001)
        ground.commit.carry_out(["second"])
        await asyncio.sleep(0)
        assert ground.done == [] and first is not None
        ground.journal.full = False
        await first.wait()
        while len(ground.done) < 2:
            await asyncio.sleep(0.001)
        assert ground.done == ["first", "second"]

    play(tmp_path, story)


@pytest.mark.parametrize("strict", [True, False])
def test_flushing_does_what_is_left_at_once(strict: bool, tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        durable = ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        ground.commit.flush()
        assert ground.done == ["first"] and ground.journal.rows() == [KeepRow("t", "1", {})]
        assert durable is not None and durable.is_set()

    play(tmp_path, story, strict=strict)


def test_what_cannot_be_flushed_is_not_done_and_not_forgotten(tmp_path: Path) -> None:
    async def story(ground: Ground) -> None:
        ground.journal.full = True
        durable = ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        with pytest.raises(StateError, match="the disk is full"):
            ground.commit.flush()
        assert ground.done == [] and durable is not None and not durable.is_set()
        ground.journal.full = False
        ground.commit.flush()
        assert ground.done == ["first"] and ground.journal.rows() == [KeepRow("t", "1", {})] and durable.is_set()

    play(tmp_path, story)


def test_what_was_being_written_when_it_was_to_end_is_flushed(tmp_path: Path) -> None:
    async def run() -> None:
        ground = Ground(tmp_path, strict=True)
        ground.journal.full = True
        running = asyncio.create_task(ground.commit.run())
        first = ground.commit.carry_out([KeepRow("t", "1", {}), "first"])
        while ground.commit.trouble is None:
            await asyncio.sleep(0.001)
        ground.commit.carry_out([KeepRow("t", "2", {}), "second"])
        running.cancel()
        await asyncio.wait([running])
        assert ground.done == []
        ground.journal.full = False
        ground.commit.flush()
        assert ground.done == ["first", "second"] and first is not None and first.is_set()
        assert ground.journal.rows() == [KeepRow("t", "1", {}), KeepRow("t", "2", {})]
        ground.journal.close()

    asyncio.run(run())
