"""``asa train compact``: the dispatcher `compact`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, positive, table
from asa.lab.cli.train_days import add_days, parts
from asa.lab.training.libraries import need
from asa.report.outputs import check_outputs, progress_bar

if TYPE_CHECKING:  # the learning libraries are for those who train, not for those who ask for help
    from asa.lab.training.compact import Point

ROWS = 12
"""Points of the curve that are shown; ``--json`` has all."""


class TrainCompact:
    """Train the compact policy on a log: imitation, then proximal policy optimisation."""

    help = "the dispatcher compact, for machines of any size"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add_days(parser)
        add("-o", "--output", default="compact.safetensors", metavar="FILE", help="the model (compact.safetensors)")
        add("--steps", type=int, default=120_000, metavar="N", help="actions to learn from (120000); 0: only imitate")
        add("--late", type=float, default=0.2, metavar="X", help="what a long wait is worth (0.2)")
        add("--threshold", default="60h", metavar="T", help="jobs that have waited for longer come first (60h)")
        add("--window", type=positive, default=64, metavar="W", help="jobs that there are to select from (64)")
        add("--seed", type=int, default=0, metavar="S", help="of everything that is drawn (0)")
        add("--plot", metavar="OUT", help="draw the validation curve: .png, .pdf or .svg")
        add("--quiet", action="store_true", help="show no progress")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Train it, and keep it."""
        need("torch", "gymnasium", "sb3_contrib", "safetensors")
        check_outputs(options, "output", picture="plot")
        from asa.lab.traces.load import load_trace
        from asa.lab.training.compact import Options, train

        chosen = Options(options.steps, options.seed, options.late, options.threshold, options.window)
        trace = load_trace(options.trace)
        log, validation = parts(trace.workload, options)
        with progress_bar("actions", quiet=options.quiet, counts=True) as bar:
            found = train(log, validation, trace.machine(options.nodes or 0), chosen, progress=bar)
        found.network.save(options.output)
        if options.plot:
            from asa.lab.training.compact_picture import draw_curve

            draw_curve(found.curve, options.plot)
        use = f"{options.output}: asa simulate TRACE --dispatcher compact:model={options.output}"
        return CommandResult(found.to_json(), f"{table(_rows(found.curve), 'nothing')}\n\n{use}")


def _rows(curve: Sequence[Point]) -> list[dict[str, Any]]:
    best = min(curve, key=lambda point: point.score)
    chosen = dict.fromkeys([*curve[:: -(-len(curve) // ROWS)], best, curve[-1]])
    return [
        {
            "actions": point.steps,
            "time [s]": point.seconds,
            "wait / EASY's": point.wait,
            "slowdown / EASY's": point.slowdown,
            "longest / EASY's": point.longest,
            "": "kept" if point is best else "",
        }
        for point in sorted(chosen, key=lambda point: point.steps)
    ]
