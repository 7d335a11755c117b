"""Who waits, who runs on whose cores, and with which share: the one place where decisions become facts.

State machines without I/O, the same in the simulated world and on real nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import Start
from asa.core.errors import IllegalDecision, InvalidInput, Starved
from coscheduler.nouns import (
    ALONE,
    BY_PRESSURE,
    FLOOR,
    Evict,
    JobStates,
    Keep,
    RunningJobs,
    SetShare,
    SharingDecision,
    SharingView,
    StartGuest,
    WaitingJob,
)

_SLACK = 1e-9  # sums of shares are floating-point numbers


@dataclass(slots=True)
class PlacedJob:
    """A running job: whose guest it is (None: it has cores of its own), its share of them, and its own guests."""

    job: WaitingJob
    started: float
    host: str | None = None
    share: float = 1.0
    hard: bool = False
    guests: list[str] = field(default_factory=list)


class Ledger:
    """Which job has which of so many cores.

    Examples
    --------
    >>> ledger = Ledger(8)
    >>> ledger.submit(WaitingJob("a", "blast", 8, 3600.0))
    >>> ledger.submit(WaitingJob("b", "montage", 4, 3600.0))
    >>> ledger.apply(Start("a"), 0.0), ledger.apply(StartGuest("b", "a", 0.1), 0.0)
    ('a', 'b')
    >>> ledger.end("a")  # its guest keeps the cores that it asked for
    ('b',)
    >>> ledger.free, ledger.running["b"].host
    (4, None)
    """

    def __init__(self, cores: int) -> None:
        if cores < 1:
            raise InvalidInput(f"a machine of {cores} cores: at least 1 expected")
        self.cores = self.free = self._most = cores
        self.running: dict[str, PlacedJob] = {}
        self._waiting: dict[str, WaitingJob] = {}
        self._positions: dict[str, int] = {}

    @property
    def queue(self) -> tuple[WaitingJob, ...]:
        """Jobs that wait, in order of submission."""
        return tuple(self._waiting.values())

    def submit(self, job: WaitingJob) -> None:
        """A job joins the end of the queue. Raises `InvalidInput` when it never fits, or there was one of this name."""
        if not 1 <= job.cores <= self._most:
            raise InvalidInput(f"job {job.name!r} asks for {job.cores} cores: 1 to {self._most} expected")
        if job.name in self._positions:
            raise InvalidInput(f"there are two jobs called {job.name!r}: each needs a name of its own")
        self._positions[job.name] = len(self._positions)
        self._waiting[job.name] = job

    def apply(self, decision: SharingDecision, now: float) -> str | None:
        """Do what a rule has decided; the job that has started by it, None for none.

        Raises `IllegalDecision` when it breaks a law; nothing has changed then.
        """
        match decision:
            case Start():
                return self._start(decision, now)
            case StartGuest():
                return self._start_guest(decision, now)
            case SetShare():
                self._guest(decision.guest, decision)
                if decision.share:
                    self._check_share(decision, self.running[decision.guest].host, decision.share, decision.guest)
                self.running[decision.guest].share = decision.share
            case Evict():
                self._guest(decision.guest, decision)
                self.requeue(decision.guest)
            case Keep():
                if decision.host not in self.running:
                    raise IllegalDecision("no such job runs", decision)
        return None

    def check_idle(self) -> None:
        """Nothing runs, and nothing will be submitted.

        Raises `Starved` when a job waits for which there are cores: the rule has started none.
        """
        for job in self.queue:
            if job.cores <= self.cores:
                raise Starved(f"job {job.name!r} waits on an idle machine: start it")

    def end(self, name: str) -> tuple[str, ...]:
        """A running job is over; its guests, each of which keeps as many of its cores as it has asked for."""
        ended = self.running.pop(name)
        if ended.host is not None:
            self.running[ended.host].guests.remove(name)
            return ()
        self.free += self._room(ended)
        for guest in ended.guests:
            placed = self.running[guest]
            placed.host, placed.share, placed.hard = None, 1.0, False
        return tuple(ended.guests)

    def requeue(self, name: str) -> tuple[str, ...]:
        """A running job goes back to its place in the queue; the guests that have cores of their own from now on."""
        job = self.running[name].job
        inheriting = self.end(name)
        self._waiting[name] = job
        self._waiting = dict(sorted(self._waiting.items(), key=lambda item: self._positions[item[0]]))
        return inheriting

    def resize(self, cores: int) -> None:
        """The machine has so many more free cores, or fewer. Rules do not see jobs that ask for more than there are."""
        assert self.free + cores >= 0, "jobs leave cores before these are lost"
        self.cores, self.free = self.cores + cores, self.free + cores
        self._most = max(self._most, self.cores)

    def withdraw(self, name: str) -> WaitingJob:
        return self._waiting.pop(name)

    def own_share(self, name: str) -> float:
        """A host's share of its own cores, or a guest's of its host's."""
        placed = self.running[name]
        if placed.host is not None:
            return placed.share
        return 1.0 - sum(self.running[guest].share for guest in placed.guests)

    def view(
        self,
        now: float,
        states: JobStates,
        done: Floats | None = None,
        unhindered: Floats | None = None,
        instructions: Floats | None = None,
        *,
        stops: bool = True,
    ) -> SharingView:
        """What a rule sees; the others have a row for each running job, in order, as in `RunningJobs`. None: no job
        reports, no job's waiting is measured, and no instructions are counted."""
        names, placed = tuple(self.running), self.running.values()
        rows = {name: row for row, name in enumerate(names)}
        kinds = {each.job.application: 0 for each in placed}
        kinds = {application: number for number, application in enumerate(kinds)}
        running = RunningJobs(
            names=names,
            applications=tuple(kinds),
            application=np.array([kinds[each.job.application] for each in placed], dtype=np.int64),
            cores=np.array([each.job.cores for each in placed], dtype=np.int64),
            walltime=np.array([each.job.walltime_s for each in placed], dtype=np.float64),
            started=np.array([each.started for each in placed], dtype=np.float64),
            states=states,
            host=np.array([ALONE if each.host is None else rows[each.host] for each in placed], dtype=np.int64),
            share=np.array([self.own_share(name) for name in names], dtype=np.float64),
            exclusive=np.array([each.job.exclusive for each in placed], dtype=np.bool_),
            bound=np.array([each.job.bound for each in placed], dtype=np.float64),
            by_pressure=np.array([each.job.bound_by == BY_PRESSURE for each in placed], dtype=np.bool_),
            done=np.full(len(names), np.nan) if done is None else done,
            unhindered=np.full((len(names), 2), np.nan) if unhindered is None else unhindered,
            instructions=np.full(len(names), np.nan) if instructions is None else instructions,
        )
        queue = tuple(job for job in self.queue if job.cores <= self.cores)
        return SharingView(now, self.cores, self.free, queue, running, stops)

    def _start(self, decision: Start, now: float) -> str:
        job = self._waiting_job(str(decision.job), decision)
        if job.cores > self.free:
            raise IllegalDecision(f"it needs {job.cores} cores, {self.free} are free", decision)
        self.free -= job.cores
        self.running[job.name] = PlacedJob(self._waiting.pop(job.name), now)
        return job.name

    def _start_guest(self, decision: StartGuest, now: float) -> str:
        job = self._waiting_job(decision.job, decision)
        host = self.running.get(decision.host)
        if host is None or host.host is not None:
            raise IllegalDecision("the host must be a running job with cores of its own", decision)
        if host.job.exclusive or job.exclusive:
            raise IllegalDecision("one of the two is exclusive", decision)
        if job.cores > (room := self._room(host)):
            raise IllegalDecision(f"it needs {job.cores} cores, {room} of its host's are no other guest's", decision)
        self._check_share(decision, decision.host, decision.share)
        self.running[job.name] = PlacedJob(
            self._waiting.pop(job.name), now, decision.host, decision.share, decision.hard
        )
        host.guests.append(job.name)
        return job.name

    def _room(self, host: PlacedJob) -> int:
        """Cores of a host that none of its guests will keep when it ends."""
        return host.job.cores - sum(self.running[guest].job.cores for guest in host.guests)

    def _check_share(self, decision: SharingDecision, host: str | None, share: float, but: str | None = None) -> None:
        """No share may fall below the floor; `but` is a guest whose present share does not count."""
        assert host is not None, "guests have hosts"
        others = sum(self.running[guest].share for guest in self.running[host].guests if guest != but)
        if not FLOOR - _SLACK <= share <= 1 - FLOOR - others + _SLACK:
            raise IllegalDecision(f"a share from {FLOOR:g} to {1 - FLOOR - others:g} expected", decision)

    def _waiting_job(self, name: str, decision: SharingDecision) -> WaitingJob:
        if name not in self._waiting:
            raise IllegalDecision("no such job waits", decision)
        return self._waiting[name]

    def _guest(self, name: str, decision: SharingDecision) -> None:
        if name not in self.running or self.running[name].host is None:
            raise IllegalDecision("no such guest runs", decision)


class Arrivals:
    """Submits jobs at the times they say, in either world.

    Parameters
    ----------
    jobs
        In the order in which those of the same moment join the queue.
    """

    def __init__(self, jobs: Iterable[WaitingJob], ledger: Ledger) -> None:
        self._coming = sorted(jobs, key=lambda job: job.submitted)[::-1]
        self._ledger = ledger

    @property
    def next(self) -> float:
        """When the next one is submitted [s]; infinite when all were."""
        return self._coming[-1].submitted if self._coming else math.inf

    def submit(self, now: float) -> bool:
        """Jobs whose time has come join the queue; whether there were any."""
        before = len(self._coming)
        while self.next <= now:
            self._ledger.submit(self._coming.pop())
        return len(self._coming) < before
