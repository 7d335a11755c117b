"""A run in a terminal: what the page shows, as tables that fit the screen."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.core.units import brief
from asa.log.rundir import state_directory
from asa.report.words import core_hours, counted, listed, shortened, span_words

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from asa.dashboard.feed import View


Row = Mapping[str, Any]
_SIGNS = {"done": "✓", "completed": "✓", "succeeded": "✓", "running": "▶", "failed": "✕", "ready": "◔"}
_SIGNS |= {"interrupted": "■", "unknown": "?", "partial": "◐"}
_STYLES = {"done": "green", "completed": "green", "succeeded": "green", "running": "blue", "ready": "yellow"}
_STYLES |= {"failed": "red", "partial": "red"}
_NUMBERS = ("Done", "Predicted", "Waited", "Cores busy", "Wall time left")
_BAR = 12


def screen(view: View, rows: int) -> RenderableType:
    """Head, stages and allocations, in at most about so many lines; what has ended goes first where room is short."""
    from rich.console import Group
    from rich.text import Text

    run = view.document.get("run")
    if not run:
        return Text("the run has not begun yet")
    stages, jobs = view.document["stages"], view.document["jobs"]
    half = max(4, (rows - 12) // 2)
    return Group(
        *(Text(line, overflow="fold") for line in head(run, view.now)),
        Text(),
        _stages(stages, view.document["why"], half),
        Text(),
        _jobs(jobs, view.now, half),
    )


def head(run: Row, now: float) -> Iterable[str]:
    """What is to be said of the whole run."""
    state = run["state"]
    passed = run["makespan_s"] if run["ended"] is not None else max(0.0, now - run["started"])
    yield f"{run['run']}  {_SIGNS.get(state, '·')} {state}  {brief(passed)}  {run['strategy']} on {run['site']}"
    saved = run["big_job_core_hours"] - run["core_hours_charged"]
    yield (
        f"core-hours: {core_hours(run['core_hours_charged'])} charged, {core_hours(run['core_hours_used'])} used, "
        f"{core_hours(run['overhead_core_hours'])} idle (came early); "
        f"{core_hours(abs(saved))} {'less' if saved >= 0 else 'more'} than Big Job"
        f"{' so far' if run['ended'] is None else ''}"
    )
    if run["quote"]:
        yield f"quoted: {run['quote']}"
    if run["held"]:
        yield f"held, nothing new is submitted or launched: asa release {run['run']}"
    if run["trouble"]:
        yield f"the batch system does not answer: {run['trouble']}"
    if run["message"]:
        yield str(run["message"])


def _stages(stages: Mapping[str, Row], why: Mapping[str, str], most: int) -> RenderableType:
    from rich.text import Text

    table = _table("Stage", "State", "Done", "", "Predicted", "Waited", "Why")
    chosen = first(list(stages.items()), most, lambda row: row["state"] in ("done", "skipped", "not run"))
    for name, row in chosen:
        tasks = row["tasks"]
        table.add_row(
            Text(shortened(name, 24)),
            _state(row["state"]),
            f"{row['done']}/{'?' if tasks is None else tasks}",
            bar(row["done"] / tasks if tasks else float(row["state"] == "done")),
            *(span_words(row[key]) for key in ("predicted_wait_s", "wait_s")),
            Text("" if row["state"] == "done" else why.get(name, "").partition("\n")[0]),
        )
    if (more := len(stages) - len(chosen)) > 0:
        table.add_row(Text(counted(more, "more stage"), style="dim"))
    return table


def _jobs(jobs: Mapping[str, Row], now: float, most: int) -> RenderableType:
    from rich.text import Text

    table = _table("Job", "For", "State", "Cores busy", "Wall time left", "Nodes")
    chosen = first(list(jobs.items()), most, lambda row: row["ended"] is not None)
    for token, row in chosen:
        left = "–" if row["ends"] is None or row["ended"] is not None else brief(max(0.0, row["ends"] - now))
        table.add_row(
            Text(row["id"] or token[-8:]),
            Text(shortened(f"lent by {row['lender']}" if row["lender"] else listed(row["for"], 2), 32)),
            _state("ends" if row["leaving"] else row["state"]),
            f"{row['busy']}/{row['cores']}",
            left,
            Text(listed(row["nodes"], 3)),
        )
    if (more := len(jobs) - len(chosen)) > 0:
        table.add_row(Text(counted(more, "more job"), style="dim"))
    return table


def first(items: list[tuple[str, Row]], most: int, over: Any) -> list[tuple[str, Row]]:
    """At most so many, in order; those that are over, the earliest first, are left out before others.

    >>> [name for name, _ in first([("a", {"n": 1}), ("b", {"n": 0}), ("c", {"n": 1})], 2, lambda row: row["n"])]
    ['b', 'c']
    """
    spare = len(items) - most
    ended = [name for name, row in items if over(row)][: max(0, spare)]
    return [item for item in items if item[0] not in ended][:most]


def bar(share: float) -> str:
    """A share as a bar of letters.

    >>> bar(0.5)
    '██████······'
    """
    full = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * full + "·" * (_BAR - full)


def _state(state: str) -> RenderableType:
    from rich.text import Text

    words = state.replace("_", " ")
    return Text(f"{_SIGNS.get(state, '·')} {words}", style=_STYLES.get(state, ""))


def _table(*head: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        wide = name in ("Why", "For", "Nodes")
        table.add_column(
            name, justify="right" if name in _NUMBERS else "left", no_wrap=not wide, ratio=1 if wide else None
        )
    return table


_EVERY_S = 1.0


class Top:
    """Show stages and allocations of a run until it is over."""

    help = "show a run as it goes on, in a terminal"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", default="", help="name of the run (the newest)")
        parser.add_argument("--once", action="store_true", help="show it as it is now, and return")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.dashboard.feed import RUNS, Sources  # here: the page of options does without NumPy

        sources = Sources(state_directory())
        kind, name = sources.find(options.run)
        if kind != RUNS:
            raise InvalidInput(f"{name} is a queue: look at it with asa dashboard {name}")
        feed = sources.open(kind, name)
        try:
            feed.advance()
            if not options.once and sys.stdout.isatty() and options.json != "-":
                _follow(feed)
            return _answer(feed, show=not options.json)
        finally:
            feed.close()


def _follow(feed: Any) -> None:
    """Show it until its driver has ended, or until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while (view := feed.look()).live:
                live.update(screen(view, console.height), refresh=True)
                time.sleep(_EVERY_S)
                feed.advance()
    except KeyboardInterrupt:
        pass  # it is how one leaves


def _answer(feed: Any, *, show: bool) -> CommandResult:
    """What is left on the screen, and the same as data."""
    from rich.console import Console

    view = feed.look()
    console = Console(highlight=False)
    if show:
        console.print(screen(view, max(40, console.height)))
    return CommandResult({"now": view.now, "live": view.live, **view.document}, "")
