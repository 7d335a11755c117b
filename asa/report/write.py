"""Writing a report, in the form that the file's name asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from asa.core.event import Event, TasksDone
from asa.metrics.workflow import RunSummary, summarise
from asa.report.outputs import PICTURES, check_matplotlib, check_output


def check_report(path: str | Path) -> None:
    """Refuse a report that cannot be written."""
    check_output("report", path, (".html", ".json", *PICTURES))
    if Path(path).suffix.lower() in PICTURES:
        check_matplotlib()


def write_report(events: Iterable[Event | TasksDone], path: str | Path, *, driven: bool = True) -> None:
    """Write a report of a run.

    Parameters
    ----------
    events
        All events of its log, in order.
    path
        ``.html`` for a page, ``.png``, ``.pdf`` or ``.svg`` for a Gantt chart (they need matplotlib, the extra
        ``plots``), ``.json`` for the numbers. A file of that name is replaced. A run that goes on is counted up to its
        last event.
    driven
        Whether the run's driver is alive.

    Raises
    ------
    InvalidInput
        When the name asks for none of these, the file cannot be written, or the log does not say what was run.
    """
    check_report(path)
    write_summary(summarise(events, driven=driven), path)


def write_summary(run: RunSummary, path: str | Path) -> None:
    """As `write_report`, of a run whose numbers are known."""
    path = Path(path)
    check_report(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        path.write_text(json.dumps(run.to_json(), indent=2) + "\n", encoding="utf-8")
    elif suffix == ".html":
        from asa.report.html import render

        path.write_text(render(run), encoding="utf-8", errors="backslashreplace")
    else:
        from asa.report.gantt import save

        save(run, path)
