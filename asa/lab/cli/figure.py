"""``asa figure``: figures of the papers, made again."""

from __future__ import annotations

import argparse
from typing import Any

from asa.core.command import CommandResult, positive, seconds, table
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.core.registry import FIGURES, PREDICTORS
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs

_FROM_ROWS = ("asa-makespan", "asa-corehours", "asa-pareto")
_LOOP = ("cp-times", "cp-quality")
_CP = (*_LOOP, "cp-ratios")
_TJAP = ("tjap-5", "tjap-6", "tjap-table3", "tjap-table4", "tjap-loop")
_CURVES = ("dras-4", "dras-5")
_LOGS = ("dras-2", "dras-3", "dras-table2")
_DRAS = ("dras-6", "dras-7", "dras-8", "dras-9", "dras-table4")
_MEASURED = (*_CP, "tjap-4", *_TJAP, *_CURVES, *_DRAS)
_TAKEN_BY = {
    "seeds": ("convergence", *_FROM_ROWS),
    "from": (*_FROM_ROWS, *_MEASURED),
    "trace": (*_CP, *_TJAP, *_LOGS, *_DRAS),
    "from_day": (*_CP, *_LOGS, *_DRAS),
    "to_day": (*_CP, *_LOGS, *_DRAS),
    "dispatcher": (*_CP, "tjap-loop", *_DRAS),
    "predictor": _LOOP,
    "dispatch_time": _LOOP,
    "decisions": ("cp-ratios",),
    "time_limit": ("cp-ratios",),
    "epochs": _TJAP,
    "method": ("tjap-6",),
    "model": ("tjap-5",),
    "network": ("tjap-4",),
    "steps": ("tjap-4",),
    "overestimate": ("tjap-loop",),
}
"""Which figures take an option that not all take."""
_CALLED = {
    "from": "source",
    "dispatcher": "dispatchers",
    "predictor": "predictors",
    "epochs": "epochs_shown",
    "model": "models",
    "network": "networks",
}
"""What these options are called in Python."""


class FigureCommand:
    """Make a figure of a paper again."""

    help = "make a figure of a paper again: " + ", ".join(FIGURES)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("figure", metavar="NAME", help=", ".join(FIGURES))
        add("-o", "--output", metavar="PATH", help="draw it into this file")
        add("--seeds", type=int, help="repetitions (20; for those that begin with asa-, 10)")
        add("--seed", type=int, default=0, help="first seed (0)")
        made_from = (
            f"what asa compare --json wrote ({', '.join(_FROM_ROWS)}), asa train dras (several, for dras-4 and -5)"
        )
        add("--from", metavar="JSON", help=f"draw it again: {made_from}, or this command (cp-..., tjap-..., dras-6 on)")
        cp = parser.add_argument_group("figures cp-..., some also for tjap-... and dras-...")
        for name, what in (
            ("--dispatcher", "several, repeated or with commas (the paper's and some more)"),
            ("--predictor", "several (heuristic, last-two, oracle); not for cp-ratios"),
        ):
            cp.add_argument(name, metavar="NAME[:OPTIONS]", action="append", help=what)
        cp.add_argument("--trace", metavar="TRACE", help="log of jobs (cp-...: a made-up quarter like Eurora's)")
        cp.add_argument("--from-day", type=float, metavar="D", help="leave out jobs submitted before that day (0)")
        cp.add_argument(
            "--to-day", type=float, metavar="D", help="leave out jobs submitted on that day or later (cp-...: 1)"
        )
        cp.add_argument("--dispatch-time", choices=("ignore", "charge"), help="as asa simulate; not for cp-ratios")
        cp.add_argument("--decisions", type=positive, metavar="N", help="for cp-ratios: how many, drawn (200)")
        cp.add_argument("--time-limit", type=seconds, metavar="S", help="for cp-ratios: time for each plan (1s)")
        tjap = parser.add_argument_group("figures tjap-...; but for tjap-4 also --trace, for tjap-loop --dispatcher")
        tjap.add_argument("--epochs", type=positive, metavar="N", help="how many (10)")
        tjap.add_argument("--method", metavar="NAME[:OPTIONS]", help="of tjap-6, to place jobs (free:iterations=300)")
        tjap.add_argument(
            "--model", metavar="FILE", action="append", help="for tjap-5: asa train nsa wrote it, repeated (nsa)"
        )
        tjap.add_argument("--network", metavar="NAME", action="append", help="for tjap-4: one, repeated (all six)")
        tjap.add_argument("--steps", type=positive, metavar="N", help="for tjap-4: actions to learn from (300000)")
        tjap.add_argument("--overestimate", type=float, metavar="X", help="for tjap-loop: of requests, at most (1)")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        make = FIGURES.load(options.figure)
        check_outputs(options, picture="output")
        study = make(seed=options.seed, **_given(options))
        if options.output:
            study.draw(options.output)
        return CommandResult(study.to_json(), table(study.table(), "nothing"))


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the figure's function: options that were given."""
    found = {}
    for name, takers in _TAKEN_BY.items():
        if (value := getattr(options, name)) is None:
            continue
        if options.figure not in takers:
            wrong = "is not made from such a file" if name == "from" else "takes no such option"
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} {value}: figure {options.figure!r} {wrong}; it is for {', '.join(takers)}")
        kinds = {"dispatcher": DISPATCHERS, "predictor": PREDICTORS}
        found[_CALLED.get(name, name)] = kinds[name].split(value) if name in kinds else value
    if options.figure in _MEASURED and "source" in found and len(found) > 1:
        raise InvalidInput("--from shows what was measured: leave out what says how to measure")
    return found
