from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.event import Event
from asa.dashboard.feed import Feed, replayed
from asa.dashboard.model import RunModel
from asa.testing.runlogs import MadeStage, run_log

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
