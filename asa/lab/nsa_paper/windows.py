"""Workloads of the paper, and windows of jobs as a placement method meets them on its machine.

References
----------
The paper of `asa.lab.placement.tjap.instance.Window`, section VI, and its authors' code, github.com/lzk23/hpcschedule:
the machine in ``config.py`` is not the paper's.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.nwp import Nwp
from asa.lab.placement.tjap.instance import PRICE, Placed, PlacementMethod, Window
from asa.lab.placement.tjap.together import Together
from asa.lab.placement.topology import CONVENTIONS, Convention, Topology, network
from asa.lab.simulator.run import simulate

NODES = 1000
"""Nodes of the machine."""
PERIODS, PERIOD_S = 100, 60.0
"""Periods of an epoch, and the length of one [s]; Table I."""
MOST = 5
"""Most jobs of several nodes in one window: ``max_queue_size`` of the authors' code."""
LARGEST = 40
"""Nodes of the largest job."""
SHORTEST_PAUSE_S = 5
"""Between jobs of the paper's workload."""


@dataclass(frozen=True)
class NetworkGeometry:
    """A network, and how its hops are counted.

    Parameters
    ----------
    widths
        As `asa.lab.placement.topology.network` takes it.
    hops
        A name of `asa.lab.placement.topology.CONVENTIONS`. Here each pair of nodes counts once, and nothing is rounded.
    """

    name: str
    widths: str
    hops: str

    @property
    def convention(self) -> Convention:
        return replace(CONVENTIONS[self.hops], both_ways=False, whole=False)


GEOMETRIES = {
    "code": NetworkGeometry("code", "25x4x10", "code"),
    "text": NetworkGeometry("text", "10x10x10", "paper"),
}
"""25 pods of 40 nodes with 1, 3 or 5 hops, as in the authors' code; 10 pods of 100 with 2, 4 or 6, as in the paper."""


def machine() -> Cluster:
    """The machine."""
    return Cluster.of(nodes=NODES)


class Recorder:
    """A placement method that keeps the windows it places until some time."""

    def __init__(self, method: PlacementMethod, until: float) -> None:
        self._method, self._until, self._late, self.windows = method, until, False, list[Window]()

    def watch(self, view: TableView) -> None:
        """Take the time at which a window is going to be placed."""
        self._late = view.now > self._until

    def place(self, window: Window) -> Placed:
        if len(window.sizes) and not self._late:
            self.windows.append(window)
        return self._method.place(window)


def recorded(
    jobs: Workload, geometry: NetworkGeometry, driver: PlacementMethod, periods: int = PERIODS
) -> list[Window]:
    """The windows of an epoch's periods, on a cluster whose jobs are where `driver` puts them."""
    recorder = Recorder(driver, periods * PERIOD_S)
    options: dict[str, Any] = {"topology": geometry.widths, "hops": geometry.hops, "most": MOST}
    simulate(jobs, machine(), Nwp(window=PERIOD_S, method=recorder, **options), watch=recorder.watch)
    return recorder.windows


def uniform(jobs: int = 100_000, *, seed: int) -> Workload:
    """Jobs whose nodes, run times [s] and times to the next job [s] are whole numbers, all equally likely.

    A job's unit is a node, so a machine of single-core nodes (`machine`) is the paper's: it is offered a load of about
    1.06. Wall times are the run times.

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
    if jobs < 1:
        raise InvalidInput(f"{jobs} jobs: at least 1 expected")
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.integers(SHORTEST_PAUSE_S, 30, jobs, endpoint=True)).astype(np.float64)
    run = rng.integers(10, 1800, jobs, endpoint=True).astype(np.float64)
    return Workload.of(submit=submit, run=run, cores=rng.integers(1, LARGEST, jobs, endpoint=True), walltime=run)


def epoch(driver: PlacementMethod, *, seed: int, geometry: str = "code") -> list[Window]:
    """The windows of an epoch of jobs that are made up as the paper's are; see `recorded`."""
    if geometry not in GEOMETRIES:
        raise UnknownName("geometry", geometry, GEOMETRIES)
    length = PERIODS * PERIOD_S
    jobs = uniform(int(length / SHORTEST_PAUSE_S) + 1, seed=seed)
    return recorded(jobs.between(0.0, length + 1), GEOMETRIES[geometry], driver)


BETWEEN = 400
"""Jobs from the beginning of one epoch to that of the next; more than are submitted in one."""


def workload(path: str | Path | None = None, *, jobs: int = 20_000, seed: int = 0) -> Workload:
    """The authors' workload, or one that is made up in the same way.

    Parameters
    ----------
    path
        A file with a line for each job: number, submission [s], run time [s], nodes; gzipped or not. None: made up.
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


def costs(schedule: Schedule, geometry: NetworkGeometry) -> Floats:
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
def tree_of(geometry: NetworkGeometry) -> Topology:
    """The network of a geometry."""
    return network(geometry.widths, NODES)


@cache
def alone(geometry: NetworkGeometry) -> Floats:
    """What a job of each size costs at least, on an empty machine, shape (LARGEST + 1,); 0 for none."""
    tree, idle = tree_of(geometry), np.arange(NODES)
    hops = tree.hops(geometry.convention)
    found = [0.0]
    for size in range(1, LARGEST + 1):
        window = Window(idle, tree.groups, np.array([size]), hops, PRICE)
        names = [str(place) for place in Together(iterations=0).place(window).places[0].tolist()]
        found.append(tree.cost(names, geometry.convention))
    return np.array(found)
