"""What is drawn for a schedule of `asa torture`: workflows, a site, and what goes wrong; what must hold after it."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import os
import random
import sqlite3
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asa
from asa.allocations.budget import VARIABLE as BUDGET
from asa.allocations.budget import WINDOW_S, CallLimits
from asa.core.errors import AsaError, AsaWarning, InvalidInput, StateError
from asa.core.event import DriverStarted, JobEnded, RunState, TaskFailed, TaskPaused, encode
from asa.core.job import JobRequest, JobState, QueueRegime, Reason
from asa.core.run import JOIN_S
from asa.log.events import EventLog
from asa.testing.runlogs import contradictions
from asa.testing.simulation import FARTHEST_S, START_S, Simulation, Stuck
from asa.workflows import learned
from asa.workflows.assemble import restore_plan
from asa.workflows.run import open_run
from asa.workflows.runner import LATEST_S
from coscheduler.torture.site import (
    KILL_WAIT_S,
    LOGIN,
    Lasting,
    SimulatedHost,
    SimulatedSite,
    SimulatedStore,
    TorturedRun,
)

STRATEGIES = (
    "big-job", "per-stage", "asa", "asa:dependency=upfront", "asa:dependency=none,grace_s=20", "asa-naive:grace_s=30",
    "cascade", "cascade:dependency=upfront", "hold", "hold:technique=array", "hold:technique=parked,grace_s=20",
    "hold:technique=aged-afterok,lead_s=30", "stagger", "stagger:patience=2,max_overhead=50%", "auto",
    "auto:grace_s=30",
)  # fmt: skip
"""Strategies and variants of them that runs are drawn with."""

VARIABLE, SECRET = "TORTURE_LICENSE", "correct-horse-battery-staple"
"""A secret of some stages: environment variable and value."""

RESUMES_MOST = 40

WIDE = 10, 40
"""Tasks of some stages, from and to; most of these are short."""


def gather(count: int, *sources: Sequence[int]) -> list[int]:
    """What a stage returns that is not mapped."""
    return [sum(map(sum, sources)) % 1_000_003 + number for number in range(count)]


def each(x: int, *, extra: Sequence[int] = ()) -> int:
    """What a task of a mapped stage returns."""
    return (3 * x + 1 + sum(extra)) % 1_000_003


def same(x: int) -> int:
    """What a task of a stage returns that another one has added."""
    return x


class Grown:
    """As `gather`, but of calls of a stage, which are added to the run: half of them by a task that it adds."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.again = asa.stage(name="again", walltime=stage.needs.walltime_s, expands=True)(stage)

    def __call__(self, count: int, *sources: Sequence[int]) -> list[Any]:
        return [(self.again if number % 2 else self.stage)(x) for number, x in enumerate(gather(count, *sources))]


