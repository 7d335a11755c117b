"""Compiled node selection, called from Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Ints
from asa.core.decision import NodeRun
from asa.core.errors import InvalidInput
from asa.lab.placement.native import BLOCK, place


def choose(method: int, free: npt.ArrayLike, need: npt.ArrayLike, units: int, per_node: int) -> tuple[NodeRun, ...]:
    """Nodes for `units` units, by a method of `asa.lab.placement.native`; () when there is no room.

    Raises
    ------
    InvalidInput
        When the shapes do not fit together, or there is no unit to place.
    """
    free = np.ascontiguousarray(free, dtype=np.int64)
    need = np.ascontiguousarray(need, dtype=np.int64)
    if free.ndim != 2 or need.shape != free.shape[1:] or not free.size:
        raise InvalidInput(
            f"free amounts of shape {free.shape} and needs of shape {need.shape} do not go together: "
            "expected (nodes, resources) and (resources,)"
        )
    if units < 1 or per_node < 0:
        raise InvalidInput(f"no such job: {units} units, at most {per_node} per node; expected >= 1 and >= 0")
    blocks = np.ones(-(-len(free) // BLOCK), dtype=np.int64)  # counting them would take as long as it saves
    runs = np.empty((min(len(free), units), 3), dtype=np.int64)
    rows = place(method, free, need, units, per_node, blocks, runs)
    return tuple(NodeRun(*run) for run in runs[:rows].tolist())


def amounts(runs: Sequence[NodeRun], nodes: int) -> Ints:
    """Units on each node, shape (nodes,).

    >>> amounts((NodeRun(0, 1, 4), NodeRun(3, 3, 2)), nodes=5)
    array([4, 4, 0, 2, 0])
    """
    first, last, units = np.fromiter(chain.from_iterable(runs), dtype=np.int64).reshape(-1, 3).T
    change = np.zeros(nodes + 1, dtype=np.int64)
    np.add.at(change, first, units)
    np.subtract.at(change, last + 1, units)
    return change.cumsum()[:nodes]
