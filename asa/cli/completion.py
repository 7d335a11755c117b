"""``asa completion``: what makes a shell complete asa's commands, options and names."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult


class Completion:
    """Print a script that makes a shell complete asa's command line."""

    help = "print what makes a shell complete commands, options and names"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="source <(asa completion bash)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Print it."""
        from asa.cli.completion_shells import SHELLS
        from asa.cli.completion_words import places
        from asa.cli.main import make_parser

        found = list(places(make_parser([])[0]))
        script = SHELLS[options.shell](found)
        return CommandResult({"shell": options.shell, "script": script}, script.rstrip("\n"))
