"""A window: the nodes that are idle at one instant, where they are in the network, and the jobs that want some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput

PRICE = 1000.0
"""What one hop costs unless a window says otherwise; Table I of the paper."""


@dataclass(frozen=True, eq=False)
class Window:
    """Idle nodes and jobs; N nodes, J jobs.

    What a job costs is its price of hops, summed over all pairs of its nodes (each pair once) and divided by how many
    nodes it has.

    Parameters
    ----------
    idle
        Numbers of the idle nodes, rising, shape (N,). Neighbours in number are neighbours in the network.
    groups
        The switch that each idle node is below, at each level, shape (levels, N): leaf switches first, the root last.
        Numbers that rise along the nodes.
    sizes
        How many nodes each job asks for, shape (J,); at least 1.
    hops
        Between two nodes whose lowest common switch is of each level, shape (levels,); at least 0, and rising.
    price
        What one hop costs.
    names
        What the idle nodes are called; () for their numbers.
    potential
        What a pair of nodes that stay idle below the same switch is worth, in hops: by level, leaf switches first, the
        root left out; () for nothing. It keeps idle nodes together for the jobs of later windows.

    Raises
    ------
    InvalidInput
        When shapes do not go together, a node is idle twice, or more nodes are asked for than are idle.

    References
    ----------
    Z. Lan, Y. Xu, Y. Huang, D. Huang and S. Feng, "Optimization of Topology-Aware Job Allocation on a High-Performance
    Computing Cluster by Neural Simulated Annealing": section III, equation (1). There a sum over ordered pairs is
    printed; the authors' code counts each pair once, and so do we.
    """

    idle: Ints
    groups: Ints
    sizes: Ints
    hops: Floats
    price: float = PRICE
    names: tuple[str, ...] = ()
    potential: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        levels, nodes = self.groups.shape if self.groups.ndim == 2 else (0, 0)
        if not levels or len(self.hops) != levels or self.idle.shape != (nodes,) or self.sizes.ndim != 1:
            raise InvalidInput(
                f"{self.idle.shape} idle nodes, groups {self.groups.shape}, {len(self.hops)} hops: these do not go "
                "together; expected (N,), (levels, N) and as many hops as levels"
            )
        for place in np.flatnonzero(np.diff(self.idle) <= 0)[:1].tolist():
            first, second = self.label(place), self.label(place + 1)
            what = f"node {first} is idle twice" if first == second else f"node {second} comes after node {first}"
            raise InvalidInput(f"{what}: rising numbers expected, each once")
        if (np.diff(self.groups) < 0).any() or self.groups[-1].any():
            raise InvalidInput("the switches of idle nodes must have rising numbers, and the root the number 0")
        steps = np.diff(self.groups) > 0
        if (steps[1:] & ~steps[:-1]).any():
            raise InvalidInput("a switch is below two switches of one level: a tree expected")
        if self.hops[0] < 0 or (np.diff(self.hops) < 0).any() or not self.price >= 0:
            raise InvalidInput(f"hops {self.hops.tolist()} at a price of {self.price:g}: rising, at least 0, expected")
        if len(self.potential) >= levels or not all(0 <= worth < math.inf for worth in self.potential):
            raise InvalidInput(
                f"potential {list(self.potential)}: at most {levels - 1} numbers, one for each level below the root, "
                "at least 0, expected"
            )
        if (self.sizes < 1).any():
            raise InvalidInput(f"a job asks for {self.sizes.min()} nodes: at least 1 expected")
        if (asked := int(self.sizes.sum())) > nodes:
            raise InvalidInput(f"{len(self.sizes)} jobs ask for {asked} nodes together: {nodes} are idle")

    def label(self, place: int) -> str:
        """What the idle node at this place is called."""
        return self.names[place] if self.names else str(self.idle[place])

    @cached_property
    def tables(self) -> Tables:
        """The same, for what is compiled."""
        groups, hops = self.groups, self.hops
        if len(hops) == 1:  # a single switch: below a root of its own, as far away
            groups, hops = np.repeat(groups, 2, axis=0), np.repeat(hops, 2)
        saved, kept = np.append(np.diff(hops), 0.0) * self.price, np.zeros(len(hops))
        kept[: len(self.potential)] = np.array(self.potential) * self.price
        return Tables(np.ascontiguousarray(dense(groups)), saved, float(hops[-1] * self.price), kept)


class Tables(NamedTuple):
    """A window's network, for what is compiled.

    A job of n nodes costs (`far` n (n - 1) / 2 - what is saved) / n; a pair of nodes below the same switch of a level
    saves `saved` of that level, for every such level.

    Parameters
    ----------
    groups
        As in `Window`, each level numbered from 0 without gaps; at least two levels.
    saved
        Shape (levels,); 0 at the root.
    far
        What a pair costs that only the root joins.
    kept
        What a pair of nodes below the same switch of a level is worth while both stay idle, shape (levels,); 0 at the
        root.
    """

    groups: Ints
    saved: Floats
    far: float
    kept: Floats


def dense(groups: Ints) -> Ints:
    """The same groups, numbered from 0 without gaps at each level.

    >>> dense(np.array([[2, 2, 5, 9]])).tolist()
    [[0, 0, 1, 2]]
    """
    steps = np.zeros(groups.shape, dtype=np.int64)
    steps[:, 1:] = np.diff(groups) > 0
    return np.asarray(steps.cumsum(axis=1))


def grouped(
    idle: npt.ArrayLike,
    sizes: npt.ArrayLike,
    below: Sequence[int],
    *,
    hops: Sequence[float] = (),
    price: float = PRICE,
    potential: Sequence[float] = (),
) -> Window:
    """A window on a machine of equal switches.

    Parameters
    ----------
    idle, sizes
        As in `Window`.
    below
        How many nodes are below a switch of each level, but for the root: each a multiple of the one before.
    hops, price, potential
        As in `Window`; hops are 1, 3, 5 ... unless given.

    Raises
    ------
    InvalidInput
        As `Window`, or when `below` is no such sequence.

    Examples
    --------
    >>> grouped([0, 1, 2, 4, 9], [2, 3], below=[2, 4]).groups.tolist()
    [[0, 0, 1, 2, 4], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0]]
    """
    nodes = np.sort(np.asarray(idle, dtype=np.int64))
    sizes_of = list(below)
    if any(size < 1 for size in sizes_of) or any(b % a for a, b in pairwise(sizes_of)):
        raise InvalidInput(f"{sizes_of} nodes below switches: each must be a multiple of the one before")
    if len(nodes) and nodes[0] < 0:
        raise InvalidInput(f"idle node {nodes[0]}: at least 0 expected")
    groups = np.array([*(nodes // size for size in sizes_of), np.zeros_like(nodes)])
    by_level = np.array(hops if len(hops) else np.arange(1, 2 * len(groups), 2), dtype=np.float64)
    return Window(nodes, groups, np.asarray(sizes, dtype=np.int64), by_level, float(price), potential=tuple(potential))


@dataclass(frozen=True, eq=False)
class Placed:
    """Nodes for every job of a window.

    Parameters
    ----------
    places
        For each job the places of its nodes in `Window.idle`, rising.
    status
        ``"optimal"`` when it is proven that no placement of the method's kind costs less, ``"feasible"`` otherwise.
    bound
        No placement of the method's kind has a lower cost of hops; None where it proves nothing.
    """

    places: tuple[Ints, ...]
    status: str = "feasible"
    bound: float | None = None


class PlacementMethod(Protocol):
    """Chooses nodes for all jobs of a window."""

    def place(self, window: Window) -> Placed:
        """Nodes for every job; windows are such that there are always enough."""


def placed(owner: Ints, jobs: int, status: str = "feasible", bound: float | None = None) -> Placed:
    """A placement from the job that holds each idle node, shape (N,); -1 for none."""
    return Placed(tuple(np.flatnonzero(owner == job) for job in range(jobs)), status, bound)
