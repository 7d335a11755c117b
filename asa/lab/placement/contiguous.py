"""Contiguous: neighbouring nodes where there are enough of them."""

from __future__ import annotations

import numpy.typing as npt

from asa.core.decision import NodeRun
from asa.lab.placement.native import CONTIGUOUS
from asa.lab.placement.runs import choose


class Contiguous:
    """Place a job on neighbours if that can be done, else on as few stretches of neighbours as possible.

    A *stretch* is as many nodes in a row as have room for a unit each. Of the stretches that hold the whole job, the
    one that holds fewest units is taken (the lowest numbers among equals), and filled from its first node on. If none
    holds the job, the largest is used up, and the rest of the job is placed in the same way. So this is a preference: a
    job that first fit can place is always placed.

    References
    ----------
    Slurm's select/linear plugin, which chooses nodes "so as to minimize the number of sets of consecutive nodes using a
    best-fit algorithm" (head of select_linear.c). It gives out whole nodes; here nodes may be shared.

    Examples
    --------
    Five nodes with 2, 2, 0, 1 and 2 cores left. Three cores fit on the last two; five do not fit on neighbours.

    >>> Contiguous().choose([[2], [2], [0], [1], [2]], need=[1], units=3, per_node=0)
    (NodeRun(first=3, last=3, units=1), NodeRun(first=4, last=4, units=2))
    >>> Contiguous().choose([[2], [2], [0], [1], [2]], need=[1], units=5, per_node=0)
    (NodeRun(first=0, last=1, units=2), NodeRun(first=3, last=3, units=1))
    """

    native = CONTIGUOUS

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        """See `asa.core.ports.Placement`."""
        return choose(self.native, free, need, units, per_node)
