"""HCP'19: when jobs run by constraint programming, on one pool of each resource; where they run, by best fit."""

from __future__ import annotations

import heapq

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.dispatchers.cp.planner import CpDispatcher, Search
from asa.lab.dispatchers.planning.instance import Instance, Plan
from asa.lab.placement.bestfit import BestFit


class Hcp19(CpDispatcher):
    """Plan when jobs run as if the machine were one node, then find nodes; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan, A. Sîrbu and Ö. Babaoglu, "Constraint programming-based job dispatching for modern HPC
    applications", CP 2019; as sections 1 and 2.2 of the paper on PCP'20 have it.

    Notes
    -----
    What is proven is proven of the pool: no plan is better than its best schedule. A plan on nodes is called the best
    only where it is as good as that.
    """

    def __init__(self, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0) -> None:
        super().__init__(on_pool, warm=warm, seconds=seconds, workers=workers, seed=seed)


def on_pool(search: Search) -> None:
    """Look for the best schedule of the pool, and put its jobs on nodes."""
    schedule, outcome = search.solve(lambda schedule: schedule)
    search.bound = outcome.bound
    if outcome.found:
        start = schedule.starts(outcome)
        plan = allocate(search.instance, start)
        search.notes["moved"] = int((plan.start > start).sum())
        search.offer(plan)


Run = tuple[int, int, int, int]
"""As a row of `Instance.release`: first node, last node, units of each, kind."""


def allocate(instance: Instance, start: Floats) -> Plan:
    """Nodes by best fit for jobs that are to start then [s]; who finds none waits until something ends, and so on.

    Whenever that is, those come first that should have started first.
    """
    free, pool = instance.free.copy(), instance.pool.copy()
    begun, rows, waiting = np.full(len(start), np.nan), [], np.argsort(start, kind="stable").tolist()
    ends = zip(instance.release_at.tolist(), map(tuple, instance.release.tolist()), strict=True)
    events: list[tuple[float, list[Run]]] = sorted([*((at, [back]) for at, back in ends), *((at, []) for at in start)])
    while waiting and events:
        now = events[0][0]
        while events and events[0][0] <= now:
            for back in heapq.heappop(events)[1]:
                _move(instance, back, free, pool, 1)
        for job in [job for job in waiting if start[job] <= now]:
            if found := _nodes(instance, job, free, pool):
                for taken in found:
                    _move(instance, taken, free, pool, -1)
                    rows += [(job, node, taken[2]) for node in range(taken[0], taken[1] + 1)]
                heapq.heappush(events, (now + float(instance.duration[job]), found))
                begun[job] = now
                waiting.remove(job)
    return Plan(begun, np.array(rows, dtype=np.int64).reshape(-1, 3))


def _move(instance: Instance, run: Run, free: Ints, pool: Ints, sign: int) -> None:
    """Give something back, or take it."""
    first, last, units, kind = run
    free[first : last + 1] += sign * units * instance.demands[kind]
    pool += sign * (last - first + 1) * units * instance.shared_demands[kind]


def _nodes(instance: Instance, job: int, free: Ints, pool: Ints) -> list[Run]:
    """Nodes that have room for a job now; none where it does not fit."""
    kind, units = int(instance.kind[job]), int(instance.units[job])
    if (units * instance.shared_demands[kind] > pool).any():
        return []
    there = free * instance.members[instance.partition[job]][:, None]
    runs = BestFit().choose(there, instance.demands[kind], units, int(instance.per_node[job]))
    return [(each.first, each.last, each.units, kind) for each in runs]
