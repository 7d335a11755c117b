"""Writing a report, in the form that the file's name asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from asa.core.errors import InvalidInput
from asa.core.event import Event
from asa.metrics.workflow import summarise

PICTURES = (".png", ".pdf", ".svg")


def write_report(events: Iterable[Event], path: str | Path, *, now: float | None = None) -> None:
    """Write a report of a run.

    Parameters
    ----------
    events
        All events of its log, in order.
    path
        ``.html`` for a page, ``.png``, ``.pdf`` or ``.svg`` for a Gantt chart (they need matplotlib, the extra
        ``plots``), ``.json`` for the numbers. A file of that name is replaced.
    now
        Up to when a run that goes on is counted [s since the epoch]; the last event's time when not given.

    Raises
    ------
    InvalidInput
        When the name asks for none of these, its directory does not exist, or the log does not say what was run.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".html", ".json", *PICTURES):
        raise InvalidInput(f"no report is made as {path.name!r}: end the name with .html, .json, {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no directory {str(path.parent)!r} to write {path.name!r} to: make it first")
    run = summarise(events, now)
    if suffix == ".json":
        path.write_text(json.dumps(run.to_json(), indent=2) + "\n", encoding="utf-8")
    elif suffix == ".html":
        from asa.report.html import render

        path.write_text(render(run), encoding="utf-8", errors="backslashreplace")
    else:
        from asa.report.gantt import save

        save(run, path)
