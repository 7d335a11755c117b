"""What is known of applications: how much of their cores they use, how much memory, and for how long they run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.estimators.checks import read
from coscheduler.nouns import ALONE, SharedRun, SharingView

_OLD = 0.7  # weight of what was known, once a further run has ended


class CoreUse(NamedTuple):
    """The share of its run time alone that a job is in parallel stages, and that of its cores that it uses in these."""

    parallel: float = 0.5
    demand: float = 1.0

    def resized(self, before: int, now: int) -> CoreUse:
        """The same work on another number of cores: what is parallel takes longer on fewer, the rest does not (Amdahl).

        >>> CoreUse(parallel=0.5).resized(2, 4)
        CoreUse(parallel=0.3333333333333333, demand=1.0)
        """
        parallel = self.parallel * before / now
        return CoreUse(parallel / (parallel + 1 - self.parallel), max(self.demand, 1 / now))


@dataclass(slots=True)
class ApplicationProfile:
    """An application, as far as it is known.

    Parameters
    ----------
    memory
        Share of its cores' memory that it uses.
    padding
        Wall time over run time alone.
    uses
        How its jobs spend their cores, by the number of these.
    """

    memory: float = 0.5
    padding: float = 1.3
    uses: dict[int, CoreUse] = field(default_factory=dict)

    def use(self, cores: int) -> CoreUse:
        """How a job of this size spends its cores: from the size nearest to it, if there was none of the same.

        Jobs of one core say nothing about larger ones. Where nothing is known, use is middling, so that it is tried.
        """
        if cores in self.uses or cores == 1:
            return self.uses.get(cores, _SINGLE)
        sizes = [size for size in self.uses if size > 1]
        if not sizes:
            return CoreUse()
        nearest = min(sizes, key=lambda size: abs(math.log(size / cores)))
        return self.uses[nearest].resized(nearest, cores)


_SINGLE = CoreUse(1.0, 1.0)


class Profiles:
    """Profiles by application, and run times by application and cores.

    Of an application that has never ended a run, what its running jobs show is used; then the mean over runs, of which
    the last one counts 30 %. Memory is the most that was ever seen.

    Examples
    --------
    >>> profiles = Profiles()
    >>> profiles.learn(SharedRun("a", "blast", 8, 120.0, 150.0, 100.0, 768.0, 1.0, 0.44))
    >>> profiles["blast"]
    ApplicationProfile(memory=0.44, padding=1.2, uses={8: CoreUse(parallel=1.0, demand=0.96)})
    >>> profiles.run_time("blast", 8, 300.0), round(profiles.run_time("blast", 16, 300.0))
    (100.0, 250)
    """

    def __init__(self) -> None:
        self._known: dict[str, ApplicationProfile] = {}
        self._seen: dict[str, ApplicationProfile] = {}
        self._run_times: dict[str, dict[int, float]] = {}

    def arrays(self, jobs: Iterable[tuple[str, int]]) -> Floats:
        """Parallel share, demand and memory of jobs of these applications and sizes, shape (3, n)."""
        found = []
        for application, cores in jobs:
            profile = self[application]
            found.append((*profile.use(cores), profile.memory))
        return np.array(found).reshape(-1, 3).T

    def __getitem__(self, application: str) -> ApplicationProfile:
        """The profile of an application; a middling one of one that was never seen."""
        return self._known.get(application) or self._seen.get(application) or ApplicationProfile()

    def run_time(self, application: str, cores: int, walltime_s: float) -> float:
        """Expected run time alone [s]; from the wall time where no run with so many cores has ended."""
        known = self.known_run_time(application, cores)
        return walltime_s / self[application].padding if known is None else known

    def known_run_time(self, application: str, cores: int) -> float | None:
        """Mean run time alone [s] of such jobs that have ended; None where there was none."""
        return self._run_times.get(application, {}).get(cores)

    def watch(self, view: SharingView) -> None:
        """Look at running jobs of applications that have never ended a run."""
        running = view.running
        for place, application in enumerate(running.applications):
            mine = running.application == place
            if application in self._known or not mine.any():
                continue
            alone = mine & (running.host == ALONE)
            uses = dict(self[application].uses)
            for cores in np.unique(running.cores[alone]).tolist():
                uses[cores] = CoreUse(float(running.states.cpu[alone & (running.cores == cores)].mean()))
            self._seen[application] = ApplicationProfile(memory=float(running.states.memory[mine].max()), uses=uses)

    def learn(self, run: SharedRun) -> None:
        """A job has ended; one whose run time alone is not known teaches its memory only."""
        before = self._known.get(run.application)
        memory = max(run.memory, before.memory if before else 0.0)
        if run.alone_s is None:
            self._seen[run.application] = replace(before or self[run.application], memory=memory)
            return
        uses, padding = dict(before.uses if before else {}), run.walltime_s / run.alone_s
        found = CoreUse(run.parallel, _demand(run))
        uses[run.cores] = CoreUse(*map(_mean, uses.get(run.cores, found), found))
        padding = _mean(before.padding, padding) if before else padding
        self._known[run.application] = ApplicationProfile(memory, padding, uses)
        times = self._run_times.setdefault(run.application, {})
        times[run.cores] = _mean(times.get(run.cores, run.alone_s), run.alone_s)

    def state(self) -> dict[str, Any]:
        times = {name: {str(cores): time for cores, time in each.items()} for name, each in self._run_times.items()}
        return {
            "profiles": {name: _to_json(each) for name, each in self._known.items()},
            "seen": {name: _to_json(each) for name, each in self._seen.items()},
            "run_times": times,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        known, seen = (
            {name: _from_json(each) for name, each in read(state, kind).items()} for kind in ("profiles", "seen")
        )
        times = {
            name: {int(cores): float(time) for cores, time in each.items()}
            for name, each in read(state, "run_times").items()
        }
        self._known, self._seen, self._run_times = known, seen, times


def _to_json(profile: ApplicationProfile) -> dict[str, Any]:
    uses = {str(cores): list(use) for cores, use in profile.uses.items()}
    return {"memory": profile.memory, "padding": profile.padding, "uses": uses}


def _from_json(found: Mapping[str, Any]) -> ApplicationProfile:
    uses = {int(cores): CoreUse(*use) for cores, use in read(found, "uses").items()}
    return ApplicationProfile(read(found, "memory"), read(found, "padding"), uses)


def _demand(run: SharedRun) -> float:
    """Share of its cores that it used in parallel stages: what is left of its CPU time, one core besides."""
    assert run.alone_s is not None, "asked only where it is known"
    parallel_s = run.parallel * run.alone_s
    if parallel_s <= 0:
        return 1.0
    left = run.cpu_s - (run.alone_s - parallel_s)
    return min(1.0, max(1 / run.cores, left / (parallel_s * run.cores)))


def _mean(before: float, now: float) -> float:
    return _OLD * before + (1 - _OLD) * now