@dataclass(frozen=True)
class StageShape:
    """A stage: whether it is mapped, its width, the stages whose values it takes, and what it needs."""

    mapped: bool
    count: int
    sources: tuple[int, ...]
    cores: int
    task_cores: int
    walltime_s: float


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Parameters
    ----------
    kind
        A key of `FAULTS`.
    at
        When [s since the beginning].
    which, share
        What it happens to, and how much of it: numbers that the kind makes something of.
    """

    kind: str
    at: float
    which: int
    share: float


@dataclass(frozen=True)
class FailingStage:
    """A stage, by the numbers of its workflow and its own, whose tasks fail so many `times` each before they succeed;
    with `keep_going` the rest of the workflow goes on meanwhile."""

    workflow: int
    stage: int
    times: int
    keep_going: bool


@dataclass(frozen=True)
class LastingStage:
    """A stage, by the numbers of its workflow and its own, whose tasks run for so many wall times in all, and save what
    they have done every so often [s]. A share of those that have just saved pauses. Of a stage that `stalls` they save
    nothing at first."""

    workflow: int
    stage: int
    walltimes: float
    every_s: float
    pauses: float = 0.0
    stalls: bool = False


@dataclass(frozen=True)
class Case:
    """One schedule: `run` gives the same each time. Its `repr` makes it again.

    Stages that are `growing`, by the numbers of their workflows and their own, return calls of others; those that are
    `bending` may have the cores of one task, too.
    """

    seed: int
    workflows: tuple[tuple[StageShape, ...], ...]
    strategies: tuple[str, ...]
    cores: int
    regime: str
    waits: tuple[float, ...]
    joins_s: float
    grace_s: float
    faults: tuple[Fault, ...]
    failing: tuple[FailingStage, ...] = ()
    growing: tuple[tuple[int, int], ...] = ()
    lasting: tuple[LastingStage, ...] = ()
    bending: tuple[tuple[int, int], ...] = ()


def draw(seed: int, world: TortureWorld | None = None) -> Case:
    """The schedule of this seed: 2 to 200 stages in all, half of the time 8 or fewer, and 1 to 20 faults."""
    world = world or RUNS
    rng = random.Random(seed)
    runs = rng.choice(world.runs)
    stages = log_uniform(rng, *rng.choices(world.stages, [0.5, 0.45, 0.05])[0])
    workflows = tuple(_workflow(rng, max(2, stages // runs)) for _ in range(runs))
    cores = rng.choice([4, 8, 16])
    waits = tuple(rng.choice([0.0, rng.uniform(0.0, 60.0), rng.uniform(0.0, 600.0)]) for _ in range(rng.randint(1, 4)))
    length = 60.0 + sum(waits) / len(waits) + 30.0 * max(map(len, workflows))
    among = world.harmless if rng.random() < 0.3 else sorted(world.faults)
    kinds = rng.sample(among, rng.randint(1, 3) if rng.random() < 0.5 else rng.randint(1, len(among)))
    faults = tuple(
        Fault(rng.choice(kinds), round(rng.uniform(0.0, length), 3), rng.randrange(1000), round(rng.random(), 4))
        for _ in range(log_uniform(rng, 1, 20))
    )
    growing = tuple(_growing(random.Random(f"growing {seed}"), workflows))
    return Case(
        seed=seed,
        workflows=workflows,
        strategies=tuple(rng.choice(world.strategies) for _ in workflows),
        cores=cores,
        regime=rng.choice([regime.value for regime in QueueRegime if regime is not QueueRegime.IMMEDIATE]),
        waits=waits,
        joins_s=rng.choice([0.0, 0.3, 5.0]),
        grace_s=rng.choice([30.0, 60.0, 300.0]),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        failing=tuple(_failing(random.Random(f"failing {seed}"), workflows)),
        growing=growing,
        lasting=tuple(_lasting(random.Random(f"lasting {seed}"), workflows, growing)) if world.lasts else (),
        bending=tuple(_bending(random.Random(f"bending {seed}"), workflows)),
    )


def _lasting(
    rng: random.Random, workflows: Sequence[Sequence[StageShape]], growing: Collection[tuple[int, int]]
) -> Iterator[LastingStage]:
    """Stages with checkpoints: none in eleven schedules of twelve, as these take long, four of a workflow at most."""
    if rng.random() < 0.08:
        for number, steps in enumerate(workflows):
            short = [each for each, step in enumerate(steps) if step.walltime_s <= 120.0 and step.count < WIDE[0]]
            among = [each for each in short if (number, each) not in growing]
            for each in sorted(rng.sample(among, min(len(among), 4))):
                every_s, pauses, stalls = rng.choice([3.0, 20.0, 50.0]), rng.choice([0.0, 0.0, 0.1]), rng.random() < 0.2
                yield LastingStage(number, each, rng.uniform(0.3, 3.0), every_s, pauses, stalls)


def _growing(rng: random.Random, workflows: Sequence[Sequence[StageShape]]) -> Iterator[tuple[int, int]]:
    """Stages that add others: none in three schedules of four."""
    if rng.random() < 0.25:
        for number, steps in enumerate(workflows):
            yield from ((number, each) for each, step in enumerate(steps) if not step.mapped and rng.random() < 0.3)


def _bending(rng: random.Random, workflows: Sequence[Sequence[StageShape]]) -> Iterator[tuple[int, int]]:
    """Stages that may have two widths: none in three schedules of four."""
    if rng.random() < 0.25:
        for number, steps in enumerate(workflows):
            several = (each for each, step in enumerate(steps) if step.mapped and step.cores > step.task_cores)
            yield from ((number, each) for each in several if rng.random() < 0.5)


def _failing(rng: random.Random, workflows: Sequence[Sequence[StageShape]]) -> Iterator[FailingStage]:
    """Stages that fail: none in three schedules of four."""
    keep_going = rng.random() < 0.8
    for _ in range(rng.randint(1, 3) if rng.random() < 0.25 else 0):
        workflow = rng.randrange(len(workflows))
        yield FailingStage(workflow, rng.randrange(len(workflows[workflow])), rng.randint(1, 2), keep_going)


def log_uniform(rng: random.Random, least: int, most: int) -> int:
    """A whole number between these, each order of magnitude as likely as the next."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _workflow(rng: random.Random, stages: int) -> tuple[StageShape, ...]:
    found: list[StageShape] = []
    for number in range(stages):
        cores = rng.choice([1, 2, 4])
        near = range(max(0, number - 8), number)
        found.append(
            StageShape(
                mapped=rng.random() < 0.5,
                count=rng.randint(*rng.choices([(1, 4), (0, 6), WIDE], [0.62, 0.3, 0.08])[0]),
                sources=tuple(sorted(rng.sample(near, min(len(near), rng.randint(0, 3))))),
                cores=cores,
                task_cores=rng.choice([1, cores]),
                walltime_s=rng.choice([120.0, 600.0, 3600.0]),
            )
        )
    return tuple(found)


def build(
    steps: Sequence[StageShape],
    growing: Collection[int] = (),
    lasting: Collection[int] = (),
    bending: Collection[int] = (),
) -> list[Any]:
    """The workflow, as nodes; those of these numbers add others, have checkpoints, or may have two widths."""
    nodes: list[Any] = []
    for number, step in enumerate(steps):
        secrets = [VARIABLE] if number % 3 == 0 else []
        cores = [step.task_cores, step.cores] if number in bending else step.cores
        stage = asa.stage(
            cores=cores, task_cores=step.task_cores, walltime=step.walltime_s, secrets=secrets,
            checkpoint=number in lasting,
        )  # fmt: skip
        sources = [nodes[source] for source in step.sources]
        if step.mapped:
            mapped = stage(each).options(name=f"each{number}")
            first = sources[0] if sources else range(step.count)
            nodes.append(mapped.map(first, extra=sources[1]) if sources[1:] else mapped.map(first))
            nodes[-1].after(*sources[2:])
        elif number in growing:
            grown = Grown(asa.stage(walltime=step.walltime_s)(same))
            nodes.append(stage(grown).options(name=f"gather{number}", expands=True)(step.count, *sources))
        else:
            nodes.append(stage(gather).options(name=f"gather{number}")(step.count, *sources))
    return nodes


def evaluate(steps: Sequence[StageShape]) -> list[list[int]]:
    """Its result, computed in turn."""
    values: list[list[int]] = []
    for step in steps:
        sources = [values[source] for source in step.sources]
        if step.mapped:
            items = sources[0] if sources else range(step.count)
            values.append([each(x, extra=sources[1] if sources[1:] else ()) for x in items])
        else:
            values.append(gather(step.count, *sources))
    return values


