"""``asa explain``: why every stage is where it is."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult
from asa.workflows.run import open_run


class Explain:
    """Say of every stage of a run what it does or waits for."""

    help = "say of every stage of a run what it does or waits for"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Explain it."""
        run = open_run(options.run)
        text = run.explain()
        stages = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        return CommandResult({"run": run.name, "state": run.status.value, "stages": stages}, text)
