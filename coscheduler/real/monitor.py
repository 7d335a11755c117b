"""What running jobs really do: CPU time and memory of their containers, and how many of their tasks are done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats
from coscheduler.history import RunUsage
from coscheduler.ledger import Ledger
from coscheduler.nouns import (
    BY_INSTRUCTIONS,
    BY_PRESSURE,
    BY_PROGRESS,
    HORIZON_S,
    ON_TIME,
    JobStates,
    WaitingJob,
    happiness,
    smoothed,
)
from coscheduler.real.machine import ContainerUsage
from coscheduler.sharing.promise import LOOKS, Account

PROGRESS = "progress.{rank}"
"""File in a job's directory in which a rank says how far it is: ``DONE TOTAL``."""
INSTRUCTIONS = "instructions.{rank}"
"""File there that has how many instructions a rank has executed (`coscheduler.counters`)."""

_PARALLEL = 1.5
"""A job that uses more cores than this is in a parallel stage."""
_FILE_MOST = 256  # what is read of a file that a job writes [characters]
_OF_WALLTIME = 1 / 12  # of which part of the wall time averages are, where that is less than `HORIZON_S`


class ContainerPlace(NamedTuple):
    """A container of a job: its cores, what one of them is worth, and the memory that belongs to them [bytes]."""

    container: str
    cores: int
    speed: float
    memory: float


@dataclass(slots=True)
class HostPace:
    """How fast a job with cores of its own works alone and beside guests, whatever rule chose these.

    Work is a share of the whole, as reported, seconds without waiting for CPUs, or instructions. A time from one report
    to the next counts as alone if it had no guest in all of it. The first such time is not counted: the job may have
    prepared its work.

    Parameters
    ----------
    by
        Which kind of work this is, as in `WaitingJob`.
    account
        Of its reports.
    guests, beside
        Whether it has a guest now that is not stopped, and whether it has had one since its last report.
    begun
        Whether times alone count.
    """

    by: str
    account: Account
    guests: bool = False
    beside: bool = False
    begun: bool = False

    def have(self, guests: bool) -> None:
        """From now on it has guests that run, or has none."""
        self.guests, self.beside = guests, self.beside or guests

    def look(self, now: float, done: float) -> None:
        """Take in how much was done by now [s]."""
        if done <= self.account.done:
            return
        if self.beside or self.begun:
            self.account.guests = ("",) if self.beside else ()
            self.account.look(now, done)
        else:
            self.account.at, self.account.done, self.begun = now, done, True
        self.beside = self.guests

    def lost_s(self, now: float) -> float | None:
        """How much time it has lost to guests by now, an estimate [s]; None where too little was seen of it alone."""
        seen = self.account
        looks = seen.looks + 1  # an account's first has nothing to be compared with
        if looks < LOOKS or not seen.alone_s:
            return None
        late_s = now - seen.at - seen.alone_s / looks if self.beside else 0.0  # its next report
        return seen.shared_s - seen.shared_done * seen.alone_s / seen.alone_done + max(0.0, late_s)


