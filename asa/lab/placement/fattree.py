"""Fat trees: k-ary ones, and those of which some pods were left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.placement.topology import Topology


def fat_tree(k: int, pods: int | None = None) -> Topology:
    """A tree of switches with `k` ports each: k pods of k/2 leaf switches of k/2 nodes.

    Parameters
    ----------
    k
        Ports of a switch; even, at least 2.
    pods
        How many pods there are; all of them, `k`, unless given (a pruned fat tree).

    Raises
    ------
    InvalidInput
        When there is no such tree.

    References
    ----------
    Section III-A of the paper of `asa.lab.placement.tjap.instance.Window`; M. Al-Fares, A. Loukissas and A. Vahdat,
    SIGCOMM 2008.

    Examples
    --------
    >>> len(fat_tree(4).nodes), len(fat_tree(48).nodes), len(fat_tree(20, pods=10).nodes)
    (16, 27648, 1000)
    """
    if k < 2 or k % 2:
        raise InvalidInput(f"a fat tree of switches with {k} ports: an even number, at least 2, expected")
    if pods is not None and not 1 <= pods <= k:
        raise InvalidInput(f"{pods} pods in a fat tree of switches with {k} ports: 1 to {k} expected")
    return regular([k if pods is None else pods, k // 2, k // 2])


def regular(widths: Sequence[int]) -> Topology:
    """A tree in which all switches of a level have equally many below them; nodes are called by their numbers.

    Parameters
    ----------
    widths
        How many there are below the root, below each of those, and so on; the last: nodes of a leaf switch.

    Examples
    --------
    The 25 racks of 4 switches of 10 nodes of the paper's authors' code:

    >>> rack = regular([25, 4, 10])
    >>> len(rack.nodes), rack.level("0", "9"), rack.level("0", "10"), rack.level("0", "40")
    (1000, 0, 1, 2)
    """
    if not widths or min(widths) < 1:
        raise InvalidInput(f"a tree of widths {list(widths)}: at least 1 each expected")
    nodes = np.arange(int(np.prod(widths)))
    below = np.cumprod(list(widths)[::-1])
    return Topology(tuple(map(str, nodes.tolist())), np.array([nodes // size for size in below.tolist()]))
