"""``asa cosched``: let jobs share cores by a rule, and compare rules."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from coscheduler.registry import SHARING_RULES


class Cosched:
    """Run a queue of jobs that share cores, explain what became of one, or compare the rules by which they do."""

    help = "let the jobs of a queue share cores, or compare the rules by which they do"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        rules = ", ".join(SHARING_RULES)
        run = parts.add_parser("run", help="run a queue", description="Run a queue.")
        run.add_argument("queue", metavar="QUEUE.toml", help="cores and jobs")
        where = "sim (the default), local, slurm with a backend's options, or pool:DIRECTORY"
        run.add_argument("--on", default="sim", metavar="WHERE", help=where)
        run.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes that the cores are on (1)")
        run.add_argument("--walltime", default="1h", metavar="TIME", help="on slurm: of the nodes' own job (1h)")
        run.add_argument("--work", metavar="DIR", help="where jobs run, and the log is (one below the state directory)")
        again = "go on with the queue of --work DIR: jobs that ended well are not run again"
        run.add_argument("--resume", action="store_true", help=again)
        sharing = run.add_argument("--sharing", default="scavenger", metavar="RULE", help=f"of {rules} (scavenger)")
        run.add_argument("--learned", metavar="FILE", help="keep what the rule learns in this file (nowhere)")
        drawn = "draw CPU use, shares and happiness over time: .png, .pdf or .svg"
        run.add_argument("--plot", metavar="OUT", help=drawn)
        compare = parts.add_parser("compare", help="compare rules on the paper's queue", description="Compare rules.")
        compared = compare.add_argument("--rules", default="", metavar="NAMES", help=f"of {rules} (all)")
        for action in (sharing, compared):
            action.completer = SHARING_RULES  # type: ignore[attr-defined]  # what the shell completes, as in argcomplete
        compare.add_argument("--cores", default="64,128,256", metavar="N,N", help="sizes of the machine (64,128,256)")
        compare.add_argument("--seeds", type=int, default=8, metavar="N", help="how many random queues (8)")
        compare.add_argument("--seed", type=int, default=0, metavar="N", help="the first one's seed (0)")
        compare.add_argument(
            "--contention", default="paper-like", metavar="NAME", help="paper-like (default), measured, or FILE.json"
        )
        rank = parts.add_parser(
            "rank",
            help="do one node's part of a workflow",
            description="Do one node's part of a workflow, as a job of a queue; by hand, all of it.",
        )
        rank.add_argument("workflow", metavar="FILE[:NAME]", help="Python file, and what to run in it (workflow)")
        what = "an argument of the workflow, when that is a function; repeatable"
        rank.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=what)
        explain = parts.add_parser("explain", help="say why a job ran where it did", description="Explain a job.")
        explain.add_argument("job", metavar="JOB", help="its name in the queue's file")
        explain.add_argument("--work", metavar="DIR", type=Path, help="of its queue (the newest that has such a job)")
        for part in (run, compare, explain):
            part.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Do what is asked for."""
        return _PARTS[options.what](options)


# What is imported below brings NumPy or the HTTP libraries: the command line stays quick without.


def _run(options: argparse.Namespace) -> CommandResult:
    from coscheduler.cli.run import run

    return run(options)


def _explain(options: argparse.Namespace) -> CommandResult:
    from coscheduler.cli.explain import explain

    return explain(options.job, options.work)


def _compare(options: argparse.Namespace) -> CommandResult:
    from coscheduler.studies.compare import RULES, compare

    try:
        cores = [int(word) for word in options.cores.split(",")]
    except ValueError:
        raise InvalidInput(f"--cores {options.cores}: whole numbers with commas between them expected") from None
    found = compare(
        SHARING_RULES.split([options.rules]) if options.rules else RULES,
        cores=cores,
        seeds=options.seeds,
        seed=options.seed,
        contention=options.contention,
        progress=_tell if sys.stderr.isatty() else lambda _done, _all: None,
    )
    return CommandResult(found.to_json(), found.text())


def _rank(options: argparse.Namespace) -> CommandResult:
    from asa.workflows.file import assignment, shown
    from coscheduler.ranks import rank_of, run_rank

    with rank_of(os.environ) as rank:
        value = run_rank(rank, options.workflow, dict(map(assignment, options.set)))
    data = {"rank": rank.number, "ranks": rank.ranks, "cores": rank.cores}
    return CommandResult(data, shown(value) if rank.number == 0 else "")


_PARTS = {"run": _run, "compare": _compare, "explain": _explain, "rank": _rank}


def _tell(done: int, total: int) -> None:
    print(f"\r{done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)