# ---------------------------------------------------------------- what goes wrong


def _driver_dies(site: SimulatedSite, fault: Fault) -> None:
    run = site.runs[fault.which % len(site.runs)]
    if run.driver is not None and not run.driver.dead:
        run.driver.dies_at = run.driver.turns + 1 + int(200 * fault.share**2)


def _moment(share: float) -> str:
    return MOMENTS[min(int(share * len(MOMENTS)), len(MOMENTS) - 1)]


def _driver_dies_acting(site: SimulatedSite, fault: Fault) -> None:
    """In the middle of something, when it comes to that next."""
    if (run := site.runs[fault.which % len(site.runs)]).driver is not None:

        def strike() -> None:
            if run.driver is not None:
                site.simulation.kill(run.driver)

        run.doomed = _moment(fault.share), strike


def _handover(site: SimulatedSite, fault: Fault) -> None:
    """A driver lets go of its run for the next one, which has been waiting, perhaps in the middle of something."""
    run = site.runs[fault.which % len(site.runs)]

    def strike() -> None:
        if run.assembly is not None and run.driver is not None and not run.driver.dead and run.ended is None:
            run.handed_over = run.assembly.runner.handed_over = True
            run.assembly.runner.leave()

    if fault.share < 0.5:
        strike()
    else:
        run.doomed = _moment(2.0 * fault.share - 1.0), strike


def _supervisor_hangs(site: SimulatedSite, fault: Fault) -> None:
    """It does nothing for a long time, although it is there: its connections are, too."""
    working = [host for host in _hosts(site) if host.process.machine in site.worked]
    if host := pick(working, fault):
        host.process.stopped = site.simulation.now + 1500.0 * fault.share
        site.hanging.add(host.process.machine)


def _supervisor_dies(site: SimulatedSite, fault: Fault) -> None:
    if host := pick(_hosts(site), fault):
        host.process.dies_at = host.process.turns + 1 + int(20 * fault.share)


def _worker_dies(site: SimulatedSite, fault: Fault) -> None:
    """One of those there are, or whichever is the next to have several orders."""
    if fault.share > 0.7:
        site.fatal = True
    elif worker := pick([process for process in site.workers if not process.dead], fault):
        site.simulation.kill(worker)


def _machine_lost(site: SimulatedSite, fault: Fault) -> None:
    """The node is gone; the batch system notices later, and ends the job or requeues it."""
    if job := pick(list(site.supervisors), fault):
        token, machine = site.tokens[job], pick(site.supervisors[job], fault).process.machine
        site.lose(machine)
        end = site.batch.requeue if fault.share < 0.5 else site.batch.fail
        site.simulation.soon(10.0 + 200.0 * fault.share, partial(_unless_gone, end, token))


def _unless_gone(end: Callable[[str], None], token: str) -> None:
    with suppress(InvalidInput):  # the job has ended meanwhile
        end(token)


def _job_requeued(site: SimulatedSite, fault: Fault) -> None:
    if token := _running(site, fault):
        site.batch.requeue(token, Reason.BEGIN)


def _job_preempted(site: SimulatedSite, fault: Fault) -> None:
    if token := _running(site, fault):
        site.batch.fail(token, JobState.PREEMPTED, "Preempted")


def _job_failed(site: SimulatedSite, fault: Fault) -> None:
    if token := _running(site, fault):
        site.batch.fail(token)


def _job_cancelled(site: SimulatedSite, fault: Fault) -> None:
    """By another user: an operator."""
    jobs = [status.handle for _, status in site.batch.jobs() if not status.state.final]
    if handle := pick(jobs, fault):
        site.batch.cancel([handle])


def _run_cancelled(site: SimulatedSite, fault: Fault) -> None:
    run = site.runs[fault.which % len(site.runs)]
    if run.assembly is not None and run.driver is not None and not run.driver.dead:
        run.assembly.runner.cancel("by the user")


def _power_fails_acting(site: SimulatedSite, fault: Fault) -> None:
    """Right after a driver has done something that others know of."""
    run = site.runs[fault.which % len(site.runs)]
    run.doomed = _moment(fault.share), partial(_power_fails, site, replace(fault, share=1.0))


def _power_fails(site: SimulatedSite, fault: Fault) -> None:
    """The login node goes down: what the disk has not been told to keep is lost, from some page on."""
    for process in site.processes():
        if process.machine == LOGIN:
            site.simulation.kill(process)
    for run in site.runs:
        if run.begun:
            run.lose_writes(fault.share)


def _job_forgotten(site: SimulatedSite, fault: Fault) -> None:
    """The controller knows a job no longer, whose programs go on."""
    tokens = [request.token for request, status in site.batch.jobs() if not status.state.final]
    if token := pick(tokens, fault):
        site.batch.vanish(token)


def _id_reused(site: SimulatedSite, fault: Fault) -> None:
    """The same, and the next job gets its id."""
    tokens = [request.token for request, status in site.batch.jobs() if not status.state.final]
    if token := pick(tokens, fault):
        site.batch.vanish(token, again=True)


def _store_locked(site: SimulatedSite, fault: Fault) -> None:
    """Another process keeps the learned waits locked for a while."""
    path = site.directory / "learned.db"
    if path.exists() and site.locks is None:
        site.locks = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        with suppress(sqlite3.Error):  # it is damaged
            site.locks.execute("BEGIN IMMEDIATE")
        site.simulation.soon(300.0 * fault.share, site.unlock)


