"""What jobs waited: in a log, under a site model, and when a log's own jobs are simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.metrics.job import by_class, size_classes, spread
from asa.lab.metrics.system import utilisation
from asa.lab.simulator.run import simulate
from asa.lab.traces.offered import work
from asa.lab.traces.site import Site

SLACK_S = 60.0
"""Added to mean waits before they are compared as ratios [s]: nobody minds whether it was one second or ten."""
FEWEST = 30
"""Size classes of a log with fewer jobs are not compared."""


@dataclass(frozen=True)
class Seen:
    """What jobs waited and how busy the machine was: in a log, or in a simulation.

    Parameters
    ----------
    wait, cores
        Of each job, shape (n,); waits in s.
    utilisation
        Share of the machine's cores in use.
    load
        Work that was offered, likewise.
    """

    wait: Floats
    cores: Ints
    utilisation: float
    load: float


def observed(log: Workload, cluster: Cluster, begin: float, until: float) -> Seen:
    """What a log tells of the jobs submitted from `begin` to `until` [s] whose waits it knows.

    Raises
    ------
    InvalidInput
        When there are hardly any.
    """
    known = log.take(~np.isnan(log.wait))
    jobs = known.between(begin, until)
    if len(jobs) < FEWEST:
        raise InvalidInput(f"only {len(jobs)} jobs with known waits in a part of the log: at least {FEWEST} expected")
    start = known.submit + known.wait
    used = utilisation(start, start + known.run, known.cores, cluster.cores, begin=begin, until=until)
    return Seen(jobs.wait, jobs.cores, used, work(log.between(begin, until)) / (cluster.cores * (until - begin)))


def simulated(site: Site, duration_s: float, seeds: range, warmup_s: float) -> Seen:
    """What a model says, of jobs submitted after the warm-up; all seeds together."""
    found = []
    for seed in seeds:
        workload = site.workload(warmup_s + duration_s, seed)
        rules = {"dispatcher": site.dispatcher, "priority": site.priority}
        found.append(_run(workload, site.cluster(), warmup_s, warmup_s + duration_s, **rules))
    return Seen(
        np.concatenate([each.wait for each in found]),
        np.concatenate([each.cores for each in found]),
        float(np.mean([each.utilisation for each in found])),
        float(np.mean([each.load for each in found])),
    )


def replayed(
    log: Workload, cluster: Cluster, begin: float, until: float, *, warmup_s: float, dispatcher: str, priority: str
) -> Seen:
    """What the simulator makes of a log's own jobs from `begin` to `until` [s]; those of the warm-up before run first.

    Jobs without a request count as if they had asked for what they ran.
    """
    jobs = log.between(begin - warmup_s, until)
    asked = np.where(np.isnan(jobs.walltime), np.maximum(jobs.run, 1.0), jobs.walltime)
    return _run(replace(jobs, walltime=asked), cluster, begin, until, dispatcher=dispatcher, priority=priority)


def distance(one: Seen, other: Seen, cores: int) -> tuple[float, float]:
    """How much longer (and by how much wrong) mean waits are than the other's: mean logarithms over the size classes.

    Weighted by the other's jobs; 0 for the same waits. The first number may cancel out over the classes, the second
    does not.
    """
    bounds = size_classes(cores)
    pairs = list(zip(by_class(one.wait, one.cores, bounds), by_class(other.wait, other.cores, bounds), strict=True))
    pairs = [(a, b) for a, b in pairs if a.count and b.count >= FEWEST]
    if not pairs:
        pairs = [(spread(one.wait), spread(other.wait))]
    weights = np.array([b.count for _, b in pairs]) / sum(b.count for _, b in pairs)
    logs = np.array([math.log((a.mean + SLACK_S) / (b.mean + SLACK_S)) for a, b in pairs])
    return float(weights @ logs), float(weights @ np.abs(logs))


def _run(jobs: Workload, cluster: Cluster, begin: float, until: float, *, dispatcher: str, priority: str) -> Seen:
    """Jobs submitted from `begin` until before `until` [s], and the machine between these."""
    schedule = simulate(jobs, cluster, dispatcher, priority=priority, overrun="allow", keep_nodes=False)
    ran = schedule.ran
    inside = ran & (jobs.submit >= begin) & (jobs.submit < until)
    used = utilisation(schedule.start[ran], schedule.end[ran], jobs.cores[ran], cluster.cores, begin=begin, until=until)
    load = work(jobs.between(begin, until)) / (cluster.cores * (until - begin))
    return Seen(schedule.wait[inside], jobs.cores[inside], used, load)
