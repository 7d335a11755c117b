"""``asa replay-waits``: what estimators would have said of the waits in a log."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.command import CommandResult, positive
from asa.core.errors import InvalidInput
from asa.core.registry import ESTIMATORS
from asa.lab.asa_paper.published import PAPER_ESTIMATOR
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asa.lab.asa_paper.queue_history import ObservedWait


class ReplayWaits:
    """Predict the waits of a log, reveal each when its job starts, and learn."""

    help = "replay a log's waits to estimators: predicted at submission, revealed at the start"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "trace",
            nargs="+",
            metavar="TRACE",
            help="log with the waits jobs had (SWF, sacct --parsable2 or PBS, gzipped or not), or sim:SITE for a "
            "simulated site model",
        )
        add(
            "--estimators",
            default="",
            metavar="NAMES",
            help=f"of {', '.join(ESTIMATORS)}, with options as in {PAPER_ESTIMATOR} (all but forecast: it takes long)",
        )
        add(
            "--sizes",
            type=positive,
            default=3,
            metavar="N",
            help="most frequent sizes, of 4 cores or more, that are replayed (3)",
        )
        add("--jobs", type=positive, default=2000, metavar="N", help="jobs of each, from the middle of the log (2000)")
        add("--warmup", type=int, default=200, metavar="N", help="first jobs of each that do not count (200)")
        add("--seeds", type=positive, default=3, metavar="N", help="seeds, for estimators that draw (3)")
        add("--seed", type=int, default=0, metavar="S", help="first seed (0)")
        add("--plot", metavar="OUT", help="draw errors and calibration: .png, .pdf or .svg")
        add("--quiet", action="store_true", help="show no progress")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        check_outputs(options, picture="plot")
        if options.warmup < 0:
            raise InvalidInput(f"--warmup {options.warmup}: 0 or more expected")
        from asa.lab.asa_paper.replay import default_estimators, tabulate

        names = ESTIMATORS.split([options.estimators]) if options.estimators else default_estimators()
        quiet = options.quiet or not sys.stderr.isatty()
        traces = {_name(trace): trace for trace in options.trace}
        if len(traces) < len(options.trace):
            raise InvalidInput(f"two of {', '.join(options.trace)} have the same name: rename one, or leave it out")
        found = tabulate(
            {name: _records(trace, options) for name, trace in traces.items()},
            names,
            seeds=options.seeds,
            seed=options.seed,
            warmup=options.warmup,
            progress=None if quiet else lambda trace, name: print(f"{trace}: {name}", file=sys.stderr),
        )
        if options.plot:
            found.draw(options.plot)
        return CommandResult(found.to_json(), found.text())


def _records(trace: str, options: argparse.Namespace) -> Sequence[ObservedWait]:
    from asa.lab.asa_paper.queue_history import load_log, records

    if trace.startswith("sim:"):
        from asa.lab.asa_paper.probes import probed

        return probed(trace.removeprefix("sim:"), jobs=options.jobs, seed=options.seed)
    return records(load_log(trace), options.sizes, options.jobs)


def _name(trace: str) -> str:
    """The log's name, without its directory and endings."""
    if trace.startswith("sim:"):
        return trace
    return Path(trace).name.removesuffix(".gz").removesuffix(".swf")
