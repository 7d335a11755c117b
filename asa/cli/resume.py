"""``asa resume``: go on with a run whose driver died, that failed, or that was cancelled."""

from __future__ import annotations

import argparse

from asa.cli.run import add_display_options, check_display_options, show_to_end
from asa.core.command import CommandResult
from asa.workflows.run import resume


class Resume:
    """Go on with a run; what is done is not done again."""

    help = "go on with a run whose driver died, that failed, or that was cancelled"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it")
        add_display_options(parser)

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Resume it."""
        check_display_options(options)
        return show_to_end(resume(options.run), options)
