"""What prices of nodes prove, found anew: shares nothing with those who look for good prices."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.lab.placement.tjap.instance import Window


def proven(window: Window, prices: Floats) -> float:
    """A cost of hops that no placement of a window is below, by weak duality.

    If nodes have prices, no job costs less than where it alone would cost least, prices included; and all that jobs can
    pay for nodes is the price of all idle nodes. So what all jobs cost there, less that price, is a lower bound.

    Parameters
    ----------
    prices
        Of a node below each leaf switch that has idle nodes, shape (leaf switches,); one below 0 proves nothing.

    Examples
    --------
    >>> from asa.lab.placement.tjap.instance import grouped
    >>> window = grouped(range(4), [3, 1], below=[2], price=1.0)
    >>> proven(window, np.zeros(2)), proven(window, np.array([1.0, -1.0]))
    (2.3333333333333335, -inf)
    """
    if (prices < 0).any():
        return -np.inf
    room = np.unique(window.groups[0], return_counts=True)[1]
    least = {int(size): _least(window, int(size), prices) for size in np.unique(window.sizes)}
    return float(sum(least[size] for size in window.sizes.tolist()) - prices @ room)


def _least(window: Window, size: int, prices: Floats) -> float:
    """What a job of this size costs where it costs least, prices included.

    A pair of nodes costs what the way over the root costs, less what is saved at each level at which both are below the
    same switch. For each switch: the most that can be saved, less prices, with 0, 1, 2 ... of the job's nodes below it.
    """
    leaves, first, room = np.unique(window.groups[0], return_index=True, return_counts=True)
    counted = zip(leaves, prices, room, strict=True)
    below = {int(leaf): [-size * price * np.arange(count + 1)] for leaf, price, count in counted}
    for level, groups in enumerate(window.groups):
        most = {group: _joined(parts, size) for group, parts in below.items()}
        if level + 1 < len(window.groups):
            gain = window.price * (window.hops[level + 1] - window.hops[level])
            for values in most.values():
                count = np.arange(len(values))
                values += gain * count * (count - 1) / 2
            below = {}
            for place in first:
                above, group = int(window.groups[level + 1, place]), int(groups[place])
                if group in most:
                    below.setdefault(above, []).append(most.pop(group))
    pairs = size * (size - 1) / 2
    return float((window.price * window.hops[-1] * pairs - most[0][size]) / size)


def _joined(parts: list[Floats], size: int) -> Floats:
    """The most of the sum of these functions of whole numbers, by the sum of these; up to `size`."""
    found = np.zeros(1)
    for part in parts:
        longer = np.full(min(size, len(found) + len(part) - 2) + 1, -np.inf)
        for count, value in enumerate(part[: size + 1]):
            upto = min(len(found), len(longer) - count)
            np.maximum(longer[count : count + upto], found[:upto] + value, out=longer[count : count + upto])
        found = longer
    return found
