"""A site model out of a site's own log."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.cycle import Cycle, measure
from asa.lab.traces.mixture import measure_classes
from asa.lab.traces.offered import offered_load, span
from asa.lab.traces.site import Site

PAUSE = 1200.0
"""Longest time [s] between two jobs of a session."""
HOURS = 168


def fit_site(log: Workload, cluster: Cluster, name: str, *, dispatcher: str = "easy", priority: str = "fifo") -> Site:
    """A model of the site that this log comes from. It says nothing yet of how long jobs wait there.

    What is measured: the mixture of jobs, by size and request; the offered load; the rate of sessions by hour of the
    week; how many jobs a session has, how quickly they follow each other and how alike they run; and how far the daily
    number of sessions strays from the cycle beyond chance, and for how long.

    Parameters
    ----------
    log
        At least 100 jobs over at least a day, none larger than the machine; time 0 is taken to be a Monday's midnight
        (another day only moves the week).
    cluster
        The machine; of equal nodes.
    name
        What to call the model.
    dispatcher, priority
        Settings of the batch system, which a log does not tell.

    Raises
    ------
    InvalidInput
        When the log is too small or has a job that is too large, or the nodes differ.

    Notes
    -----
    A session is a row of jobs of one user with the same size and request, each within 20 minutes of the one before.
    Jobs of unknown users are sessions of their own. Swings are measured by the method of moments: the variance of daily
    sessions relative to the cycle, less that of a Poisson process, and its correlation from one day to the next.
    """
    if len(log) < 100 or span(log) < DAY:
        raise InvalidInput(
            f"a log of {len(log)} jobs over {span(log) / DAY:.2g} days is too small for a model: "
            "at least 100 jobs and a day expected"
        )
    if not cluster.uniform:
        raise InvalidInput("a site model has equal nodes: give the part of the machine whose nodes are alike")
    if (most := int(log.cores.max())) > cluster.cores:
        raise InvalidInput(
            f"the log has jobs of {most} cores, more than the machine's {cluster.cores}: give the machine that the log "
            "is from, or leave those jobs out"
        )
    session = sessions(log)
    _, first = np.unique(session, return_index=True)
    begin = np.sort(log.submit[first])
    cycle = measure(begin, WEEK, HOURS) if span(log) >= WEEK else measure(begin, DAY, 24)
    swing, swing_s = _swings(begin, cycle)
    gap, alike = _inside(log, session)
    return Site(
        name=name,
        nodes=cluster.nodes,
        cores_per_node=cluster.cores // cluster.nodes,
        load=round(offered_load(log, cluster.cores), 6),
        classes=measure_classes(log, session),
        week=cycle.weights * (HOURS // len(cycle.weights)),
        gap_s=gap,
        alike=alike,
        swing=swing,
        swing_s=swing_s,
        users=max(1, len(np.unique(log.user[log.user != UNKNOWN]))),
        dispatcher=dispatcher,
        priority=priority,
        note=f"measured on {len(log)} jobs over {span(log) / DAY:.4g} days",
    )


def sessions(log: Workload) -> Ints:
    """Number of each job's session, shape (n,), from 0 on."""
    order = np.lexsort((np.arange(len(log)), log.user))
    user, submit, cores = log.user[order], log.submit[order], log.cores[order]
    request = np.nan_to_num(log.walltime[order], nan=-1.0)
    same = np.zeros(len(log), dtype=bool)
    same[1:] = (user[1:] == user[:-1]) & (user[1:] != UNKNOWN) & (np.diff(submit) <= PAUSE)
    same[1:] &= (cores[1:] == cores[:-1]) & (request[1:] == request[:-1])
    found = np.empty(len(log), dtype=np.int64)
    found[order] = np.cumsum(~same) - 1
    return found


def _inside(log: Workload, session: Ints) -> tuple[float, float]:
    """Mean time between jobs of a session [s], and the share of its jobs that run as long as each other.

    Two in a row do so (to 10 %) when both are of that share, hence the root.
    """
    order = np.lexsort((np.arange(len(log)), session))
    follows = np.flatnonzero(np.diff(session[order]) == 0)
    if not len(follows):
        return 0.0, 0.0
    gaps = log.submit[order][follows + 1] - log.submit[order][follows]
    run = np.log(log.run[order] + 10.0)  # ten seconds, so that very short jobs are alike
    alike = np.abs(run[follows + 1] - run[follows]) < np.log(1.1)
    return round(float(gaps.mean()), 3), round(float(np.sqrt(alike.mean())), 4)


def _swings(begin: Floats, cycle: Cycle) -> tuple[float, float]:
    """Standard deviation of the logarithm of the rate beyond the cycle, and how long [s] a swing lasts."""
    first = np.floor(begin[0] / DAY)
    days = int(np.floor(begin[-1] / DAY) - first)  # the last one is not whole
    counts = np.bincount(np.floor(begin / DAY - first).astype(np.int64))[:days].astype(np.float64)
    shape = np.diff(cycle.operational((first + np.arange(days + 1)) * DAY))
    expected = shape / max(shape.sum(), 1e-9) * counts.sum()
    kept = expected > 1
    if kept.sum() < 14:
        return 0.0, 2 * DAY
    ratio = counts[kept] / expected[kept] - 1
    beyond = float((ratio**2).mean() - (1 / expected[kept]).mean())
    if beyond <= 0:
        return 0.0, 2 * DAY
    next_day = float(np.clip((ratio[1:] * ratio[:-1]).mean() / beyond, np.exp(-2.0), np.exp(-1 / 14)))
    return round(float(np.sqrt(np.log1p(beyond))), 4), round(-DAY / np.log(next_day), 1)
