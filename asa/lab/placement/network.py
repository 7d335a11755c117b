"""The network of a machine, by a word: widths, a file, or nothing."""

from __future__ import annotations

import re

from asa.core.errors import InvalidInput
from asa.lab.placement.fattree import fat_tree, regular
from asa.lab.placement.slurmtree import read_topology
from asa.lab.placement.topology import Topology


def network(what: str, nodes: int) -> Topology:
    """The tree of switches above a machine's nodes, which stand in it in their order, from left to right.

    Parameters
    ----------
    what
        Widths as in ``"25x4x10"`` (25 pods of 4 leaf switches of 10 nodes; see `asa.lab.placement.fattree.regular`),
        the name of a `topology.conf`, or "" for the smallest fat tree that has enough nodes.
    nodes
        How many nodes the machine has; the tree may have more.

    Raises
    ------
    InvalidInput
        When there is no such file or tree, or it has fewer nodes.

    Examples
    --------
    >>> network("25x4x10", 1000).groups.shape, len(network("", 1000).nodes)
    ((3, 1000), 1024)
    """
    if not what:
        k = 2
        while k**3 // 4 < nodes:
            k += 2
        return fat_tree(k)
    known = re.fullmatch(r"\d+(x\d+)*", what)
    tree = regular([int(width) for width in what.split("x")]) if known else read_topology(what)
    if len(tree.nodes) < nodes:
        raise InvalidInput(f"topology {what} has {len(tree.nodes)} nodes: the machine has {nodes}")
    return tree
