"""First fit: the lowest node numbers."""

from __future__ import annotations

import numpy.typing as npt

from asa.core.decision import NodeRun
from asa.lab.placement.native import FIRST_FIT
from asa.lab.placement.runs import choose


class FirstFit:
    """Fill nodes in order of their numbers.

    `native` is the method's number in `asa.lab.placement.native`, for the compiled machine.

    Examples
    --------
    Four nodes with 1, 4, 0 and 2 cores left, and a job of four single cores:

    >>> FirstFit().choose([[1], [4], [0], [2]], need=[1], units=4, per_node=0)
    (NodeRun(first=0, last=0, units=1), NodeRun(first=1, last=1, units=3))
    """

    native = FIRST_FIT

    def choose(self, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
        """See `asa.core.ports.Placement`."""
        return choose(self.native, free, need, units, per_node)
