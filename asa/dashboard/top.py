"""A run in a terminal: what the page shows, in lines that fit the screen."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.core.units import brief, size
from asa.log.rundir import state_directory
from asa.report.words import core_hours, counted, listed, shortened, span_words

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text

    from asa.dashboard.feed import View
    from asa.dashboard.tasks import TaskQuery, TaskTable


Row = Mapping[str, Any]
_SIGNS = {"done": "✓", "completed": "✓", "succeeded": "✓", "running": "▶", "failed": "✕", "ready": "◔", "waiting": "○"}
_SIGNS |= {
    "interrupted": "■",
    "unknown": "?",
    "partial": "◐",
    "pending": "○",
    "skipped": "–",
    "not run": "–",
    "ends": "■",
}
_STYLES = {"done": "green", "completed": "green", "succeeded": "green", "running": "blue", "ready": "yellow"}
_STYLES |= {"failed": "red", "partial": "red"}
_BAR, _FRAME, _NAME_MOST = 8, 9, 40


def screen(view: View, rows: int, width: int = 80, tasks: Mapping[str, Any] | None = None) -> RenderableType:
    """Head, stages and allocations, or instead of these a page of tasks, in at most about so many lines.

    What has ended goes first where room is short. From 60 columns on, nothing but reasons takes a second line.
    """
    from rich.console import Group
    from rich.text import Text

    run = view.document.get("run")
    if not run:
        return Text("the run has not begun yet")
    top = [Text(line, overflow="fold") for line in head(run, view.now)]
    room = max(8, rows - len(top) - _FRAME)
    if tasks is not None:
        return Group(*top, Text(), *_tasks(tasks, room, width))
    jobs = _jobs(view.document["jobs"], view.now, max(3, room // 3), width)
    stages = _stages(view.document["stages"], view.document["why"], max(4, room - len(jobs)), width)
    return Group(*top, Text(), *stages, Text(), *jobs)


def head(run: Row, now: float) -> Iterable[str]:
    """What is to be said of the whole run."""
    state = run["state"]
    passed = run["makespan_s"] if run["ended"] is not None else max(0.0, now - run["started"])
    yield f"{run['run']}  {_SIGNS.get(state, '·')} {state}  {brief(passed)}  {run['strategy']} on {run['site']}"
    charged, used = core_hours(run["core_hours_charged"]), core_hours(run["core_hours_used"])
    yield f"{charged} core-hours charged, {used} used"
    if run["expected"] is not None:
        yield f"expected to end in {brief(max(0.0, run['expected'] - now))}"
    if run["quote"]:
        yield f"quoted: {run['quote']}"
    if run["held"]:
        yield f"held, nothing new is submitted or launched: asa release {run['run']}"
    if run["trouble"]:
        yield f"the batch system does not answer: {run['trouble']}"
    if run["message"]:
        yield str(run["message"])


def _line(width: int, state: str, name: str, *cells: tuple[str, int]) -> Text:
    """A name and, to its right, cells of these widths; a width below 0 is to the left within it."""
    from rich.text import Text

    room = min(_NAME_MOST, max(8, width - 3 - sum(abs(size) + 1 for _, size in cells)))
    words = [f"{text:<{-size}}" if size < 0 else f"{text:>{size}}" for text, size in cells]
    line = Text(f"{_SIGNS.get(state, '·')} ", style=_STYLES.get(state, ""), no_wrap=True, overflow="ellipsis")
    return line.append(" ".join([f"{shortened(name, room):<{room}}", *words]).rstrip(), style="default")


def _title(width: int, name: str, *cells: tuple[str, int]) -> Text:
    line = _line(width, "", name, *cells)
    line.plain = f"  {line.plain[2:]}"
    line.stylize("bold")
    return line


def _stages(stages: Mapping[str, Row], why: Mapping[str, str], room: int, width: int) -> list[Text]:
    from rich.text import Text

    over, reasons = ("done", "skipped", "not run"), dict[str, str]()
    for name, row in stages.items():
        words = "" if row["state"] in over else why.get(name, "").partition("\n")[0]
        reasons[name] = "" if row["state"] == "running" and row["done"] == row["tasks"] else words
    most = room
    while most > 1:
        chosen = first(list(stages.items()), most, lambda row: row["state"] in over)
        if sum(1 + -(-len(reasons[name]) // (width - 4)) for name, _ in chosen) <= room:
            break
        most -= 1
    lines = [_title(width, "Stage", ("done", 13), ("", _BAR), ("waited", 12))]
    for name, row in chosen:
        tasks = row["tasks"]
        done = f"{row['done']:,}/{'?' if tasks is None else f'{tasks:,}'}"
        share = row["done"] / tasks if tasks else float(row["state"] == "done")
        lines.append(_line(width, row["state"], name, (done, 13), (bar(share), _BAR), (span_words(row["wait_s"]), 12)))
        if reasons[name]:
            lines.append(_indented(reasons[name]))
    if (more := len(stages) - len(chosen)) > 0:
        lines.append(Text(counted(more, "more stage"), style="dim"))
    return lines


def _indented(words: str) -> Any:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(words, style="dim"), (0, 0, 0, 4))


def _jobs(jobs: Mapping[str, Row], now: float, room: int, width: int) -> list[Text]:
    from rich.text import Text

    lines = [_title(width, "Job", ("state", -12), ("busy", 9), ("time left", 12))]
    chosen = first(list(jobs.items()), room, lambda row: row["ended"] is not None)
    for token, row in chosen:
        left = "–" if row["ends"] is None or row["ended"] is not None else brief(max(0.0, row["ends"] - now))
        what = f"lent by {row['lender']}" if row["lender"] else listed(row["for"], 2)
        state = "ends" if row["leaving"] else row["state"]
        cells = ((state.replace("_", " "), -12), (f"{row['busy']}/{row['cores']}", 9), (left, 12))
        lines.append(_line(width, state, f"{row['id'] or token[-8:]} {what}", *cells))
    if (more := len(jobs) - len(chosen)) > 0:
        lines.append(Text(counted(more, "more job"), style="dim"))
    return lines


def _tasks(page: Mapping[str, Any], room: int, width: int) -> list[Text]:
    """A page of tasks: see `asa.dashboard.tasks.TaskTable.page`."""
    from rich.text import Text

    total, every = page["total"], sum(page["states"].values())
    states = ", ".join(f"{count:,} {state}" for state, count in page["states"].items())
    of = "" if total == every else f"{total:,} of "  # of one state only
    lines = [Text(f"{of}{counted(every, 'task')}{f': {states}' if states else ''}"), Text()]
    lines.append(_title(width, "Task", ("state", -8), ("ran", 12), ("node", -14)))
    for row in page["rows"][: max(1, room)]:
        name, ran = f"{row['stage']}[{row['index']}]", span_words(row.get("ran"))
        cells = ((row["state"], -8), (ran, 12), (shortened(row.get("node", ""), 14), -14))
        lines.append(_line(width, row["state"], name, *cells))
        if row["error"]:
            lines.append(_indented(row["error"].splitlines()[0]))
    for curve in page.get("curves", ()):
        for name, place, words in (("memory", 2, size), ("cores", 3, lambda value: f"{value:.2g}")):
            most, mean = map(words, curve[name])
            begin, end = f"attempt {curve['attempt']}: {name:<6} ", f" {most} at most, mean {mean}"
            points = [point[place] for point in curve["points"]][-max(1, width - 4 - len(begin + end)) :]
            lines.append(_indented(begin + line_of(points) + end))
    return lines


def line_of(values: Sequence[float]) -> str:
    """Values from 0 on as bars side by side.

    >>> line_of([0, 1, 4, 8])
    '▁▂▅█'
    """
    most = max(values) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * max(0.0, value) / most))] for value in values)


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
    '████····'
    """
    full = round(_BAR * min(1.0, max(0.0, share)))
    return "█" * full + "·" * (_BAR - full)


