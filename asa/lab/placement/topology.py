"""Where nodes are in a network that is a tree of switches, and what jobs pay for the way between their nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import PRICE, Window


@dataclass(frozen=True)
class Convention:
    """How hops are counted.

    Parameters
    ----------
    per_switch
        The switches on the way between two nodes are counted (1, 3, 5 ...); otherwise its links (2, 4, 6 ...).
    both_ways
        Each pair of nodes counts twice, once in each direction.
    whole
        What a job pays is rounded down, and at least 1.
    """

    per_switch: bool
    both_ways: bool
    whole: bool


CONVENTIONS = {
    "paper": Convention(per_switch=False, both_ways=True, whole=False),
    "code": Convention(per_switch=True, both_ways=False, whole=True),
}
"""Of the paper of `asa.lab.placement.tjap.instance.Window`: as section III-A and equation (1) have it, and as its
authors' code does it."""


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes, from left to right, and the switches above them. The hop distance of two nodes is a matter of the lowest
    switch above both.

    Leaf switches have level 0, any other has one more than the highest below it, as in Slurm. Where a switch hangs
    higher than its neighbours, hops are counted as if switches with one child each stood in between.

    Parameters
    ----------
    nodes
        Names.
    groups
        Number of the switch that each node is below, at each level, shape (levels, nodes): leaf switches first, the
        root, 0 everywhere, last. Numbers rise from left to right.

    Examples
    --------
    >>> tree = Topology(("a", "b", "c"), np.array([[0, 0, 1], [0, 0, 0]]))
    >>> tree.hops(CONVENTIONS["paper"]).tolist(), tree.level("a", "b"), tree.level("a", "c")
    ([2.0, 4.0], 0, 1)
    >>> tree.cost(["a", "b", "c"], CONVENTIONS["code"], price=1)
    2.0
    """

    nodes: tuple[str, ...]
    groups: Ints

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.shape[1] != len(self.nodes) or not self.nodes:
            raise InvalidInput(f"groups {self.groups.shape} of {len(self.nodes)} nodes: (levels, nodes) expected")
        if (np.diff(self.groups) < 0).any() or self.groups[-1].any():
            raise InvalidInput("switches must have rising numbers from left to right, and the root the number 0")
        if len(self.place) < len(self.nodes):
            twice = next(name for place, name in enumerate(self.nodes) if self.place[name] != place)
            raise InvalidInput(f"node {twice} is there twice: each name once expected")

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each node stands, from left to right."""
        return {name: place for place, name in enumerate(self.nodes)}

    def hops(self, convention: Convention) -> Floats:
        """Hops between two nodes whose lowest common switch is of each level, shape (levels,)."""
        return np.arange(1.0 if convention.per_switch else 2.0, 2.0 * len(self.groups) + 0.5, 2.0)

    def level(self, one: str, other: str) -> int:
        """Level of the lowest switch above two nodes."""
        column, its = self.groups[:, self.find([one, other])].T
        return int(np.flatnonzero(column == its)[0])

    def find(self, names: Iterable[str]) -> Ints:
        """Where these nodes stand.

        Raises
        ------
        InvalidInput
            When there is no such node.
        """
        try:
            return np.array([self.place[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise InvalidInput(f"node {error.args[0]!r} is below no switch of the topology") from error

    def cost(self, names: Sequence[str], convention: Convention, price: float = PRICE) -> float:
        """What a job on these nodes pays: equation (1) of the paper, in one of its conventions."""
        mine = self.groups[:, self.find(names)]
        hops = self.hops(convention)
        pairs = [sum(math.comb(count, 2) for count in np.unique(row, return_counts=True)[1].tolist()) for row in mine]
        saved = np.append(np.diff(hops), 0.0)  # by a pair below the same switch of each level
        total = price * float(hops[-1] * pairs[-1] - saved @ np.array(pairs, dtype=np.float64))
        paid = total * (2 if convention.both_ways else 1) / len(names)
        return max(float(paid // 1), 1.0) if convention.whole else paid

    def window(
        self,
        idle: Iterable[str],
        sizes: Sequence[int],
        convention: Convention,
        *,
        price: float = PRICE,
        potential: Sequence[float] = (),
    ) -> Window:
        """Idle nodes and jobs; costs are not rounded (`Convention.whole`), so that they can be compared.

        Raises
        ------
        InvalidInput
            As `Window`, or when a node is below no switch.
        """
        places = np.sort(self.find(idle))
        names = tuple(self.nodes[place] for place in places)
        paid = price * (2 if convention.both_ways else 1)
        sizes_of = np.array(sizes, dtype=np.int64)
        return Window(places, self.groups[:, places], sizes_of, self.hops(convention), paid, names, tuple(potential))
