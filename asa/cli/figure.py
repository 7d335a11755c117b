"""``asa figure``: figures of the papers, made again."""

from __future__ import annotations

import argparse

from asa.cli.outputs import check_outputs
from asa.core.command import CommandResult, table
from asa.core.errors import InvalidInput
from asa.core.registry import Registry

FIGURES = Registry(
    "figure",
    {
        "convergence": "asa.studies.convergence:convergence",
        "asa-makespan": "asa.studies.paper_figures:asa_makespan",
        "asa-corehours": "asa.studies.paper_figures:asa_corehours",
        "asa-pareto": "asa.studies.pareto:asa_pareto",
    },
)

_FROM_ROWS = ("asa-makespan", "asa-corehours", "asa-pareto")


class Figure:
    """Make a figure of a paper again."""

    help = "make a figure of a paper again: " + ", ".join(FIGURES)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("figure", metavar="NAME", help=", ".join(FIGURES))
        parser.add_argument("-o", "--output", metavar="PATH", help="draw it into this file")
        parser.add_argument("--seeds", type=int, help="repetitions (20; for those that begin with asa-, 10)")
        parser.add_argument("--seed", type=int, default=0, help="first seed (0)")
        parser.add_argument(
            "--from",
            dest="source",
            metavar="JSON",
            help=f"draw what asa compare --json wrote ({', '.join(_FROM_ROWS)})",
        )

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Make it."""
        make = FIGURES.load(options.figure)
        check_outputs(options, picture="output")
        given = {"seeds": options.seeds, "source": options.source}
        if options.source is not None and options.figure not in _FROM_ROWS:
            raise InvalidInput(
                f"--from {options.source}: figure {options.figure!r} is not made from such a file; "
                f"{', '.join(_FROM_ROWS)} are"
            )
        study = make(seed=options.seed, **{name: value for name, value in given.items() if value is not None})
        if options.output:
            study.draw(options.output)
        data = study.to_json()
        if options.figure == "asa-pareto":
            rows = study.table()
        elif options.figure in _FROM_ROWS:
            rows = [{name: value for name, value in row.items() if name != "stages"} for row in data["rows"]]
        else:
            rows = [{"sampling": name, **row} for name, row in data.items()]
        return CommandResult(data, table(rows, "nothing"))