def _for_a_while(attribute: str, longest_s: float) -> Callable[[SimulatedSite, Fault], None]:
    def begin(site: SimulatedSite, fault: Fault) -> None:
        setattr(site, attribute, site.simulation.now + longest_s * fault.share)

    return begin


def _controller_fails_acting(site: SimulatedSite, fault: Fault) -> None:
    """When a driver comes to something, it is away, slow, or loses its answers for a while."""
    attribute, longest_s = (("away", 600.0), ("mute", 120.0), ("slow", 600.0))[fault.which % 3]
    until_s = longest_s * (fault.which // 3 % 100) / 100
    run = site.runs[fault.which % len(site.runs)]
    run.doomed = (_moment(fault.share), lambda: setattr(site, attribute, site.simulation.now + until_s))


def _cut(site: SimulatedSite, fault: Fault) -> None:
    if host := pick(_hosts(site), fault):
        site.simulation.network.cut(LOGIN, host.process.machine, 200.0 * fault.share)


def _stalled(site: SimulatedSite, fault: Fault) -> None:
    if host := pick(_hosts(site), fault):
        site.simulation.network.stall(host.process)


def _stopped(site: SimulatedSite, fault: Fault) -> None:
    """SIGSTOP, and SIGCONT later."""
    drivers = [run.driver for run in site.runs if run.driver is not None and not run.driver.dead]
    if process := pick([*drivers, *(host.process for host in _hosts(site))], fault):
        process.stopped = site.simulation.now + 300.0 * fault.share**2


FASTEST = 0.05
"""How much a clock gains or loses at most [s per s]."""


def clock_faults(machines: Callable[[Any], Sequence[str]]) -> dict[str, Callable[[Any, Fault], None]]:
    """What may happen to the clock of one of these machines of a site: more often a little than much."""

    def jumps(site: Any, fault: Fault) -> None:
        site.simulation.clocks.jump(pick(machines(site), fault), FARTHEST_S * (2.0 * fault.share - 1.0) ** 3)

    def drifts(site: Any, fault: Fault) -> None:
        site.simulation.clocks.drift(pick(machines(site), fault), FASTEST * (2.0 * fault.share - 1.0) ** 3)

    return {"clock jumps": jumps, "clock drifts": drifts}


def _result_damaged(site: SimulatedSite, fault: Fault) -> None:
    """A bit of a stored result flips."""
    run = site.runs[fault.which % len(site.runs)]
    if run.begun:
        _flip(run.directory.events, "results", "data", fault)


def _lesson_damaged(site: SimulatedSite, fault: Fault) -> None:
    if (path := site.directory / "learned.db").exists():
        _flip(path, "records", "value", fault)


def _flip(path: Path, table: str, column: str, fault: Fault) -> None:
    database = sqlite3.connect(path, timeout=0.0)
    with suppress(sqlite3.OperationalError), database:  # it is locked
        rows = database.execute(f"SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE length({column})").fetchall()
        if rows:
            row, data = rows[fault.which % len(rows)]
            damaged = bytearray(data)
            damaged[min(int(fault.share * len(damaged)), len(damaged) - 1)] ^= 1 << fault.which % 8
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (bytes(damaged), row))
    database.close()


def _two_drivers(site: SimulatedSite, fault: Fault) -> None:
    """The file system forgets a lock, and a user resumes a run that has a driver."""
    run = site.runs[fault.which % len(site.runs)]
    if run.begun and run.driver is not None and not run.driver.dead and run.ended is None:
        run.lock.unlink(missing_ok=True)
        site.submit(run)


MOMENTS = (
    "Submitting is logged", "submit is on its way", "submit has been done", "Submitted is logged",
    "AllocationStarted is logged", "NodeJoined is logged", "TasksLaunched is logged", "TaskDone is logged",
    "Released is logged", "Cancelled is logged", "cancel is on its way", "cancel has been done",
    "Amending is logged", "update is on its way", "update has been done", "Requeued is logged", "RunEnded is logged",
)  # fmt: skip
"""When drivers die that die in the middle of something."""

FAULTS: Mapping[str, Callable[[SimulatedSite, Fault], None]] = {
    "driver dies": _driver_dies,
    "driver dies acting": _driver_dies_acting,
    "handover": _handover,
    "supervisor dies": _supervisor_dies,
    "supervisor hangs": _supervisor_hangs,
    "worker dies": _worker_dies,
    "machine lost": _machine_lost,
    "process stopped": _stopped,
    **clock_faults(lambda site: [LOGIN, *(host.process.machine for host in _hosts(site))]),
    "network cut": _cut,
    "connection stalled": _stalled,
    "controller away": _for_a_while("away", 600.0),
    "answers lost": _for_a_while("mute", 120.0),
    "controller fails acting": _controller_fails_acting,
    "controller slow": _for_a_while("slow", 600.0),
    "controller stale": _for_a_while("stale", 300.0),
    "job requeued": _job_requeued,
    "job preempted": _job_preempted,
    "job failed": _job_failed,
    "job cancelled": _job_cancelled,
    "job forgotten": _job_forgotten,
    "job id reused": _id_reused,
    "job submitted twice": _for_a_while("doubled", 60.0),
    "program hangs": _for_a_while("hung", 60.0),
    "files late": _for_a_while("hidden", 200.0),
    "run cancelled": _run_cancelled,
    "disk full": _for_a_while("full", 300.0),
    "disk slow": _for_a_while("laggard", 300.0),
    "power fails": _power_fails,
    "power fails acting": _power_fails_acting,
    "result damaged": _result_damaged,
    "lesson damaged": _lesson_damaged,
    "store locked": _store_locked,
    "two drivers": _two_drivers,
}
"""What can go wrong."""

