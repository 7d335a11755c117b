from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.job import Resources
from asa.lab.core.workload import Workload
from asa.lab.studies.queue_planned import planned
from asa.lab.studies.queue_seen import QueueLog

CAPACITY = 4
small = st.integers(0, 9)
jobs = st.lists(st.tuples(small, small, small, st.integers(1, CAPACITY), st.integers(1, 9)), min_size=1, max_size=12)


def with_profiles(queue: QueueLog, now: float, cores: int, walltime: float) -> float:
    """The same plan from the readable profile of free cores."""
    runs = [k for k in range(len(queue)) if queue.start[k] <= now < queue.end[k]]
    held = [(Resources(cores=int(queue.cores[k])), float(queue.start[k] + queue.walltime[k])) for k in runs]
    profile = Profile(Resources(cores=CAPACITY), now, held)
    waits = [k for k in range(len(queue)) if queue.submit[k] <= now < queue.start[k]]
    wanted = [(Resources(cores=int(queue.cores[k])), float(queue.walltime[k])) for k in waits]
    for need, duration in [*wanted, (Resources(cores=cores), walltime)]:
        at = profile.earliest(need, duration)
        profile.reserve(need, at, duration)
    return at - now


@given(jobs, small, st.integers(1, CAPACITY), st.integers(1, 9))
def test_it_is_the_plan_of_the_readable_profile(
    rows: list[tuple[int, int, int, int, int]], now: int, cores: int, walltime: int
) -> None:
    submit, wait, run, size, wall = np.array(sorted(rows, key=lambda row: row[0]), dtype=float).T
    queue = QueueLog.of(Workload.of(submit=submit, wait=wait, run=run, cores=size, walltime=wall))
    (found,) = planned(
        queue, queue.at(np.array([float(now)])), np.array([cores]), np.array([float(walltime)]), CAPACITY
    )
    assert math.isclose(found, with_profiles(queue, float(now), cores, float(walltime)), abs_tol=1e-9)


def test_a_job_larger_than_the_machine_is_told_when_all_work_is_done() -> None:
    queue = QueueLog.of(Workload.of(submit=[0, 10], wait=[0, 90], run=[80, 5], cores=[4, 2], walltime=[100, 60]))
    found = planned(queue, queue.at(np.array([20.0])), np.array([5]), np.array([1.0]), CAPACITY)
    assert found.tolist() == [(4 * 80 + 2 * 60) / 4]
