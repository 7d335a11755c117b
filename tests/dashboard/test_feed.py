"""What there is to look at, and what is said of what cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import RunNotFound
from asa.core.event import Event, RunStarted
from asa.dashboard.document import Document, difference, patched
from asa.dashboard.feed import Feed, QueueLog, RunModel, Sources, replayed
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.testing.runlogs import MadeStage, run_begins, run_log, stage_spec

LOG = run_log((MadeStage("a", 2, 4, 30, (), 60), MadeStage("b", 1, 2, 20, ("a",), 10, 15, 15)))
START, END = LOG[0].at, LOG[-1].at


class Growing:
    """A log that has so many events by now."""

    def __init__(self, count: int = len(LOG), *, written: bool = False) -> None:
        self.count, self.written, self.closed = count, written, False

    def read(self, after: int) -> Iterable[tuple[int, Event]]:
        yield from enumerate(LOG[after : self.count], after + 1)

    def is_written(self) -> bool:
        return self.written

    def follows_the_clock(self) -> bool:
        return True

    def at(self, event: Event) -> float:
        return event.at

    def close(self) -> None:
        self.closed = True


def feed(log: Growing, now: float = END) -> Feed[Event]:
    return Feed(log, RunModel, lambda: now)


def test_news_are_read_once() -> None:
    log = Growing(5)
    followed = feed(log)
    assert followed.advance()
    assert not followed.advance()
    log.count = len(LOG)
    assert followed.advance()
    whole = replayed(RunModel, LOG)
    assert followed.look().document == whole.document(whole.last)
    assert followed.span == (START, END)


def test_time_goes_on_only_while_somebody_writes() -> None:
    half = len(LOG) // 2
    live, left = feed(Growing(half, written=True), END + 50), feed(Growing(half), END + 50)
    live.advance()
    left.advance()
    assert live.look().live
    assert live.look().now == END + 50
    assert not left.look().live
    assert left.look().now == max(event.at for event in LOG[:half])


def test_a_run_that_is_over_stands_still() -> None:
    followed = feed(Growing(written=True), END + 50)
    followed.advance()
    assert not followed.look().live
    assert followed.look().now == END


@settings(max_examples=25)
@given(st.floats(START - 10, END + 10))
def test_the_page_at_a_time_is_the_replay_of_what_was_logged_by_then(when: float) -> None:
    followed = feed(Growing())
    followed.advance()
    view = followed.look_at(when)
    by_then = replayed(RunModel, [event for event in LOG if event.at <= when])
    assert view.document == by_then.document(max(when, by_then.last), past=True)
    assert followed.bars(0, view.bars) == (by_then.bars_from(0) if by_then.bars else [])


def test_what_was_logged_late_does_not_come_early() -> None:
    """Clocks differ: an event with an earlier time behind one with a later one is shown with that."""
    followed = feed(Growing())
    followed.advance()
    followed._times[5:] = [END + 1] * (len(LOG) - 5)
    assert followed.look_at(END).document == replayed(RunModel, LOG[:5]).document(END)


def test_bars_are_had_in_pieces() -> None:
    followed = feed(Growing())
    followed.advance()
    total = followed.look().bars
    assert total == 6
    assert followed.bars(0, 2) + followed.bars(2, total) == followed.bars(0, total)
    assert followed.bars(3, 3) == []


def test_a_log_without_events_is_shown_empty() -> None:
    log = Growing(0)
    followed = feed(log)
    assert not followed.advance()
    assert followed.look().document == {}
    assert followed.span == (0.0, 0.0)
    followed.close()
    assert log.closed


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


rows = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2))
documents = st.dictionaries(st.sampled_from(["jobs", "stages", "nodes"]), rows)


def filled(document: Document) -> dict[str, dict[str, object]]:
    return {table: dict(found) for table, found in document.items() if found}


@settings(max_examples=40)
@given(documents, documents)
def test_what_has_changed_makes_the_one_of_the_other(before: Document, after: Document) -> None:
    assert filled(patched(before, difference(before, after))) == filled(after)


@settings(max_examples=40)
@given(documents)
def test_nothing_changes_between_equals(document: Document) -> None:
    assert difference(document, {table: dict(found) for table, found in document.items()}) == {}


@settings(max_examples=40)
@given(documents, documents)
def test_only_rows_that_differ_are_told(before: Document, after: Document) -> None:
    for table, change in difference(before, after).items():
        assert change
        for key, row in change.get("put", {}).items():
            assert after[table][key] == row
            assert before.get(table, {}).get(key) != row
        assert all(key not in after.get(table, {}) for key in change.get("drop", ()))