HARMLESS = (
    "answers lost", "clock drifts", "clock jumps", "controller away", "controller fails acting", "controller slow",
    "disk full", "disk slow", "driver dies", "driver dies acting", "files late", "handover", "lesson damaged",
    "store locked",
)  # fmt: skip
"""Faults that cost no work: what a task has returned, a node keeps until a driver has it in its log."""
CLOCKS = {"clock drifts", "clock jumps"}
"""Faults by which times are not what they seem."""


def pick(found: Sequence[Any], fault: Fault) -> Any:
    """What a fault happens to; None where there is nothing."""
    return found[fault.which % len(found)] if found else None


def _hosts(site: SimulatedSite) -> list[SimulatedHost]:
    return [host for hosts in site.supervisors.values() for host in hosts if not host.process.dead]


def _running(site: SimulatedSite, fault: Fault) -> Any:
    return pick([req.token for req, status in site.batch.jobs() if status.state is JobState.RUNNING], fault)


@dataclass(frozen=True)
class TortureWorld:
    """What schedules of one kind have in common: what is drawn, on which site they run, and what goes wrong there."""

    site: type[SimulatedSite]
    faults: Mapping[str, Callable[[Any, Fault], None]]
    harmless: Sequence[str]
    strategies: Sequence[str]
    runs: Sequence[int]
    stages: Sequence[tuple[int, int]]  # numbers of stages of half of the schedules, most others, and the rest
    longest_s: float = 60.0  # how long tasks take at most [s]
    lasts: bool = False  # whether some go on in one allocation after the other


RUNS = TortureWorld(
    SimulatedSite, FAULTS, HARMLESS, STRATEGIES, (1, 1, 1, 2, 3), ((2, 8), (8, 30), (30, 200)), lasts=True
)


# ---------------------------------------------------------------- a schedule, and what must hold


@dataclass
class ScheduleOutcome:
    """How a schedule went.

    Attributes
    ----------
    violations
        What must hold and did not; empty when all is well.
    fingerprint
        Of all logs and jobs, if it was asked for: that of the same case at the same commit is the same.
    struck
        How often each kind of fault came while there was something to go wrong.
    resumes, seconds, steps
        Drivers besides the first ones; virtual time [s]; turns.
    """

    violations: list[str] = field(default_factory=list)
    fingerprint: str = ""
    struck: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    seconds: float = 0.0
    steps: int = 0


def run(
    case: Case, keep: Path | None = None, *, fingerprint: bool = False, world: TortureWorld = RUNS
) -> ScheduleOutcome:
    """Go through a schedule.

    Parameters
    ----------
    keep
        A directory for what the runs leave; else it is removed.
    fingerprint
        Whether to compute that, too, which takes a while.
    world
        What it runs on.
    """
    with _environment():
        return in_directory(partial(_run, case, world, fingerprint=fingerprint), keep)


