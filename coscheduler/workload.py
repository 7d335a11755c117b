"""Jobs of the simulated world, and what those on the same cores do to one another.

A fluid model: at any instant each job wants so many cores, gets so many, and progresses at the ratio of the two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import HOUR
from coscheduler.nouns import WaitingJob

CONSTANT = 0.9
"""Jobs that use more of their cores than this do so all the time; others alternate."""


class LoadPhase(NamedTuple):
    """A part of a job.

    Parameters
    ----------
    alone_s
        How long it takes alone [s].
    demand
        The share of the job's cores that it wants meanwhile, in (0, 1].
    exposure
        How much of the slowdown of a pair (`Contention.pairs`) shows: its exponent, in [0, 1].
    bandwidth
        Memory bandwidth that it takes at full speed, as a share of what belongs to the job's cores, in [0, 1].
    coupled
        Whether a thread that waits for a CPU holds up all others, as at barriers.
    instructions
        How many it executes in a second alone, of each of its cores [1e9].
    """

    alone_s: float
    demand: float
    parallel: bool
    exposure: float = 1.0
    bandwidth: float = 0.0
    coupled: bool = False
    instructions: float = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """A job as the simulated world runs it.

    Parameters
    ----------
    memory
        Share of its cores' memory that it uses, in [0, 1]: alone, no job wants more than there is.
    tasks
        When each of its tasks ends, as a share of its run time alone, rising to 1: progress is reported in whole tasks.
        None: all of it is reported, at any time.
    """

    request: WaitingJob
    phases: tuple[LoadPhase, ...]
    memory: float
    tasks: Floats | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.memory <= 1:
            raise InvalidInput(f"job {self.request.name!r}: memory is {self.memory!r}: a share from 0 to 1 expected")
        if not self.phases or any(phase.alone_s <= 0 or not 0 < phase.demand <= 1 for phase in self.phases):
            raise InvalidInput(f"job {self.request.name!r}: phases longer than 0 s with a demand in (0, 1] expected")

    @property
    def alone_s(self) -> float:
        """Run time on cores of its own [s]."""
        return sum(phase.alone_s for phase in self.phases)

    @property
    def cpu_s(self) -> float:
        """CPU time that its work takes [s]."""
        return self.request.cores * sum(phase.alone_s * phase.demand for phase in self.phases)

    def reported(self, done: float) -> float:
        """The share of its work that a job reports as done, once so much of its run time alone is over."""
        return done if self.tasks is None else float(np.searchsorted(self.tasks, done, "right")) / len(self.tasks)

    @property
    def parallel(self) -> float:
        """Share of its run time alone that it is in parallel stages."""
        return sum(phase.alone_s for phase in self.phases if phase.parallel) / self.alone_s


@dataclass(frozen=True, slots=True)
class Application:
    """An application of the paper's Table 2 (Slurm's columns).

    Parameters
    ----------
    run_time_h, cpu
        Run time [h], and CPU use as a share of the allocation, on clusters of 64, 128 and 256 cores.
    memory
        Share of the allocation's memory.
    slope
        How well it scales: the standard deviation of its run time over core counts.
    cores
        Sizes of its jobs.
    """

    run_time_h: tuple[float, float, float]
    cpu: tuple[float, float, float]
    memory: float
    slope: float
    cores: tuple[int, ...] = (8, 16, 32, 64)


CLUSTERS = (64, 128, 256)
APPLICATIONS = {
    "montage": Application((0.35, 0.32, 0.29), (0.45, 0.33, 0.21), 0.10, 0.04),
    "blast": Application((0.71, 0.72, 0.70), (0.96, 0.95, 0.91), 0.44, 0.21),
    "statistics": Application((0.69, 0.70, 0.72), (0.26, 0.16, 0.10), 0.05, 0.10),
    "synthetic": Application((0.49, 0.50, 0.48), (0.99, 0.99, 0.99), 0.95, 0.15, (16, 32, 64)),
}
_MIDDLE = 22.6  # geometric mean of the sizes: a job of this size has the table's run time


def phases(alone_s: float, cpu: float, cores: int) -> tuple[LoadPhase, ...]:
    """Phases of a job that uses `cpu` of its cores on average: constant use, or sequential and parallel ones in turn.

    >>> [(round(phase.alone_s), phase.demand) for phase in phases(600.0, 0.5, 4)]
    [(200, 0.25), (100, 1.0), (200, 0.25), (100, 1.0)]
    """
    if cpu > CONSTANT:
        return (LoadPhase(alone_s, cpu, True),)
    single = 1 / cores
    parallel = max(0.0, (cpu - single) / (1 - single)) if cores > 1 else 1.0
    pair = (LoadPhase(alone_s * (1 - parallel) / 2, single, False), LoadPhase(alone_s * parallel / 2, 1.0, True))
    return tuple(phase for phase in pair * 2 if phase.alone_s > 0)


def paper_queue(cluster: int, rng: np.random.Generator, prefix: str = "") -> tuple[Load, ...]:
    """The paper's fifteen jobs in random order, all submitted at 0.

    Parameters
    ----------
    cluster
        Cores of the machine, one of `CLUSTERS`: run times and CPU use differ a little between them.
    rng
        Order, run times (2 % noise) and wall times (1.1 to 1.6 times as long) are drawn from it.
    prefix
        What the jobs' names begin with.

    Raises
    ------
    InvalidInput
        When there is no column for this machine.

    References
    ----------
    ASA_X, section 4.4 and Table 2.
    """
    if cluster not in CLUSTERS:
        raise InvalidInput(f"the paper's queue on {cluster} cores: expected one of {', '.join(map(str, CLUSTERS))}")
    column = CLUSTERS.index(cluster)
    loads = []
    for name, application in APPLICATIONS.items():
        for cores in application.cores:
            scaling = 1 - application.slope * math.log2(cores / _MIDDLE) / 1.5
            alone_s = HOUR * application.run_time_h[column] * scaling * rng.normal(1.0, 0.02)
            request = WaitingJob(f"{prefix}{name}-{cores}", name, cores, alone_s * rng.uniform(1.1, 1.6))
            loads.append(Load(request, phases(alone_s, application.cpu[column], cores), application.memory))
    return tuple(loads[place] for place in rng.permutation(len(loads)))


@dataclass(frozen=True, slots=True)
class Contention:
    """Constants of the law.

    Parameters
    ----------
    tax
        Rate that is left for each further job on the same cores (caches, memory bandwidth), in (0, 1].
    thrash
        Rate that is left for all of them when together they want more memory than there is, in (0, 1].
    pairs
        How many times longer a job of the first application takes on the same cores as one of the second, 1 or more; 1
        for pairs that are not in it.
    waits
        Whether that is time in which threads wait for CPUs: else it is not seen where only that is measured.
    """

    tax: float = 0.97
    thrash: float = 0.4
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waits: bool = False

    def __post_init__(self) -> None:
        for name in ("tax", "thrash"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}: expected a number above 0, at most 1")
        for pair, slower in self.pairs.items():
            if not 1 <= slower < math.inf:
                raise InvalidInput(f"{' beside '.join(pair)} takes {slower!r} times as long: 1 or more expected")

    def factor(self, together: int, memory: float) -> float:
        """Common factor of the rates of `together` jobs that want `memory` of the host's (1: all there is)."""
        return float(self.tax ** (together - 1) * (self.thrash if memory > 1 + 1e-9 else 1.0))

    def slowdown(self, application: str, others: Iterable[str]) -> float:
        """How many times longer a job of this application takes beside jobs of these, but for `factor`."""
        return math.prod(self.pairs.get((application, other), 1.0) for other in others)


