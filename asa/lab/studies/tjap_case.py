"""Workloads of the topology-aware allocation paper, and what a schedule costs in hops on its machine."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Workload
from asa.lab.placement.network import network
from asa.lab.placement.tjap.instance import PRICE, Window
from asa.lab.placement.tjap.together import Together
from asa.lab.placement.topology import Topology
from asa.lab.traces.tjap import uniform
from asa.lab.training.windows import NODES, PERIOD_S, PERIODS, Geometry

LARGEST = 40
"""Nodes of the largest job."""
BETWEEN = 400
"""Jobs from the beginning of one epoch to that of the next; more than are submitted in one."""


def workload(path: str | Path | None = None, *, jobs: int = 20_000, seed: int = 0) -> Workload:
    """The authors' workload, or one that is made up in the same way.

    Parameters
    ----------
    path
        A file with a line for each job: number, submission [s], run time [s], nodes; gzipped or not. None: made up.
    jobs, seed
        Of the one that is made up, `asa.lab.traces.tjap.uniform`.

    Raises
    ------
    InvalidInput
        When there is no such file, or it is another one.
    """
    if path is None:
        return uniform(jobs, seed=seed)
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rt") as file:
            rows = np.array([line.split() for line in file], dtype=np.int64)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path}: {error}. Expected number, submission, run time and nodes of each job") from error
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise InvalidInput(f"{path} has rows {rows.shape[1:]}: number, submission, run time, nodes expected")
    submit, run, nodes = rows[:, 1:].T
    return Workload.of(submit=submit, run=run, cores=nodes, walltime=np.maximum(run, 1))


def epochs(whole: Workload, first: int, count: int, periods: int = PERIODS) -> Iterator[Workload]:
    """Workloads of epochs, numbered from `first`: what is submitted in so many periods, on an empty machine.

    Epoch k begins with job `BETWEEN` * k. Its clock begins half a second before that job's submission: so what is
    submitted at the very end of a period (all times are whole seconds) is looked at a period later, as in the authors'
    code.

    Raises
    ------
    InvalidInput
        When the workload ends before.
    """
    for epoch in range(first, first + count):
        begin, length = BETWEEN * epoch, periods * PERIOD_S
        if begin >= len(whole) or whole.submit[-1] < whole.submit[begin] + length:
            raise InvalidInput(f"the workload has {len(whole)} jobs: too few for epoch {epoch}, from job {begin} on")
        start = float(whole.submit[begin])
        yield moved(whole.between(start, start + length), start - 0.5)


def moved(jobs: Workload, start: float) -> Workload:
    """The same jobs on a clock that begins at `start` [s]."""
    return replace(jobs, submit=jobs.submit - start)


def costs(schedule: Schedule, geometry: Geometry) -> Floats:
    """Cost of hops of each job, shape (n,): equation (1), each pair once; NaN for jobs that did not start."""
    tree, hops = tree_of(geometry), geometry.convention
    found = np.full(len(schedule), np.nan)
    nodes: dict[int, list[str]] = {}
    for row, run in schedule.placements or ():
        nodes.setdefault(row, []).extend(map(str, range(run.first, run.last + 1)))
    for row, names in nodes.items():
        found[row] = tree.cost(names, hops)
    return found


@cache
def tree_of(geometry: Geometry) -> Topology:
    """The network of a geometry."""
    return network(geometry.widths, NODES)


@cache
def alone(geometry: Geometry) -> Floats:
    """What a job of each size costs at least, on an empty machine, shape (LARGEST + 1,); 0 for none."""
    tree, idle = tree_of(geometry), np.arange(NODES)
    hops = tree.hops(geometry.convention)
    found = [0.0]
    for size in range(1, LARGEST + 1):
        window = Window(idle, tree.groups, np.array([size]), hops, PRICE)
        names = [str(place) for place in Together(iterations=0).place(window).places[0].tolist()]
        found.append(tree.cost(names, geometry.convention))
    return np.array(found)
