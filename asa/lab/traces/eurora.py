"""Workloads like Eurora's: many short jobs of few users, on a small machine of unequal nodes. Synthetic.

Of the CP dispatching paper are the machine (section 3 and 4: 64 nodes of two octa-core CPUs and 16 GB, the first half
with two GPUs each, the other with two MICs), how many jobs come (over 400,000 from March 2014 to August 2015), and that
93.14 % of them run for less than an hour. All else is a choice of ours, made so that a queue forms now and then, and so
that there is something to learn: in a session, a user submits one of his applications again and again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.traces.patterns import Cycle, zipf

NODES, CORES, MEMORY_GB, ACCELERATORS = 64, 16, 16, 2
RESOURCES = ("cores", "memory", "gpus", "mics")
GB = 2**30

JOBS_A_DAY = 400_000 / 549
"""Of the paper: over 400,000 jobs in the 549 days from March 2014 to August 2015."""
SHORT = 0.9314
"""Of the paper: the share of jobs that run for less than an hour."""

MEDIAN_S, LONGEST_S = 240.0, DAY
"""Median and longest run time [s]; with `SHORT` they make the lognormal distribution from which run times come."""
REQUESTS_S = (600.0, 1800.0, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, DAY)
"""What users ask for: the least of these that is twice what their application takes."""
USERS, APPLICATIONS = 60, 6
"""How many users, and applications of each; both with Zipf's law of activity."""
ALIKE = 0.85
"""Share of the jobs that run about as long as others of their application; the rest run as long as any job may."""
SESSIONS = (1, 1, 1, 2, 3, 5, 10, 20)
"""Jobs of a session, all equally likely."""
GAPS_S = (0.0, 1.0, 30.0, 120.0)
"""Mean times between the jobs of a session [s], all equally likely: 0 for job arrays."""
WEEKLY = tuple((1.0 if day < 5 else 0.5) * (1.8 if 9 <= hour < 19 else 0.6) for day in range(7) for hour in range(24))
"""Rate of sessions by the hour of the week, from Monday midnight on, relative to each other."""


@dataclass(frozen=True)
class Sort:
    """What applications of one sort ask for; of each list every number is equally likely.

    Parameters
    ----------
    share
        Share of the applications, each of which counts as much as its jobs run in all.
    units
        Of a job; all jobs of a session have as many.
    cores, memory_gb, gpus, mics
        Of each unit, the same for all jobs of an application.
    """

    share: float
    units: tuple[int, ...]
    cores: tuple[int, ...]
    memory_gb: tuple[int, ...]
    gpus: tuple[int, ...] = (0,)
    mics: tuple[int, ...] = (0,)


SORTS = (
    Sort(0.10, (1,), (1,), (1, 2)),
    Sort(0.20, (1, 1, 2), (4, 8, 16), (4, 8, 14)),
    Sort(0.20, (2, 4, 8, 16), (8, 16), (4, 8, 14)),
    Sort(0.30, (1, 2, 4, 8), (1, 2, 4, 8), (2, 4, 8), gpus=(1, 2)),
    Sort(0.20, (1, 2, 4, 8), (1, 2, 4, 8), (2, 4, 8), mics=(1, 2)),
)
"""Serial jobs, those of one node or two, parallel ones, and those that need GPUs or MICs."""


def eurora_machine() -> Cluster:
    """The machine, after figure 2 of the paper."""
    first = np.arange(NODES) < NODES // 2
    both = np.stack([first, ~first], axis=1) * ACCELERATORS
    return Cluster(np.column_stack([np.tile([CORES, MEMORY_GB * GB], (NODES, 1)), both]), RESOURCES)


