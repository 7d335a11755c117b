"""``asa report``: a run as a page, a picture or data."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult
from asa.workflows.run import open_run


class Report:
    """Write a report of a run."""

    help = "write a report of a run: .html, .png, .pdf, .svg or .json"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it")
        parser.add_argument("-o", "--output", metavar="PATH", default="run.html", help="file to write (run.html)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Write it."""
        run = open_run(options.run)
        path = run.report(options.output)
        return CommandResult(run.summary.to_json(), f"wrote {path}")
