"""Policies that are not learned, and workloads to try them on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import SelectionPolicy

NODES = 8


def first(observation: np.ndarray, mask: np.ndarray) -> int:
    """The first job of the window."""
    return int(np.flatnonzero(mask)[0])


def by(rank: Callable[[np.ndarray], np.ndarray]) -> SelectionPolicy:
    """The job that ranks lowest, by its rows (size, estimate, priority, wait)."""

    def policy(observation: np.ndarray, mask: np.ndarray) -> int:
        jobs = observation[: 2 * len(mask)].reshape(len(mask), 4)
        return int(np.argmin(np.where(mask, rank(jobs), np.inf)))

    return policy


smallest, largest = by(lambda jobs: jobs[:, 0]), by(lambda jobs: -jobs[:, 0])
youngest = by(lambda jobs: jobs[:, 3])


def at_random(seed: int) -> SelectionPolicy:
    draw = np.random.default_rng(seed)
    return lambda observation, mask: int(draw.choice(np.flatnonzero(mask)))


@st.composite
def workloads(draw: st.DrawFn, most: int = 25) -> Workload:
    """Jobs that end no later than their wall times, close enough to one another for a queue."""
    count = draw(st.integers(1, most))
    submit = np.cumsum(draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    run = np.array(draw(st.lists(st.integers(1, 30), min_size=count, max_size=count)))
    more = np.array(draw(st.lists(st.sampled_from([0, 0, 5, 30]), min_size=count, max_size=count)))
    cores = draw(st.lists(st.integers(1, NODES), min_size=count, max_size=count))
    return Workload.of(submit=submit, run=run, cores=cores, walltime=run + more)
