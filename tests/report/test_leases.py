"""How a lease looks: named after who lends it, and never as if it had been waited for."""

from __future__ import annotations

import io
from html import escape, unescape
from pathlib import Path

import pytest
from rich.console import Console

from asa.core.event import DriverStarted, Event, Leased, LeaseEnded
from asa.metrics.workflow import summarise
from asa.report.chart import chart
from asa.report.html import render
from asa.report.progress import ProgressDisplay, changes, table
from asa.report.tables import core_hours_section, jobs_section
from asa.report.words import job_title, job_words, purpose
from asa.report.write import write_report
from tests.metrics.leased import LENDER, borrowing

EVENTS = borrowing()
STAGES_OF_LIFE = [EVENTS[:number] for number in range(1, len(EVENTS) + 1)]


def test_words() -> None:
    own, lease = summarise(EVENTS).jobs
    assert job_words(lease) == (f"lent by {LENDER}", "2 cores")
    assert (purpose(own), purpose(lease)) == ("a", f"lent by {LENDER}")
    title = job_title(lease)
    assert title.startswith(f"lease l1, lent by {LENDER}\ncompleted\n") and "queue" not in title
    assert "in the queue" in job_title(own)


def test_tables() -> None:
    run = summarise(EVENTS)
    assert escape(f"lent by {LENDER}") in jobs_section(run)
    assert core_hours_section(run)


def test_nothing_of_it_came_too_early() -> None:
    own, lease = chart(summarise(EVENTS)).jobs
    assert lease.queued == (50.0, 50.0) and lease.early == () and lease.runs == ((50.0, 300.0),)
    assert own.queued == (0.0, 100.0)
    assert len(lease.tasks) == 3


@pytest.mark.parametrize("events", STAGES_OF_LIFE, ids=lambda events: type(events[-1]).__name__)
def test_a_page_can_be_made_at_any_time(events: list[Event]) -> None:
    page = render(summarise(events, now=1400.0))
    leased = any(isinstance(event, Leased) for event in events)
    assert (f"lent by {LENDER}" in unescape(page)) is leased
    assert LENDER not in page, "it is escaped"


@pytest.mark.parametrize("end", [LeaseEnded(1150.0, "l1", "the agent is gone"), DriverStarted(1150.0, 2, "host")])
def test_a_page_of_one_that_was_lost_says_why(end: Event) -> None:
    until = next(n for n, event in enumerate(EVENTS) if event.at > end.at)
    page = unescape(render(summarise([*EVENTS[:until], end], now=1200.0)))
    assert ("the agent is gone" if isinstance(end, LeaseEnded) else "the driver was gone") in page


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html", ".json"])
def test_a_file_of_every_form(tmp_path: Path, suffix: str) -> None:
    if suffix in (".svg", ".png"):
        pytest.importorskip("matplotlib")
    path = tmp_path / f"run{suffix}"
    write_report(EVENTS, path)
    if suffix != ".png":
        assert LENDER in unescape(path.read_text())
    assert path.stat().st_size > 0


def test_it_is_told_when_it_comes_and_when_it_goes() -> None:
    def at(count: int) -> list[str]:
        return changes(summarise(EVENTS[: count - 1]), summarise(EVENTS[:count]))

    (came,) = [line for number, event in enumerate(EVENTS, 1) if isinstance(event, Leased) for line in at(number)]
    assert came.endswith(f"lease lent by {LENDER}: running")
    gone = [line for number, event in enumerate(EVENTS, 1) if isinstance(event, LeaseEnded) for line in at(number)]
    assert gone == [f"[5 min] lease lent by {LENDER}: completed"]


def test_the_display_takes_it() -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=200)) as display:
        for event in EVENTS:
            display.update([event], event.at)
    assert f"lent by {LENDER}" in text.getvalue()
    Console(file=text).print(table(summarise(EVENTS)))
