"""The workload of the topology-aware job allocation paper."""

from __future__ import annotations

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.workload import Workload
from asa.lab.traces.lublin import requested


def uniform(
    jobs: int = 100_000,
    *,
    seed: int,
    nodes: tuple[int, int] = (1, 40),
    run: tuple[int, int] = (10, 1800),
    pause: tuple[int, int] = (5, 30),
    estimates: str = "exact",
) -> Workload:
    """Jobs whose nodes, run times [s] and times to the next job [s] are whole numbers, all equally likely.

    A job's unit is a node, so a machine of single-core nodes (``Cluster.of(nodes=1000)``) is the paper's: it is offered
    a load of about 1.06.

    Parameters
    ----------
    nodes, run, pause
        Smallest and largest, both included; nodes and run at least 1, pause at least 0.

    References
    ----------
    The text gives the ranges of nodes and run times (section V, "a 1000-node pruned fat-tree"; 100,000 jobs). That of
    the pauses is in its authors' generator only.

    Examples
    --------
    >>> made = uniform(jobs=1000, seed=1)
    >>> int(made.cores.max()), float(made.run.min() >= 10)
    (40, 1.0)
    """
    for name, (low, high), least in (("nodes", nodes, 1), ("run", run, 1), ("pause", pause, 0)):
        if not least <= low <= high:
            raise InvalidInput(f"{name} from {low} to {high}: a range that begins at {least} or above expected")
    if jobs < 1:
        raise InvalidInput(f"{jobs} jobs: at least 1 expected")
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.integers(*pause, jobs, endpoint=True)).astype(np.float64)
    times = rng.integers(*run, jobs, endpoint=True).astype(np.float64)
    sizes = rng.integers(*nodes, jobs, endpoint=True)
    return Workload.of(submit=submit, run=times, cores=sizes, walltime=requested(estimates, times, rng))
