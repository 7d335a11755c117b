"""Job after job, each on the first nodes that are left: what a scheduler without a window does."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Ints
from asa.lab.placement.tjap.instance import Placed, Window, placed


class Sequential:
    """Jobs in their order take the idle nodes in theirs.

    References
    ----------
    "Seq." of the paper, section VI-C: where simulated annealing begins, and what its Table III compares with.

    Examples
    --------
    >>> from asa.lab.placement.tjap.instance import grouped
    >>> [places.tolist() for places in Sequential().place(grouped(range(6), [2, 3], below=[4])).places]
    [[0, 1], [2, 3, 4]]
    """

    def place(self, window: Window) -> Placed:
        return placed(in_order(window), len(window.sizes))


def in_order(window: Window) -> Ints:
    """The job that holds each idle node when jobs take them in order, shape (N,); -1 for none."""
    owner = np.full(len(window.idle), -1, dtype=np.int64)
    owner[: window.sizes.sum()] = np.repeat(np.arange(len(window.sizes)), window.sizes)
    return owner