def in_directory(schedule: Callable[[Path], ScheduleOutcome], keep: Path | None) -> ScheduleOutcome:
    """Go through it in this directory; by default in one in memory, if there is room, which is removed afterwards."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK | os.X_OK) else None
    with uncollected(), tempfile.TemporaryDirectory(dir=where) as temporary:
        return schedule(keep or Path(temporary))


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of garbage: when it closes what a dead process had open, or when asyncio says that nothing
    has looked at an exception, would be chance."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _environment() -> Iterator[None]:
    """What runs find in the environment: a secret, and no budget of calls but the usual one.

    A store that is locked they give up at once: that wait is SQLite's, in real time.
    """
    before = {name: os.environ.get(name) for name in (VARIABLE, BUDGET)}
    patience, learned.BUSY_S, store = learned.BUSY_S, 0.0, learned.open_store
    os.environ[VARIABLE] = SECRET
    os.environ.pop(BUDGET, None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AsaWarning)  # cores that are idle, in what is drawn
            yield
    finally:
        learned.BUSY_S, learned.open_store = patience, store
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _run(case: Case, world: TortureWorld, directory: Path, *, fingerprint: bool) -> ScheduleOutcome:
    simulation, found = Simulation(case.seed), ScheduleOutcome()
    wide = {
        f"each{number}"
        for steps in case.workflows
        for number, step in enumerate(steps)
        if step.mapped and (steps[step.sources[0]] if step.sources else step).count >= WIDE[0]
    }

    def run_time(stage: str, number: int) -> float:
        if stage in wide and random.Random(f"{case.seed} {stage}").random() < 0.7:
            return 0.001  # several of these travel together
        rng = random.Random(f"{case.seed} {stage} {number}")
        return rng.choice([0.01, rng.uniform(0.1, 5.0), rng.uniform(1.0, world.longest_s)])

    def wait(request: JobRequest) -> float:
        return random.Random(f"{case.seed} {request.array or request.token}").choice(case.waits)

    site = world.site(
        simulation,
        directory,
        cores=case.cores,
        regime=QueueRegime(case.regime),
        wait=wait,
        run_time=run_time,
        joins_s=lambda: case.joins_s * simulation.random.uniform(0.5, 2.0),
    )
    learned.open_store = partial(SimulatedStore, site)
    try:
        _go_through(case, world, site, found)
    except Stuck as stuck:
        found.violations.append(f"stuck: {stuck}; {_standing(site)}")
    except Exception as error:
        logging.getLogger(__name__).debug("a program failed", exc_info=True)
        found.violations.append(f"a program ended with {type(error).__name__}: {error}")
    else:
        found.violations += _problems(case, world, site)
    finally:
        if fingerprint:
            found.fingerprint = _fingerprint(site)
        site.close()
    found.violations += site.wrong
    found.seconds, found.steps = simulation.now - START_S, simulation.steps
    found.resumes = sum(run.drivers - 1 for run in site.runs)
    return found


def _go_through(case: Case, world: TortureWorld, site: SimulatedSite, found: ScheduleOutcome) -> None:
    simulation = site.simulation
    for number, (steps, strategy) in enumerate(zip(case.workflows, case.strategies, strict=True)):
        failing = [each for each in case.failing if each.workflow == number and each.stage < len(steps)]
        keep_going = any(each.keep_going for each in failing)
        growing = {each for workflow, each in case.growing if workflow == number}
        lasting = {each.stage: each for each in case.lasting if each.workflow == number and each.stage < len(steps)}
        bending = {each for workflow, each in case.bending if workflow == number} - {*lasting}
        workflow = build(steps, growing, lasting, bending)
        site.runs.append(TorturedRun(f"run{number}", workflow, strategy, case.grace_s, keep_going))
        for place, long in lasting.items():
            name = f"{'each' if steps[place].mapped else 'gather'}{place}"
            total_s = long.walltimes * steps[place].walltime_s
            site.lasting[f"run{number}", name] = Lasting(total_s, long.every_s, long.pauses, long.stalls)
        for part in failing:
            name = f"{'each' if steps[part.stage].mapped else 'gather'}{part.stage}"
            site.failing[f"run{number}", name] = part.times
    for run in site.runs:
        if {"power fails", "power fails acting"} & {fault.kind for fault in case.faults}:
            run.durable = b"", b""
        site.harmless = {fault.kind for fault in case.faults} <= set(world.harmless) - CLOCKS
        site.on_end[run.name] = partial(_resume, site, run)
        site.submit(run)

    def strike(fault: Fault) -> None:
        if not site.over:
            found.struck[fault.kind] += 1
            site.struck = simulation.now
            with suppress(InvalidInput):  # a job that it was to happen to is gone
                world.faults[fault.kind](site, fault)

    def look() -> None:
        if not site.over:
            found.violations += [what for what in _misbeliefs(site) if what not in found.violations]
            simulation.soon(LOOK_S, look)

    simulation.soon(LOOK_S, look)
    last = START_S
    for fault in case.faults:
        last = START_S + fault.at
        simulation.call_at(last, partial(strike, fault))
    simulation.run(lambda: site.over, last + patience_s(case))
    if not site.over:
        raise Stuck(f"{patience_s(case):g} s after the last fault not all runs have succeeded")
    simulation.run(lambda: not site.waiting, simulation.now + LATEST_S)
    # A full disk ends a driver: it may be one whose run has succeeded, and which the batch system kept waiting.
    abandoned = "disk full" in found.struck or any(run.gave_up for run in site.runs)
    if not abandoned and (waiting := site.waiting):
        found.violations.append(f"jobs wait for runs that have ended: {waiting}")
    while damaged := [run for run in site.runs if _is_damaged(site, run)]:  # and says so: the user resumes it
        for run in damaged:
            site.submit(run)
        simulation.run(lambda: site.over, simulation.now + patience_s(case))
    gone = max(simulation.now, site.disturbed) + SETTLED_S + case.grace_s
    simulation.run(lambda: not site.superfluous, gone)
    found.violations += [f"{what} is left" for what in site.superfluous if not abandoned]
    simulation.run(lambda: site.empty, simulation.now + patience_s(case))


SETTLED_S = 400.0
"""How long after the last disturbance a driver must know how things are [s]."""
SILENT_S = 200.0
"""How long after it a driver may believe that tasks run on a node that has joined [s]: one that is silent is given up
after a minute, and a task is silent for as long."""
LOOK_S = 50.0
"""How often what drivers believe is compared with what is [s]."""


def _misbeliefs(site: SimulatedSite) -> Iterator[str]:
    """What drivers that nothing disturbs believe of their allocations, and is not so."""
    now, jobs = site.simulation.now, {status.handle: status for _, status in site.batch.jobs()}
    disturbed = site.disturbed
    for run in site.runs:
        alive = run.driver is not None and not run.driver.dead
        if run.assembly is None or run.ended or not alive:
            continue
        undisturbed = max(disturbed, run.since)
        if undisturbed > now - SILENT_S:
            continue
        settled = now - SETTLED_S if undisturbed < now - SETTLED_S else -math.inf
        for held in run.assembly.plan.pool.held.values():
            job = jobs.get(held.handle) if held.handle is not None and held.handle.token not in site.twice else None
            if job is None or held.ended is not None:
                continue
            where = f"{run.name}: job {held.key}"
            dismissed = [at for at in (held.released, held.cancelled) if at is not None]
            if dismissed and min(dismissed) < settled and not job.state.final:
                yield f"{where} was dismissed long ago and is {job.state.value}"
            if job.state.final and job.ended is not None and job.ended < settled:
                yield f"{where} has ended, which its driver does not know"
            if job.state is JobState.PENDING and held.started is not None and held.started < settled:
                yield f"{where} waits, and its driver takes it to run"
            if job.started is not None and job.started < settled and held.started is None and not job.state.final:
                yield f"{where} runs, which its driver does not know"
            launched = [at for _, at in held.running.values()]
            hosts = site.supervisors.get(job.handle.job_id, ())
            worked = [site.worked.get(host.process.machine, 0.0) for host in hosts]
            # One that has joined must show that it is there; one without a driver may come back for a while, and the
            # first of a job that was requeued may take longer.
            given_up = now - SILENT_S if held.nodes else settled - (run.grace_s if held.joined else JOIN_S)
            if launched and min(launched) < given_up and max(worked, default=0.0) < given_up and not job.state.final:
                yield f"{where} has tasks, and none of them runs"


def patience_s(case: Case) -> float:
    """How long after the last fault all runs must have ended, and after that all jobs and processes [s].

    Runs are resumed ten minutes late at worst, more than once; each stage may wait for a job of its own, each stage's
    tasks for one another. Where a strategy keeps allocations that came too early to the end of their wall time, as the
    paper's do, these take the nodes of what they wait for.
    """
    keeps = any(name.startswith(("asa", "cascade")) and "grace_s" not in name for name in case.strategies)
    longest_s = max(step.walltime_s for steps in case.workflows for step in steps)
    resumed_s = 1000.0 * sum(failing.times for failing in case.failing)
    grown = (each.count for one, steps in enumerate(case.workflows) for place, each in enumerate(steps)
             if (one, place) in case.growing)  # fmt: skip
    stages = max(map(len, case.workflows)) + 2 * sum(grown)
    jobs_s = (2 * max(case.waits) + 200.0) * stages * len(case.workflows)
    allocations = sum(
        8.0 * (each.walltimes + 4 * each.stalls) * max(1, case.workflows[each.workflow][each.stage].count)
        for each in case.lasting
    )
    lasting_s = allocations * (2 * max(case.waits) + 400.0)
    return 3000.0 + 5 * longest_s * keeps + resumed_s + jobs_s + lasting_s


def _is_damaged(site: SimulatedSite, run: TorturedRun) -> bool:
    """Whether a result cannot be read once the run has ended."""
    try:
        run.result = open_run(run.directory.name, state=site.directory).result()
    except AsaError as error:
        run.result = error
    return isinstance(run.result, StateError)


def _resume(site: SimulatedSite, run: TorturedRun) -> None:
    """Its driver is gone: the user resumes it after a while."""
    if run.ended is RunState.SUCCEEDED:
        return
    if run.drivers > RESUMES_MOST:
        raise Stuck(f"{run.name} was resumed {RESUMES_MOST} times: {run.message}")
    late = [0.0] if run.handed_over else [0.0, 5.0, 60.0, 600.0]
    run.handed_over = False
    site.simulation.soon(site.simulation.random.choice(late), partial(site.submit, run))


def _standing(site: SimulatedSite) -> str:
    runs = ", ".join(f"{run.name}: {run.ended.value if run.ended else 'not ended'} {run.message}" for run in site.runs)
    return f"{runs}; jobs {Counter(status.state.value for _, status in site.batch.jobs())}"


def _problems(case: Case, world: TortureWorld, site: SimulatedSite) -> Iterator[str]:
    """What must hold of runs that have ended, and does not."""
    for run, steps in zip(site.runs, case.workflows, strict=True):
        if isinstance(run.result, AsaError):  # one that is damaged is named in time: see `_go_through`
            yield f"{run.name} has no result: {run.result}"
        elif run.result != evaluate(steps):
            yield f"{run.name} has a wrong result"
        with EventLog(run.directory.events) as log:
            yield from (f"{run.name} {found}" for found in contradictions(event for _, event in log.read()))
    kinds = {fault.kind for fault in case.faults}
    away_s = max(run.away_s for run in site.runs)
    late = any(status.state is JobState.TIMEOUT for _, status in site.batch.jobs())
    unhindered = kinds <= set(world.harmless) - {"disk full", "disk slow", "files late"} and not late
    if unhindered and away_s < case.grace_s / 2:
        again = [f"{stage}-{number}" for stage, number in site.repeated(site.began, site.lasted)]
        if again and not case.failing:
            yield f"began more than once, though drivers were away for {away_s:g} s at most: {again}"
    if kinds <= set(world.harmless):
        again = [f"{stage}-{number}" for stage, number in site.repeated(site.completed)]
        if again and not case.failing:
            yield f"ran to their end more than once: {again}"
    if not {"two drivers", *CLOCKS} & kinds:
        yield from _over_budget(site)
    if "lesson damaged" not in kinds:
        yield from _unlearned(site)
    if not {"two drivers", "result damaged", "power fails", "power fails acting", *CLOCKS} & kinds:
        yield from _shortened(site)
    if exposed := _exposed(site):
        yield f"a secret is in {exposed}"
    submitted = Counter(request.token for request, _ in site.batch.jobs())
    if twice := [token for token, count in submitted.items() if count > 1 and token not in site.twice]:
        yield f"jobs were submitted twice: {twice}"
    known = set[str]()  # to the logs of runs whose driver could not wait: `asa clean` cancels them
    for run in [run for run in site.runs if "disk full" in kinds or run.gave_up]:
        with EventLog(run.directory.events) as log:
            known |= restore_plan(run.directory.name, log).pool.held.keys()
    left = [request.token for request, status in site.batch.jobs() if not status.state.final]
    if lost := [token for token in left if token not in known]:
        yield f"jobs are left: {lost}"
    if alive := sorted({process.name for process in site.processes() if process.machine not in site.hanging}):
        waits = [f"{thread.name} until {thread.until - START_S:g}" for thread in site.simulation.waiting()]
        yield f"processes are left: {alive} ({', '.join(waits)})"


def _unlearned(site: SimulatedSite) -> Iterator[str]:
    """Lessons of which the learned waits say that they were counted, and which have had no effect."""
    if (path := site.directory / "learned.db").exists():
        with closing(sqlite3.connect(path)) as database:
            seen = Counter(key for (key,) in database.execute("SELECT key FROM seen"))
            for key, value in database.execute("SELECT key, value FROM records WHERE key LIKE 'waits %'"):
                if (jobs := json.loads(value)["jobs"]) != seen[key]:
                    yield f"{seen[key]} jobs have taught {key!r}, and {jobs} are in it"


def _shortened(site: SimulatedSite) -> Iterator[str]:
    """Stages with checkpoints of which the times in all allocations do not add up to what their tasks ran.

    Not of tasks that failed by a fault of their own, as where their worker was killed, or that were lost with a node
    which ran on unseen: how long these ran is not known. Where a supervisor was stopped when the wall time of its job
    was over, they ran on until all of the job was killed.
    """
    for run in site.runs:
        lasting = {stage: each for (name, stage), each in site.lasting.items()
                   if name == run.name and (name, stage) not in site.failing}  # fmt: skip
        if lasting:
            with EventLog(run.directory.events) as log:
                stages = restore_plan(run.directory.name, log).stages
                failed = {event.stage for event in log.each(TaskFailed) if not event.infrastructure}
                failed |= {event.stage for event in log.each(TaskPaused) if event.lost}
                ends = {event.allocation: event.at for event in log.each(JobEnded)}
                paused = [event for event in log.each(TaskPaused) if event.at == ends.get(event.allocation)]
                cut_off = Counter((event.stage, event.index) for event in paused)
            for stage, each in lasting.items():
                often = max((count for (name, _), count in cut_off.items() if name == stage), default=0)
                ran_s = stages[stage].longest_s
                least_s = each.total_s - often * KILL_WAIT_S - CLOSE_S
                if stage not in failed and stages[stage].done and ran_s < least_s:
                    yield f"{run.name}: tasks of {stage} ran for {each.total_s:g} s, and {ran_s:g} s are counted"


CLOSE_S = 1.0
"""By how much times of several attempts may differ together [s]."""


def _over_budget(site: SimulatedSite) -> Iterator[str]:
    """Calls to the batch system beyond what is promised for any ten minutes."""
    limits = CallLimits()
    for kinds, every_s in ((("query", "find"), limits.query), (("submit", "update"), limits.submit)):
        times = deque[float]()
        for at, kind in site.calls:
            if kind in kinds:
                times.append(at)
                while times[0] <= at - WINDOW_S:
                    times.popleft()
                if len(times) > WINDOW_S / every_s:
                    yield f"{len(times)} calls ({', '.join(kinds)}) within ten minutes"
                    break


def _exposed(site: SimulatedSite) -> list[str]:
    """Where the secret of some stages can be read."""
    found = [request.token for request, _ in site.batch.jobs() if SECRET in str(request)]
    for path in site.directory.rglob("*"):
        with suppress(OSError):  # a folder, or SQLite has just removed it
            found += [str(path)] if SECRET.encode() in path.read_bytes() else []
    return found


def _fingerprint(site: SimulatedSite) -> str:
    digest = hashlib.sha256()
    for run in site.runs:
        with suppress(AsaError, AttributeError), EventLog(run.directory.events) as log:
            for _, event in log.read():
                kind, fields = encode(replace(event, pid=0) if isinstance(event, DriverStarted) else event)
                text = json.dumps(fields).replace(str(site.directory), "STATE")
                digest.update(f"{kind} {text}".encode())
    for request, status in site.batch.jobs():
        digest.update(f"{request.token} {status.state} {status.started} {status.ended}".encode())
    return digest.hexdigest()[:16]


# ---------------------------------------------------------------- smaller ones that fail, too


def smaller(case: Case) -> Iterator[Case]:
    """Cases with less in them, the smallest first."""
    if case.growing:
        yield replace(case, growing=())
    for number in range(len(case.lasting)):
        yield replace(case, lasting=(*case.lasting[:number], *case.lasting[number + 1 :]))
    if case.bending:
        yield replace(case, bending=())
    for number in range(len(case.failing)):
        yield replace(case, failing=(*case.failing[:number], *case.failing[number + 1 :]))
    if len(case.workflows) > 1:
        for number in range(len(case.workflows)):
            failing = tuple(replace(each, workflow=0) for each in case.failing if each.workflow == number)
            growing = tuple((0, each) for workflow, each in case.growing if workflow == number)
            lasting = tuple(replace(each, workflow=0) for each in case.lasting if each.workflow == number)
            one, strategies = (case.workflows[number],), (case.strategies[number],)
            bending = tuple((0, each) for workflow, each in case.bending if workflow == number)
            less = replace(case, failing=failing, growing=growing, lasting=lasting, bending=bending)
            yield replace(less, workflows=one, strategies=strategies)
    for parts in (2, 4, 8, len(case.faults)):
        size = max(1, len(case.faults) // max(1, parts))
        for first in range(0, len(case.faults), size):
            yield replace(case, faults=case.faults[:first] + case.faults[first + size :])
    for number, steps in enumerate(case.workflows):
        for length in sorted({1, len(steps) // 2, len(steps) - 1} - {0, len(steps)}):
            workflows = (*case.workflows[:number], steps[:length], *case.workflows[number + 1 :])
            lasting = tuple(each for each in case.lasting if each.workflow != number or each.stage < length)
            yield replace(case, workflows=workflows, lasting=lasting)


Drawn = TypeVar("Drawn")


def shrink(
    smaller: Callable[[Drawn], Iterator[Drawn]], case: Drawn, fails: Callable[[Drawn], bool], tries: int = 300
) -> Drawn:
    """A case that fails, too, found in so many tries of what `smaller` makes of it."""
    while True:
        for other in smaller(case):
            if tries <= 0:
                return case
            tries -= 1
            if fails(other):
                case = other
                break
        else:
            return case
