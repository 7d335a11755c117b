"""A window: idle nodes, their switches, and the jobs that want some; what a placement costs, and what prices prove.

Costs and certificates are computed independently of the methods that make placements and look for prices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput

PRICE = 1000.0
"""What one hop costs unless a window says otherwise; Table I of the paper."""
DEAREST = 1e15
"""What the dearest placement may cost: beyond it, differences between placements are lost in rounding."""


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
        if not (self.hops[0] >= 0 and (np.diff(self.hops) >= 0).all() and self.price >= 0):
            raise InvalidInput(f"hops {self.hops.tolist()} at a price of {self.price:g}: rising, at least 0, expected")
        if not float(self.hops[-1]) * self.price * nodes < DEAREST:
            raise InvalidInput(
                f"hops {self.hops.tolist()} at a price of {self.price:g} for {nodes} nodes: finite, and together below "
                f"{DEAREST:g}, expected"
            )
        if len(self.potential) >= levels or not all(0 <= worth < DEAREST for worth in self.potential):
            raise InvalidInput(
                f"potential {list(self.potential)}: at most {levels - 1} numbers, one for each level below the root, "
                "at least 0, expected"
            )
        if ((self.sizes < 1) | (self.sizes > nodes)).any():
            wrong = self.sizes[(self.sizes < 1) | (self.sizes > nodes)]
            raise InvalidInput(f"a job asks for {wrong[0]} nodes: at least 1, and at most the {nodes} idle, expected")
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


# -- Costs ------------------------------------------------------------------------------------------------------------


def cost(window: Window, found: Placed) -> float:
    """Cost of hops of all jobs: equation (1) of the paper, pair by pair, each once."""
    return float(sum(job_cost(window, places) for places in found.places))


def job_cost(window: Window, places: Ints) -> float:
    """Cost of hops of one job on the idle nodes at these places."""
    mine = window.groups[:, places]
    level = (mine[:, :, None] != mine[:, None, :]).sum(axis=0)  # of the lowest switch that both are below
    pairs = window.hops[level][np.triu_indices(len(places), 1)]
    return float(window.price * pairs.sum() / len(places))


def potential(window: Window, found: Placed) -> float:
    """What the nodes that stay idle are worth: for every switch below the root, by the pair (`Window.potential`)."""
    left = np.ones(len(window.idle), dtype=bool)
    for places in found.places:
        left[places] = False
    worth = 0.0
    for each, groups in zip(window.potential, window.groups[:, left], strict=False):
        worth += each * sum(math.comb(count, 2) for count in np.unique(groups, return_counts=True)[1].tolist())
    return window.price * worth


def objective(window: Window, found: Placed) -> float:
    """What placement methods make small: the cost of hops less the potential of what stays idle."""
    return cost(window, found) - potential(window, found)


def violations(window: Window, found: Placed) -> list[str]:
    """Every law that a placement breaks, in words; empty when it keeps them all.

    The laws: every job has as many idle nodes as it asked for, and no node has two jobs.

    >>> from asa.lab.placement.tjap.instance import grouped
    >>> window = grouped(range(5), [2, 3], below=[4])
    >>> violations(window, Placed((np.array([0, 1]), np.array([1, 2]))))
    ['job 1 has 2 nodes: it asked for 3', 'node 1 has jobs 0 and 1']
    """
    broken: list[str] = []
    if len(found.places) != len(window.sizes):
        return [f"{len(found.places)} jobs have nodes: there are {len(window.sizes)}"]
    for job, (places, size) in enumerate(zip(found.places, window.sizes.tolist(), strict=True)):
        if ((places < 0) | (places >= len(window.idle))).any():
            return [*broken, f"job {job} has nodes that are not idle"]
        if (count := len(set(places.tolist()))) != size:
            broken.append(f"job {job} has {count} nodes: it asked for {size}")
    for (one, mine), (two, theirs) in combinations(enumerate(found.places), 2):
        both = np.intersect1d(mine, theirs)
        broken += [f"node {window.label(int(place))} has jobs {one} and {two}" for place in both[:1]]
    return broken


# -- Certificates -----------------------------------------------------------------------------------------------------


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
