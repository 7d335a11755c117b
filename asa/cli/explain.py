"""``asa explain``: why every stage is where it is."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult
from asa.core.errors import RunNotFound
from asa.core.registry import EXPLAIN
from asa.workflows.run import open_run


class Explain:
    """Say of every stage of a run what it does or waits for; or of a job of a co-scheduled queue, why it ran there."""

    help = "say of every stage of a run what it does or waits for"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it; or a job of a queue")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Explain it."""
        try:
            run = open_run(options.run)
        except RunNotFound:
            for name in EXPLAIN:
                found: CommandResult | None = EXPLAIN.load(name)(options.run)
                if found is not None:
                    return found
            raise
        text = run.explain()
        stages = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        return CommandResult({"run": run.name, "state": run.status.value, "stages": stages}, text)
