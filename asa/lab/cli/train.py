"""``asa train``: networks that learn by reinforcement."""

from __future__ import annotations

import argparse
from typing import Any

from asa.core.command import CommandResult
from asa.lab.core.registry import TRAININGS


class Train:
    """Train what learns by reinforcement."""

    help = "train a network that learns by reinforcement: " + ", ".join(TRAININGS)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        for name in TRAININGS:
            training: Any = TRAININGS.load(name)()
            part = parts.add_parser(name, help=training.help, description=f"Train {training.help}.")
            part.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
            part.set_defaults(training=training, parser=part)
            training.configure(part)

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Train it, and keep it."""
        result: CommandResult = options.training.run(options)
        return result
