"""Applications of a queue, alone and in pairs on real nodes: what sharing really costs."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.command import table
from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved, StateError
from coscheduler.drive import World
from coscheduler.nouns import LOOK_S, SharedRun, SharingDecision, StartGuest, WaitingJob
from coscheduler.queuefile import QueuedCommand
from coscheduler.real.machine import SharedMachine
from coscheduler.real.world import RealWorld
from coscheduler.sharing.starter import check_share
from coscheduler.workload import PAPER_LIKE, Contention, Load, LoadPhase, phases
from coscheduler.world import SimulatedWorld

LEAST_TAX = 0.5
"""Half of the speed is lost at most to caches and memory bandwidth: what is more has other causes."""

_LEAST_CPU = 1e-3  # of its cores: the simulated world knows no job that does nothing
_LEAST_THRASH = 0.01
_NEVER_S = 1e12  # the period of a world where nothing more is decided
_POINTS = 26
_NEAR = 1e-4  # how exactly constants are found
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class AloneRun:
    """What a job was measured to do on cores of its own.

    Parameters
    ----------
    application, job, cores
        Which.
    run_time_s
        From its start to its end [s].
    cpu
        Mean use of its cores, in [0, 1].
    parallel
        Share of its run time in stages that use more than one core.
    memory
        Most memory, as a share of what belongs to its cores; above 1 where its node has cores besides.
    """

    application: str
    job: str
    cores: int
    run_time_s: float
    cpu: float
    parallel: float
    memory: float

    def load(self, name: str) -> Load:
        """The same for the simulated world, where no job alone wants more memory than there is. What uses less than one
        core does so all the time."""
        cpu = min(1.0, max(self.cpu, _LEAST_CPU))
        sequential = self.cores == 1 or cpu * self.cores < 1
        parts = (LoadPhase(self.run_time_s, cpu, False),) if sequential else phases(self.run_time_s, cpu, self.cores)
        return Load(WaitingJob(name, self.application, self.cores, self.run_time_s), parts, min(1.0, self.memory))


@dataclass(frozen=True, slots=True)
class PairRun:
    """Two jobs that were started at once, one as the guest of the other.

    Parameters
    ----------
    host, guest
        Alone.
    share, hard
        The guest's share of the host's cores, and whether as a quota.
    host_s, guest_s
        Run times [s].
    host_cpu, guest_cpu
        Mean use of as many cores as each has asked for, in [0, 1].
    """

    host: AloneRun
    guest: AloneRun
    share: float
    hard: bool
    host_s: float
    guest_s: float
    host_cpu: float
    guest_cpu: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Run times over those alone, of host and guest."""
        return self.host_s / self.host.run_time_s, self.guest_s / self.guest.run_time_s

    @property
    def is_crowded(self) -> bool:
        """Whether both want more memory than there is."""
        wanted = sum(each.memory * each.cores for each in (self.host, self.guest))
        return wanted > self.host.cores * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class ContentionFit:
    """Constants, and how well they do.

    Parameters
    ----------
    tax, thrash
        See `Contention`; `thrash` is None where no pair wanted more memory than there is.
    error
        Root of the mean squared error of the logarithms of all slowdowns.
    predicted
        Slowdowns of host and guest of each pair, by the simulated world.
    """

    tax: float
    thrash: float | None
    error: float
    predicted: tuple[tuple[float, float], ...]


def together(world: World, decisions: Sequence[SharingDecision]) -> dict[str, SharedRun]:
    """Let a world do this at its first look, and nothing more until all jobs have ended; the runs, by job."""
    runs: list[SharedRun] = []
    while world.advance() is not None:
        world.apply(decisions)
        decisions = ()
        runs += world.learned()
    return {run.job: run for run in [*runs, *world.learned()]}


def both(host: str, guest: str, share: float, *, hard: bool) -> tuple[SharingDecision, ...]:
    """Start two jobs at once, one as the guest of the other."""
    return Start(host), StartGuest(guest, host, share, hard)


