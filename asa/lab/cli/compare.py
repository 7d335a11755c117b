"""``asa compare``: a workflow under several strategies, on simulated queues."""

from __future__ import annotations

import argparse
import os

from asa.core.command import CommandResult, add_set_option
from asa.core.errors import InvalidInput
from asa.core.registry import STRATEGIES
from asa.lab.asa_paper.published import STRATEGIES_SHOWN
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs, progress_bar

_DEFAULT = ",".join((*STRATEGIES_SHOWN, "auto"))


class Compare:
    """Compare strategies on simulated queues."""

    help = "compare strategies for a workflow on simulated queues"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("workflow", metavar="WORKFLOW", help="FILE[:NAME]; or the paper's montage, blast, statistics, or all three")
        add_set_option(parser)
        add("--system", default="hpc2n", metavar="NAME", help="hpc2n, uppmax, or a model's file; several, with commas")
        add("--cores", default="", metavar="N,N", help="scales (those of the paper there; the file's own)")
        add("--strategies", default=_DEFAULT, metavar="NAMES", help=f"of {', '.join(STRATEGIES)} ({_DEFAULT})")
        add("--seeds", type=int, default=10, metavar="N", help="how many queues, each with a seed of its own (10)")
        add("--seed", type=int, default=0, metavar="S", help="first seed (0)")
        add(
            "--regime",
            default="",
            metavar="WORDS",
            help="place of dependent jobs: fifo, accrue-always, multifactor, limits (the site's); several, with commas",
        )
        add("--days", type=float, default=14.0, metavar="D", help="how long others go on to submit jobs (14)")
        add("--no-oracle", action="store_true", help="leave out what perfect prediction would reach")
        add("--table2", action="store_true", help="also judge how well waits are predicted")
        add("--plot", metavar="OUT", help="draw makespans, and core-hours beside them: .png, .pdf or .svg")
        add("--processes", type=int, metavar="N", help="processes to use (as many as there are CPUs)")
        add("--quiet", action="store_true", help="show no progress")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        check_outputs(options, picture="plot")
        cores = _counts(options.cores)
        from asa.lab.asa_paper.compare import compare
        from asa.workflows.settings import assignment

        with progress_bar("runs", quiet=options.quiet, counts=True) as progress:
            found = compare(
                options.workflow,
                arguments=dict(map(assignment, options.set)),
                systems=_words(options.system),
                cores=cores,
                strategies=STRATEGIES.split([options.strategies]),
                regimes=_words(options.regime) or [None],
                seeds=options.seeds,
                seed=options.seed,
                oracle=not options.no_oracle,
                table2=options.table2,
                processes=_processes(options.processes),
                progress=progress,
                days=options.days,
            )
        if options.plot:
            found.draw(options.plot)
        return CommandResult(found.to_json(), found.text())


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _counts(text: str) -> list[int]:
    """Numbers of cores from a list of them."""
    words = _words(text)
    if wrong := [word for word in words if not word.isdecimal() or int(word) < 1]:
        raise InvalidInput(f"--cores {text!r}: {wrong[0]!r} is no number of cores; write them as in --cores 28,56,112")
    return [int(word) for word in words]


def _processes(asked: int | None) -> int:
    if asked is None:
        return len(os.sched_getaffinity(0))
    if asked < 1:
        raise InvalidInput(f"--processes {asked}: at least 1 expected")
    return asked
