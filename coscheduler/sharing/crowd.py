"""Waiting and running jobs as columns, by what is known of their applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asa.core.sharing import ALONE, Ints, SharingView, WaitingJob
from asa.core.workload import Floats
from coscheduler.profiles import Profiles
from coscheduler.sharing.pairs import Crowd

HOSTS = 128
"""Hosts that are considered at a time."""


class Crew(NamedTuple):
    """Hosts that may take a guest, then the guests that they have: rows of the view, and for each which host it runs on
    (the place of that host among them); and their columns."""

    rows: Ints
    place: Ints
    crowd: Crowd


def waiting(jobs: Sequence[WaitingJob], profiles: Profiles) -> Crowd:
    """Columns of k waiting jobs; `slack_s` is what the wall time leaves above the run time that is expected."""
    parallel, demand, memory = profiles.arrays([job.application for job in jobs])
    cores = np.array([job.cores for job in jobs], dtype=np.float64)
    total_s = np.array([profiles.run_time(job.application, job.cores, job.walltime_s) for job in jobs])
    slack_s = np.array([job.walltime_s for job in jobs]) - total_s
    return Crowd(cores, memory * cores, parallel, np.maximum(demand * cores, 1.0), total_s, total_s, slack_s)


def left_s(view: SharingView) -> tuple[Floats, Floats]:
    """What is left of each running job's wall time and, at its pace, of its run time [s]; shapes (n,).

    By the definition of happiness, the time that is left is the rest of the wall time over the happiness.
    """
    running = view.running
    rest = np.maximum(running.walltime - (view.now - running.started), 0.0)
    return rest, rest / np.maximum(running.states.happiness, 1e-6)


def roomiest(view: SharingView, hosts: Ints, profiles: Profiles, most: int = HOSTS) -> Ints:
    """Of these hosts the ones, `most` at most, that will leave most of their cores idle."""
    if len(hosts) <= most:
        return hosts
    parallel, demand, _ = profiles.arrays(view.running.applications)[:, view.running.application[hosts]]
    idle = view.running.cores[hosts] * (1 - parallel * demand) * left_s(view)[1][hosts]
    return np.sort(hosts[np.argpartition(-idle, most)[:most]])


def crew(view: SharingView, hosts: Ints, profiles: Profiles) -> Crew:
    """Columns of these hosts and their guests; memory as it was measured."""
    running = view.running
    place_of = np.full(len(running), -1)
    place_of[hosts] = np.arange(len(hosts))
    guests = np.flatnonzero((running.host != ALONE) & (place_of[running.host] >= 0))
    rows = np.concatenate([hosts, guests])
    parallel, demand, _ = profiles.arrays(running.applications)[:, running.application[rows]]
    cores = running.cores[rows].astype(np.float64)
    rest, left = (column[rows] for column in left_s(view))
    crowd = Crowd(
        cores=cores,
        memory=running.states.memory[rows] * cores,
        parallel=parallel,
        demand=np.maximum(demand * cores, 1.0),
        left_s=left,
        total_s=view.now - running.started[rows] + left,
        slack_s=rest - left,
    )
    return Crew(rows, np.concatenate([np.arange(len(hosts)), place_of[running.host[guests]]]), crowd)


def mean_area(view: SharingView, jobs: Crowd) -> float:
    """Mean of cores times run time of the running jobs and of these waiting ones [core-seconds]."""
    running = view.running
    areas = running.cores * (view.now - running.started + left_s(view)[1])
    return float(np.concatenate([areas, jobs.cores * jobs.total_s]).mean())
