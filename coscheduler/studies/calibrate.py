"""Applications of a queue, alone and in pairs on real nodes: what sharing really costs."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved, StateError
from coscheduler.nouns import SharedRun, SharingDecision
from coscheduler.queuefile import Command
from coscheduler.real.machine import Machine
from coscheduler.real.world import MONITOR_S, RealWorld
from coscheduler.sharing.starter import check_share
from coscheduler.studies.calibration import Calibration
from coscheduler.studies.fit import Alone, Pair, both, fit, together

_SHORTEST_S = 1.5 * MONITOR_S  # CPU use is looked at once each `MONITOR_S`


class JobFailed(StateError):
    """A job has failed; its output is kept."""


def check_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares of a guest, each once.

    Raises
    ------
    InvalidInput
        When there is none, or one is out of range.
    """
    if not shares:
        raise InvalidInput("no share of a guest is given: expected some, like 0.05,0.3,0.5")
    return tuple(dict.fromkeys(map(check_share, shares)))


def chosen(jobs: Sequence[Command]) -> tuple[Command, ...]:
    """The first job of each application that may share its cores.

    Raises
    ------
    InvalidInput
        When there is none.
    """
    found: dict[str, Command] = {}
    for job in jobs:
        if not job.request.exclusive:
            found.setdefault(job.request.application, job)
    if not found:
        raise InvalidInput(f"all {len(jobs)} jobs of the queue are exclusive: one that may share is needed")
    return tuple(found.values())


def calibrate(
    jobs: Sequence[Command],
    machine: Machine,
    directory: Path,
    shares: Sequence[float],
    *,
    hard: bool = False,
    repeat: int = 1,
    progress: Callable[[str], None] = lambda _line: None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration:
    """Run jobs alone and in pairs, and fit the constants of contention to that.

    Every job is the host of every one that asks for no more cores, another run of itself included.

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
    progress
        Told of each run, in a line.
    clock
        Returns a time [s] that only grows.

    Raises
    ------
    InvalidInput
        When an option or a job makes no sense.
    JobFailed
        When a job fails.
    StateError
        When a node is lost, or a job is too short to be measured.
    """
    shares = check_shares(shares)
    if repeat < 1:
        raise InvalidInput(f"all is to be run {repeat} times: expected once at least")
    order = [(host, guest) for host in jobs for guest in jobs if guest.request.cores <= host.request.cores]
    kinds = [(share, quota) for quota in ((False, True) if hard else (False,)) for share in shares]
    total = repeat * (len(jobs) + len(order) * len(kinds))
    runs = _Runs(machine, directory, total, progress, clock)
    alone: dict[str, list[Alone]] = {job.request.application: [] for job in jobs}
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
        pairs.append(Pair(known[one], known[other], share, quota, *means))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    cores = len(os.sched_getaffinity(0))
    return Calibration(date, cores, processor(), tuple(known.values()), tuple(pairs), fit(pairs))


def processor() -> str:
    """The kind of this machine's processors, as far as the system tells."""
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
        machine: Machine,
        directory: Path,
        total: int,
        progress: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._machine, self._directory, self._total = machine, directory, total
        self._progress, self._clock = progress, clock
        self._done = 0

    def alone(self, job: Command) -> Alone:
        asked, name = job.request, f"{self._done + 1}-alone"
        (run,) = self._run([(name, job)], [Start(name)], asked.application)
        if run.run_time_s < _SHORTEST_S:
            raise StateError(
                f"job {asked.name!r} ran for {run.run_time_s:.2g} s alone, which is too short to be measured: expected "
                f"{_SHORTEST_S:g} s at least, better 20 s. Give it more to do"
            )
        return Alone(asked.application, asked.name, asked.cores, run.run_time_s, _cpu(run), run.parallel, run.memory)

    def pair(self, host: Command, guest: Command, share: float, *, hard: bool) -> _Both:
        names = f"{self._done + 1}-host", f"{self._done + 1}-guest"
        kind = "as a quota" if hard else "as a weight"
        what = f"{host.request.application} with {guest.request.application} as its guest ({share:g} {kind})"
        one, other = self._run(list(zip(names, (host, guest), strict=True)), both(*names, share, hard=hard), what)
        return one.run_time_s, other.run_time_s, _cpu(one), _cpu(other)

    def _run(
        self, jobs: Sequence[tuple[str, Command]], decisions: Sequence[SharingDecision], what: str
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


def _mean(found: Sequence[Alone]) -> Alone:
    """One for all runs of a job: means, and the most memory."""
    means = np.mean([(each.run_time_s, each.cpu, each.parallel) for each in found], axis=0).tolist()
    run_time_s, cpu, parallel = means
    most = max(each.memory for each in found)
    return replace(found[0], run_time_s=run_time_s, cpu=cpu, parallel=parallel, memory=most)