def predict(
    host: AloneRun, guest: AloneRun, share: float, contention: Contention, *, hard: bool
) -> tuple[float, float]:
    """Slowdowns of host and guest in the simulated world, when both are started at once.

    >>> busy = AloneRun("busy", "busy", 2, 60.0, 1.0, 1.0, 0.1)
    >>> predict(busy, busy, 0.5, Contention(tax=0.8), hard=False)
    (2.5, 2.5)
    """
    loads = host.load("host"), guest.load("guest")
    world = SimulatedWorld(loads, host.cores, contention, period_s=_NEVER_S)
    runs = together(world, both("host", "guest", share, hard=hard))
    return runs["host"].run_time_s / host.run_time_s, runs["guest"].run_time_s / guest.run_time_s


def fit(pairs: Sequence[PairRun]) -> ContentionFit:
    """Find the constants with the least squared error of the logarithms of all slowdowns.

    The tax is that of pairs whose memory suffices, in (`LEAST_TAX`, 1]; then the others give `thrash`.

    Raises `InvalidInput` when the memory of no pair suffices.
    """
    roomy = [pair for pair in pairs if not pair.is_crowded]
    crowded = [pair for pair in pairs if pair.is_crowded]
    if not roomy:
        raise InvalidInput(f"of {len(pairs)} pairs none has enough memory: at least one is needed, take smaller jobs")
    tax = _least(lambda tax: _squares(roomy, Contention(tax)), LEAST_TAX + _NEAR)
    thrash = None
    if crowded:
        thrash = _least(lambda thrash: _squares(crowded, Contention(tax, thrash)), _LEAST_THRASH)
    contention = Contention(tax, PAPER_LIKE.thrash if thrash is None else thrash)
    error = float(np.sqrt(_squares(pairs, contention) / (2 * len(pairs))))
    return ContentionFit(tax, thrash, error, tuple(_predicted(pair, contention) for pair in pairs))


def _predicted(pair: PairRun, contention: Contention) -> tuple[float, float]:
    return predict(pair.host, pair.guest, pair.share, contention, hard=pair.hard)


def _squares(pairs: Sequence[PairRun], contention: Contention) -> float:
    measured = np.array([pair.slowdowns for pair in pairs])
    predicted = np.array([_predicted(pair, contention) for pair in pairs])
    return float(np.sum(np.log(predicted / measured) ** 2))


def _least(error: Callable[[float], float], low: float) -> float:
    """Where in [low, 1] the error is least: the best point of a grid, then a golden-section search around it.

    The grid comes first, for the error may have more than one valley: phases of two jobs meet or miss one another.
    """
    grid: list[float] = np.linspace(low, 1.0, _POINTS).tolist()
    errors = [error(point) for point in grid]
    best = int(np.argmin(errors))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, _POINTS - 1)]
    while right - left > _NEAR:
        step = _GOLDEN * (right - left)
        if error(right - step) <= error(left + step):
            right = left + step
        else:
            left = right - step
    found = (left + right) / 2
    return found if error(found) < errors[best] else grid[best]


_AT_THE_EDGE = 2e-3


