"""The commands of the co-scheduler, ``asa cosched`` and ``asa calibrate-contention``.

What they run brings NumPy or the HTTP libraries, and is imported when it is needed: the command line stays quick.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.core.units import share
from asa.log.messages import notify
from asa.security.files import cannot
from coscheduler.registry import SHARING_RULES

_BOUND = "by how much guests may slow a host down, such as 10%%: of jobs that state no slowdown_bound (no bound)"
_QUIET = 0.2  # load of each processor, over a minute, that is taken for none


class CalibrateContention:
    """Run the applications of a queue alone and in pairs on this machine, and fit what sharing costs to that."""

    help = "measure what sharing cores costs: run a queue's applications alone and in pairs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("queue", metavar="QUEUE.toml", help="cores, and jobs with a command; the first of each application is run")
        add("--nodes", type=int, default=1, metavar="N", help="nodes that the cores are on (1)")
        add("--shares", default="0.05,0.3,0.5", metavar="X,X", help="of the guests, as weights (0.05,0.3,0.5)")
        add("--hard", action="store_true", help="run all pairs with these shares as quotas too")
        add("--repeat", type=int, default=1, metavar="N", help="how often all is run (1); means are taken")
        add("-o", "--output", metavar="FILE.json", help="write the measurement here, for --contention FILE.json")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.report.outputs import check_output
        from coscheduler.agents.machine import AgentMachine
        from coscheduler.calibrate import calibrate, check_shares, chosen
        from coscheduler.queuefile import read_commands
        from coscheduler.run import make_local_pool

        shares = check_shares([share(word, what="--shares") for word in options.shares.split(",")])
        if options.repeat < 1:
            raise InvalidInput(f"--repeat {options.repeat}: a whole number of at least 1 expected")
        if options.output:
            check_output("--output", options.output, (".json",))  # --contention knows the file by it
        queue = read_commands(options.queue)
        jobs = chosen(queue.jobs)
        _look_at_load()
        with (
            _workplace(f"calibrate-{Path(options.queue).stem}") as directory,
            AgentMachine(make_local_pool(options.nodes, queue.cores)) as machine,
        ):
            hard, repeat = options.hard, options.repeat
            found = calibrate(jobs, machine, directory, shares, hard=hard, repeat=repeat, progress=notify)
        data, text = found.to_json(), found.text()
        if options.output:
            try:
                Path(options.output).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
            except OSError as error:  # what has taken so long is still shown
                return CommandResult(
                    data, f"{text}\n\n--output {options.output} cannot be written: {error.strerror}", 1
                )
            text += f"\n\nwritten to {options.output}: try asa cosched compare --contention {options.output}"
        return CommandResult(data, text)


def _look_at_load() -> None:
    """Say so when others use this machine: what they take is measured as if sharing had cost it."""
    load, there = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _QUIET * there:
        notify(f"this machine is not idle (load {load:.2g} on {there} processors): the measurement will be wrong")


@contextmanager
def _workplace(name: str) -> Iterator[Path]:
    """A directory where jobs run. It is gone in the end, but for the output of a job that has failed."""
    from coscheduler.calibrate import JobFailed
    from coscheduler.queuefile import new_directory

    directory, keep = new_directory(name), False
    try:
        yield directory
    except JobFailed:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


class Cosched:
    """Run a queue of jobs that share cores, explain what became of one, or compare the rules by which they do."""

    help = "let the jobs of a queue share cores, or compare the rules by which they do"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        rules = ", ".join(SHARING_RULES)
        run = parts.add_parser("run", help="run a queue", description="Run a queue.")
        run.add_argument("queue", metavar="QUEUE.toml", help="cores and jobs")
        where = "sim (the default), local, slurm with a backend's options, or pool:DIRECTORY"
        run.add_argument("--on", default="sim", metavar="WHERE", help=where)
        run.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes that the cores are on (1)")
        run.add_argument("--walltime", default="1h", metavar="TIME", help="on slurm: of the nodes' own job (1h)")
        run.add_argument("--work", metavar="DIR", help="where jobs run, and the log is (one below the state directory)")
        run.add_argument("--bound", metavar="SHARE", help=_BOUND)
        again = "go on with the queue of --work DIR: jobs that ended well are not run again, those that still run in a "
        again += "pool (pool:DIRECTORY) are taken over, all others begin anew"
        run.add_argument("--resume", action="store_true", help=again)
        run.add_argument("--sharing", default="scavenger", metavar="RULE", help=f"of {rules} (scavenger)")
        run.add_argument("--learned", metavar="FILE", help="keep what the rule learns in this file (nowhere)")
        drawn = "draw CPU use, shares and happiness over time: .png, .pdf or .svg"
        run.add_argument("--plot", metavar="OUT", help=drawn)
        compare = parts.add_parser("compare", help="compare rules on the paper's queue", description="Compare rules.")
        compare.add_argument("--rules", default="", metavar="NAMES", help=f"of {rules} (all)")
        compare.add_argument("--cores", default="64,128,256", metavar="N,N", help="sizes of the machine (64,128,256)")
        compare.add_argument("--seeds", type=int, default=8, metavar="N", help="how many random queues (8)")
        compare.add_argument("--seed", type=int, default=0, metavar="N", help="the first one's seed (0)")
        compare.add_argument(
            "--contention",
            default="paper-like",
            metavar="NAME",
            help="paper-like (default), measured, FILE.json, or hidden: unknown to the rules, drawn for each seed",
        )
        compare.add_argument("--bound", metavar="SHARE", help=_BOUND)
        knows = "add a rule that knows how fast all jobs are beside one another: what sharing could gain"
        compare.add_argument("--oracle", action="store_true", help=knows)
        rank = parts.add_parser(
            "rank",
            help="do one node's part of a workflow",
            description="Do one node's part of a workflow, as a job of a queue; by hand, all of it.",
        )
        rank.add_argument("workflow", metavar="FILE[:NAME]", help="Python file, and what to run in it (workflow)")
        what = "an argument of the workflow, when that is a function; repeatable"
        rank.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=what)
        about = parts.add_parser("explain", help="say why a job ran where it did", description="Explain a job.")
        about.add_argument("job", metavar="JOB", help="its name in the queue's file")
        about.add_argument("--work", metavar="DIR", type=Path, help="of its queue (the newest that has such a job)")
        stands = parts.add_parser("status", help="say how a queue stands", description="Say how a queue's jobs stand.")
        stands.add_argument("--work", metavar="DIR", type=Path, help="of the queue (the newest)")
        made = parts.add_parser(
            "import",
            help="make a queue file of sbatch's job scripts",
            description="Make a queue file of job scripts that were written for sbatch; each runs on one node.",
        )
        made.add_argument("scripts", nargs="+", metavar="SCRIPT", help="job scripts with #SBATCH lines")
        made.add_argument("--cores", type=int, metavar="N", help="of the machine (what the largest job asks for)")
        made.add_argument("--walltime", metavar="TIME", help="of scripts that state none")
        made.add_argument("-o", "--output", metavar="QUEUE.toml", help="write it here (standard output)")
        for part in (run, compare, about, stands, made):
            part.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def run(self, options: argparse.Namespace) -> CommandResult:
        return _PARTS[options.what](options)


def _run(options: argparse.Namespace) -> CommandResult:
    from coscheduler.run import run

    return run(options)


def _explain(options: argparse.Namespace) -> CommandResult:
    from coscheduler.queuefile import explain

    return explain(options.job, options.work)


def _status(options: argparse.Namespace) -> CommandResult:
    from coscheduler.queuefile import status

    return status(options.work)


def _import(options: argparse.Namespace) -> CommandResult:
    from asa.report.outputs import check_output
    from asa.report.words import counted
    from coscheduler.scripts import queue_text

    if options.cores is not None and options.cores < 1:
        raise InvalidInput(f"--cores {options.cores}: a whole number of at least 1 expected")
    output = None if options.output is None else Path(options.output)
    if output is not None:
        check_output("--output", output, (".toml",))
        if output.exists():
            raise InvalidInput(f"--output {output} is there already: another name expected, or remove it first")
    text = queue_text(options.scripts, cores=options.cores, walltime=options.walltime)
    data = tomllib.loads(text)
    if output is None:
        return CommandResult(data, text.rstrip())
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot("write", output, error) from error
    text = f"{counted(len(data['jobs']), 'job')} written to {output}: asa cosched run {output} --on local"
    return CommandResult(data, text)


def _compare(options: argparse.Namespace) -> CommandResult:
    from coscheduler.compare import RULES, compare
    from coscheduler.queuefile import bound_of

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
        bound=bound_of(options.bound),
        oracle=options.oracle,
        progress=_progress if sys.stderr.isatty() else lambda _done, _all: None,
    )
    return CommandResult(found.to_json(), found.text())


def _rank(options: argparse.Namespace) -> CommandResult:
    from asa.workflows.settings import assignment, shown
    from coscheduler.ranks import rank_of, run_rank

    with rank_of(os.environ) as rank:
        value = run_rank(rank, options.workflow, dict(map(assignment, options.set)))
    data = {"rank": rank.number, "ranks": rank.ranks, "cores": rank.cores}
    return CommandResult(data, shown(value) if rank.number == 0 else "")


_PARTS = {"run": _run, "compare": _compare, "explain": _explain, "rank": _rank, "status": _status, "import": _import}


def _progress(done: int, total: int) -> None:
    print(f"\r{done} of {total} runs", end="\n" if done == total else "", file=sys.stderr, flush=True)
