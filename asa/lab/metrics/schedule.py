"""A schedule in numbers: what became of its jobs, and what it made of its machine."""

from __future__ import annotations

import math
import resource
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.core.units import HOUR, WEEK
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.metrics.energy import energy

BOUND_S = 10.0
"""Jobs that ran for less count as having run so long in a bounded slowdown [s]."""

CLASSES_MOST = 10
"""Size classes of a machine, at most: what one looks at in a picture."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How values are spread: their number, mean, median, 90th and 99th percentile and maximum.

    All but the number are NaN where there are no values. Percentiles are interpolated linearly.
    """

    count: int
    mean: float
    median: float
    p90: float
    p99: float
    max: float


def spread(values: Floats) -> Spread:
    """The spread of values, shape (n,); n may be 0.

    >>> spread(np.array([1.0, 2.0, 3.0, 10.0])).median
    2.5
    """
    if not len(values):
        return Spread(0, math.nan, math.nan, math.nan, math.nan, math.nan)
    median, p90, p99 = np.percentile(values, (50, 90, 99)).tolist()
    return Spread(len(values), float(values.mean()), median, p90, p99, float(values.max()))


def bounded_slowdown(turnaround: Floats, run: Floats, bound_s: float = BOUND_S) -> Floats:
    """How many times longer each job took than it ran, at least 1, shape (n,).

    Parameters
    ----------
    turnaround, run
        From submission to end and from start to end [s], shape (n,) each.
    bound_s
        Shorter run times count as this [s]; > 0. Otherwise jobs of a second would outweigh all others.

    References
    ----------
    D. G. Feitelson, L. Rudolph, U. Schwiegelshohn, K. C. Sevcik and P. Wong, "Theory and practice in parallel job
    scheduling", JSSPP 1997.

    Examples
    --------
    >>> bounded_slowdown(np.array([60.0, 100.0, 5.0]), np.array([30.0, 1.0, 1.0])).tolist()
    [2.0, 10.0, 1.0]
    """
    if not bound_s > 0:
        raise InvalidInput(f"the bound of a slowdown must be above 0 s, not {bound_s!r}")
    slowdown: Floats = np.maximum(1.0, turnaround / np.maximum(run, bound_s))
    return slowdown


def size_classes(cores: int, most: int = CLASSES_MOST) -> Ints:
    """Classes of job sizes on a machine of so many cores: the largest size in each, ascending, shape (k,), k <= `most`.

    Classes end at the powers of two, or of four, eight ... where those are too many; the last one ends at the machine.
    They depend on the machine alone, so that schedules of several dispatchers can be laid side by side.

    Raises
    ------
    InvalidInput
        When there are no cores, or fewer than two classes are allowed.

    Examples
    --------
    >>> size_classes(100).tolist()
    [1, 2, 4, 8, 16, 32, 64, 100]
    >>> size_classes(4392).tolist()
    [1, 4, 16, 64, 256, 1024, 4096, 4392]
    """
    if cores < 1 or most < 2:
        raise InvalidInput(f"no size classes for {cores} cores, {most} at most: expected at least 1 and at least 2")
    step = 1
    while -(-(cores - 1).bit_length() // step) + 1 > most:
        step += 1
    powers = [1 << exponent for exponent in range(0, (cores - 1).bit_length(), step)]
    return np.array([*powers, cores], dtype=np.int64)


def class_names(bounds: Ints) -> list[str]:
    """Names of the size classes that end at `bounds`.

    >>> class_names(size_classes(6))
    ['1', '2', '3-4', '5-6']
    """
    first = 1
    names = []
    for last in bounds.tolist():
        names.append(str(last) if first == last else f"{first}-{last}")
        first = last + 1
    return names


def by_class(values: Floats, cores: Ints, bounds: Ints) -> list[Spread]:
    """Spread of the values of jobs, shape (n,), in each of the size classes that end at `bounds`.

    Jobs larger than the last bound are in the last class.
    """
    classes = np.minimum(np.searchsorted(bounds, cores), len(bounds) - 1).astype(np.int8)
    order = np.argsort(classes, kind="stable")
    cuts = np.searchsorted(classes[order], np.arange(1, len(bounds)))
    return [spread(values[rows]) for rows in np.split(order, cuts)]


def user_means(values: Floats, user: Ints) -> Floats:
    """Mean of each user's values, in order of the users' codes; jobs of unknown users (code < 0) are left out.

    >>> user_means(np.array([1.0, 3.0, 8.0, 5.0]), np.array([7, 7, 2, -1])).tolist()
    [8.0, 2.0]
    """
    known = user >= 0
    codes, who = np.unique(user[known], return_inverse=True)
    sums = np.bincount(who, weights=values[known], minlength=len(codes))
    means: Floats = sums / np.bincount(who, minlength=len(codes))
    return means


def core_seconds(start: Floats, end: Floats, cores: Ints, begin: float = -math.inf, until: float = math.inf) -> float:
    """Core-seconds used from `begin` to `until` [s] by jobs that ran from `start` to `end` [s], shape (n,) each.

    >>> core_seconds(np.array([0.0, 5.0]), np.array([10.0, 15.0]), np.array([2, 4]), begin=5.0, until=10.0)
    30.0
    """
    inside = np.clip(np.minimum(end, until) - np.maximum(start, begin), 0.0, None)
    return float(inside @ cores)


def utilisation(start: Floats, end: Floats, cores: Ints, capacity: int, *, begin: float, until: float) -> float:
    """Share of `capacity` cores used between two times; above 1 where jobs share cores, NaN where no time passes.

    From the first submission to the last end of a trace, this has a bias: the machine starts empty, and while it
    drains after the last submission no dispatcher could fill it. Between the first and the last submission the
    draining is left out, but a dispatcher that leaves more work for afterwards looks better than it was. Compare over
    a window in which the machine is loaded.
    """
    if capacity < 1:
        raise InvalidInput(f"utilisation of {capacity} cores: expected at least 1")
    if not until > begin:
        return math.nan
    return core_seconds(start, end, cores, begin, until) / (capacity * (until - begin))


def jain_index(values: Floats) -> float:
    """How alike values are: 1 when all are equal, 1/n when one has everything; NaN when there are none.

    References
    ----------
    R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in
    shared computer systems", DEC Research Report TR-301, 1984.

    Examples
    --------
    >>> jain_index(np.array([3.0, 3.0, 3.0])), jain_index(np.array([4.0, 0.0]))
    (1.0, 0.5)
    """
    squares = float(values @ values)
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else math.nan


def level(begin: Floats, end: Floats, amount: Ints | int = 1) -> tuple[Floats, Ints]:
    """Sum of the amounts that are there from `begin` to `end` [s], over time: cores in use, jobs in a queue.

    Returns
    -------
    times, level
        Ascending [s] without repetition, and the sum from each of them to the next, shape (m,) each; 0 at the end.

    Examples
    --------
    >>> times, cores = level(np.array([0.0, 2.0]), np.array([4.0, 4.0]), np.array([3, 5]))
    >>> times.tolist(), cores.tolist()
    ([0.0, 2.0, 4.0], [3, 8, 0])
    """
    amounts = np.broadcast_to(np.asarray(amount, dtype=np.int64), begin.shape)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    times = times[order]
    sums = np.cumsum(np.concatenate([amounts, -amounts])[order])
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, dtype=bool)
    return times[last], sums[last]


