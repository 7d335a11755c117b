"""``asa train dras``: the dispatchers `dras-pg`, `dras-dql` and `decima-pg`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, positive, table
from asa.lab.cli.train_days import add_days, parts
from asa.lab.training.libraries import need
from asa.report.outputs import check_outputs, progress_bar

if TYPE_CHECKING:  # the learning libraries are for those who train, not for those who ask for help
    from asa.lab.training.dras_plan import Plan
    from asa.lab.training.dras_point import Point

ROWS = 12
"""Episodes that are shown; ``--json`` has all."""
DISPATCHERS = {"pg": "dras-pg", "dql": "dras-dql", "decima": "decima-pg"}


class TrainDras:
    """Train a dispatcher on a log, in three phases."""

    help = "a dispatcher that selects jobs as DRAS does: dras-pg, dras-dql or decima-pg"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add_days(parser)
        add("--kind", default="pg", choices=tuple(DISPATCHERS), help="dras-pg (pg), dras-dql or decima-pg (pg)")
        add("-o", "--output", required=True, metavar="DIR", help="folder of models, curve and state; one goes on there")
        add("--system", default="theta", metavar="NAME", help="reward and layers as in the paper: theta, cori (theta)")
        add("--reward", metavar="NAME[:W=X]", help="capability, with weights, or capacity (the system's)")
        add("--hidden", type=_two, metavar="A,B", help="sizes of the hidden layers (the system's: 4000,1000)")
        add("--window", type=positive, default=50, metavar="W", help="jobs that there are to select from (50)")
        add(
            "--scaling", default="shares", metavar="NAME", help="what the network sees: shares, or raw numbers (shares)"
        )
        add("--rate", type=float, default=0.001, metavar="R", help="learning rate (0.001)")
        add("--discount", type=float, default=1.0, metavar="G", help="of dql: worth of what comes an action later (1)")
        add("--patience", type=float, default=50.0, metavar="N", help="reservations for others in a row, at most (50)")
        add("--order", default="sampled,real,synthetic", metavar="PHASES", help="phases (sampled,real,synthetic)")
        add("--sampled", type=int, default=9, metavar="N", help="sets of jobs sampled from the log (9)")
        add("--synthetic", type=int, default=82, metavar="N", help="sets of new jobs like the log's (82)")
        add("--jobs", type=positive, default=3200, metavar="N", help="jobs of each of these (3200)")
        add("--episodes", type=int, default=0, metavar="N", help="end after so many, one for each set (0: all)")
        add("--seed", type=int, default=0, metavar="S", help="of everything that is drawn (0)")
        add("--best-only", action="store_true", help="keep no model of each episode")
        add("--plot", metavar="OUT", help="draw the validation curve: .png, .pdf or .svg")
        add("--quiet", action="store_true", help="show no progress")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Train it, and keep it."""
        need("torch", "gymnasium", "safetensors")
        check_outputs(options, picture="plot")
        from asa.lab.traces.load import load_trace
        from asa.lab.training.dras_train import train

        plan = _plan(options)
        trace = load_trace(options.trace)
        log, validation = parts(trace.workload, options)
        with progress_bar(plan.kind, quiet=options.quiet, counts=True) as bar:
            found = train(
                plan,
                log,
                validation,
                trace.machine(options.nodes or 0),
                output=options.output,
                snapshots=not options.best_only,
                progress=bar,
            )
        if options.plot:
            from asa.lab.training.dras_picture import draw_curves

            draw_curves({plan.kind: found.curve}, options.plot)
        best = f"{options.output}/best.safetensors"
        use = f"{best} is from episode {found.best.episode}: --dispatcher {DISPATCHERS[plan.kind]}:model={best}"
        return CommandResult(_json(plan, found.curve, found.best), f"{table(_rows(found.curve), 'nothing')}\n\n{use}")


def _plan(options: argparse.Namespace) -> Plan:
    from asa.lab.training.dras_plan import Plan, system

    names = (
        "kind",
        "window",
        "scaling",
        "rate",
        "discount",
        "patience",
        "seed",
        "jobs",
        "sampled",
        "synthetic",
        "episodes",
    )
    order = tuple(each.strip() for each in options.order.split(","))
    like = system(options.system)
    return Plan(
        objective=options.reward or like.objective,
        hidden=options.hidden or like.hidden,
        order=order,
        **{name: getattr(options, name) for name in names},
    )


def _json(plan: Plan, curve: Any, best: Point) -> dict[str, Any]:
    from dataclasses import asdict

    return {"plan": plan.to_json(), "best": best.episode, "curve": [asdict(point) for point in curve]}


def _rows(curve: Any) -> list[dict[str, Any]]:
    chosen = [*curve[:: -(-len(curve) // ROWS)], *curve[-1:]]
    return [
        {
            "episode": point.episode,
            "phase": point.phase,
            "jobs": point.jobs,
            "changes": point.updates,
            "CPU [s]": point.cpu_s,
            "reward": point.validation_reward,
            "mean wait [s]": point.mean_wait_s,
            "longest [s]": point.max_wait_s,
            "utilisation": point.utilisation,
        }
        for point in chosen
    ]


def _two(text: str) -> tuple[int, int]:
    """Two whole numbers above 0."""
    parts = [positive(part.strip()) for part in text.split(",")]
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r}: two sizes expected, as in 4000,1000")
    return parts[0], parts[1]
