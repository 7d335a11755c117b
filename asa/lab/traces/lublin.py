"""The workload model of Lublin and Feitelson (2003), with its daily cycle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY
from asa.lab.core.workload import Workload
from asa.lab.traces.cycle import Cycle
from asa.lab.traces.estimates import requested
from asa.lab.traces.offered import at_load
from asa.lab.traces.users import with_users

BUCKETS = 48
"""Spans of a day with a rate of their own: half hours."""
DAWN = 11
"""Bucket, counted from 1, at which the day of the cycle begins: half past five in the morning."""
LONGEST_RUN, LONGEST_PAUSE = 12.0, 13.0
"""Natural logarithms of the longest run time and of the longest time between jobs; longer ones are drawn again."""


@dataclass(frozen=True)
class Kind:
    """Parameters of one kind of jobs; the defaults are those for all jobs of a log together.

    Parameters
    ----------
    serial, power
        Shares of the jobs that use one core, and a power of two.
    low, middle, high, small
        log2 of the size of parallel jobs is uniform over [low, m - middle] with probability `small`, else over
        [m - middle, m - high], where m is log2 of the machine's cores.
    short, long
        Shape and scale of the two gamma distributions that the logarithm of the run time [s] is drawn from.
    slope, base
        The short one is taken with probability slope * cores + base.
    pause
        Shape and scale of the gamma distribution of the logarithm of the (operational) time between jobs [s].
    day
        Shape and scale of the gamma distribution that says how many jobs come in which half hour.
    """

    serial: float = 0.244
    power: float = 0.576
    low: float = 0.8
    middle: float = 2.5
    high: float = 0.0
    small: float = 0.86
    short: tuple[float, float] = (4.2, 0.94)
    long: tuple[float, float] = (312.0, 0.03)
    slope: float = -0.0054
    base: float = 0.78
    pause: tuple[float, float] = (10.2303 * 1.0225, 0.4871)
    day: tuple[float, float] = (8.1737, 3.9631)


ALL = Kind()
BATCH = Kind(
    serial=0.2927,
    power=0.6686,
    low=1.2,
    middle=2.0,
    small=0.875,
    short=(6.57, 0.823),
    long=(639.1, 0.0156),
    slope=-0.003,
    base=0.6986,
    pause=(6.0415 * 1.0519, 0.8531),
    day=(6.1271, 5.2740),
)
INTERACTIVE = Kind(
    serial=0.1541,
    power=0.625,
    low=1.0,
    middle=4.0,
    high=1.5,
    small=0.705,
    short=(3.8351, 0.6605),
    long=(7.073, 0.6856),
    slope=-0.0118,
    base=0.9156,
    pause=(6.5510 * 0.9797, 0.6621),
    day=(8.9186, 3.6680),
)
KINDS = {"all": (ALL,), "batch": (BATCH,), "interactive": (INTERACTIVE,), "both": (BATCH, INTERACTIVE)}


def lublin(
    jobs: int,
    cores: int,
    *,
    seed: int,
    load: float | None = None,
    kind: str = "all",
    daily_cycle: bool = True,
    estimates: str = "exact",
    users: int = 0,
) -> Workload:
    """Jobs of the Lublin-Feitelson model on a machine. Time 0 is midnight.

    Parameters
    ----------
    jobs
        How many; >= 1.
    cores
        Cores of the machine; >= 2.
    load
        Offered load that they are to have exactly (work per core and second between the first submission and the last);
        > 0. Operational time is stretched for it, so days keep their 24 hours. Default: as the model has it.
    kind
        ``all`` (parameters fitted to all jobs of the logs), ``batch``, ``interactive``, or ``both`` of these, each with
        arrivals of its own.
    daily_cycle
        False for the same rate by day and by night.
    estimates
        Model of the requested times, see `asa.lab.traces.estimates.requested`.
    users
        Users to label the jobs with, see `asa.lab.traces.users.with_users`; 0 for none.

    Raises
    ------
    InvalidInput
        When a number is out of its bounds, a name is not known, or the load is asked of fewer than two jobs.

    Notes
    -----
    Constants and steps are those of the authors' program (lublin99, Parallel Workloads Archive), which depends on the
    number of cores where it says "nodes". The machine's size replaces their 128 nodes: `middle` and `high` keep their
    distance from its logarithm. Deviations: times of arrival are not cut to whole seconds (the program cuts the clock
    but not its place in the day, which therefore drifts by half a second a job); powers of two that rounding takes
    beyond the machine are the next one below; a load is reached by stretching, not by other parameters.

    References
    ----------
    U. Lublin, D. G. Feitelson: The workload on parallel supercomputers: modeling the characteristics of rigid jobs.
    Journal of Parallel and Distributed Computing 63(11), 2003.

    Examples
    --------
    >>> lublin(jobs=1000, cores=128, seed=1, load=0.7)
    <Workload of 1000 jobs over 915912 s>
    """
    if jobs < 1 or cores < 2:
        raise InvalidInput(f"the Lublin-Feitelson model needs a job and two cores at least, not {jobs} and {cores}")
    if kind not in KINDS:
        raise UnknownName("kind of Lublin-Feitelson jobs", kind, KINDS)
    rng = np.random.default_rng(seed)
    kinds = KINDS[kind]
    cycles = [daily(one) if daily_cycle else Cycle(period_s=DAY) for one in kinds]
    arrive = np.concatenate(
        [cycle.clock(np.cumsum(_pauses(one, jobs, rng))) for one, cycle in zip(kinds, cycles, strict=True)]
    )
    first = np.argsort(arrive, kind="stable")[:jobs]
    which = first // jobs
    size, run = np.empty(jobs, dtype=np.int64), np.empty(jobs)
    for k, one in enumerate(kinds):
        rows = np.flatnonzero(which == k)
        size[rows] = _sizes(one, len(rows), cores, rng)
        run[rows] = _runs(one, size[rows], rng)
    made = Workload.of(submit=arrive[first], run=run, cores=size, walltime=requested(estimates, run, rng))
    if load is not None:
        shares = np.bincount(which, minlength=len(kinds)) / jobs
        made = at_load(made, cores, load, Cycle(tuple(shares @ [cycle.weights for cycle in cycles]), DAY))
    return with_users(made, users, rng) if users else made


def daily(kind: Kind) -> Cycle:
    """The daily cycle of a kind of jobs: how many come in each half hour from midnight on, relative to the others.

    Bucket i of the model (1 for the first half hour) has the gamma distribution's mass between i - 1/2 and i + 1/2, for
    i from `DAWN` until a day later.
    """
    shape, scale = kind.day
    steps = 64  # of Simpson's rule, per bucket
    x = np.linspace(DAWN - 0.5, DAWN + BUCKETS - 0.5, BUCKETS * steps + 1) / scale
    density = np.exp((shape - 1) * np.log(x) - x - math.lgamma(shape))
    rows = np.arange(BUCKETS)[:, None] * steps + np.arange(steps + 1)
    simpson = np.concatenate([[1.0], np.tile([4.0, 2.0], steps // 2)[:-1], [1.0]])
    mass = density[rows] @ simpson
    return Cycle(tuple(np.roll(mass / mass.mean(), DAWN - 1).tolist()), DAY)


def _pauses(kind: Kind, count: int, rng: np.random.Generator) -> Floats:
    """Operational times between jobs [s]."""
    return np.exp(_below(LONGEST_PAUSE, lambda rows: rng.gamma(*kind.pause, len(rows)), count))


def _sizes(kind: Kind, count: int, cores: int, rng: np.random.Generator) -> Ints:
    machine = math.log2(cores)
    middle = max(machine - kind.middle, kind.low)
    high = max(machine - kind.high, middle)
    sort = rng.random(count)
    small = rng.random(count) <= kind.small
    size = rng.uniform(np.where(small, kind.low, middle), np.where(small, middle, high))
    power = sort <= kind.serial + kind.power
    size = np.where(power, np.minimum(np.floor(size + 0.5), math.floor(machine)), size)
    found: Ints = np.minimum(np.floor(2.0**size + 0.5), cores).astype(np.int64)
    return np.where(sort <= kind.serial, 1, found)


def _runs(kind: Kind, size: Ints, rng: np.random.Generator) -> Floats:
    """Run times [s], whole seconds."""
    short = rng.random(len(size)) <= kind.slope * size + kind.base
    shape = np.where(short, kind.short[0], kind.long[0])
    scale = np.where(short, kind.short[1], kind.long[1])
    drawn = _below(LONGEST_RUN, lambda rows: rng.gamma(shape[rows], scale[rows]), len(size))
    return np.floor(np.exp(drawn))


def _below(most: float, draw: Callable[[Ints], Floats], count: int) -> Floats:
    """`count` numbers from `draw`, which is asked again for those rows that exceed `most`."""
    drawn = draw(np.arange(count))
    while len(rows := np.flatnonzero(drawn > most)):
        drawn[rows] = draw(rows)
    return drawn