def mean_level(times: Floats, sums: Ints, edges: Floats) -> Floats:
    """Mean of a `level` between neighbouring edges [s], ascending, shape (k + 1,); shape (k,); 0 before and after.

    >>> mean_level(np.array([0.0, 2.0, 4.0]), np.array([3, 8, 0]), np.array([0.0, 4.0, 8.0])).tolist()
    [5.5, 0.0]
    """
    if not len(times):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(sums[:-1] * np.diff(times))])
    means: Floats = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return means


def longest_queue(submit: Floats, left: Floats) -> int:
    """Most jobs that waited at once, of those submitted and gone from the queue at these times [s], shape (n,) each.

    A job that starts in the instant of its submission never waits.

    >>> longest_queue(np.array([0.0, 1.0, 2.0]), np.array([0.0, 9.0, 3.0]))
    2
    """
    if not len(submit):
        return 0
    arrived = np.searchsorted(np.sort(submit), submit, side="right")
    gone = np.searchsorted(np.sort(left), submit, side="right")
    return int((arrived - gone).max())


STARVED_S = WEEK
"""A job that waited longer has starved [s]: a week, longer than a wall time may be on most machines."""


def summarise(schedule: Schedule, starved_s: float = STARVED_S) -> dict[str, Any]:
    """Numbers of a schedule, JSON-able; None where there is none (a mean of no jobs, say).

    Parameters
    ----------
    starved_s
        Jobs that waited longer than this [s] are counted as starved.

    Returns
    -------
    dict
        - `jobs` in the workload, `jobs_ran` that started and ended; `outcomes`: how many came out as what, `refused`
          being those that the machine could never have run; `restarts`: how often jobs were requeued.
        - `mean_`, `median_`, `p90_`, `p99_` and `max_` of `wait_s`, `turnaround_s` and `bounded_slowdown` of the jobs
          that ran; `by_size`: wait and bounded slowdown by size class. Sizes, and the run times in slowdowns, are those
          of the width that a moldable job asked for.
        - `makespan_s`: first submission to last end; `utilisation` over the makespan, `utilisation_while_submitting`
          from the first to the last submission; `throughput_jobs_per_hour` over the makespan.
        - `starved` jobs and the `max_queue_age_s` that any job reached, those that never started included;
          `max_queue_length`, and `mean_queue_length` over the makespan. Jobs that another one holds back do not count.
        - `users`, `mean_user_bounded_slowdown`, `max_user_bounded_slowdown`: of the users' own means; `jain_index` of
          these (1: all users fared alike).
        - where the power of nodes is declared, what `asa.lab.metrics.energy.energy` has.
        - `decisions`, and `seconds` and `jobs_per_second` of the simulation loop; `peak_memory_mb` of the whole
          process so far, in units of 10^6 bytes.

    Notes
    -----
    Of a requeued job only the last run is in a schedule: core-seconds that earlier ones wasted are not counted as
    used.
    """
    workload, ran = schedule.workload, schedule.ran
    submit, start, end = workload.submit[ran], schedule.start[ran], schedule.end[ran]
    capacity = schedule.cluster.cores
    wait, turnaround = start - submit, end - submit
    slowdown = bounded_slowdown(turnaround, schedule.run_as_asked[ran])
    first = float(workload.submit.min(initial=math.inf))
    last_submit = float(workload.submit.max(initial=-math.inf))
    over = float(end.max(initial=-math.inf))
    makespan = over - first
    since, left = queued(schedule)
    ages = left - since
    users = user_means(slowdown, workload.user[ran])
    used = schedule.used
    numbers: dict[str, Any] = {
        "jobs": len(schedule),
        "jobs_ran": len(wait),
        "refused": int(refused(schedule).sum()),
        "restarts": int(schedule.restarts.sum()),
        **_flat("wait_s", wait),
        **_flat("turnaround_s", turnaround),
        **_flat("bounded_slowdown", slowdown),
        "makespan_s": makespan,
        "utilisation": utilisation(*used, capacity, begin=first, until=over),
        "utilisation_while_submitting": utilisation(*used, capacity, begin=first, until=last_submit),
        "throughput_jobs_per_hour": len(wait) / makespan * HOUR if makespan > 0 else math.nan,
        "starved": int((ages > starved_s).sum()),
        "max_queue_age_s": float(ages.max(initial=0.0)),
        "max_queue_length": longest_queue(since, left),
        "mean_queue_length": float(ages.sum()) / makespan if makespan > 0 else math.nan,
        "users": len(users),
        "mean_user_bounded_slowdown": float(users.mean()) if len(users) else math.nan,
        "max_user_bounded_slowdown": float(users.max(initial=-math.inf)),
        "jain_index": jain_index(users),
        **energy(schedule),
        "decisions": schedule.decisions,
        "seconds": schedule.seconds,
        "jobs_per_second": len(schedule) / schedule.seconds if schedule.seconds > 0 else math.nan,
        "peak_memory_mb": peak_memory_mb(),
    }
    known = {name: value if isinstance(value, int) or math.isfinite(value) else None for name, value in numbers.items()}
    return known | {"outcomes": _outcomes(schedule), "by_size": _by_size(wait, slowdown, workload.cores[ran], capacity)}


