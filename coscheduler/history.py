"""What is kept of jobs while they wait, run and are evicted, in either world, and what came of the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np

from asa.core.units import HOUR
from coscheduler.ledger import Ledger
from coscheduler.nouns import LOSSES, RunningJobs, SharedRun, SharingDecision, WaitingJob

Entry = Mapping[str, Any]
"""``at`` [s], and either ``event`` (``started``, ``requeued``, ``ended``) or ``decision``, with more."""


class Stay(NamedTuple):
    """A time [s] during which a job had the same cores and the same share of them; `host` is None for its own."""

    since: float
    until: float
    host: str | None
    share: float


class Sample(NamedTuple):
    """What was measured at a moment: cores busy, and each running job's happiness and share of its host's cores."""

    at: float
    busy: float
    happiness: Mapping[str, float]
    share: Mapping[str, float]


class Decided(NamedTuple):
    """A decision, and its time [s]."""

    at: float
    decision: SharingDecision

    def to_json(self) -> dict[str, Any]:
        """Time, kind, fields and reason, JSON-able."""
        parts = {each.name: getattr(self.decision, each.name) for each in fields(self.decision)}
        why = parts.pop("why", None)
        return {"at": self.at, "decision": type(self.decision).__name__, **parts, "why": why and dict(why)}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job, from its submission to its end. Times are [s].

    Parameters
    ----------
    submitted, started, ended
        `started` is its first start, where it was evicted later.
    alone_s
        Run time on cores of its own; NaN where that is not known.
    cpu_s
        CPU time used, that of evicted runs included.
    held_s, busy_s, memory_s
        Cores of its own times how long it had them, and how much of that was used, by itself and by guests: CPU, and
        memory [core-seconds].
    stays
        Where it ran.
    evictions
        How often it began anew.
    problem
        Why it has failed; "" where it has not.
    host_slowdown
        Time on cores of its own over how long the work done there takes alone, for a job that had guests; else NaN, and
        where that is not known.
    bound
        By how much guests were to slow it down at most; NaN where nothing was promised.
    estimated
        Whether `host_slowdown` is an estimate, from its own reports: its run time alone is not known.
    """

    name: str
    application: str
    cores: int
    walltime_s: float
    submitted: float
    started: float
    ended: float
    alone_s: float
    cpu_s: float
    held_s: float
    busy_s: float
    memory_s: float
    stays: tuple[Stay, ...]
    evictions: int = 0
    problem: str = ""
    host_slowdown: float = math.nan
    bound: float = math.nan
    estimated: bool = False

    @property
    def promise(self) -> bool | None:
        """Whether its guests slowed it down by no more than its bound; None where nothing was promised, or is known."""
        if math.isnan(self.host_slowdown) or math.isnan(self.bound):
            return None
        return self.host_slowdown <= 1 + self.bound + 1e-9

    @property
    def unjudged(self) -> bool:
        """Whether it had a bound and guests, and it is not known how much these have slowed it down."""
        shared = any(stay.host is None and stay.share < 1 for stay in self.stays)
        return shared and not self.problem and not math.isnan(self.bound) and self.promise is None

    @property
    def wait_s(self) -> float:
        return self.started - self.submitted

    @property
    def response_s(self) -> float:
        return self.ended - self.submitted

    @property
    def slowdown(self) -> float:
        """First start to end, over the run time alone: what eviction has cost is part of it. NaN where unknown."""
        return (self.ended - self.started) / self.alone_s if self.alone_s else math.nan

    @property
    def over_walltime(self) -> bool:
        return self.ended - self.started > self.walltime_s * (1 + 1e-9)

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; null for what is not known."""
        found = _known(asdict(self) | {"wait_s": self.wait_s, "slowdown": self.slowdown})
        return found | {"stays": [stay._asdict() for stay in self.stays]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """A job from what `to_json` has made of it."""
        found: dict[str, Any] = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        found |= {name: math.nan for name, value in found.items() if value is None}
        return cls(**found | {"stays": tuple(Stay(**stay) for stay in data["stays"])})


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """A queue that has come to its end.

    Parameters
    ----------
    jobs
        In order of submission.
    samples
        What was measured, where it was asked for.
    """

    cores: int
    jobs: tuple[JobRun, ...]
    decisions: tuple[Decided, ...] = ()
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def makespan_s(self) -> float:
        """First submission to last end [s]; NaN while no job has ended."""
        if not self.jobs:
            return math.nan
        return max(job.ended for job in self.jobs) - min(job.submitted for job in self.jobs)

    def metrics(self) -> dict[str, float]:
        """The paper's metrics; times in hours, shares in [0, 1]. Slowdowns count where they are known, else NaN.

        Means are over the jobs that have ended well; what failed ones have used counts as used. Empty while no job has
        ended well.
        """
        jobs = [job for job in self.jobs if not job.problem]
        if not jobs:
            return {}
        held_s = self.cores * self.makespan_s
        slowdowns = [job.slowdown for job in jobs if not math.isnan(job.slowdown)]
        return {
            "mean_wait_h": float(np.mean([job.wait_s for job in jobs])) / HOUR,
            "cpu_utilisation": sum(job.cpu_s for job in self.jobs) / held_s if held_s else math.nan,
            "mean_response_h": float(np.mean([job.response_s for job in jobs])) / HOUR,
            "makespan_h": self.makespan_s / HOUR,
            "mean_slowdown": float(np.mean(slowdowns)) if slowdowns else math.nan,
            "over_walltime": float(np.mean([job.over_walltime for job in jobs])),
        }

    def promises(self) -> tuple[int, tuple[str, ...]]:
        """How many hosts had a bound of which it is known whether it was kept, and the names of those beyond theirs."""
        hosts = [job for job in self.jobs if not job.problem and job.promise is not None]
        return len(hosts), tuple(job.name for job in hosts if not job.promise)

    def to_json(self) -> dict[str, Any]:
        """Metrics, jobs and decisions, JSON-able; null for what is not known."""
        hosts, broken = self.promises()
        judged = [job for job in self.jobs if not job.problem and job.promise is not None]
        promises = {"hosts": hosts, "broken": list(broken), "estimated": [job.name for job in judged if job.estimated]}
        return {
            "cores": self.cores,
            "metrics": _known(self.metrics()),
            "promises": promises | {"unknown": [job.name for job in self.jobs if job.unjudged]},
            "jobs": [job.to_json() for job in self.jobs],
            "decisions": [each.to_json() for each in self.decisions],
        }


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()}


class RunUsage(NamedTuple):
    """What came of a run: CPU time [s], and how much of its own cores was used, by itself and by guests: CPU, and
    memory [core-seconds]."""

    cpu_s: float = 0.0
    busy_s: float = 0.0
    memory_s: float = 0.0


_NOTHING = RunUsage()
_NOTED = 0.005  # changes of a slowdown that are noted


@dataclass(slots=True)
class _Past:
    """A job over all its runs. Times are [s], on the world's clock."""

    asked: WaitingJob
    alone_s: float | None
    first: float = math.nan  # its first start
    since: float = math.nan  # its last start
    ended: float = math.nan
    used: RunUsage = _NOTHING  # by all runs that are over
    evictions: int = 0
    problem: str = ""  # why it has failed, "" if it has not
    host_slowdown: float = math.nan  # see `JobRun`
    estimated: bool = False
    noted: float = math.nan  # by how much it was slower when that was noted last
    place: tuple[str | None, float] | None = None  # its host and share now, None while it does not run
    stays: list[Stay] = field(default_factory=list)

    def leave(self, now: float) -> None:
        if self.place is not None:
            self.stays[-1] = self.stays[-1]._replace(until=now)
            self.place = None

    def stop(self, now: float, used: RunUsage) -> None:
        """It runs no more, and has used that much."""
        self.leave(now)
        self.used = RunUsage(*(before + more for before, more in zip(self.used, used, strict=True)))

    def run_stays(self) -> list[Stay]:
        """Where it was since it was started last."""
        return [stay for stay in self.stays if stay.since >= self.since]

    def was_guest(self) -> bool:
        """Whether, since it was started last, it ever ran on cores of another job."""
        return any(stay.host is not None for stay in self.run_stays())

    def had_guests(self) -> bool:
        """Whether, since it was started last, it had cores of its own and guests on them."""
        return any(stay.host is None and stay.share < 1 for stay in self.run_stays())

    def own_s(self, now: float = math.nan) -> float:
        """How long it had cores of its own since it was started last [s]; with a time if it still runs."""
        stays = [stay for stay in self.run_stays() if stay.host is None]
        return sum((now if math.isnan(stay.until) else stay.until) - stay.since for stay in stays)

    def slower(self, lost_s: float, now: float = math.nan) -> float:
        """By how much it is slower than alone, on cores of its own, if it has lost so much time there [s]."""
        return lost_s / (self.own_s(now) - lost_s)

    def run(self) -> JobRun:
        """What came of it, once it has ended."""
        held_s = self.asked.cores * sum(stay.until - stay.since for stay in self.stays if stay.host is None)
        return JobRun(
            name=self.asked.name,
            application=self.asked.application,
            cores=self.asked.cores,
            walltime_s=self.asked.walltime_s,
            submitted=self.asked.submitted,
            started=self.first,
            ended=self.ended,
            alone_s=math.nan if self.alone_s is None else self.alone_s,
            held_s=held_s,
            **self.used._asdict(),
            stays=tuple(self.stays),
            evictions=self.evictions,
            problem=self.problem,
            host_slowdown=self.host_slowdown,
            bound=self.asked.bound if math.isfinite(self.asked.bound) else math.nan,
            estimated=self.estimated,
        )