PAPER_LIKE = Contention()
"""Invented constants with which the published trends come out: see docs/coscheduler-rules.md."""

MEASURED = Contention(0.879, PAPER_LIKE.thrash)
"""What ``asa calibrate-contention`` found; no application filled the memory: see docs/coscheduler-rules.md."""

CONTENTIONS = {"paper-like": PAPER_LIKE, "measured": MEASURED}

HIDDEN = "hidden"
"""Name of interference that no rule can know beforehand: each seed has its own, see `hidden_interference`."""
WORST_PAIR = 2.5
TASKS, TASK_SPREAD = 1000, 0.3
"""Tasks of a job whose progress is seen, and the standard deviation of the logarithm of their run times."""


def hidden_interference(rng: np.random.Generator) -> Contention:
    """What applications do to one another: slowdowns of each ordered pair, log-uniform in [1, `WORST_PAIR`]."""
    worst = math.log(WORST_PAIR)
    pairs = {(one, other): math.exp(rng.uniform(0, worst)) for one in APPLICATIONS for other in APPLICATIONS}
    return Contention(tax=1.0, thrash=PAPER_LIKE.thrash, pairs=pairs)


def hide(load: Load, rng: np.random.Generator) -> Load:
    """The same job with phases that no measurement shows, a need for bandwidth, and tasks of unequal run times.

    Each phase falls into one to four parts of random lengths. A part feels its guests fully (half of them) or little
    (exposure 0.2), and takes up to 0.8 of the bandwidth of its cores.
    """
    parts: list[LoadPhase] = []
    for phase in load.phases:
        cuts = np.sort(rng.random(int(rng.integers(0, 4))))
        for length in np.diff(np.concatenate([[0.0], cuts, [1.0]])).tolist():
            if length > 0:
                exposure = 1.0 if rng.random() < 0.5 else 0.2
                parts.append(LoadPhase(phase.alone_s * length, *phase[1:3], exposure, rng.uniform(0, 0.8)))
    tasks = np.cumsum(np.exp(TASK_SPREAD * rng.standard_normal(TASKS)))
    return replace(load, phases=tuple(parts), tasks=tasks / tasks[-1])


