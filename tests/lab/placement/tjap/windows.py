"""Small windows, drawn by hypothesis, and what solves them by other means."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from asa.lab.placement.tjap.instance import Window, grouped, job_cost


@st.composite
def windows(draw, most_idle=12, most_jobs=4, most_size=5):
    """A window on a machine of at most 27 nodes."""
    leaf, pod = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    idle = draw(st.sets(st.integers(0, 3 * leaf * pod - 1), min_size=1, max_size=most_idle))
    sizes, left = [], len(idle)
    for _ in range(draw(st.integers(1, most_jobs))):
        if left:
            sizes.append(draw(st.integers(1, min(left, most_size))))
            left -= sizes[-1]
    hops = draw(st.sampled_from([(1, 3, 5), (2, 4, 6), (0, 1, 5), (1, 2, 2)]))
    return grouped(sorted(idle), sizes, below=[leaf, leaf * pod], hops=hops, price=draw(st.sampled_from([1.0, 1000.0])))


def stretch(window: Window, start: int, size: int) -> np.ndarray:
    return np.sort((start + np.arange(size)) % len(window.idle))


def stretch_costs(window: Window) -> np.ndarray:
    """Of every job on every stretch, shape (J, N)."""
    starts = range(len(window.idle))
    return np.array([[job_cost(window, stretch(window, at, size)) for at in starts] for size in window.sizes.tolist()])


def best_static(window: Window) -> float:
    """All ways to give jobs neighbours, one by one."""
    costs, best = stretch_costs(window), np.inf
    for starts in product(range(len(window.idle)), repeat=len(window.sizes)):
        taken = np.concatenate([stretch(window, at, size) for at, size in zip(starts, window.sizes, strict=True)])
        if len(set(taken.tolist())) == len(taken):
            best = min(best, sum(costs[job, at] for job, at in enumerate(starts)))
    return best


def best_dynamic(window: Window) -> float:
    """All orders of jobs, and all stretches of what is left."""

    def rest(ring: tuple[int, ...], jobs: frozenset[int]) -> float:
        if not jobs:
            return 0.0
        best = np.inf
        for job in jobs:
            size = int(window.sizes[job])
            for start in range(len(ring)):
                mine = [ring[(start + k) % len(ring)] for k in range(size)]
                left = tuple(place for place in ring if place not in mine)
                best = min(best, job_cost(window, np.sort(mine)) + rest(left, jobs - {job}))
        return best

    return rest(tuple(range(len(window.idle))), frozenset(range(len(window.sizes))))


def best_free(window: Window) -> float:
    """All ways to give jobs nodes; those below one leaf switch are alike, so that the first of them are taken."""

    def rest(left: tuple[int, ...], jobs: tuple[int, ...]) -> float:
        if not jobs:
            return 0.0
        best = np.inf
        for mine in set(_alike(window, left, int(window.sizes[jobs[0]]))):
            others = tuple(place for place in left if place not in mine)
            best = min(best, job_cost(window, np.array(mine)) + rest(others, jobs[1:]))
        return best

    return rest(tuple(range(len(window.idle))), tuple(range(len(window.sizes))))


def subsets(window: Window, size: int) -> set[tuple[int, ...]]:
    """All ways to give one job nodes, but for which nodes of a leaf switch these are."""
    return set(_alike(window, tuple(range(len(window.idle))), size))


def _alike(window: Window, left: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    leaf = window.groups[0]
    for mine in combinations(left, size):
        first: list[int] = []
        for each in set(leaf[list(mine)].tolist()):
            here = [place for place in left if leaf[place] == each]
            first += here[: sum(leaf[place] == each for place in mine)]
        yield tuple(sorted(first))


def packing(window: Window) -> float:
    """Set packing over first places, by HiGHS: each job one stretch, each node one job."""
    costs, nodes = stretch_costs(window), len(window.idle)
    jobs = len(window.sizes)
    choose, cover = np.zeros((jobs, jobs * nodes)), np.zeros((nodes, jobs * nodes))
    for job, size in enumerate(window.sizes.tolist()):
        for at in range(nodes):
            choose[job, job * nodes + at] = 1
            cover[stretch(window, at, size), job * nodes + at] = 1
    rows = [LinearConstraint(choose, 1, 1), LinearConstraint(cover, -np.inf, 1)]
    exact = {"mip_rel_gap": 0.0}
    found = milp(costs.ravel(), constraints=rows, integrality=1, bounds=Bounds(0, 1), options=exact)
    return float(found.fun)


def of_groups(groups: np.ndarray, window: Window) -> Window:
    """The same window with other switches."""
    return Window(np.arange(groups.shape[1]), groups, window.sizes, window.hops, window.price)


def drawn(seed: int, idle: int, jobs: int, **rest: object) -> Window:
    """A window as in the paper: pods of 40 nodes, jobs of at most 40."""
    draw = np.random.default_rng(seed)
    nodes = np.sort(draw.choice(200, idle, replace=False))
    sizes = draw.integers(2, max(3, idle // jobs), jobs)
    return grouped(nodes, sizes, below=[10, 40], **rest)
