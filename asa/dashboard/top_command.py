"""``asa top``: a run as it goes on, in a terminal."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.log.rundir import state_directory

_EVERY_S = 1.0


class Top:
    """Show stages and allocations of a run until it is over."""

    help = "show a run as it goes on, in a terminal"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", nargs="?", default="", help="name of the run (the newest)")
        parser.add_argument("--once", action="store_true", help="show it as it is now, and return")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Show it."""
        from asa.dashboard.sources import RUNS, Sources  # here: the page of options does without NumPy

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
    """Show it until nobody writes its log any more, or until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from asa.dashboard.top import screen

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

    from asa.dashboard.top import screen

    view = feed.look()
    console = Console(highlight=False)
    if show:
        console.print(screen(view, max(40, console.height)))
    return CommandResult({"now": view.now, "live": view.live, **view.document}, "")
