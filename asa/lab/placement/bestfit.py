"""Best fit: the fullest nodes that have room."""

from __future__ import annotations

import numpy.typing as npt

from asa.core.decision import NodeRun
from asa.lab.placement.native import BEST_FIT
from asa.lab.placement.runs import choose


class BestFit:
    """Fill the nodes that can hold fewest units of this job first, and of equal ones those with the lowest numbers.

    For a job of one unit this is the best fit of bin packing: the node that would be left with least. For more units
    it stays a greedy rule, which keeps empty nodes empty but may spread a job further than need be. What a node can
    hold is counted without the job's own limit of units per node.

    References
    ----------
    As a placement for batch jobs: C. Galleguillos, Z. Kiziltan, A. Netti and R. Soto, "AccaSim: a customizable workload
    management simulator for job dispatching research in HPC systems", Cluster Computing 23 (2020), whose best fit
    sorts nodes by load. Several resources count here by the scarcest, which needs no weights.

    Examples
    --------
    Four nodes with 1, 4, 0 and 2 cores left, and a job of four single cores:

    >>> BestFit().choose([[1], [4], [0], [2]], need=[1], units=4, per_node=0)
    (NodeRun(first=0, last=1, units=1), NodeRun(first=3, last=3, units=2))
    """

    native = BEST_FIT

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        """See `asa.core.ports.Placement`."""
        return choose(self.native, free, need, units, per_node)