_EVERY_S = 1.0


class Top:
    """Show stages and allocations of a run until it is over."""

    help = "show a run as it goes on, in a terminal"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", default="", help="name of the run (the newest)")
        parser.add_argument("--once", action="store_true", help="show it as it is now, and return")
        parser.add_argument(
            "--tasks", nargs="?", const="", metavar="TEXT", help="its tasks instead of stages: without TEXT all, else "
            "those with it in stage, node or error, or STAGE[INDEX]"
        )  # fmt: skip
        parser.add_argument("--state", default="", metavar="STATE", help="only tasks in this state, such as failed")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.dashboard.feed import RUNS, Sources  # here: the page of options does without NumPy
        from asa.dashboard.tasks import PAGE_MOST, STATES, TaskQuery

        if options.state and options.state not in STATES:
            raise InvalidInput(f"no task is ever {options.state!r}: one of {', '.join(STATES)} expected")
        sources = Sources(state_directory())
        kind, name = sources.find(options.run)
        if kind != RUNS:
            raise InvalidInput(f"{name} is a queue: look at it with asa dashboard {name}")
        feed, directory = sources.open(kind, name), sources.directory(name).path
        query = None
        if options.tasks is not None or options.state:
            query = TaskQuery(options.tasks or "", options.state, order="number", count=PAGE_MOST)
        try:
            feed.advance()
            if not options.once and sys.stdout.isatty() and options.json != "-":
                _follow(feed, query, directory)
            return _answer(feed, query, directory, show=not options.json)
        finally:
            feed.close()


def _follow(feed: Any, query: TaskQuery | None, directory: Path) -> None:
    """Show it until its driver has ended, or until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while (view := feed.look()).live:
                live.update(screen(view, console.height, console.width, _page(feed, query, directory)), refresh=True)
                time.sleep(_EVERY_S)
                feed.advance()
    except KeyboardInterrupt:
        pass  # it is how one leaves


def _page(feed: Any, query: TaskQuery | None, directory: Path) -> dict[str, Any] | None:
    """The tasks that are asked for; of a single one also what it took as time went on."""
    tasks: TaskTable | None = None if query is None else feed.tasks(None)
    if query is None or tasks is None:
        return None
    found = tasks.page(query)
    if len(found["rows"]) == 1 and (one := tasks.one(found["rows"][0]["stage"], found["rows"][0]["index"])):
        from asa.dashboard.tasks import curves

        found["curves"] = curves(directory, one)
    return found


def _answer(feed: Any, query: TaskQuery | None, directory: Path, *, show: bool) -> CommandResult:
    """What is left on the screen, and the same as data."""
    from rich.console import Console

    view, page = feed.look(), _page(feed, query, directory)
    console = Console(highlight=False)
    if show:
        console.print(screen(view, max(40, console.height), console.width, page))
    data = view.document if page is None else page
    return CommandResult({"now": view.now, "live": view.live, **data}, "")