@dataclass(frozen=True, slots=True)
class ContentionCalibration:
    """What was measured, and what follows from it.

    Parameters
    ----------
    date
        In ISO 8601.
    cores, model
        Of the machine: processors that may be used, and their kind.
    """

    date: str
    cores: int
    model: str
    applications: tuple[AloneRun, ...]
    pairs: tuple[PairRun, ...]
    fit: ContentionFit

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; ``thrash`` is null where it was not measured."""
        return {
            "date": self.date,
            "machine": {"cores": self.cores, "model": self.model},
            "applications": [asdict(each) for each in self.applications],
            "pairs": [_pair(pair, predicted) for pair, predicted in self._predicted()],
            "tax": self.fit.tax,
            "thrash": self.fit.thrash,
            "error": self.fit.error,
        }

    def text(self) -> str:
        alone = table([_alone_row(each) for each in self.applications], "")
        pairs = table([_pair_row(pair, predicted) for pair, predicted in self._predicted()], "")
        return "\n\n".join(
            [
                f"Alone, on {self.cores} processors ({self.model})\n{alone}",
                f"In pairs: slowdowns as measured, and as predicted with the constants below\n{pairs}",
                self._constants(),
            ]
        )

    def _predicted(self) -> Iterator[tuple[PairRun, tuple[float, float]]]:
        return zip(self.pairs, self.fit.predicted, strict=True)

    def _constants(self) -> str:
        tax, thrash = self.fit.tax, self.fit.thrash
        at_the_edge = min(tax - LEAST_TAX, 1 - tax) < _AT_THE_EDGE
        edge = f", at the edge of what was looked at ({LEAST_TAX:g} to 1): do not trust it" if at_the_edge else ""
        missing = (
            f"not measured, for no pair wanted more memory than there is: paper-like's {PAPER_LIKE.thrash:g} stays"
        )
        return (
            f"tax: {tax:.4f}{edge}\n"
            f"thrash: {missing if thrash is None else f'{thrash:.4f}'}\n"
            f"error: {self.fit.error:.4f} (root mean square, of the logarithms of slowdowns)"
        )


def _pair(pair: PairRun, predicted: tuple[float, float]) -> dict[str, Any]:
    found = asdict(pair) | {"host": pair.host.application, "guest": pair.guest.application}
    found |= {"host_slowdown": pair.slowdowns[0], "guest_slowdown": pair.slowdowns[1]}
    return found | {"predicted_host_slowdown": predicted[0], "predicted_guest_slowdown": predicted[1]}


def _alone_row(alone: AloneRun) -> dict[str, Any]:
    return {
        "application": alone.application,
        "job": alone.job,
        "cores": alone.cores,
        "run time [s]": alone.run_time_s,
        "CPU [%]": round(100 * alone.cpu),
        "parallel [%]": round(100 * alone.parallel),
        "memory [%]": round(100 * alone.memory),
    }


def _pair_row(pair: PairRun, predicted: tuple[float, float]) -> dict[str, Any]:
    return {
        "host": pair.host.application,
        "guest": pair.guest.application,
        "share": pair.share,
        "as": "quota" if pair.hard else "weight",
        "host slower": round(pair.slowdowns[0], 3),
        "predicted": round(predicted[0], 3),
        "guest slower": round(pair.slowdowns[1], 3),
        "as predicted": round(predicted[1], 3),
        "CPU of the host [%]": round(100 * pair.host_cpu),
        "of the guest [%]": round(100 * pair.guest_cpu),
    }


_SHORTEST_S = 1.5 * LOOK_S  # CPU use is looked at once each `LOOK_S`


class JobFailed(StateError):
    """A job has failed; its output is kept."""


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares of a guest, each once. Raises `InvalidInput` when there is none, or one is out of range."""
    if not shares:
        raise InvalidInput("no share of a guest is given: expected some, like 0.05,0.3,0.5")
    return tuple(dict.fromkeys(map(check_share, shares)))


def chosen(jobs: Sequence[QueuedCommand]) -> tuple[QueuedCommand, ...]:
    """The first job of each application that may share its cores. Raises `InvalidInput` when there is none."""
    found: dict[str, QueuedCommand] = {}
    for job in jobs:
        if not job.request.exclusive:
            found.setdefault(job.request.application, job)
    if not found:
        raise InvalidInput(f"all {len(jobs)} jobs of the queue are exclusive: one that may share is needed")
    return tuple(found.values())


def calibrate(
    jobs: Sequence[QueuedCommand],
    machine: SharedMachine,
    directory: Path,
    shares: Sequence[float],
    *,
    hard: bool = False,
    repeat: int = 1,
    progress: Callable[[str], None] = lambda _line: None,
    clock: Callable[[], float] = time.monotonic,
) -> ContentionCalibration:
    """Run jobs alone and in pairs, and fit the constants of contention to that.

    Every job is the host of every one that asks for no more cores, another run of itself included.

    Raises `JobFailed` when a job fails, and `StateError` when a node is lost, or a job is too short to be measured.

    Parameters
    ----------
    jobs
        One of each application: see `chosen`.
    machine
        Nodes on which nothing else runs.
    directory
        A private one; the output of a job that fails is left there.
    shares
        Of the guests, as weights.
    hard
        Run all pairs with these shares as quotas too.
    repeat
        How often all is run; means are taken.
    """
    shares = check_shares(shares)
    if repeat < 1:
        raise InvalidInput(f"all is to be run {repeat} times: expected once at least")
    order = [(host, guest) for host in jobs for guest in jobs if guest.request.cores <= host.request.cores]
    kinds = [(share, quota) for quota in ((False, True) if hard else (False,)) for share in shares]
    total = repeat * (len(jobs) + len(order) * len(kinds))
    runs = _Runs(machine, directory, total, progress, clock)
    alone: dict[str, list[AloneRun]] = {job.request.application: [] for job in jobs}
    shared: dict[tuple[str, str, float, bool], list[_Both]] = {}
    for _ in range(repeat):
        for job in jobs:
            alone[job.request.application].append(runs.alone(job))
        for host, guest in order:
            for share, quota in kinds:
                key = host.request.application, guest.request.application, share, quota
                shared.setdefault(key, []).append(runs.pair(host, guest, share, hard=quota))
    known = {application: _mean(found) for application, found in alone.items()}
    pairs = []
    for (one, other, share, quota), found in shared.items():
        means = np.mean(found, axis=0).tolist()
        pairs.append(PairRun(known[one], known[other], share, quota, *means))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    cores = len(os.sched_getaffinity(0))
    return ContentionCalibration(date, cores, processor(), tuple(known.values()), tuple(pairs), fit(pairs))


