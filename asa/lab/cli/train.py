"""``asa train``: models of learned dispatchers and of placement."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, positive, table
from asa.core.errors import InvalidInput
from asa.lab.cli.simulate import days
from asa.lab.core.registry import TRAININGS
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs, progress_bar

if TYPE_CHECKING:
    from asa.lab.core.workload import Workload
    from asa.lab.dras_paper.figures import EpisodePoint
    from asa.lab.dras_paper.training import TrainingPlan


def add_days(parser: argparse.ArgumentParser) -> None:
    """Options of trainings on a log; see `parts`."""
    add = parser.add_argument
    add("--trace", required=True, metavar="TRACE", help="log of jobs, as asa simulate takes it")
    add("--from-day", type=float, default=0.0, metavar="D", help="learn from jobs submitted on that day or later (0)")
    add("--to-day", type=float, metavar="D", help="and before that day (the first that validates)")
    add("--validate", type=_span, required=True, metavar="D-D", help="days to choose a model by, as in 90-120")
    add("--nodes", type=positive, metavar="N", help="nodes of the machine (those of the trace's header)")


def parts(workload: Workload, options: argparse.Namespace) -> tuple[Workload, Workload]:
    """Jobs to learn from, and jobs to choose a model by; no job is both.

    Raises
    ------
    InvalidInput
        When the days overlap, or there are no jobs on some.
    """
    (begin, until), to_day = options.validate, options.to_day
    if to_day is None and options.from_day < begin:
        to_day = begin
    if options.from_day < until and (to_day is None or to_day > begin):
        raise InvalidInput(
            f"days {options.from_day:g} to {'the end' if to_day is None else f'{to_day:g}'} to learn from, days "
            f"{begin:g} to {until:g} to validate: give days that do not overlap"
        )
    return days(workload, options.from_day, to_day), days(workload, begin, until)


def _span(text: str) -> tuple[float, float]:
    """Two days, as in 90-120."""
    begin, _, until = text.partition("-")
    try:
        found = float(begin), float(until)
    except ValueError:
        found = 0.0, 0.0
    if not 0 <= found[0] < found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: two days expected, the later one second, as in 90-120")
    return found


DRAS_ROWS = 12
"""Episodes that are shown; ``--json`` has all."""
DISPATCHERS = {"pg": "dras-pg", "dql": "dras-dql", "decima": "decima-pg"}


class TrainDras:
    """Train a dispatcher on a log, in three phases."""

    help = "a dispatcher that selects jobs as DRAS does: dras-pg, dras-dql or decima-pg"

    def configure(self, parser: argparse.ArgumentParser) -> None:
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

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.lab.study import need

        need("torch", "gymnasium", "safetensors")
        check_outputs(options, picture="plot")
        from asa.lab.dras_paper.training import train
        from asa.lab.traces.load import load_trace

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
            from asa.lab.dras_paper.figures import draw_curves

            draw_curves({plan.kind: found.curve}, options.plot)
        best = f"{options.output}/best.safetensors"
        use = f"{best} is from episode {found.best.episode}: --dispatcher {DISPATCHERS[plan.kind]}:model={best}"
        return CommandResult(
            _json(plan, found.curve, found.best), f"{table(_dras_rows(found.curve), 'nothing')}\n\n{use}"
        )


def _plan(options: argparse.Namespace) -> TrainingPlan:
    from asa.lab.dras_paper.training import TrainingPlan, system

    like = system(options.system)
    given = {item.name: getattr(options, item.name) for item in fields(TrainingPlan) if item.name in vars(options)}
    return TrainingPlan(**given | {
        "objective": options.reward or like.objective,
        "hidden": options.hidden or like.hidden,
        "order": tuple(each.strip() for each in options.order.split(",")),
    })  # fmt: skip


def _json(plan: TrainingPlan, curve: Any, best: EpisodePoint) -> dict[str, Any]:
    return {"plan": plan.to_json(), "best": best.episode, "curve": [asdict(point) for point in curve]}


def _dras_rows(curve: Any) -> list[dict[str, Any]]:
    chosen = [*curve[:: -(-len(curve) // DRAS_ROWS)], *curve[-1:]]
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


NSA_ROWS = 10
"""Points of the curve that are shown; ``--json`` has all."""


class TrainNsa:
    """Train the repair operator of the placement method `nsa`."""

    help = "the repair operator of the placement method nsa"

    def configure(self, parser: argparse.ArgumentParser) -> None:
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

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.lab.study import need

        need("torch", "sb3_contrib", "safetensors")
        check_outputs(options, "output", picture="plot")
        from asa.lab.nsa_paper.training import train

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
            from asa.lab.nsa_paper.training import draw_curves

            draw_curves({options.network: found.curve}, options.plot)
        points = found.curve[:: -(-len(found.curve) // NSA_ROWS)]
        rows = [
            {
                "actions": point.steps, "time [s]": point.seconds, "cost": point.cost, "exact": point.exact,
                "above [%]": 100 * (point.cost / point.exact - 1),
            }
            for point in [*points, *found.curve[-1:]]
        ]  # fmt: skip
        use = f"{options.output}: asa place FILE.json --method nsa:model={options.output}"
        return CommandResult(found.to_json(), f"{table(rows, 'nothing')}\n\n{use}")


class Train:
    """Train what learns by reinforcement."""

    help = "train a network that learns by reinforcement: " + ", ".join(TRAININGS)

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        for name in TRAININGS:
            training: Any = TRAININGS.load(name)()
            part = parts.add_parser(name, help=training.help, description=f"Train {training.help}.")
            part.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
            part.set_defaults(training=training, parser=part)
            training.configure(part)

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        result: CommandResult = options.training.run(options)
        return result
