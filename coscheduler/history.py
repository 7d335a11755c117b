"""What is kept of jobs while they wait, run and are evicted, in either world."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from asa.core.decision import Start
from asa.core.sharing import RunningJobs, SharingDecision, StartGuest, WaitingJob
from coscheduler.ledger import Ledger
from coscheduler.result import Decided, JobRun, Sample, SharedQueue, Stay


@dataclass(slots=True)
class Past:
    """A job over all its runs. Times are [s], on the world's clock; `problem` is why it has failed, "" if it has not.

    `cpu_s`, `busy_s` and `memory_s` are those of `coscheduler.result.JobRun`.
    """

    asked: WaitingJob
    alone_s: float | None
    first: float = math.nan
    since: float = math.nan
    ended: float = math.nan
    cpu_s: float = 0.0
    busy_s: float = 0.0
    memory_s: float = 0.0
    evictions: int = 0
    problem: str = ""
    place: tuple[str | None, float] | None = None
    stays: list[Stay] = field(default_factory=list)

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
            cpu_s=self.cpu_s,
            held_s=held_s,
            busy_s=self.busy_s,
            memory_s=self.memory_s,
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
    """

    def __init__(self, jobs: Iterable[tuple[WaitingJob, float | None]]) -> None:
        self.jobs = {asked.name: Past(asked, alone_s) for asked, alone_s in jobs}
        self._decisions: list[Decided] = []
        self._samples: list[Sample] = []

    def decided(self, decision: SharingDecision, now: float) -> Decided:
        """A decision was carried out."""
        if isinstance(decision, Start | StartGuest):
            past = self.jobs[str(decision.job)]
            past.since = now
            past.first = now if math.isnan(past.first) else past.first
        self._decisions.append(Decided(now, decision))
        return self._decisions[-1]

    def placed(self, ledger: Ledger, now: float) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        for name, placed in ledger.running.items():
            past, place = self.jobs[name], (placed.host, ledger.own_share(name))
            if past.place != place:
                self.left(name, now)
                past.place = place
                past.stays.append(Stay(now, math.nan, *place))

    def left(self, name: str, now: float) -> None:
        """A job has left its place."""
        past = self.jobs[name]
        if past.place is not None:
            past.stays[-1] = past.stays[-1]._replace(until=now)
            past.place = None

    def sample(self, running: RunningJobs, busy: float, now: float) -> None:
        """Keep what was measured: `busy` cores in all."""
        happy = dict(zip(running.names, running.states.happiness.tolist(), strict=True))
        shares = dict(zip(running.names, running.share.tolist(), strict=True))
        self._samples.append(Sample(now, busy, happy, shares))

    def result(self, cores: int) -> SharedQueue:
        """What came of the jobs that have ended, on a machine of so many cores."""
        jobs = tuple(past.run() for past in self.jobs.values() if not math.isnan(past.ended))
        return SharedQueue(cores, jobs, tuple(self._decisions), tuple(self._samples))
