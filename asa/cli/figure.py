"""``asa figure``: figures of the papers, made again."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult, table
from asa.core.registry import Registry

FIGURES = Registry("figure", {"convergence": "asa.studies.convergence:convergence"})


class Figure:
    """Make a figure of a paper again."""

    help = "make a figure of a paper again: " + ", ".join(FIGURES)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("figure", metavar="NAME", help=", ".join(FIGURES))
        parser.add_argument("-o", "--output", metavar="PATH", help="draw it into this file")
        parser.add_argument("--seeds", type=int, default=20, help="repetitions (20)")
        parser.add_argument("--seed", type=int, default=0, help="first seed (0)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Make it."""
        study = FIGURES.load(options.figure)(seeds=options.seeds, seed=options.seed)
        if options.output:
            study.draw(options.output)
        data = study.to_json()
        return CommandResult(data, table([{"sampling": name, **row} for name, row in data.items()], "nothing"))