def ended(run: SharedRun, result: JobRun) -> dict[str, Any]:
    """The entry, but for its time, of a job that has ended well: how long it ran, its loss by either form, and all that
    came of it."""
    return {
        "event": "ended",
        "job": run.job,
        "problem": "",
        "run_time_s": run.run_time_s,
        "alone_s": run.alone_s,
        "slowdown": run.slowdown,
        "loss": {name: loss(run) for name, loss in LOSSES.items()},
        "result": result.to_json(),
    }


class History:
    """Of all jobs of a queue.

    Parameters
    ----------
    jobs
        Each with its run time alone [s], None where that is not known.
    """

    def __init__(
        self, jobs: Iterable[tuple[WaitingJob, float | None]], log: Callable[[Entry], None] | None = None
    ) -> None:
        self._jobs = {asked.name: _Past(asked, alone_s) for asked, alone_s in jobs}
        self._log = log
        self._decisions: list[Decided] = []
        self._samples: list[Sample] = []
        self._runs: list[SharedRun] = []

    def decided(self, decision: SharingDecision, now: float, started: str | None) -> None:
        """A decision was carried out, and has started this job."""
        if started is not None:
            past = self._jobs[started]
            past.since = now
            past.first = now if math.isnan(past.first) else past.first
        self._decisions.append(Decided(now, decision))
        if self._log:  # else reasons, which take time to make, are not needed
            self._log(self._decisions[-1].to_json())

    def placed(self, ledger: Ledger, now: float) -> None:
        """Note which jobs have other cores, or another share of them, than before."""
        for name, placed in ledger.running.items():
            past, place = self._jobs[name], (placed.host, ledger.own_share(name))
            if past.place != place:
                past.leave(now)
                past.place = place
                past.stays.append(Stay(now, math.nan, *place))

    def taken_over(self, name: str, first: float, since: float, stays: Iterable[Stay], evictions: int) -> None:
        """A job runs already: since its first start, and its last; what it used before that is not known."""
        past = self._jobs[name]
        past.first, past.since, past.stays, past.evictions = first, since, list(stays), evictions
        past.place = past.stays[-1].host, past.stays[-1].share

    def evicted(self, name: str, now: float, used: RunUsage) -> None:
        """A run of a job was in vain: the job is to start again."""
        self._jobs[name].stop(now, used)
        self._jobs[name].evictions += 1

    def ended(
        self,
        name: str,
        now: float,
        used: RunUsage,
        *,
        parallel: float,
        memory: float,
        own_alone_s: float | None = None,
        lost_s: float | None = None,
        seen: bool = True,
    ) -> None:
        """A job has ended well, and teaches the rule, if it was seen while it ran.

        Parameters
        ----------
        parallel, memory
            Those of `SharedRun`.
        own_alone_s
            How long what it did on cores of its own takes alone [s]; None: all that it did, where it never was a guest.
        lost_s
            How much time it has lost to guests, an estimate for where that is not known [s].
        """
        past = self._jobs[name]
        past.stop(now, used)
        past.ended = now
        if past.alone_s is None and not (past.was_guest() or past.had_guests()):
            past.alone_s = now - past.since
        if own_alone_s is None and not past.was_guest():
            own_alone_s = past.alone_s
        if own_alone_s and past.had_guests():
            past.host_slowdown = past.own_s() / own_alone_s
        elif lost_s is not None and past.had_guests():
            past.host_slowdown, past.estimated = 1 + past.slower(lost_s), True
        run = SharedRun(
            job=name,
            application=past.asked.application,
            cores=past.asked.cores,
            walltime_s=past.asked.walltime_s,
            run_time_s=now - past.since,
            alone_s=past.alone_s,
            cpu_s=used.cpu_s,
            parallel=parallel,
            memory=memory,
        )
        if seen:
            self._runs.append(run)
        self.note({"at": now} | ended(run, past.run()))

    def slowed(self, name: str, now: float, lost_s: float, guests: Iterable[str]) -> None:
        """A running host has lost so much time to guests [s], these among them: noted when that has changed."""
        past = self._jobs[name]
        slower = past.slower(lost_s, now)
        if not abs(slower - past.noted) < _NOTED:
            past.noted = slower
            entry = {"at": now, "event": "slowdown", "job": name, "slower": slower, "guests": list(guests)}
            self.note(entry | {"bound": past.asked.bound if math.isfinite(past.asked.bound) else None})

    def failed(self, name: str, now: float, problem: str, used: RunUsage = _NOTHING) -> None:
        """A job has failed, or will never start; the rule does not learn from that."""
        past = self._jobs[name]
        past.stop(now, used)
        past.first = now if math.isnan(past.first) else past.first
        past.ended, past.problem = now, problem
        self.note({"at": now, "event": "ended", "job": name, "problem": problem})

    def note(self, entry: Entry) -> None:
        if self._log:
            self._log(entry)

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended well since this was asked last, for the rule to learn from."""
        found, self._runs = tuple(self._runs), []
        return found

    def sample(self, running: RunningJobs, busy: float, now: float) -> None:
        """Keep what was measured: `busy` cores in all."""
        happy = dict(zip(running.names, running.states.happiness.tolist(), strict=True))
        shares = dict(zip(running.names, running.share.tolist(), strict=True))
        self._samples.append(Sample(now, busy, happy, shares))

    def result(self, cores: int) -> SharedQueue:
        jobs = tuple(past.run() for past in self._jobs.values() if not math.isnan(past.ended))
        return SharedQueue(cores, jobs, tuple(self._decisions), tuple(self._samples))
