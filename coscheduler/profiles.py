"""What is known of applications: how much of their cores they use, how much memory, and for how long they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asa.core.sharing import ALONE, SharedRun, SharingView
from asa.core.workload import Floats
from asa.estimators.checks import read

_OLD = 0.7  # weight of what was known, once a further run has ended


@dataclass(frozen=True, slots=True)
class Profile:
    """An application, as far as it is known.

    Parameters
    ----------
    parallel
        Share of its run time alone that it spends in parallel stages.
    demand
        Share of its cores that it uses in these.
    memory
        Share of its cores' memory that it uses.
    padding
        Wall time over run time alone.
    """

    parallel: float = 0.5
    demand: float = 1.0
    memory: float = 0.5
    padding: float = 1.3


UNKNOWN = Profile()
"""What an application is taken for that was never seen: middling, so that it is tried."""


class Profiles:
    """Profiles by application, and run times by application and cores.

    Of an application that has never ended a run, what its running jobs show is used; then the mean over runs, of which
    the last one counts 30 %. Memory is the most that was ever seen.

    Examples
    --------
    >>> profiles = Profiles()
    >>> profiles.learn(SharedRun("a", "blast", 8, 120.0, 150.0, 100.0, 768.0, 1.0, 0.44))
    >>> profiles["blast"]
    Profile(parallel=1.0, demand=0.96, memory=0.44, padding=1.2)
    >>> profiles.run_time("blast", 8, 300.0), round(profiles.run_time("blast", 16, 300.0))
    (100.0, 250)
    """

    def __init__(self) -> None:
        self._known: dict[str, Profile] = {}
        self._seen: dict[str, Profile] = {}
        self._run_times: dict[str, dict[int, float]] = {}

    def arrays(self, applications: Sequence[str]) -> Floats:
        """Parallel share, demand and memory of each application, shape (3, n)."""
        found = [(each.parallel, each.demand, each.memory) for each in map(self.__getitem__, applications)]
        return np.array(found).reshape(-1, 3).T

    def __getitem__(self, application: str) -> Profile:
        """The profile of an application, `UNKNOWN` at worst."""
        return self._known.get(application) or self._seen.get(application, UNKNOWN)

    def run_time(self, application: str, cores: int, walltime_s: float) -> float:
        """Expected run time alone [s]; from the wall time where no run with so many cores has ended."""
        known = self._run_times.get(application, {}).get(cores)
        return walltime_s / self[application].padding if known is None else known

    def watch(self, view: SharingView) -> None:
        """Look at running jobs of applications that have never ended a run."""
        running = view.running
        for place, application in enumerate(running.applications):
            mine = running.application == place
            if application in self._known or not mine.any():
                continue
            alone = mine & (running.host == ALONE)
            parallel = float(running.states.cpu[alone].mean()) if alone.any() else self[application].parallel
            self._seen[application] = Profile(parallel=parallel, memory=float(running.states.memory[mine].max()))

    def learn(self, run: SharedRun) -> None:
        """A job has ended; one whose run time alone is not known tells of its memory only."""
        before = self._known.get(run.application)
        memory = max(run.memory, before.memory if before else 0.0)
        if run.alone_s is None:
            base = before or self[run.application]
            self._seen[run.application] = Profile(base.parallel, base.demand, memory, base.padding)
            return
        found = Profile(run.parallel, _demand(run), memory, run.walltime_s / run.alone_s)
        self._known[run.application] = _blend(before, found) if before else found
        times = self._run_times.setdefault(run.application, {})
        times[run.cores] = _mean(times.get(run.cores, run.alone_s), run.alone_s)

    def state(self) -> dict[str, Any]:
        """Return all of it, JSON-able."""
        times = {name: {str(cores): time for cores, time in each.items()} for name, each in self._run_times.items()}
        return {
            "profiles": {name: asdict(each) for name, each in self._known.items()},
            "seen": {name: asdict(each) for name, each in self._seen.items()},
            "run_times": times,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what others have learned."""
        known, seen = (
            {name: Profile(**each) for name, each in read(state, kind).items()} for kind in ("profiles", "seen")
        )
        times = {
            name: {int(cores): float(time) for cores, time in each.items()}
            for name, each in read(state, "run_times").items()
        }
        self._known, self._seen, self._run_times = known, seen, times


def _demand(run: SharedRun) -> float:
    """Share of its cores that it used in parallel stages: what is left of its CPU time, one core besides."""
    assert run.alone_s is not None, "asked only where it is known"
    parallel_s = run.parallel * run.alone_s
    if parallel_s <= 0:
        return 1.0
    left = run.cpu_s - (run.alone_s - parallel_s)
    return min(1.0, max(1 / run.cores, left / (parallel_s * run.cores)))


def _blend(before: Profile, found: Profile) -> Profile:
    return Profile(
        _mean(before.parallel, found.parallel),
        _mean(before.demand, found.demand),
        found.memory,
        _mean(before.padding, found.padding),
    )


def _mean(before: float, now: float) -> float:
    return _OLD * before + (1 - _OLD) * now
