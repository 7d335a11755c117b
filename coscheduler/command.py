"""``asa cosched``: let jobs share cores by a rule, and compare rules."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult, table
from asa.core.errors import InvalidInput
from asa.core.registry import SHARING_RULES

SIMULATED = "sim"


class Cosched:
    """Run a queue of jobs that share cores, or compare the rules by which they do."""

    help = "let the jobs of a queue share cores, or compare the rules by which they do"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        rules = ", ".join(SHARING_RULES)
        run = parts.add_parser("run", help="run a queue", description="Run a queue.")
        run.add_argument("queue", metavar="QUEUE.toml", help="machine and jobs")
        run.add_argument("--sharing", default="scavenger", metavar="RULE", help=f"of {rules} (scavenger)")
        run.add_argument("--learned", metavar="FILE", help="keep what the rule learns in this file (nowhere)")
        run.add_argument("--draw", metavar="PATH", help="draw CPU use, shares and happiness over time")
        compare = parts.add_parser("compare", help="compare rules on the paper's queue", description="Compare rules.")
        compare.add_argument("--rules", default="", metavar="NAMES", help=f"of {rules} (all)")
        compare.add_argument("--cores", default="64,128,256", metavar="N,N", help="sizes of the machine (64,128,256)")
        compare.add_argument("--seeds", type=int, default=8, metavar="N", help="how many random queues (8)")
        compare.add_argument("--seed", type=int, default=0, metavar="N", help="the first one's seed (0)")
        compare.add_argument(
            "--contention", default="paper-like", metavar="NAME", help="what sharing costs (paper-like)"
        )
        for part in (run, compare):
            part.add_argument("--on", default=SIMULATED, choices=[SIMULATED], help="where (sim)")
            part.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Run or compare."""
        return _run(options) if options.what == "run" else _compare(options)


def _run(options: argparse.Namespace) -> CommandResult:
    # Imported late, as NumPy is: the command line stays quick.
    from coscheduler.contention import named
    from coscheduler.drive import drive
    from coscheduler.queuefile import read_queue
    from coscheduler.world import SimulatedWorld

    queue = read_queue(options.queue)
    rule: Any = SHARING_RULES.create(options.sharing)
    if options.learned:
        rule = _remembered(rule, options)
    world = SimulatedWorld(queue.loads, queue.cores, named(queue.contention), sampled=bool(options.draw))
    drive(world, rule)
    if options.learned:
        rule.close()
    found = world.result()
    if options.draw:
        from coscheduler.studies.picture import save

        save(found, options.draw, f"{options.sharing}, {queue.cores} cores")
    rows = [
        {
            "job": job.name,
            "cores": job.cores,
            "submitted [s]": job.submitted,
            "wait [s]": job.wait_s,
            "ended [s]": job.ended,
            "slowdown": job.slowdown,
            "over wall time": "yes" if job.over_walltime else "no",
            "guest of": ", ".join(dict.fromkeys(stay.host for stay in job.stays if stay.host)) or "-",
        }
        for job in found.jobs
    ]
    summary = table([found.metrics()], "")
    return CommandResult({"sharing": options.sharing, **found.to_json()}, f"{table(rows, 'no jobs')}\n\n{summary}")


def _remembered(rule: Any, options: argparse.Namespace) -> Any:
    from asa.log.store import LearnedStore
    from coscheduler.memory import Remembered

    run = f"{Path(options.queue).name} {os.getpid()} {os.urandom(4).hex()}"
    return Remembered(rule, LearnedStore(Path(options.learned)), options.sharing, run)


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


def _tell(done: int, total: int) -> None:
    print(f"\r{done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)
