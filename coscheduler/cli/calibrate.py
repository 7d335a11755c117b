"""``asa calibrate-contention``: measure what sharing costs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.core.units import share
from asa.log.messages import notify

_QUIET = 0.2  # load of each processor, over a minute, that is taken for none


class CalibrateContention:
    """Run the applications of a queue alone and in pairs on this machine, and fit what sharing costs to that."""

    help = "measure what sharing cores costs: run a queue's applications alone and in pairs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("queue", metavar="QUEUE.toml", help="cores, and jobs with a command; the first of each application is run")
        add("--nodes", type=int, default=1, metavar="N", help="nodes that the cores are on (1)")
        add("--shares", default="0.05,0.3,0.5", metavar="X,X", help="of the guests, as weights (0.05,0.3,0.5)")
        add("--hard", action="store_true", help="run all pairs with these shares as quotas too")
        add("--repeat", type=int, default=1, metavar="N", help="how often all is run (1); means are taken")
        add("-o", "--output", metavar="FILE.json", help="write the measurement here, for --contention FILE.json")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Measure, and fit."""
        return _run(options)


# What is imported below brings NumPy and the HTTP libraries: the command line stays quick without.


def _run(options: argparse.Namespace) -> CommandResult:
    from asa.report.outputs import check_output
    from coscheduler.cli.run import make_local_pool
    from coscheduler.pool.agents import Agents
    from coscheduler.queuefile import read_commands
    from coscheduler.studies.calibrate import calibrate, check_shares, chosen

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
        Agents(make_local_pool(options.nodes, queue.cores)) as machine,
    ):
        found = calibrate(jobs, machine, directory, shares, hard=options.hard, repeat=options.repeat, progress=notify)
    data, text = found.to_json(), found.text()
    if options.output:
        try:
            Path(options.output).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        except OSError as error:  # what has taken so long is still shown
            return CommandResult(data, f"{text}\n\n--output {options.output} cannot be written: {error.strerror}", 1)
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
    from coscheduler.queuelog import new_directory
    from coscheduler.studies.calibrate import JobFailed

    directory, keep = new_directory(name), False
    try:
        yield directory
    except JobFailed:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
