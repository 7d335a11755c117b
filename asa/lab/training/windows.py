"""Windows of jobs as the paper's machine meets them: those that a cluster sees on which a placement method decides.

References
----------
The paper of `asa.lab.placement.tjap.instance.Window`, section VI, and its authors' code, github.com/lzk23/hpcschedule:
the machine in ``config.py`` is not the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from asa.core.errors import UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.nwp import Nwp
from asa.lab.placement.tjap.instance import Placed, PlacementMethod, Window
from asa.lab.placement.topology import CONVENTIONS, Convention
from asa.lab.simulator.run import simulate
from asa.lab.traces.tjap import uniform

NODES = 1000
"""Nodes of the machine."""
PERIODS, PERIOD_S = 100, 60.0
"""Periods of an epoch, and the length of one [s]; Table I."""
MOST = 5
"""Most jobs of several nodes in one window: ``max_queue_size`` of the authors' code."""
SHORTEST_PAUSE_S = 5
"""Between jobs of the paper's workload."""


@dataclass(frozen=True)
class Geometry:
    """A network, and how its hops are counted.

    Parameters
    ----------
    name
        What it is called.
    widths
        As `asa.lab.placement.network.network` takes it.
    hops
        A name of `asa.lab.placement.topology.CONVENTIONS`. Here each pair of nodes counts once, and nothing is rounded.
    """

    name: str
    widths: str
    hops: str

    @property
    def convention(self) -> Convention:
        """How hops are counted."""
        return replace(CONVENTIONS[self.hops], both_ways=False, whole=False)


GEOMETRIES = {
    "code": Geometry("code", "25x4x10", "code"),
    "text": Geometry("text", "10x10x10", "paper"),
}
"""25 pods of 40 nodes with 1, 3 or 5 hops, as in the authors' code; 10 pods of 100 with 2, 4 or 6, as in the paper."""


def machine() -> Cluster:
    """The machine."""
    return Cluster.of(nodes=NODES)


class Recorder:
    """A placement method that keeps the windows it places until some time.

    Parameters
    ----------
    method
        What places them.
    until
        Later ones are placed, but not kept [s].

    Attributes
    ----------
    windows
        In their order.
    """

    def __init__(self, method: PlacementMethod, until: float) -> None:
        self._method, self._until, self._late, self.windows = method, until, False, list[Window]()

    def watch(self, view: TableView) -> None:
        """Be told of the time at which a window is going to be placed."""
        self._late = view.now > self._until

    def place(self, window: Window) -> Placed:
        """What the method does."""
        if len(window.sizes) and not self._late:
            self.windows.append(window)
        return self._method.place(window)


def recorded(jobs: Workload, geometry: Geometry, driver: PlacementMethod, periods: int = PERIODS) -> list[Window]:
    """The windows of an epoch's periods, on a cluster whose jobs are where `driver` puts them."""
    recorder = Recorder(driver, periods * PERIOD_S)
    options: dict[str, Any] = {"topology": geometry.widths, "hops": geometry.hops, "most": MOST}
    simulate(jobs, machine(), Nwp(window=PERIOD_S, method=recorder, **options), watch=recorder.watch)
    return recorder.windows


def epoch(driver: PlacementMethod, *, seed: int, geometry: str = "code") -> list[Window]:
    """The windows of an epoch of jobs that are made up as the paper's are; see `recorded`.

    Raises
    ------
    UnknownName
        When the geometry is not known.
    """
    if geometry not in GEOMETRIES:
        raise UnknownName("geometry", geometry, GEOMETRIES)
    length = PERIODS * PERIOD_S
    jobs = uniform(int(length / SHORTEST_PAUSE_S) + 1, seed=seed)
    return recorded(jobs.between(0.0, length + 1), GEOMETRIES[geometry], driver)
