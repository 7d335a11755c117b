"""Windows to learn from: those that a cluster meets on which a placement method drives the paper's workload."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asa.core.cluster import Ints
from asa.core.errors import InvalidInput
from asa.placement.tjap.instance import PlacementMethod, Window, grouped
from asa.traces.tjap import uniform

PERIOD_S, PERIODS, NODES, MOST_JOBS = 60.0, 100, 1000, 5
"""Time between windows [s], windows of an epoch, and nodes (paper, section VI); jobs of a window (authors' code)."""
GEOMETRIES = {"code": ((10, 40), (1.0, 3.0, 5.0)), "text": ((10, 100), (2.0, 4.0, 6.0))}
"""Nodes below a leaf switch and in a pod, and hops: as in the authors' code, and as in the paper's text."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A job that waits: so many nodes, so long a run [s], for so many periods until now."""

    nodes: int
    run_s: float
    periods: int = 0


def epoch(method: PlacementMethod, *, seed: int, geometry: str = "code") -> Iterator[Window]:
    """The windows of an epoch, which begins with an empty machine; `method` places the jobs of each.

    Jobs that have waited for more periods come first, then smaller ones, until one does not fit or the window is full.
    Jobs of one node cost nothing anywhere: they take the first nodes that are left, and are in no window.

    Raises
    ------
    InvalidInput
        When the geometry is not known.

    References
    ----------
    Section VI of the paper; order, and how many jobs, are those of its authors' code.
    """
    if geometry not in GEOMETRIES:
        raise InvalidInput(f"geometry {geometry!r}: one of {', '.join(GEOMETRIES)} expected")
    below, hops = GEOMETRIES[geometry]
    work = uniform(int(PERIODS * PERIOD_S / 5) + 1, seed=seed)
    idle, waiting, come = np.ones(NODES, dtype=np.bool_), list[_Waiting](), 0
    ends: list[tuple[float, int, list[int]]] = []
    for period in range(1, PERIODS + 1):
        now = period * PERIOD_S
        for each in waiting:
            each.periods += 1
        while come < len(work.submit) and work.submit[come] <= now:
            waiting.append(_Waiting(int(work.cores[come]), float(work.run[come])))
            come += 1
        while ends and ends[0][0] <= now:
            idle[heapq.heappop(ends)[2]] = True
        chosen = _chosen(waiting, int(idle.sum()))
        several = [job for job in chosen if job.nodes > 1]
        if several:
            window = grouped(np.flatnonzero(idle), [job.nodes for job in several], below, hops=hops)
            yield window
            for job, mine in zip(several, method.place(window).places, strict=True):
                _start(idle, window.idle[mine], ends, now + job.run_s)
        for job in chosen:
            if job.nodes == 1:
                _start(idle, np.flatnonzero(idle)[:1], ends, now + job.run_s)
        waiting = [job for job in waiting if job not in chosen]


def _start(idle: npt.NDArray[np.bool_], nodes: Ints, ends: list[tuple[float, int, list[int]]], end_s: float) -> None:
    idle[nodes] = False
    heapq.heappush(ends, (end_s, int(nodes[0]), nodes.tolist()))


def _chosen(waiting: list[_Waiting], idle: int) -> list[_Waiting]:
    """Jobs of the next window, and those of one node that start beside them."""
    chosen: list[_Waiting] = []
    for job in sorted(waiting, key=lambda each: (-each.periods, each.nodes)):
        full = job.nodes > 1 and sum(each.nodes > 1 for each in chosen) == MOST_JOBS
        if full or job.nodes > idle:
            break
        chosen.append(job)
        idle -= job.nodes
    return chosen
