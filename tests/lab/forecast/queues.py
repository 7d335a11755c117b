"""Queues to look at, and the simulator's own future of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import MachineSettings

CORES = 8

# Whole numbers: sums and differences of times are exact, so that "equal" can mean equal.
jobs = st.lists(
    st.tuples(
        st.integers(0, 300),  # submission
        st.integers(1, CORES),
        st.integers(1, 200),  # wall time
        st.integers(1, 100),  # percent of it that is used
    ),
    min_size=1,
    max_size=40,
)


def machine(made: list[tuple[int, int, int, int]]) -> Engine:
    """A machine of eight cores to which these jobs are submitted, after one at time 0."""
    made = [(0, 1, 1, 100), *made]
    submit, cores, walltime, used = (list(column) for column in zip(*made, strict=True))
    run = [max(1, asked * percent // 100) for asked, percent in zip(walltime, used, strict=True)]
    workload = Workload.of(submit=submit, run=run, cores=cores, walltime=walltime)
    return Engine(workload, Cluster.of(nodes=2, cores=CORES // 2), MachineSettings())


def waiting(key: str, cores: int, walltime_s: float, submitted: float = 0.0) -> QueuedJob:
    return QueuedJob(key, Resources(cores), walltime_s, submitted)


def running(key: str, cores: int, ends: float) -> RunningJob:
    return RunningJob(key, Resources(cores), ends)


def queue(
    now: float, waits: tuple[QueuedJob, ...] = (), runs: tuple[RunningJob, ...] = (), cores: int = CORES
) -> QueueView:
    return QueueView(now, Resources(cores), waits, runs)


def steady(looks: int = 400, share: float = 0.25, every_s: float = 60.0) -> list[QueueView]:
    """Looks at a queue whose jobs, one every look, ask for an hour and use the same share of it."""
    hour, found = 3600.0, []
    for look in range(looks):
        now = look * every_s
        born = np.arange(0, look + 1) * every_s
        runs = tuple(running(f"j{k}", 1, at + hour) for k, at in enumerate(born) if now - at < share * hour)
        found.append(queue(now, runs=runs, cores=100))
    return found
