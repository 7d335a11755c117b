"""What is kept of jobs while they wait, run and are evicted, in either world."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coscheduler.ledger import Ledger
from coscheduler.nouns import RunningJobs, SharedRun, SharingDecision, WaitingJob
from coscheduler.queuelog import Entry, ended
from coscheduler.result import Decided, JobRun, Sample, SharedQueue, Stay


class Use(NamedTuple):
    """What came of a run: CPU time [s], and how much of its own cores was used, by itself and by guests: CPU, and
    memory [core-seconds]."""

    cpu_s: float = 0.0
    busy_s: float = 0.0
    memory_s: float = 0.0


_NOTHING = Use()


@dataclass(slots=True)
class _Past:
    """A job over all its runs. Times are [s], on the world's clock."""

    asked: WaitingJob
    alone_s: float | None
    first: float = math.nan
    """Its first start."""
    since: float = math.nan
    """Its last start."""
    ended: float = math.nan
    used: Use = _NOTHING
    """By all runs that are over."""
    evictions: int = 0
    problem: str = ""
    """Why it has failed, "" if it has not."""
    place: tuple[str | None, float] | None = None
    """Its host and share now, None while it does not run."""
    stays: list[Stay] = field(default_factory=list)

    def leave(self, now: float) -> None:
        """It leaves its place, if it has one."""
        if self.place is not None:
            self.stays[-1] = self.stays[-1]._replace(until=now)
            self.place = None

    def stop(self, now: float, used: Use) -> None:
        """It runs no more."""
        self.leave(now)
        self.used = Use(*(before + more for before, more in zip(self.used, used, strict=True)))

    def shared(self) -> bool:
        """Whether, since it was started last, it was ever anybody's guest or host."""
        return any(stay.host is not None or stay.share < 1 for stay in self.stays if stay.since >= self.since)

    def run(self) -> JobRun:
        """The same, once it has ended."""
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
        )


class History:
    """Of all jobs of a queue.

    Parameters
    ----------
    jobs
        Each with its run time alone [s], None where that is not known.
    log
        Told of every decision, and of jobs that end, as it happens; None for nobody.
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
        if self._log:  # else nobody asks for reasons, which take their time
            self._log(self._decisions[-1].to_json())

    def placed(self, ledger: Ledger, now: float) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        for name, placed in ledger.running.items():
            past, place = self._jobs[name], (placed.host, ledger.own_share(name))
            if past.place != place:
                past.leave(now)
                past.place = place
                past.stays.append(Stay(now, math.nan, *place))

    def evicted(self, name: str, now: float, used: Use) -> None:
        """A run of a job was in vain: it is to begin anew."""
        self._jobs[name].stop(now, used)
        self._jobs[name].evictions += 1

    def ended(self, name: str, now: float, used: Use, *, parallel: float, memory: float) -> None:
        """A job has ended well, and teaches the rule; `parallel` and `memory` are those of `SharedRun`."""
        past = self._jobs[name]
        past.stop(now, used)
        past.ended = now
        if past.alone_s is None and not past.shared():
            past.alone_s = now - past.since
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
        self._runs.append(run)
        self.note({"at": now} | ended(run, past.run()))

    def failed(self, name: str, now: float, problem: str, used: Use = _NOTHING) -> None:
        """A job has failed, or will never start; nobody learns from that."""
        past = self._jobs[name]
        past.stop(now, used)
        past.first = now if math.isnan(past.first) else past.first
        past.ended, past.problem = now, problem
        self.note({"at": now, "event": "ended", "job": name, "problem": problem})

    def note(self, entry: Entry) -> None:
        """Whoever keeps a log is told."""
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
        """What came of the jobs that have ended, on a machine of so many cores."""
        jobs = tuple(past.run() for past in self._jobs.values() if not math.isnan(past.ended))
        return SharedQueue(cores, jobs, tuple(self._decisions), tuple(self._samples))