@dataclass(slots=True)
class WatchedJob:
    """A running job as it was measured; CPU times and rates in cores of the machine."""

    asked: WaitingJob
    directory: Path
    where: tuple[ContainerPlace, ...]
    at: float  # when any of it was measured last [s]
    cpu_s: float = 0.0  # CPU time so far [s]
    seen: dict[str, float] = field(default_factory=dict)  # that of each container, as its node counts it [s]
    cores: float = 0.0  # what it used lately
    mean: float = math.nan  # the average of that
    resident: dict[str, int] = field(default_factory=dict)  # memory of each container [bytes]
    peaks: dict[str, int] = field(default_factory=dict)  # the most of that so far
    available: dict[str, int] = field(default_factory=dict)  # what the machine under each can still give [bytes]
    stalls: dict[str, float] = field(default_factory=dict)  # how long each has waited for memory so far [s]
    stalled: dict[str, float] = field(default_factory=dict)  # for which share of the time lately
    waits: dict[str, float] = field(default_factory=dict)  # how long each's processors were others' so far [s]
    throttles: dict[str, float] = field(default_factory=dict)  # and how long quotas held it back [s]
    waited_at: float = math.nan  # when it was measured last how long it has waited for CPUs [s]
    unhindered: tuple[float, float] = (0.0, 0.0)  # as in `RunningJobs`, up to then [s]
    pace: tuple[float, float] = (1.0, 1.0)  # for which share of the time that was before
    measures: tuple[bool, bool] = (False, False)  # which of the two is known now
    memory: float = 0.0  # all of that, as a share of what belongs to its cores
    most: float = 0.0  # the most that was ever
    done: float | None = None  # share of its tasks that are done, None where it does not report
    instructions: float | None = None  # executed so far, of each of its cores [1e9]; None where they are not counted
    reported: float = math.nan  # when that grew last [s]
    step: float = 0.0  # by how much
    rate: float = math.nan  # how fast it grows on average [1/s]
    watched_s: float = 0.0  # how long it was looked at [s]
    parallel_s: float = 0.0  # how long of that it was in parallel stages [s]
    busy_s: float = 0.0  # integral of the cores that it and its guests use [core-seconds]
    memory_s: float = 0.0  # integral of the memory that they use [core-seconds]
    host_pace: HostPace | None = None  # while it has cores of its own
    unseen: bool = False  # whether it may have had guests that were not seen

    @property
    def is_parallel(self) -> bool:
        """Whether it uses more than one core now, if it has more than one."""
        return self.cores > min(_PARALLEL, 0.5 * self.asked.cores)

    def look(self, now: float, used: Mapping[str, ContainerUsage]) -> float:
        """Take in what its containers have used by now; the time [s] that this covers, 0 where none runs."""
        there = [where for where in self.where if where.container in used]
        if not there:
            return 0.0
        over_s, self.at = now - self.at, now
        self._wait(now, used)
        self._count()
        spent = 0.0
        for where in there:
            found = used[where.container]
            spent += max(0.0, found.cpu_s - self.seen.get(where.container, 0.0)) / where.speed
            self.seen[where.container] = found.cpu_s
            self._remember(where.container, found, over_s)
        self.cpu_s += spent
        self.memory = sum(self.resident.values()) / sum(where.memory for where in self.where)
        self.most = max(self.most, self.memory)
        if over_s > 0:
            self.cores = spent / over_s
            self.mean = self._average(self.mean, self.cores, over_s)
            self._progress()
            self.watched_s += over_s
            self.parallel_s += over_s if self.is_parallel else 0.0
        return over_s

    def _remember(self, container: str, found: ContainerUsage, over_s: float) -> None:
        """What is said of a container's memory."""
        self.resident[container] = found.memory or 0
        self.peaks[container] = max(self.resident[container], self.peaks.get(container, 0))
        if found.available is not None:
            self.available[container] = found.available
        if found.stalled_s is not None:
            before = self.stalls.get(container, found.stalled_s)
            self.stalled[container] = (found.stalled_s - before) / over_s if over_s > 0 else 0.0
            self.stalls[container] = found.stalled_s

    def _wait(self, now: float, used: Mapping[str, ContainerUsage]) -> None:
        """How long it has waited for CPUs.

        While the mean over a container's k processors is p, the share of the time in which any of its threads waits is
        p at least and k p at most. What quotas have held back is the sum over its processors: where that alone is
        counted, it may have waited for longer.
        """
        if any(where.container not in used for where in self.where):
            self.measures = (False, False)  # what is counted meanwhile shows at the next look
            return
        there = [used[where.container] for where in self.where]
        pressed = all(found.waited_s is not None for found in there)
        self.measures = (pressed, pressed or all(found.throttled_s is not None for found in there))
        self.waited_at = now if math.isnan(self.waited_at) else self.waited_at
        over_s = now - self.waited_at
        waited = 0.0  # of all cores together [core-seconds]
        for where, found in zip(self.where, there, strict=True):
            others_s = where.cores * _more(self.waits, where.container, found.waited_s)
            held_s = _more(self.throttles, where.container, found.throttled_s)
            waited += min(where.cores * over_s, max(others_s, held_s))
        cores = sum(where.cores for where in self.where)
        if over_s > 0:
            self.pace = max(0.0, 1 - waited / over_s), 1 - waited / cores / over_s
        self.unhindered, self.waited_at = self.unhindered_by(now), now

    def unhindered_by(self, now: float) -> tuple[float, float]:
        """How long it has not waited by now, at the pace that was seen last [s]."""
        more_s = now - self.waited_at
        return self.unhindered[0] + more_s * self.pace[0], self.unhindered[1] + more_s * self.pace[1]

    def used(self, now: float) -> RunUsage:
        """What it has used by the end of its containers, since when it cannot be measured: CPU at the average rate."""
        cpu_s = self.cpu_s * (1 + (now - self.at) / self.watched_s) if self.watched_s else 0.0
        return RunUsage(cpu_s, self.busy_s, self.memory_s)

    @property
    def parallel(self) -> float:
        """Share of its time in parallel stages; 1 where it was never looked at."""
        return self.parallel_s / self.watched_s if self.watched_s else 1.0

    def keep_pace(self, now: float, guests: bool | None = None) -> None:
        """It has cores of its own, with or without guests from now on [s]; None: as before."""
        by = self.asked.bound_by if self.done is None else BY_PROGRESS
        pressed = self.unhindered[0] if self.measures[0] else None
        work = {BY_PROGRESS: self.done or 0.0, BY_PRESSURE: pressed, BY_INSTRUCTIONS: self.instructions}[by]
        if self.host_pace is None or self.host_pace.by != by:
            before, self.host_pace = self.host_pace, HostPace(by, Account(self.asked.application, now, work or 0.0))
            if before is not None:  # what it has lost before its first report is not known
                self.unseen |= before.account.shared_s > 0 or before.beside
                self.host_pace.have(before.guests)
        if work is not None:
            self.host_pace.look(now, work)
        if guests is not None:
            self.host_pace.have(guests)

    def lost_s(self, now: float) -> float | None:
        """How much time it has lost to guests, an estimate [s]; None where that is not known."""
        return None if self.host_pace is None or self.unseen else self.host_pace.lost_s(now)

    def lost_by_end_s(self, now: float) -> float | None:
        """The same once it has ended: its last report counts, and as much of one more step as it had the time for."""
        self.at = now
        self._progress()
        self.done = None if self.done is None else 1 - self.left()
        self.keep_pace(now)
        return self.lost_s(now)

    def left(self) -> float:
        """Share of its tasks that is left; of those that run now, part counts as done, by the rate."""
        if self.done is None:
            return 1.0
        running = 0.0 if math.isnan(self.rate) else min(self.step, self.rate * (self.at - self.reported))
        return max(0.0, 1 - self.done - running)

    def _progress(self) -> None:
        """Tasks end now and then: the rate is taken when they do, not while they run."""
        done = _progress_of(self.directory, len(self.where))
        if done is None or done == self.done:
            return
        if self.done is not None and done > self.done:
            over_s, self.step = self.at - self.reported, done - self.done
            self.rate = self._average(self.rate, self.step / over_s, over_s)
        self.done, self.reported = done, self.at

    def _count(self) -> None:
        """How many instructions it has executed, where its bound goes by them."""
        if self.asked.bound_by == BY_INSTRUCTIONS:
            counted = _written(self.directory, INSTRUCTIONS, len(self.where), numbers=1)
            whole = len(counted) == len(self.where)
            self.instructions = sum(each for (each,) in counted) / self.asked.cores / 1e9 if whole else None

    def _average(self, before: float, now: float, over_s: float) -> float:
        return smoothed(before, now, over_s, min(HORIZON_S, _OF_WALLTIME * self.asked.walltime_s))