def named(name: str) -> Contention:
    """The constants of this name: one of `CONTENTIONS`, or the path of a file of ``asa calibrate-contention``.

    Files end in ``.json``.

    Raises `UnknownName` when there are none, and `InvalidInput` when they are to come from a file that is not there, or
    makes no sense.
    """
    if name in CONTENTIONS:
        return CONTENTIONS[name]
    if name.endswith(".json"):
        return _measured(Path(name))
    raise UnknownName("contention", name, [*CONTENTIONS, "FILE.json"])


def _measured(path: Path) -> Contention:
    """Constants of a file; what was not measured is that of `PAPER_LIKE`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"contention {path}: {error}. Expected a file of asa calibrate-contention") from error
    if not isinstance(data, dict) or "tax" not in data:
        raise InvalidInput(f"contention {path}: it has no 'tax'. Expected a file of asa calibrate-contention")
    thrash = data.get("thrash")
    try:
        return Contention(
            _number(data["tax"], "tax"), PAPER_LIKE.thrash if thrash is None else _number(thrash, "thrash")
        )
    except InvalidInput as error:
        raise InvalidInput(f"contention {path}: {error}") from error


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} is {value!r}: expected a number above 0, at most 1")
    return float(value)


def weighted(cores: float, demands: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Cores that each job gets when shares are weights: what one does not want goes to the others by their weights.

    Parameters
    ----------
    cores
        Cores there are.
    demands, shares
        Cores that each wants, and its weight; above 0.

    Examples
    --------
    >>> weighted(8, [1.0, 8.0], [0.9, 0.1])
    [1.0, 7.0]
    >>> [round(each, 3) for each in weighted(8, [8.0, 8.0], [0.9, 0.1])]
    [7.2, 0.8]
    """
    granted, left = [0.0] * len(demands), float(cores)
    # In order of demand over weight: a job that wants less than its part of what is left gets all of it.
    order = sorted(range(len(demands)), key=lambda place: demands[place] / shares[place])
    for rank, place in enumerate(order):
        weight = sum(shares[other] for other in order[rank:])
        granted[place] = min(demands[place], left * (shares[place] / weight))
        left -= granted[place]
    return granted


def capped(cores: float, demands: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Cores that each job gets when shares are hard quotas.

    >>> capped(8, [1.0, 8.0], [0.5, 0.5])
    [1.0, 4.0]
    """
    return [min(demand, share * cores) for demand, share in zip(demands, shares, strict=True)]
