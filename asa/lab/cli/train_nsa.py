"""``asa train nsa``: the repair operator of the placement method `nsa`."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult, table
from asa.lab.training.libraries import need
from asa.report.outputs import check_outputs, progress_bar

ROWS = 10
"""Points of the curve that are shown; ``--json`` has all."""


class TrainNsa:
    """Train the repair operator of the placement method `nsa`."""

    help = "the repair operator of the placement method nsa"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("-o", "--output", default="nsa.safetensors", metavar="FILE", help="where the model goes (nsa.safetensors)")
        add("--network", default="fcn-1", metavar="NAME", help="fcn-1, fcn-2, fcn-3, cnn-1, cnn-2, cnn-3 (fcn-1)")
        add("--state", default="steps", metavar="NAME", help="what it sees of a node: steps, or paper (steps)")
        add("--steps", type=int, default=300_000, metavar="N", help="actions to learn from (300000)")
        add("--seed", type=int, default=0, metavar="S", help="of everything that is drawn (0)")
        add("--epochs", type=int, default=20, metavar="N", help="epochs of 100 windows to learn from (20)")
        add("--geometry", default="code", metavar="NAME", help="pods of 40 nodes (code), or of 100 (text) (code)")
        add("--plain", action="store_true", help="the paper's reward: the cost, not what it is above exact insertion")
        add("--plot", metavar="OUT", help="draw the training curve: .png, .pdf or .svg")
        add("--quiet", action="store_true", help="show no progress")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Train it, and keep it."""
        need("torch", "sb3_contrib", "safetensors")
        check_outputs(options, "output", picture="plot")
        from asa.lab.training.nsa import train

        with progress_bar("actions", quiet=options.quiet, counts=True) as progress:
            found = train(
                network=options.network,
                state=options.state,
                steps=options.steps,
                seed=options.seed,
                epochs=options.epochs,
                geometry=options.geometry,
                plain=options.plain,
                progress=progress,
            )
        found.save(options.output)
        if options.plot:
            from asa.lab.training.picture import draw_curves

            draw_curves({options.network: found.curve}, options.plot)
        points = found.curve[:: -(-len(found.curve) // ROWS)]
        rows = [
            {
                "actions": point.steps, "time [s]": point.seconds, "cost": point.cost, "exact": point.exact,
                "above [%]": 100 * (point.cost / point.exact - 1),
            }
            for point in [*points, *found.curve[-1:]]
        ]  # fmt: skip
        use = f"{options.output}: asa place FILE.json --method nsa:model={options.output}"
        return CommandResult(found.to_json(), f"{table(rows, 'nothing')}\n\n{use}")
