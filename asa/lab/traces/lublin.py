"""The workload model of Lublin and Feitelson (2003), with its daily cycle, and models of requested wall times.

Users request few round values (Tsafrir, Etsion and Feitelson 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY
from asa.lab.core.workload import Workload
from asa.lab.traces.patterns import Cycle, at_load, with_users

# -- Modal ------------------------------------------------------------------------------------------------------------

MINUTE, HOUR = 60, 3600
HEAD = 20
"""How many values are popular; the others are the tail."""
HEAD_SHARE = 0.89
"""Share of the jobs that request one of the popular values."""
COMMON = tuple(MINUTE * m for m in (5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 1080))
"""Values [s] that are popular in all logs of the paper."""
ROUND = (200 * HOUR, 100 * HOUR, 50 * HOUR, 10 * HOUR, 5 * HOUR, 2 * HOUR, HOUR, 20 * MINUTE, 10 * MINUTE, 5 * MINUTE)
"""The other popular values [s] are multiples of these, from the longest down."""
POPULARITY = (
    (1, 3, 4, 2, 12, 9, 8, 18, 6, 7, 11, 20, 16, 5, 14, 13, 10, 15, 17, 19),  # CTC
    (1, 4, 10, 14, 20, 2, 3, 7, 12, 6, 19, 5, 18, 16, 9, 17, 15, 13, 8, 11),  # KTH
    (1, 6, 5, 3, 7, 2, 18, 19, 4, 11, 20, 9, 10, 14, 13, 16, 15, 17, 8, 12),  # BLUE
)
"""By log: rank by popularity of the longest value, and then of the others from the shortest up."""
VALUES = ((0, 20, 200, 1000, 10_000, 70_000, 250_000), (0, 10, 20, 35, 90, 340, 565))
"""Number of jobs, and how many different values so many jobs request."""


def modal(run: Floats, rng: np.random.Generator, longest: float | None = None) -> Floats:
    """Requested times [s] for run times [s], shape (n,).

    The paper's model in its default form: how many different values there are depends on the number of jobs; 20 of them
    are round and have 89 % of the jobs, the longest being the most popular; the others lie on a fractional curve and
    fall off in popularity as a power of their rank. Requests go to jobs at random among those that are long enough.

    Raises
    ------
    InvalidInput
        When `longest` is shorter than an hour or than a job.

    Notes
    -----
    Deviations. (1) Which of the popular values is how popular is taken from one of three of the paper's logs, at
    random; the authors' program mixes four of them value by value, and then makes the longest the most popular, which
    it is not in the fourth. (2) Jobs for which no request is left that is long enough get the longest; the authors'
    program gives up. (3) Values of the tail that collide with others are dropped; theirs are moved by some seconds.

    References
    ----------
    D. Tsafrir, Y. Etsion, D. G. Feitelson: Modeling User Runtime Estimates. JSSPP 2005, LNCS 3834, and its program
    (Parallel Workloads Archive, m_tsafrir05), whose constants these are.
    """
    most = float(np.max(run, initial=0.0))
    longest = max(np.ceil(most / HOUR), 1.0) * HOUR if longest is None else longest
    if longest < max(HOUR, most):
        raise InvalidInput(
            f"no request may be longer than {longest:g} s: an hour and the longest run ({most:g} s) must fit"
        )
    values, shares = distribution(len(run), int(longest), rng)
    return _deal(run, values, rng.multinomial(len(run), shares), rng)


def distribution(jobs: int, longest: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Values [s] that are requested, in falling order, and the share of jobs that request each; shape (k,) both."""
    head = popular(longest)
    ranks = np.array(POPULARITY[rng.integers(len(POPULARITY))])
    ranks = np.argsort(np.argsort(ranks[: len(head)])) + 1
    size = 14.0491 * np.exp(-0.177531 * np.arange(1, len(head) + 1)) + 0.462513
    size[0] = max(100 * HEAD_SHARE - size[1:].sum(), size[0])
    kinds = round(float(np.interp(jobs, *VALUES)))
    curve = 1 + 12.1039 * max(kinds, 1) ** -0.6026
    place = np.arange(1, max(kinds - len(head), 0) + 1) / max(kinds - len(head), 1)
    tail = np.round((curve - 1) * place / (curve - place) * longest / MINUTE) * MINUTE
    tail = np.setdiff1d(tail[tail > 0], head)
    less = 795.6 * np.arange(HEAD + 1, HEAD + 1 + len(tail)) ** -2.267
    values = np.concatenate([head, rng.permutation(tail)]).astype(np.float64)
    shares = np.concatenate(
        [size[ranks - 1] / size.sum() * HEAD_SHARE, less / max(less.sum(), 1e-9) * (1 - HEAD_SHARE)]
    )
    order = np.argsort(-values)
    return values[order], shares[order] / shares.sum()


