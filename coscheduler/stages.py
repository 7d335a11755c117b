"""Sharing rules for the stages of one run: a stage in an allocation is a job, and so is one with tasks to launch."""

from __future__ import annotations

import math

import numpy as np

from asa.core.ports import HostTasks
from asa.core.stage import StageSpec, kind_of
from coscheduler.nouns import (
    ALONE,
    FLOOR,
    ON_TIME,
    JobStates,
    RunningJobs,
    SharingRule,
    SharingView,
    StartGuest,
    WaitingJob,
)
from coscheduler.registry import SHARING_RULES

_PARALLEL, _ONE = 1.5, 0.5
"""Cores in use above which a host is in a parallel stage, and where it has but one."""


class ByRule:
    """The guest rule ``cosched``: a sharing rule of the co-scheduler says which stages a host takes as guests.

    Parameters
    ----------
    rule
        Its name, or spec. Of what it decides only `StartGuest` counts: with ``hard`` guests have its share of the
        host's cores at most. A weight means nothing here: guests have the least there is. It does not see how stages
        end, so it learns nothing.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> whole = Resources(8, memory=1 << 30)
    >>> host, guest = StageSpec("index", whole, whole, 60.0, 60.0), StageSpec("blur", whole, Resources(), 60.0, 60.0)
    >>> tasks = HostTasks(host, cores=8, unused=7, memory=0.2, elapsed=0.1, guests={})
    >>> [ByRule(rule).cores(tasks, guest, 0.0) for rule in ("static", "static:hard=yes", "space")]
    [7, 4, 0]
    """

    def __init__(self, rule: str = "scavenger") -> None:
        self._rule: SharingRule = SHARING_RULES.create(rule)

    def cores(self, host: HostTasks, guest: StageSpec, now: float) -> int:
        """How many cores the guests may have; 0 where the rule starts no guest of this stage."""
        for decision in self._rule.decide(_view(host, guest, now)):
            if isinstance(decision, StartGuest):
                return min(host.unused, int(decision.share * host.cores)) if decision.hard else host.unused
        return 0


def _view(host: HostTasks, guest: StageSpec, now: float) -> SharingView:
    """The host, its guests of other stages, and the one that waits, on a machine without a free core."""
    others = [name for name in host.guests if name != guest.name]
    count, names = 1 + len(others), (host.stage.name, *others)
    used = (host.cores - host.unused) / host.cores
    parallel = host.cores - host.unused > (_PARALLEL if host.cores > 1 else _ONE)
    first = np.arange(count) == 0
    states = JobStates(
        cpu=np.where(first, used, 0.0),
        memory=np.where(first, host.memory, 0.0),
        parallel=first & parallel,
        elapsed=np.full(count, host.elapsed),
        happiness=np.full(count, ON_TIME),
    )
    running = RunningJobs(
        names=names,
        applications=tuple(map(kind_of, names)),
        application=np.arange(count),
        cores=np.array([host.cores, *(host.guests[name] for name in others)]),
        walltime=np.full(count, host.stage.walltime_s),
        started=np.full(count, now - host.elapsed * host.stage.walltime_s),
        states=states,
        host=np.where(first, ALONE, 0),
        share=np.where(first, 1.0 - FLOOR * len(others), FLOOR),
        exclusive=np.zeros(count, dtype=np.bool_),
        bound=np.full(count, math.inf),
        by_pressure=np.zeros(count, dtype=np.bool_),
        done=np.full(count, math.nan),
        unhindered=np.full((count, 2), np.nan),
        instructions=np.full(count, np.nan),
    )
    waiting = WaitingJob(guest.name, kind_of(guest.name), guest.task.cores, guest.walltime_s, submitted=now)
    return SharingView(now, host.cores, 0, (waiting,), running)
