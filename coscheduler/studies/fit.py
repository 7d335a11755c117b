"""The constants of `coscheduler.contention` that agree best with pairs of jobs that really shared cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.decision import Start
from asa.core.errors import InvalidInput
from coscheduler.contention import PAPER_LIKE, Contention
from coscheduler.drive import World
from coscheduler.nouns import SharedRun, SharingDecision, StartGuest, WaitingJob
from coscheduler.workload import Load, Phase, phases
from coscheduler.world import SimulatedWorld

LEAST_TAX = 0.5
"""Half of the speed is lost at most to caches and memory bandwidth: what is more has other causes."""

_LEAST_CPU = 1e-3  # of its cores: the simulated world knows no job that does nothing
_LEAST_THRASH = 0.01
_NEVER_S = 1e12  # the next look, where nobody decides anything any more
_POINTS = 26
_NEAR = 1e-4  # how exactly constants are found
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Alone:
    """What a job was measured to do on cores of its own.

    Parameters
    ----------
    application, job, cores
        Which.
    run_time_s
        From its start to its end [s].
    cpu
        Mean use of its cores, in [0, 1].
    parallel
        Share of its run time in stages that use more than one core.
    memory
        Most memory, as a share of what belongs to its cores; above 1 where its node has cores besides.
    """

    application: str
    job: str
    cores: int
    run_time_s: float
    cpu: float
    parallel: float
    memory: float

    def load(self, name: str) -> Load:
        """The same for the simulated world, where no job alone wants more memory than there is. What uses less than one
        core does so all the time."""
        cpu = min(1.0, max(self.cpu, _LEAST_CPU))
        sequential = self.cores == 1 or cpu * self.cores < 1
        parts = (Phase(self.run_time_s, cpu, False),) if sequential else phases(self.run_time_s, cpu, self.cores)
        return Load(WaitingJob(name, self.application, self.cores, self.run_time_s), parts, min(1.0, self.memory))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that were started at once, one as the guest of the other.

    Parameters
    ----------
    host, guest
        Alone.
    share, hard
        The guest's share of the host's cores, and whether as a quota.
    host_s, guest_s
        Run times [s].
    host_cpu, guest_cpu
        Mean use of as many cores as each has asked for, in [0, 1].
    """

    host: Alone
    guest: Alone
    share: float
    hard: bool
    host_s: float
    guest_s: float
    host_cpu: float
    guest_cpu: float

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Run times over those alone, of host and guest."""
        return self.host_s / self.host.run_time_s, self.guest_s / self.guest.run_time_s

    @property
    def is_crowded(self) -> bool:
        """Whether both want more memory than there is."""
        wanted = sum(each.memory * each.cores for each in (self.host, self.guest))
        return wanted > self.host.cores * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants, and how well they do.

    Parameters
    ----------
    tax, thrash
        See `Contention`; `thrash` is None where no pair wanted more memory than there is.
    error
        Root of the mean squared error of the logarithms of all slowdowns.
    predicted
        Slowdowns of host and guest of each pair, by the simulated world.
    """

    tax: float
    thrash: float | None
    error: float
    predicted: tuple[tuple[float, float], ...]


def together(world: World, decisions: Sequence[SharingDecision]) -> dict[str, SharedRun]:
    """Let a world do this at its first look, and nothing more until all jobs have ended; the runs, by job."""
    runs: list[SharedRun] = []
    while world.advance() is not None:
        world.apply(decisions)
        decisions = ()
        runs += world.learned()
    return {run.job: run for run in [*runs, *world.learned()]}


def both(host: str, guest: str, share: float, *, hard: bool) -> tuple[SharingDecision, ...]:
    """Start two jobs at once, one as the guest of the other."""
    return Start(host), StartGuest(guest, host, share, hard)


def predict(host: Alone, guest: Alone, share: float, contention: Contention, *, hard: bool) -> tuple[float, float]:
    """Slowdowns of host and guest in the simulated world, when both are started at once.

    >>> busy = Alone("busy", "busy", 2, 60.0, 1.0, 1.0, 0.1)
    >>> predict(busy, busy, 0.5, Contention(tax=0.8), hard=False)
    (2.5, 2.5)
    """
    loads = host.load("host"), guest.load("guest")
    world = SimulatedWorld(loads, host.cores, contention, period_s=_NEVER_S)
    runs = together(world, both("host", "guest", share, hard=hard))
    return runs["host"].run_time_s / host.run_time_s, runs["guest"].run_time_s / guest.run_time_s


def fit(pairs: Sequence[Pair]) -> Fit:
    """Find the constants with the least squared error of the logarithms of all slowdowns.

    The tax is that of pairs whose memory suffices, in (`LEAST_TAX`, 1]; then the others give `thrash`.

    Raises
    ------
    InvalidInput
        When the memory of no pair suffices.
    """
    roomy = [pair for pair in pairs if not pair.is_crowded]
    crowded = [pair for pair in pairs if pair.is_crowded]
    if not roomy:
        raise InvalidInput(f"of {len(pairs)} pairs none has enough memory: at least one is needed, take smaller jobs")
    tax = _least(lambda tax: _squares(roomy, Contention(tax)), LEAST_TAX + _NEAR)
    thrash = None
    if crowded:
        thrash = _least(lambda thrash: _squares(crowded, Contention(tax, thrash)), _LEAST_THRASH)
    contention = Contention(tax, PAPER_LIKE.thrash if thrash is None else thrash)
    error = float(np.sqrt(_squares(pairs, contention) / (2 * len(pairs))))
    return Fit(tax, thrash, error, tuple(_predicted(pair, contention) for pair in pairs))


def _predicted(pair: Pair, contention: Contention) -> tuple[float, float]:
    return predict(pair.host, pair.guest, pair.share, contention, hard=pair.hard)


def _squares(pairs: Sequence[Pair], contention: Contention) -> float:
    """Sum of the squared errors of the logarithms."""
    measured = np.array([pair.slowdowns for pair in pairs])
    predicted = np.array([_predicted(pair, contention) for pair in pairs])
    return float(np.sum(np.log(predicted / measured) ** 2))


def _least(error: Callable[[float], float], low: float) -> float:
    """Where in [low, 1] the error is least: the best point of a grid, then a golden-section search around it.

    The grid comes first, for the error may have more than one valley: phases of two jobs meet or miss one another.
    """
    grid: list[float] = np.linspace(low, 1.0, _POINTS).tolist()
    errors = [error(point) for point in grid]
    best = int(np.argmin(errors))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, _POINTS - 1)]
    while right - left > _NEAR:
        step = _GOLDEN * (right - left)
        if error(right - step) <= error(left + step):
            right = left + step
        else:
            left = right - step
    found = (left + right) / 2
    return found if error(found) < errors[best] else grid[best]
