"""Schedules made by hand, and by the plainest scheduler there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Placements, Schedule
from asa.lab.core.workload import Workload


def made(
    submit: Sequence[float],
    start: Sequence[float],
    end: Sequence[float],
    cores: Sequence[int],
    cluster: Cluster,
    outcome: Sequence[JobState] | None = None,
    placed: Sequence[tuple[int, int, int, int]] | None = None,
    **columns: Any,
) -> Schedule:
    """A schedule from its times, where `placed` has job, first node, last node and units."""
    count = len(submit)
    states = outcome or [JobState.COMPLETED] * count
    run = np.nan_to_num(np.subtract(end, start))
    workload = Workload.of(submit=submit, run=run, cores=cores, **columns)
    rows = None if placed is None else np.array(placed, dtype=np.int64).reshape(-1, 4)
    return Schedule(
        workload,
        cluster,
        eligible=np.where([state is JobState.FAILED for state in states], np.nan, workload.submit),
        start=np.array(start, dtype=np.float64),
        end=np.array(end, dtype=np.float64),
        outcome=np.array([OUTCOMES.index(state) for state in states], dtype=np.int8),
        restarts=np.zeros(count, dtype=np.int64),
        placements=None if rows is None else Placements(rows[:, 0], rows[:, 1:]),
        decisions=count,
        seconds=0.5,
    )


def in_turn(workload: Workload, cluster: Cluster) -> Schedule:
    """Jobs one after the other as they were submitted, each as soon as the lowest free cores suffice."""
    free = cluster.capacity[:, 0].copy()
    running: list[tuple[float, list[tuple[int, int]]]] = []
    start, placed, now = [], [], 0.0
    for row, cores in enumerate(workload.cores.tolist()):
        now = max(now, float(workload.submit[row]))
        while True:
            for over in [item for item in running if item[0] <= now]:
                running.remove(over)
                for node, taken in over[1]:
                    free[node] += taken
            if free.sum() >= cores:
                break
            now = min(end for end, _ in running)
        mine = []
        for node in np.flatnonzero(free).tolist():
            taken = min(cores, int(free[node]))
            if taken:
                mine.append((node, taken))
                free[node] -= taken
                cores -= taken
        running.append((now + float(workload.run[row]), mine))
        start.append(now)
        placed += [(row, node, node, taken) for node, taken in mine]
    rows = np.array(placed, dtype=np.int64).reshape(-1, 4)
    count = len(workload)
    return Schedule(
        workload,
        cluster,
        workload.submit.copy(),
        np.array(start),
        np.array(start) + workload.run,
        np.full(count, OUTCOMES.index(JobState.COMPLETED), dtype=np.int8),
        np.zeros(count, dtype=np.int64),
        Placements(rows[:, 0], rows[:, 1:]),
        decisions=count,
        seconds=0.1,
    )


def random_schedule(jobs: int, nodes: int, cores: int = 1, seed: int = 0) -> Schedule:
    """Random jobs of random users, on so many nodes."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(2 ** rng.integers(0, 12, jobs), nodes * cores)
    run = np.round(rng.lognormal(5, 1.5, jobs)) + 1
    submit = np.cumsum(rng.exponential(float((sizes * run).mean()) / (nodes * cores) / 0.7, jobs))
    users = rng.integers(0, 5, jobs)
    workload = Workload.of(submit=submit, run=run, cores=sizes, walltime=2 * run, user=users)
    return in_turn(workload, Cluster.of(nodes, cores))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A few jobs in turn on a few nodes, equal or not; some run for no time at all."""
    capacity = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    count = draw(st.integers(1, 12))
    cores = draw(st.lists(st.integers(1, sum(capacity)), min_size=count, max_size=count))
    submit = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    run = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    workload = Workload.of(submit=submit, run=run, cores=cores)
    return in_turn(workload, Cluster(np.array(capacity).reshape(-1, 1)))
