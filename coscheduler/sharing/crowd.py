"""Waiting and running jobs as columns, by what is known of their applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from coscheduler.nouns import ALONE, ON_TIME, RunningJobs, SharingView, WaitingJob
from coscheduler.profiles import Profiles
from coscheduler.sharing.pairs import Crowd

CANDIDATES = 128
"""Hosts that are considered at a time: each pair with a waiting job is foreseen in full, in a millisecond together."""


class Company(NamedTuple):
    """Hosts that may take a guest, then the guests that they have: rows of the view, and for each which host it runs on
    (the place of that host among them); and their columns."""

    rows: Ints
    place: Ints
    crowd: Crowd


def waiting(jobs: Sequence[WaitingJob], profiles: Profiles) -> Crowd:
    """Columns of k waiting jobs; `slack_s` is what the wall time leaves above the run time that is expected."""
    parallel, demand, memory = profiles.arrays((job.application, job.cores) for job in jobs)
    cores = np.array([job.cores for job in jobs], dtype=np.float64)
    total_s = np.array([profiles.run_time(job.application, job.cores, job.walltime_s) for job in jobs])
    slack_s = np.array([job.walltime_s for job in jobs]) - total_s
    return Crowd(cores, memory * cores, parallel, np.maximum(demand * cores, 1.0), total_s, total_s, slack_s)


def left_s(view: SharingView, profiles: Profiles) -> tuple[Floats, Floats]:
    """What is left of each running job's wall time and, at its pace, of its run time [s]; shapes (n,).

    By the definition of happiness, the time that is left is the rest of the wall time over the happiness. A job that
    does not tell its pace counts as just on time: of that one, what is left of its expected run time is taken.
    """
    running = view.running
    elapsed = view.now - running.started
    rest = np.maximum(running.walltime - elapsed, 0.0)
    left = rest / np.maximum(running.states.happiness, 1e-6)
    for row in np.flatnonzero(running.states.happiness == ON_TIME).tolist():
        application, cores = running.applications[running.application[row]], int(running.cores[row])
        expected = profiles.run_time(application, cores, float(running.walltime[row])) - elapsed[row]
        if 0 < expected < rest[row]:
            left[row] = expected
    return rest, left


def roomiest(view: SharingView, hosts: Ints, profiles: Profiles) -> Ints:
    """Of these hosts the `CANDIDATES` that will leave most of their cores idle."""
    if len(hosts) <= CANDIDATES:
        return hosts
    parallel, demand = _uses(view.running, hosts, profiles)
    idle = view.running.cores[hosts] * (1 - parallel * demand) * left_s(view, profiles)[1][hosts]
    return np.sort(hosts[np.argpartition(-idle, CANDIDATES)[:CANDIDATES]])


def company(view: SharingView, hosts: Ints, profiles: Profiles) -> Company:
    """Columns of these hosts and their guests; memory as it was measured."""
    running = view.running
    place_of = np.full(len(running), -1)
    place_of[hosts] = np.arange(len(hosts))
    guests = np.flatnonzero((running.host != ALONE) & (place_of[running.host] >= 0))
    rows = np.concatenate([hosts, guests])
    parallel, demand = _uses(running, rows, profiles)
    cores = running.cores[rows].astype(np.float64)
    rest, left = (column[rows] for column in left_s(view, profiles))
    crowd = Crowd(
        cores=cores,
        memory=running.states.memory[rows] * cores,
        parallel=parallel,
        demand=np.maximum(demand * cores, 1.0),
        left_s=left,
        total_s=view.now - running.started[rows] + left,
        slack_s=rest - left,
    )
    return Company(rows, np.concatenate([np.arange(len(hosts)), place_of[running.host[guests]]]), crowd)


def _uses(running: RunningJobs, rows: Ints, profiles: Profiles) -> Floats:
    """Parallel share and demand of these running jobs, shape (2, k); each application and size is looked up once."""
    span = int(running.cores.max(initial=0)) + 1
    codes, place = np.unique(running.application[rows] * span + running.cores[rows], return_inverse=True)
    kinds = ((running.applications[code // span], code % span) for code in codes.tolist())
    return profiles.arrays(kinds)[:2, place]


def mean_area(view: SharingView, jobs: Crowd, profiles: Profiles) -> float:
    """Mean of cores times run time of the running jobs and of these waiting ones [core-seconds]."""
    running = view.running
    areas = running.cores * (view.now - running.started + left_s(view, profiles)[1])
    return float(np.concatenate([areas, jobs.cores * jobs.total_s]).mean())