def popular(longest: int) -> list[int]:
    """The popular values [s]: the longest one first, and then from the shortest up; at most 20."""
    chosen = [value for value in COMMON if value < longest]
    for step in ROUND:
        for value in range(longest // step * step, 0, -step):
            if len(chosen) < HEAD - 1 and value < longest and value not in chosen:
                chosen.append(value)
    return [longest, *sorted(chosen)]


def _deal(
    run: Floats, values: Floats, left: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator
) -> Floats:
    """Deal requests to jobs, the longest jobs first, each at random among what is left and long enough.

    `values` fall; jobs between two of them have the same choice, so they are dealt to together.
    """
    found = np.full(len(run), values[0])
    order = np.argsort(-run, kind="stable")
    reach = np.searchsorted(-values, -run[order], side="right")  # so many values are long enough
    begins = np.flatnonzero(np.diff(reach, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], len(run)], strict=True):
        choice = left[: reach[begin]]
        number = min(end - begin, int(choice.sum()))
        dealt = rng.multivariate_hypergeometric(choice, number, method="marginals")
        choice -= dealt
        drawn = np.concatenate([np.repeat(values[: len(choice)], dealt), np.full(end - begin - number, values[0])])
        found[order[begin:end]] = rng.permutation(drawn)
    return found


# -- Estimates --------------------------------------------------------------------------------------------------------


def requested(model: str, run: Floats, rng: np.random.Generator) -> Floats:
    """Requested times [s] for run times [s], shape (n,); never shorter than the run.

    Parameters
    ----------
    model
        ``exact``: the run time itself (at least 1 s). ``uniform:F``: run time times a number drawn evenly from [1, F],
        rounded up to whole minutes. ``modal`` or ``modal:HOURS``: few round values, as users choose them, with HOURS as
        the longest that may be requested (default: the longest run, rounded up to whole hours).

    Raises
    ------
    InvalidInput
        When the model is not known or its number not in bounds (F >= 1, HOURS >= 1).

    References
    ----------
    ``uniform`` is the "f-model" of Feitelson and Mu'alem Weil, IPPS/SPDP 1998, drawn evenly as is usual since; whole
    minutes are how people ask. ``modal``: see `asa.lab.traces.lublin`.

    Examples
    --------
    >>> requested("uniform:5", np.array([600.0, 10.0]), np.random.default_rng(1)).tolist()
    [1860.0, 60.0]
    """
    name, _, argument = model.partition(":")
    if name == "exact" and not argument:
        return np.maximum(run, 1.0)
    if name == "uniform":
        factor = _number(model, argument)
        asked = run * rng.uniform(1.0, factor, len(run))
        return np.maximum(np.ceil(asked / 60.0), 1.0) * 60.0
    if name == "modal":
        longest = _number(model, argument) * 3600 if argument else None
        return modal(run, rng, longest)
    raise UnknownName("model of requested times", model, ("exact", "uniform:F", "modal", "modal:HOURS"))


def _number(model: str, argument: str) -> float:
    try:
        number = float(argument)
    except ValueError:
        number = np.nan
    if not 1 <= number < np.inf:
        raise InvalidInput(
            f"model of requested times {model!r}: a number of at least 1 expected after the colon, as in uniform:5"
        )
    return number


# -- Lublin -----------------------------------------------------------------------------------------------------------

BUCKETS = 48
"""Spans of a day with a rate of their own: half hours."""
DAWN = 11
"""Bucket, counted from 1, at which the day of the cycle begins: half past five in the morning."""
LONGEST_RUN, LONGEST_PAUSE = 12.0, 13.0
"""Natural logarithms of the longest run time and of the longest time between jobs; longer ones are drawn again."""


@dataclass(frozen=True)
class LublinKind:
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


ALL = LublinKind()
BATCH = LublinKind(
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
INTERACTIVE = LublinKind(
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
    """At least one job of the Lublin-Feitelson model on a machine of at least 2 cores. Time 0 is midnight.

    Parameters
    ----------
    load
        Offered load that they are to have exactly (work per core and second between the first submission and the last);
        > 0. Operational time is stretched for it, so days keep their 24 hours. Default: as the model has it.
    kind
        ``all`` (parameters fitted to all jobs of the logs), ``batch``, ``interactive``, or ``both`` of these, each with
        arrivals of its own.

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


def daily(kind: LublinKind) -> Cycle:
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


def _pauses(kind: LublinKind, count: int, rng: np.random.Generator) -> Floats:
    """Operational times between jobs [s]."""
    return np.exp(_below(LONGEST_PAUSE, lambda rows: rng.gamma(*kind.pause, len(rows)), count))


def _sizes(kind: LublinKind, count: int, cores: int, rng: np.random.Generator) -> Ints:
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


def _runs(kind: LublinKind, size: Ints, rng: np.random.Generator) -> Floats:
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