def eurora(days: float = 91.0, *, seed: int, jobs_a_day: float = JOBS_A_DAY) -> Workload:
    """Jobs like Eurora's, by default of a quarter of a year; time 0 is a Monday's midnight.

    Raises
    ------
    InvalidInput
        When there would be no job, or more than 10 million.

    Examples
    --------
    >>> eurora(days=7, seed=1)
    <Workload of 5100 jobs over 599751 s>
    """
    if not 1 <= days * jobs_a_day <= 1e7:
        raise InvalidInput(f"{days!r} days of {jobs_a_day!r} jobs: from 1 to 10 million jobs expected")
    count, rng = round(days * jobs_a_day), np.random.default_rng(seed)
    apps = _applications(rng)
    session = np.repeat(np.arange(count), rng.choice(SESSIONS, size=count))[:count]
    place = np.arange(count) - np.searchsorted(session, session)
    of_session = rng.choice(len(apps.share), size=session[-1] + 1, p=apps.share)
    units = np.array([rng.choice(SORTS[sort].units) for sort in apps.sort[of_session]])[session]
    app, drawn = of_session[session], rng.random(count)
    quantile = np.where(rng.random(count) < ALIKE, apps.begin[app] + apps.share[app] * drawn, drawn)
    walltime = apps.walltime[app]
    code, name = np.unique(np.where(apps.numbered[app], place + 1, 0) + 100 * app, return_inverse=True)
    names = tuple(_name(*divmod(each, 100)) for each in code.tolist())
    return Workload.of(
        submit=_submissions(session, place, days, rng),
        run=np.minimum(np.maximum(np.floor(run_time(quantile)), 1.0), walltime),
        walltime=walltime,
        units=units,
        kind=app,
        demands=apps.demands,
        resources=RESOURCES,
        user=app // APPLICATIONS,
        name=name,
        labels={"user": tuple(f"user{k}" for k in range(USERS)), "name": names},
    )


def run_time(quantile: Floats) -> Floats:
    """Run times [s] of jobs at these quantiles, in [0, 1]: lognormal, cut at the longest."""
    spread = math.log(HOUR / MEDIAN_S) / NormalDist().inv_cdf(SHORT)
    most = NormalDist().cdf(math.log(LONGEST_S / MEDIAN_S) / spread)
    normal = [NormalDist().inv_cdf(min(max(each, 1e-9), most)) for each in quantile.tolist()]
    found: Floats = MEDIAN_S * np.exp(spread * np.array(normal))
    return found


class _Applications(NamedTuple):
    """All of shape (applications,), those of a user together; `begin` is where its run times begin, as a quantile."""

    share: Floats
    begin: Floats
    walltime: Floats
    sort: Ints
    demands: Ints
    numbered: Ints


def _applications(rng: np.random.Generator) -> _Applications:
    """Each has a stretch of the quantiles of run times that is as long as it is popular, so that they are drawn as
    often as they should; and one of the sorts that is as long as its jobs run, so that the load is."""
    share = np.outer(zipf(USERS), zipf(APPLICATIONS)).ravel()
    begin = _stretches(share, rng)
    work = share * run_time(begin + share / 2)
    work /= work.sum()
    bounds = np.cumsum([each.share for each in SORTS])
    sort = np.minimum(np.searchsorted(bounds, _stretches(work, rng) + work / 2), len(SORTS) - 1)
    takes = run_time(begin + share)
    walltime = np.array(REQUESTS_S)[np.minimum(np.searchsorted(REQUESTS_S, 2 * takes), len(REQUESTS_S) - 1)]
    demands = [
        [rng.choice(one.cores), rng.choice(one.memory_gb) * GB, rng.choice(one.gpus), rng.choice(one.mics)]
        for one in (SORTS[each] for each in sort)
    ]
    numbered = rng.integers(0, 2, len(share))
    return _Applications(share, begin, walltime, sort, np.array(demands, dtype=np.int64), numbered)


def _stretches(share: Floats, rng: np.random.Generator) -> Floats:
    """Where each one's stretch of [0, 1] begins when they lie in random order."""
    order = rng.permutation(len(share))
    begin = np.empty(len(share))
    begin[order] = np.cumsum(share[order]) - share[order]
    return begin


def _submissions(session: Ints, place: Ints, days: float, rng: np.random.Generator) -> Floats:
    """When jobs are submitted [s]: sessions follow the week, their jobs come one after the other."""
    sessions, week = int(session[-1]) + 1, Cycle(WEEKLY, WEEK)
    until = days * DAY
    begin = week.clock(rng.random(sessions) * float(week.operational(until)))
    gaps = np.where(place > 0, rng.exponential(rng.choice(GAPS_S, sessions)[session]), 0.0)
    passed = np.cumsum(gaps)
    submit: Floats = np.floor(begin[session] + passed - passed[np.arange(len(place)) - place]) % until
    return submit


def _name(app: int, number: int) -> str:
    """Of a job: its application's, and a number where it is one of several."""
    return f"app{app}-{number}" if number else f"app{app}"