def queued(schedule: Schedule) -> tuple[Floats, Floats]:
    """When jobs came into the queue and left it [s], shape (k,) each, of those that were in it.

    A job is in the queue from when it is eligible, so neither while another one holds it back nor when it was refused.
    One that never started left when it was cancelled, or waits until everything is over.
    """
    rows = ~np.isnan(schedule.eligible) & ~refused(schedule)
    left = np.where(np.isnan(schedule.start), schedule.end, schedule.start)
    times = np.concatenate([schedule.workload.submit, schedule.eligible, left, schedule.end])
    over = np.max(times, where=~np.isnan(times), initial=-math.inf)
    return schedule.eligible[rows], np.where(np.isnan(left), over, left)[rows]


def refused(schedule: Schedule) -> npt.NDArray[np.bool_]:
    """Which jobs the machine could never have run, shape (n,)."""
    mask: npt.NDArray[np.bool_] = np.isnan(schedule.start) & (schedule.outcome == OUTCOMES.index(JobState.FAILED))
    return mask


def peak_memory_mb() -> float:
    """Most memory that this process has held so far [10^6 bytes]."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _flat(name: str, values: Floats) -> dict[str, float]:
    return {f"{which}_{name}": value for which, value in asdict(spread(values)).items() if which != "count"}


def _outcomes(schedule: Schedule) -> dict[str, int]:
    counts = np.bincount(schedule.outcome[~refused(schedule)], minlength=len(OUTCOMES)).tolist()
    named = zip([*(state.value for state in OUTCOMES), "refused"], [*counts, len(schedule) - sum(counts)], strict=True)
    return {name: count for name, count in named if count}


def _by_size(wait: Floats, slowdown: Floats, cores: Any, capacity: int) -> list[dict[str, Any]]:
    """A row for each class that has jobs."""
    bounds = size_classes(capacity)
    rows = zip(class_names(bounds), by_class(wait, cores, bounds), by_class(slowdown, cores, bounds), strict=True)
    return [
        {
            "cores": name,
            "jobs": waits.count,
            "mean_wait_s": waits.mean,
            "median_wait_s": waits.median,
            "p90_wait_s": waits.p90,
            "max_wait_s": waits.max,
            "mean_bounded_slowdown": slowdowns.mean,
            "max_bounded_slowdown": slowdowns.max,
        }
        for name, waits, slowdowns in rows
        if waits.count
    ]
