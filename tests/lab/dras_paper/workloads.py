"""Workloads that learners are tested on."""

from __future__ import annotations

import numpy as np

from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import Rows
from asa.lab.dras_paper.environment import Dispatching

NODES = 8
MACHINE = Cluster.of(NODES)


def busy(jobs: int, seed: int = 0) -> Workload:
    """More than the machine can do at once."""
    draw = np.random.default_rng(seed)
    run = draw.integers(60, 3600, jobs)
    return Workload.of(
        submit=np.cumsum(draw.integers(0, 900, jobs)),
        run=run,
        cores=draw.integers(1, NODES + 1, jobs),
        walltime=run + draw.integers(0, 600, jobs),
    )


def small(*workloads: Workload, window: int = 4, **options: object) -> Dispatching:
    """An environment of the small machine."""
    return Dispatching(workloads, MACHINE, Rows(window, "shares"), **options)  # type: ignore[arg-type]
