"""What came of a queue: when and where each job ran, every decision, and what was measured meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np

from asa.core.units import HOUR
from coscheduler.nouns import SharingDecision


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

    @property
    def wait_s(self) -> float:
        """Submission to first start [s]."""
        return self.started - self.submitted

    @property
    def response_s(self) -> float:
        """Submission to end [s]."""
        return self.ended - self.submitted

    @property
    def slowdown(self) -> float:
        """First start to end, over the run time alone: what eviction has cost is part of it. NaN where unknown."""
        return (self.ended - self.started) / self.alone_s

    @property
    def over_walltime(self) -> bool:
        """Whether it ran for longer than it asked for."""
        return self.ended - self.started > self.walltime_s * (1 + 1e-9)

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; null for what is not known."""
        found = _known(asdict(self) | {"wait_s": self.wait_s, "slowdown": self.slowdown})
        return found | {"stays": [stay._asdict() for stay in self.stays]}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """A job from what `to_json` has made of it."""
        found: dict[str, Any] = {each.name: data[each.name] for each in fields(cls)}
        found |= {name: math.nan for name, value in found.items() if value is None}
        return cls(**found | {"stays": tuple(Stay(**stay) for stay in data["stays"])})


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """A queue that has come to its end.

    Parameters
    ----------
    cores
        Of the machine.
    jobs
        In order of submission.
    decisions
        Every decision, in order.
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

        Empty while no job has ended.
        """
        jobs = self.jobs
        if not jobs:
            return {}
        slowdowns = [job.slowdown for job in jobs if not math.isnan(job.slowdown)]
        return {
            "mean_wait_h": float(np.mean([job.wait_s for job in jobs])) / HOUR,
            "cpu_utilisation": sum(job.cpu_s for job in jobs) / (self.cores * self.makespan_s),
            "mean_response_h": float(np.mean([job.response_s for job in jobs])) / HOUR,
            "makespan_h": self.makespan_s / HOUR,
            "mean_slowdown": float(np.mean(slowdowns)) if slowdowns else math.nan,
            "over_walltime": float(np.mean([job.over_walltime for job in jobs])),
        }

    def to_json(self) -> dict[str, Any]:
        """Metrics, jobs and decisions, JSON-able; null for what is not known."""
        return {
            "cores": self.cores,
            "metrics": _known(self.metrics()),
            "jobs": [job.to_json() for job in self.jobs],
            "decisions": [each.to_json() for each in self.decisions],
        }


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in found.items()}
