"""What tests do with a page that is open, and with the logs behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asa.core.event import Event
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from tests.waiting import until


def write(state: Path, name: str, events: Sequence[Event]) -> None:
    with EventLog(RunDirectory.create(state, name).events) as log:
        log.append(events)


def holds(page: Any, condition: str, *argument: Any) -> None:
    """Wait until this is true in the page. (Playwright's own way takes `eval`, which the page's policy forbids.)"""
    until(lambda: page.evaluate(condition, *argument), condition)


def badge(page: Any, text: str) -> None:
    holds(page, "words => document.querySelector('#state').textContent.includes(words)", text)


def done(page: Any) -> int:
    """Tasks done, as the page says."""
    found = re.search(r"([\d,]+) / [\d,]+", page.inner_text("#figures"))
    return int(found[1].replace(",", "")) if found else -1


def view(page: Any, name: str) -> None:
    """Go to a part of the page."""
    page.click(f"#views a:text-is('{name}')")
    holds(page, "name => document.querySelector('#views [aria-current]').textContent === name", name)


def wide(page: Any) -> bool:
    """Whether one would have to scroll sideways."""
    found: bool = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return found


def move(page: Any, share: float) -> None:
    page.evaluate(
        """share => { const s = document.querySelector('#slider');
        s.value = Number(s.min) + share * (s.max - s.min); s.dispatchEvent(new Event('input')); }""",
        share,
    )
