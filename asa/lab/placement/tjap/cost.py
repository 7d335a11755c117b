"""What a placement costs, and whether it keeps the laws; independent of those who make placements."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from asa.core.arrays import Ints
from asa.lab.placement.tjap.instance import Placed, Window


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


def is_static(window: Window, found: Placed) -> bool:
    """Whether each job has neighbours in the ring of idle nodes: the paper's static continuity (SCAS)."""
    ring = list(range(len(window.idle)))
    return all(_neighbours(ring, set(places.tolist())) for places in found.places)


def is_dynamic(window: Window, found: Placed) -> bool:
    """Whether jobs can be put in an order in which each has neighbours among the nodes left by those before it.

    This is the paper's dynamic continuity (DCAS). A job that has neighbours now may come now: nodes that are gone only
    bring others together.
    """
    ring, left = list(range(len(window.idle))), [set(places.tolist()) for places in found.places]
    while left:
        job = next((each for each in left if _neighbours(ring, each)), None)
        if job is None:
            return False
        left.remove(job)
        ring = [place for place in ring if place not in job]
    return True


def _neighbours(ring: list[int], mine: set[int]) -> bool:
    """Whether these are neighbours in a ring: they begin at most once."""
    return sum(ring[k] in mine and ring[k - 1] not in mine for k in range(len(ring))) <= 1
