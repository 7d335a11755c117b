from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from asa.dashboard import watching
from asa.dashboard.feed import Feed, View
from asa.dashboard.model import RunModel
from asa.dashboard.watching import BARS_MOST, BEHIND_MOST, Viewer, Watch
from tests.dashboard.test_feed import Growing


class Reader:
    """A stream that keeps what is put."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.waiting, self.beats, self.ended = 0, 0, False

    def put(self, record: bytes) -> None:
        if record.strip():
            self.records.append(json.loads(record))
        else:
            self.beats += 1

    def end(self) -> None:
        self.ended = True


class Many:
    """A feed that has so many bars."""

    span = (0.0, 9.0)

    def __init__(self, count: int) -> None:
        self.count = count

    def bars(self, first: int, last: int) -> list[list[float]]:
        return [[number] for number in range(first, min(last, self.count))]


def viewer(reader: Reader) -> Viewer:
    return Viewer(reader)  # type: ignore[arg-type]


def test_a_viewer_is_told_only_what_is_new() -> None:
    reader, log = Reader(), Growing(10)
    feed = Feed(log, RunModel, lambda: 0.0)
    told = viewer(reader)
    feed.advance()
    told.tell(feed, feed.look())
    told.tell(feed, feed.look())
    assert len(reader.records) == 1
    log.count = 100
    feed.advance()
    told.tell(feed, feed.look())
    first, second = reader.records
    assert set(second["change"]["run"]["put"]) < set(first["change"]["run"]["put"])
    assert "names" not in second["change"] or second["bars"]
    assert second["to"] >= first["to"]


def test_many_bars_come_in_several_records() -> None:
    reader, count = Reader(), 2 * BARS_MOST + 7
    told = viewer(reader)
    told.tell(Many(count), View({"run": {"run": "x"}}, count, 9.0))  # type: ignore[arg-type]
    assert [len(record["bars"]) for record in reader.records] == [BARS_MOST, BARS_MOST, 7]
    assert ["change" in record for record in reader.records] == [True, False, False]
    assert [bar for record in reader.records for (bar,) in record["bars"]] == list(range(count))


def test_who_does_not_keep_up_is_told_later() -> None:
    reader = Reader()
    told = viewer(reader)
    reader.waiting = BEHIND_MOST + 1
    told.tell(Many(3), View({"run": {"run": "x"}}, 2, 9.0))  # type: ignore[arg-type]
    assert reader.records == []
    reader.waiting = 0
    told.tell(Many(3), View({"run": {"run": "y"}}, 3, 9.0))  # type: ignore[arg-type]
    (record,) = reader.records
    assert record["change"] == {"run": {"put": {"run": "y"}}}
    assert record["bars"] == [[0], [1], [2]]


def test_it_is_said_why_nothing_more_comes() -> None:
    reader = Reader()
    viewer(reader).fail("the disk is gone")
    assert reader.records == [{"error": "the disk is gone"}]
    assert reader.ended


class Broken(Growing):
    """A log that can be read no more once it is to have more events than there are."""

    def read(self, after: int) -> Any:
        if self.count > 1000:
            raise OSError(5, "Input/output error")
        return super().read(after)


async def told(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0.001)


def test_who_comes_later_is_told_the_whole_at_once_and_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.0)
    first, second, log, over = Reader(), Reader(), Broken(10, written=True), list[bool]()

    async def look() -> None:
        watch = Watch(Feed(log, RunModel, lambda: 0.0), lambda: over.append(True))
        watch.add(viewer(first))
        await told(lambda: first.records)
        watch.add(viewer(second))
        assert second.records[0] == first.records[0], "without another look at the log"
        await told(lambda: first.beats and second.beats)
        watch.end()
        assert first.ended and second.ended
        log.count = 2000
        await told(lambda: over)

    asyncio.run(asyncio.wait_for(look(), 30))
    assert first.records[-1] == {"error": "the log cannot be read: [Errno 5] Input/output error"}
    assert log.closed
