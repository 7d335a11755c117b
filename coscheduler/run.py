"""``asa cosched run``: a queue of jobs that share cores, simulated or on real nodes, and its picture."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, table
from asa.core.errors import AsaError, InvalidInput
from asa.core.registry import parse_spec
from asa.core.units import DAY, HOUR, brief, duration
from asa.log.database import LearnedStore
from asa.log.messages import notify
from asa.log.rundir import DriverLock
from asa.report.outputs import check_picture
from asa.report.picture import (
    BUSY,
    LINE,
    WIDTH_IN,
    charts,
    heading,
    legend_above,
    new_figure,
    note,
    save_figure,
    series_colour,
    ticks,
)
from asa.report.words import counted
from asa.security.files import private_directory
from coscheduler.agents.groups import AgentGroup, BatchAgents, LocalAgents, NamedPool, alone, end_recorded
from coscheduler.agents.machine import AgentMachine
from coscheduler.drive import Remembered, drive
from coscheduler.history import Entry, JobRun, SharedQueue
from coscheduler.nouns import SharingRule, WaitingJob
from coscheduler.queuefile import (
    AGENTS_JOB,
    AGENTS_LOCK,
    LOCK,
    QueuedCommand,
    SharedQueueLog,
    bound_of,
    describe,
    describe_time,
    ended_well,
    new_directory,
    queued,
    read_commands,
    read_queue,
)
from coscheduler.real.world import RealWorld
from coscheduler.registry import SHARING_RULES
from coscheduler.sharing.promise import LOOKS
from coscheduler.standing import LeftQueue, Standings
from coscheduler.workload import named
from coscheduler.world import SimulatedWorld
from executors.mesos.operator import knows_framework
from executors.mesos.pool_directory import PoolDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIMULATED, LOCAL, POOL = "sim", "local", "pool:"


def run(options: argparse.Namespace) -> CommandResult:
    """Run a queue as the options say."""
    if options.plot:
        check_picture("--plot", options.plot)
    with ExitStack() as stack:
        rule: SharingRule = SHARING_RULES.create(options.sharing)
        if options.learned:
            rule = stack.enter_context(_remembered(rule, options))
        make = _simulated if options.on == SIMULATED else _real
        world, directory, done = make(options, stack)
        interrupted = False
        try:
            drive(world, rule)
        except KeyboardInterrupt:
            interrupted = True
        found = world.result()
    if done:
        found = replace(found, jobs=tuple(sorted((*done, *found.jobs), key=lambda job: job.submitted)))
    if options.plot and found.samples and found.jobs:
        save(found, options.plot, f"{options.sharing}, {found.cores} cores")
    elif options.plot:
        notify(f"{options.plot} is not drawn: no job has ended")
    return _answer(options, found, directory, interrupted)


_Queue = tuple[SimulatedWorld | RealWorld, Path | None, Sequence[JobRun]]
"""A world, the directory that it writes to, and what came of the jobs that need not be run again."""


def _simulated(options: argparse.Namespace, stack: ExitStack) -> _Queue:
    if options.resume:
        raise InvalidInput("--resume: a simulated queue takes no time, and is run anew. Leave it out")
    queue, log, directory = read_queue(options.queue), None, None
    bound = bound_of(options.bound)
    loads = [replace(load, request=load.request.bounded(bound)) for load in queue.loads]
    _look_at_bounds(options.sharing, (load.request for load in loads))
    if options.work:
        directory = Path(options.work).absolute()
        log = stack.enter_context(SharedQueueLog(directory)).write
    world = SimulatedWorld(loads, queue.cores, named(queue.contention), sampled=bool(options.plot), log=log)
    return world, directory, ()


def _real(options: argparse.Namespace, stack: ExitStack) -> _Queue:
    queue = read_commands(options.queue)
    if options.resume and not options.work:
        raise InvalidInput("--resume: which queue is to be gone on with? Give its directory, too: --work DIR")
    directory = Path(options.work).absolute() if options.work else new_directory(Path(options.queue).stem)
    stack.enter_context(DriverLock(private_directory(directory) / LOCK))
    log = stack.enter_context(SharedQueueLog(directory, resume=options.resume))
    ended = ended_well(log.before)
    done = [ended[job.request.name] for job in queue.jobs if job.request.name in ended]
    bound = bound_of(options.bound)
    waiting = (job for job in queue.jobs if job.request.name not in ended)
    jobs = [replace(job, request=job.request.bounded(bound)) for job in waiting]
    if not jobs:
        raise InvalidInput(f"--resume: all {len(done)} jobs of the queue in {directory} have ended well already")
    _look_at_bounds(options.sharing, (job.request for job in jobs))
    left = _taken_over(Standings(log.before, log.path).left(), jobs, options.on)
    try:
        walltime_s = duration(options.walltime, what="--walltime")
        held = stack.enter_context(alone(directory / AGENTS_LOCK))
        end_recorded(directory / AGENTS_JOB)
        pool = make_pool(options.on, options.nodes, queue.cores, walltime_s, held, directory / AGENTS_JOB)
        lasts_s = max(DAY, *(job.request.walltime_s for job in jobs))
        machine = stack.enter_context(AgentMachine(pool, outlives_s=lasts_s, left=left))  # may have to wait in a queue
    except BaseException:
        if not options.work:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    notify(f"the jobs' output, and the log, are in {directory}")
    note = log.write if getattr(options, "json", None) == "-" else shown(log.write)
    since: float = max((entry["at"] for entry in log.before), default=0.0)
    if left is not None and left.jobs:  # which have run meanwhile
        since = max(since, left.at(time.time()))
    log.begin(since, pool.directory.path, machine.framework)
    running = () if left is None else [job.job for job in left.jobs]
    for job in (job for job in jobs if job.request.name not in running):
        log.write(queued(job.request, since))
    world = RealWorld(jobs, machine, directory / "jobs", sampled=bool(options.plot), log=note, since=since, left=left)
    return world, directory, done


def _look_at_bounds(sharing: str, jobs: Iterable[WaitingJob]) -> None:
    """Say so when the rule does not keep the bounds of these jobs."""
    rule, bounded = parse_spec(sharing)[0], [job.name for job in jobs if math.isfinite(job.bound)]
    if bounded and not _keeps_bounds(rule):
        notify(
            f"--sharing {sharing} keeps no bounds: guests may slow {counted(len(bounded), 'job')} down by more than "
            f"stated, which is only counted. Rules that keep bounds: {', '.join(filter(_keeps_bounds, SHARING_RULES))}"
        )


def _keeps_bounds(rule: str) -> bool:
    with suppress(AsaError):  # another's, which cannot be imported
        return getattr(SHARING_RULES.load(rule), "keeps_bounds", False) is True
    return False


def _taken_over(left: LeftQueue | None, jobs: Sequence[QueuedCommand], on: str) -> LeftQueue | None:
    """What runs still, and can be taken over; None where jobs begin anew."""
    if left is None:
        return None
    names, pool, framework = ", ".join(job.job for job in left.jobs), left.begun.pool, left.begun.framework
    if pool is None or framework is None or not knows_framework(PoolDirectory(Path(pool)), framework):
        why = "ended with it" if pool is None else f"are of the pool in {pool}, which does not know it any more"
        if names:
            notify(f"the agents of the co-scheduler before {why}: begin anew: {names}")
        return None
    if not on.startswith(POOL) or Path(on.removeprefix(POOL)).resolve() != Path(pool).resolve():
        raise InvalidInput(f"--on {on}: jobs of this queue may still run in another place ({names}): --on {POOL}{pool}")
    asked = {job.request.name: (job.line, job.request.cores) for job in jobs}
    for job in left.jobs:
        line, cores = job.run.command, sum(job.run.cores)
        if asked.get(job.job) != (line, cores):
            raise InvalidInput(
                f"job {job.job!r} runs, on {cores} cores, with the command {line!r}: the queue file has another job "
                "of this name, or none. Give the file as it was"
            )
    return left


def make_pool(
    on: str, nodes: int, cores: int, walltime_s: float, held: int | None = None, record: Path | None = None
) -> AgentGroup:
    """Nodes that have so many cores together, where ``--on`` says; `held` as in `LocalAgents`, `record` as in
    `BatchAgents`."""
    if on.startswith(POOL):
        return NamedPool(Path(on.removeprefix(POOL)))
    if on == LOCAL:
        return make_local_pool(nodes, cores, held)
    return BatchAgents(nodes, _cores_of_each(nodes, cores), walltime_s, on, record)


def make_local_pool(nodes: int, cores: int, held: int | None = None) -> LocalAgents:
    """Nodes on this machine that have so many cores together; each a fraction of a core, if there are fewer."""
    each, there = _cores_of_each(nodes, cores), len(os.sched_getaffinity(0))
    capacity = there / nodes if cores > there else None
    if capacity is not None:
        worth = f"{cores} cores on a machine of {there}: each is worth {there / cores:.3g} of a core"
        notify(worth)
    return LocalAgents(nodes, each, capacity, held)


def _cores_of_each(nodes: int, cores: int) -> int:
    alike = [count for count in range(1, cores + 1) if cores % count == 0]
    if nodes not in alike:
        near = " or ".join(map(str, sorted(sorted(alike, key=lambda count: abs(count - nodes))[:2])))
        raise InvalidInput(f"--nodes {nodes}: {cores} cores cannot be shared out to so many alike nodes: give {near}")
    return cores // nodes


def _remembered(rule: SharingRule, options: argparse.Namespace) -> Remembered:
    run = f"{Path(options.queue).name} {os.getpid()} {os.urandom(4).hex()}"
    return Remembered(rule, LearnedStore(Path(options.learned)), options.sharing, run)


def shown(write: Callable[[Entry], None]) -> Callable[[Entry], None]:
    """Writes entries, and says on standard error what becomes of jobs."""
    hosts: dict[str, str | None] = {}
    stopped = set[str]()

    def note(entry: Entry) -> None:
        write(entry)
        kind, job, more = entry.get("decision") or entry.get("event"), entry.get("job") or entry.get("guest"), ""
        match kind:
            case "Start" | "StartGuest":  # "started" follows
                hosts[entry["job"]] = entry.get("host")
                return
            case "started" if host := hosts.get(entry["job"]):
                more = f" as a guest of {host}"
            case "SetShare" if not entry["share"]:
                stopped.add(entry["guest"])
            case "SetShare" if entry["guest"] in stopped:
                stopped.remove(entry["guest"])
            case "SetShare" | "Keep" | "rank" | "slowdown":
                return
            case "Evict":
                stopped.discard(entry["guest"])
        if job is not None:
            notify(f"{describe_time(entry)}: {job} {describe(entry, job)}{more}")

    return note


def _answer(
    options: argparse.Namespace, found: SharedQueue, directory: Path | None, interrupted: bool
) -> CommandResult:
    failed = [job for job in found.jobs if job.problem]
    data = {"sharing": options.sharing, "on": options.on} | found.to_json()
    data |= {} if directory is None else {"directory": str(directory)}
    parts = [table([_row(job) for job in found.jobs], "no job has ended"), summary(found)]
    parts += promises(found)
    parts += [f"{job.name} failed: {job.problem}" for job in failed]
    if interrupted:
        text = "interrupted: jobs that had not ended are not shown"
        text += "" if options.on == SIMULATED else f"; to go on: --work {directory} --resume"
        parts.append(text)
    code = 130 if interrupted else 1 if failed else 0
    return CommandResult(data, "\n\n".join(part for part in parts if part), code)


def promises(found: SharedQueue) -> Iterable[str]:
    """Which bounds were kept, which were not, and of which that is not known."""
    hosts, broken = found.promises()
    if hosts:
        estimated = sum(job.estimated and job.promise is not None for job in found.jobs)
        about = f" ({estimated} by an estimate from their own reports)" if estimated else ""
        yield f"{hosts - len(broken)} of {hosts} hosts were slowed down by no more than their bound{about}"
    for job in (job for job in found.jobs if job.name in broken):
        about = " (an estimate from its own reports)" if job.estimated else ""
        yield f"{job.name} was slowed down by {job.host_slowdown - 1:.1%}{about}: its bound is {job.bound:.0%}"
    if unknown := [job.name for job in found.jobs if job.unjudged]:
        yield (
            f"it is not known whether guests slowed these down by more than their bound: {', '.join(unknown)}. State "
            f"their run_time, or let them report their progress more than {LOOKS} times while they have no guests"
        )


def summary(found: SharedQueue) -> str:
    """The metrics, in the units that suit them; those of the JSON are always the same."""
    metrics = {name: None if math.isnan(value) else value for name, value in found.metrics().items()}
    if not metrics:
        return "no job has ended well" if found.jobs else ""
    row: dict[str, Any] = {"jobs": sum(not job.problem for job in found.jobs)}
    for name, value in metrics.items():
        words = name.removesuffix("_h").replace("_", " ").replace("cpu", "CPU").replace("walltime", "wall time")
        if name.endswith("_h"):
            row[words] = None if value is None else brief(value * HOUR)
        elif name == "mean_slowdown":
            row[words] = value
        else:
            row[f"{words} [%]"] = None if value is None else round(100 * value, 1)
    return table([row], "")


def _row(job: JobRun) -> dict[str, Any]:
    return {
        "job": job.name,
        "cores": job.cores,
        "submitted [s]": job.submitted,
        "wait [s]": job.wait_s,
        "ended [s]": job.ended,
        "slowdown": None if job.problem or math.isnan(job.slowdown) else job.slowdown,
        "over wall time": "yes" if job.over_walltime else "no",
        "guest of": ", ".join(dict.fromkeys(stay.host for stay in job.stays if stay.host)) or "-",
    }


_HAPPIEST = 3.0


def save(queue: SharedQueue, path: str | Path, title: str = "") -> None:
    """Draw to a PNG, PDF or SVG file, as the name ends; see `figure`."""
    save_figure(figure(queue, title), path)


def figure(queue: SharedQueue, title: str = "") -> Figure:
    """Three charts on one time axis.

    Raises `InvalidInput` when nothing was sampled, no job has ended, or matplotlib is not installed.
    """
    if not queue.samples:
        raise InvalidInput("there is nothing to draw: let the world keep what it measures (sampled=True)")
    if not queue.jobs:
        raise InvalidInput("there is nothing to draw: no job has ended. Let the queue run for longer")
    made = new_figure(WIDTH_IN, 6.4)
    axes = charts(made, 3, grid="x", sharex=True)
    _busy(axes[0], queue)
    _shares(axes[1], queue)
    _happiness_chart(axes[2], queue)
    handles = [axes[1].plot([], [], color=colour, label=name)[0] for name, colour in _colours(queue).items()]
    legend_above(made, handles, title=title)
    axis = ticks(queue.makespan_s or 1.0, 8)
    axes[2].set_xticks(axis.at, axis.labels)
    axes[2].set_xlim(0, queue.makespan_s or 1.0)
    axes[2].set_xlabel(f"time [{axis.unit}]")
    return made


def _busy(axes: Axes, queue: SharedQueue) -> None:
    busy = [100 * sample.busy / queue.cores for sample in queue.samples]
    axes.fill_between([sample.at for sample in queue.samples], busy, step="post", color=BUSY)
    axes.set_ylim(0, 100)
    axes.set_ylabel("cores in use [%]")
    mean = 100 * queue.metrics().get("cpu_utilisation", math.nan)
    heading(axes, "CPU")
    if not math.isnan(mean):
        axes.axhline(mean, color=LINE, linewidth=0.8, linestyle="--")
        note(axes, f"dashed: mean, {mean:.0f} %")


def _shares(axes: Axes, queue: SharedQueue) -> None:
    colours = _colours(queue)
    stays = [(stay, colours[job.application]) for job in queue.jobs for stay in job.stays if stay.host is not None]
    for stay, colour in stays:
        shares = (100 * stay.share, 100 * stay.share)
        axes.plot((stay.since, stay.until), shares, color=colour, linewidth=1.6, marker="|", markersize=7)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of the host [%]")
    heading(axes, "Guests" if stays else "Guests: none")


def _happiness_chart(axes: Axes, queue: SharedQueue) -> None:
    colours = _colours(queue)
    for job in queue.jobs:
        pairs = [(each.at, each.happiness[job.name]) for each in queue.samples if job.name in each.happiness]
        axes.plot(*zip(*pairs, strict=True), color=colours[job.application], linewidth=0.8) if pairs else None
    axes.axhline(1.0, color=LINE, linewidth=0.8, linestyle="--")
    axes.set_ylim(0, _HAPPIEST)
    axes.set_ylabel("happiness")
    heading(axes, "Happiness of running jobs")
    note(axes, "below the dashed line they will exceed their wall times")


def _colours(queue: SharedQueue) -> dict[str, str]:
    applications = sorted({job.application for job in queue.jobs})
    return {name: series_colour(place) for place, name in enumerate(applications)}
