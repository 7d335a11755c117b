"""``asa cosched run``: a queue of jobs that share cores, simulated or on real nodes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult, table
from asa.core.errors import InvalidInput
from asa.core.registry import SHARING_RULES
from asa.core.units import duration
from coscheduler.contention import named
from coscheduler.drive import drive
from coscheduler.explain import what, when
from coscheduler.pool.agents import Agents
from coscheduler.pool.pools import Existing, Pool, local_pool
from coscheduler.queuefile import read_commands, read_queue
from coscheduler.queuelog import Entry, QueueLog, new_directory
from coscheduler.real.world import RealWorld
from coscheduler.result import JobRun, SharedQueue
from coscheduler.world import SimulatedWorld

SIMULATED, LOCAL, POOL = "sim", "local", "pool:"


def run(options: argparse.Namespace) -> CommandResult:
    """Run a queue as the options say.

    Raises
    ------
    InvalidInput
        When the queue's file or an option makes no sense.
    """
    with ExitStack() as stack:
        rule: Any = SHARING_RULES.create(options.sharing)
        if options.learned:
            rule = stack.enter_context(_remembered(rule, options))
        make = _simulated if options.on == SIMULATED else _real
        world, directory = make(options, stack)
        interrupted = False
        try:
            drive(world, rule)
        except KeyboardInterrupt:
            interrupted = True
        found = world.result()
    if options.draw and found.samples:
        from coscheduler.studies.picture import save

        save(found, options.draw, f"{options.sharing}, {found.cores} cores")
    return _answer(options, found, directory, interrupted)


def _simulated(options: argparse.Namespace, stack: ExitStack) -> tuple[SimulatedWorld, Path | None]:
    queue, log, directory = read_queue(options.queue), None, None
    if options.work:
        directory = Path(options.work).absolute()
        log = stack.enter_context(QueueLog(directory)).write
    world = SimulatedWorld(queue.loads, queue.cores, named(queue.contention), sampled=bool(options.draw), log=log)
    return world, directory


def _real(options: argparse.Namespace, stack: ExitStack) -> tuple[RealWorld, Path]:
    queue = read_commands(options.queue)
    directory = Path(options.work).absolute() if options.work else new_directory(Path(options.queue).stem)
    log = stack.enter_context(QueueLog(directory))
    try:
        machine = stack.enter_context(Agents(make_pool(options, queue.cores)))  # that may have to wait in a queue
    except BaseException:
        if not options.work:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    print(f"asa: the jobs' output, and the log, are in {directory}", file=sys.stderr, flush=True)
    tell = log.write if getattr(options, "json", None) == "-" else _teller(log.write)
    world = RealWorld(queue.jobs, machine, directory / "jobs", sampled=bool(options.draw), log=tell)
    return world, directory


def make_pool(options: argparse.Namespace, cores: int) -> Pool:
    """Nodes that have so many cores together, as ``on``, ``nodes`` and ``walltime`` of the options say."""
    if options.on.startswith(POOL):
        return Existing(Path(options.on.removeprefix(POOL)))
    if options.nodes < 1 or cores % options.nodes:
        raise InvalidInput(f"--nodes {options.nodes}: {cores} cores cannot be shared out to so many alike nodes")
    if options.on == LOCAL:
        there = len(os.sched_getaffinity(0))
        capacity = there / options.nodes if cores > there else None
        if capacity is not None:
            told = f"{cores} cores on a machine of {there}: each is worth {there / cores:.3g} of a core"
            print(f"asa: {told}", file=sys.stderr, flush=True)
        return local_pool(options.nodes, cores // options.nodes, capacity)
    from coscheduler.pool.batch import slurm_pool

    walltime_s = duration(options.walltime, what="--walltime")
    return slurm_pool(options.nodes, cores // options.nodes, walltime_s, options.on)


def _remembered(rule: Any, options: argparse.Namespace) -> Any:
    from asa.log.store import LearnedStore
    from coscheduler.memory import Remembered

    run = f"{Path(options.queue).name} {os.getpid()} {os.urandom(4).hex()}"
    return Remembered(rule, LearnedStore(Path(options.learned)), options.sharing, run)


def _teller(write: Callable[[Entry], None]) -> Callable[[Entry], None]:
    """Writes entries, and says on standard error what becomes of jobs."""

    def tell(entry: Entry) -> None:
        write(entry)
        if "event" in entry:
            job = entry["job"]
            print(f"asa: {when(entry)}: {job} {what(entry, job)}", file=sys.stderr, flush=True)

    return tell


def _answer(
    options: argparse.Namespace, found: SharedQueue, directory: Path | None, interrupted: bool
) -> CommandResult:
    failed = [job for job in found.jobs if job.problem]
    data = {"sharing": options.sharing, "on": options.on} | found.to_json()
    data |= {} if directory is None else {"directory": str(directory)}
    summary = table([found.metrics()], "") if found.jobs else ""
    parts = [table([_row(job) for job in found.jobs], "no job has ended"), summary]
    parts += [f"{job.name} failed: {job.problem}" for job in failed]
    if interrupted:
        return CommandResult(data, "\n\n".join([*parts, "interrupted: jobs that had not ended are not shown"]), 130)
    return CommandResult(data, "\n\n".join(part for part in parts if part), 1 if failed else 0)


def _row(job: JobRun) -> dict[str, Any]:
    return {
        "job": job.name,
        "cores": job.cores,
        "submitted [s]": job.submitted,
        "wait [s]": job.wait_s,
        "ended [s]": job.ended,
        "slowdown": job.slowdown,
        "over wall time": "yes" if job.over_walltime else "no",
        "guest of": ", ".join(dict.fromkeys(stay.host for stay in job.stays if stay.host)) or "-",
    }