def processor() -> str:
    """The kind of this machine's processors, as far as the system says."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.machine()


_Both = tuple[float, float, float, float]
"""Run times [s] of host and guest, and their mean use of their cores."""


class _Runs:
    """Runs jobs, one or two at a time, each time in a directory of their own that is removed when they end well."""

    def __init__(
        self,
        machine: SharedMachine,
        directory: Path,
        total: int,
        progress: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._machine, self._directory, self._total = machine, directory, total
        self._progress, self._clock = progress, clock
        self._done = 0

    def alone(self, job: QueuedCommand) -> AloneRun:
        asked, name = job.request, f"{self._done + 1}-alone"
        (run,) = self._run([(name, job)], [Start(name)], asked.application)
        if run.run_time_s < _SHORTEST_S:
            raise StateError(
                f"job {asked.name!r} ran for {run.run_time_s:.2g} s alone, which is too short to be measured: expected "
                f"{_SHORTEST_S:g} s at least, better 20 s. Give it more to do"
            )
        return AloneRun(asked.application, asked.name, asked.cores, run.run_time_s, _cpu(run), run.parallel, run.memory)

    def pair(self, host: QueuedCommand, guest: QueuedCommand, share: float, *, hard: bool) -> _Both:
        names = f"{self._done + 1}-host", f"{self._done + 1}-guest"
        kind = "as a quota" if hard else "as a weight"
        what = f"{host.request.application} with {guest.request.application} as its guest ({share:g} {kind})"
        one, other = self._run(list(zip(names, (host, guest), strict=True)), both(*names, share, hard=hard), what)
        return one.run_time_s, other.run_time_s, _cpu(one), _cpu(other)

    def _run(
        self, jobs: Sequence[tuple[str, QueuedCommand]], decisions: Sequence[SharingDecision], what: str
    ) -> list[SharedRun]:
        """Runs of jobs under new names: containers have none twice."""
        renamed = [replace(job, request=replace(job.request, name=name, submitted=0.0)) for name, job in jobs]
        directory = self._directory / str(self._done + 1)
        world = RealWorld(renamed, self._machine, directory, clock=self._clock)
        try:
            runs = together(world, decisions)
        except Starved as error:
            raise StateError(f"{what}: a node was lost meanwhile. Look after its agent, and begin anew") from error
        names = {name: job.request.name for name, job in jobs}
        for ended in world.result().jobs:
            if ended.problem:
                raise JobFailed(f"{what}: job {names[ended.name]!r} has failed: {ended.problem}")
        shutil.rmtree(directory, ignore_errors=True)
        self._done += 1
        times = ", ".join(f"{runs[name].run_time_s:.1f} s" for name in names)
        self._progress(f"{self._done} of {self._total}: {what}: {times}")
        return [runs[name] for name in names]


def _cpu(run: SharedRun) -> float:
    """Mean use, in [0, 1], of as many cores as it has asked for."""
    return min(1.0, run.cpu_s / (run.cores * run.run_time_s))


def _mean(found: Sequence[AloneRun]) -> AloneRun:
    """One for all runs of a job: means, and the most memory."""
    means = np.mean([(each.run_time_s, each.cpu, each.parallel) for each in found], axis=0).tolist()
    run_time_s, cpu, parallel = means
    most = max(each.memory for each in found)
    return replace(found[0], run_time_s=run_time_s, cpu=cpu, parallel=parallel, memory=most)