class Monitor:
    """Running jobs of a machine."""

    def __init__(self) -> None:
        self.jobs: dict[str, WatchedJob] = {}

    def begin(
        self, asked: WaitingJob, directory: Path, where: Sequence[ContainerPlace], now: float, *, unseen: bool = False
    ) -> None:
        self.jobs[asked.name] = WatchedJob(asked, directory, tuple(where), now, unseen=unseen)

    def look(self, now: float, used: Mapping[str, ContainerUsage], ledger: Ledger) -> None:
        """Take in what all containers have used by now."""
        spent = {name: job.cpu_s for name, job in self.jobs.items()}
        over_s = {name: job.look(now, used) for name, job in self.jobs.items()}
        for name, placed in ledger.running.items():
            job, owner = self.jobs[name], self.jobs[placed.host or name]
            owner.busy_s += job.cpu_s - spent[name]
            owner.memory_s += job.memory * job.asked.cores * over_s[name]
            if placed.host is None and over_s[name]:
                job.keep_pace(now)

    def have_guests(self, now: float, ledger: Ledger) -> None:
        """From now on [s] jobs have the guests that they have in the ledger."""
        for name, placed in ledger.running.items():
            if placed.host is None:
                self.jobs[name].keep_pace(now, any(ledger.running[guest].share for guest in placed.guests))

    def busy(self) -> float:
        return sum(job.cores for job in self.jobs.values())

    def reported(self, ledger: Ledger) -> Floats:
        """Share of its work that each running job has reported as done, NaN for one that has not; in that order."""
        done = (self.jobs[name].done for name in ledger.running)
        return np.array([math.nan if each is None else each for each in done])

    def unhindered(self, ledger: Ledger, now: float) -> Floats:
        """How long each running job has not waited for CPUs: that of `RunningJobs`."""
        jobs = [self.jobs[name] for name in ledger.running]
        found = np.array([job.unhindered_by(now) for job in jobs]).reshape(-1, 2)
        return np.where(np.array([job.measures for job in jobs]).reshape(-1, 2), found, math.nan)

    def instructions(self, ledger: Ledger) -> Floats:
        """How many instructions each running job has executed: that of `RunningJobs`."""
        counts = (self.jobs[name].instructions for name in ledger.running)
        return np.array([math.nan if each is None else each for each in counts])

    def states(self, ledger: Ledger, now: float) -> JobStates:
        """What is known of the running jobs, in the ledger's order.

        One that does not report its progress, or has not yet had the time to, counts as just on time.
        """
        jobs = [self.jobs[name] for name in ledger.running]
        walltime = np.array([job.asked.walltime_s for job in jobs])
        elapsed = now - np.array([placed.started for placed in ledger.running.values()])
        rate = np.array([job.rate for job in jobs])
        known = happiness(walltime, elapsed, np.array([job.left() for job in jobs]), np.nan_to_num(rate))
        on_time = np.where(elapsed < walltime, ON_TIME, 0.0)
        cores = np.array([job.asked.cores for job in jobs])
        mean = np.array([job.mean for job in jobs])
        return JobStates(
            cpu=np.clip(np.nan_to_num(mean) / cores, 0.0, 1.0),
            memory=np.minimum(np.array([job.memory for job in jobs]), 1.0),
            parallel=np.array([job.is_parallel for job in jobs], dtype=np.bool_),
            elapsed=elapsed / walltime,
            happiness=np.where(np.isnan(rate), on_time, known),
        )


def _more(seen: dict[str, float], container: str, now: float | None) -> float:
    """By how much a container's counter has grown since it was seen last; 0 where it was not, or is not counted."""
    if now is None:
        return 0.0
    before, seen[container] = seen.get(container, now), now
    return max(0.0, now - before)


def _progress_of(directory: Path, ranks: int) -> float | None:
    """Share of its tasks that the slowest rank has done, of those that have reported: the job ends with that one. None
    where none has."""
    shares = [done / total for done, total in _written(directory, PROGRESS, ranks, numbers=2) if total > 0]
    return min(1.0, max(0.0, min(shares))) if shares else None


def _written(directory: Path, name: str, ranks: int, *, numbers: int) -> list[list[float]]:
    """So many finite numbers from each rank's file of this name, without ranks whose file has no such."""
    found = []
    for rank in range(ranks):
        with suppress(OSError, ValueError):
            with open(directory / name.format(rank=rank)) as file:
                parts = [float(word) for word in file.read(_FILE_MOST).split()]
            if len(parts) == numbers and all(map(math.isfinite, parts)):
                found.append(parts)
    return found
