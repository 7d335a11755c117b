"""Dispatchers by constraint programming: PCP'19, PCP'20 and HCP'19; PCP'19's allocation model."""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.dispatchers.cp.boxes import Boxes
from asa.lab.dispatchers.cp.model import CpSchedule
from asa.lab.dispatchers.cp.planner import CpDispatcher, Search
from asa.lab.dispatchers.cp.solver import SolverOutcome, run
from asa.lab.dispatchers.planning.instance import Instance, QueuePlan
from asa.lab.placement.nodes import BestFit

# -- PCP'19's allocation model: an optional interval for each unit on each node; section 2.2 of the -------------------


class PerNode:
    """The whole model: when jobs run, and on which nodes."""

    def __init__(self, schedule: CpSchedule) -> None:
        self.schedule, self.queue, self._model = schedule, schedule.queue, schedule.model
        self.present: dict[tuple[int, int], list[Any]] = {}
        self._on: dict[int, list[tuple[int, Any]]] = defaultdict(list)  # job and interval, by node
        for job, fits in enumerate(self.queue.room()):
            self._alternative(job, self._units(job, fits))
        self._capacity()

    def plan(self, outcome: SolverOutcome) -> QueuePlan:
        counts = ((job, node, sum(map(outcome.value, units))) for (job, node), units in self.present.items())
        return self.schedule.plan(outcome, (row for row in counts if row[2]))

    def hint(self, plan: QueuePlan) -> None:
        self.schedule.hint(plan)
        given = {(job, node): units for job, node, units in plan.where.tolist()}
        for key, units in self.present.items():
            for number, present in enumerate(units):
                self._model.add_hint(present, number < given.get(key, 0))

    def _units(self, job: int, fits: Ints) -> list[Any]:
        """``u``: so many optional intervals on each node as it can hold units, the first ones first; their presence."""
        found: list[Any] = []
        length, start = int(self.queue.times.duration[job]), self.schedule.start[job]
        for node in np.flatnonzero(fits).tolist():
            self.queue.budget.check()
            units = [self._model.new_bool_var("") for _ in range(int(fits[node]))]
            for before, after in pairwise(units):
                self._model.add_implication(after, before)
            intervals = [self._model.new_optional_fixed_size_interval_var(start, length, unit, "") for unit in units]
            self.present[job, node] = units
            self._on[node] += [(job, interval) for interval in intervals]
            found += units
        return found

    def _alternative(self, job: int, units: list[Any]) -> None:
        """``alternative``: as many of them are there as the job has units; section 2.2."""
        self._model.add(sum(units) == int(self.queue.instance.units[job]))

    def _capacity(self) -> None:
        """``cumulative(s, d, req / rn, cap)`` for each node and each resource; section 2.2."""
        queue, running = self.queue, self.queue.running(self.queue.instance.demands)
        for node, there in self._on.items():
            for resource, capacity in enumerate(queue.instance.capacity[node].tolist()):
                queue.budget.check()
                asked = [(interval, queue.need[job, resource]) for job, interval in there]
                if any(amount for _, amount in asked):
                    held = [(self.schedule.fixed(0, end), amounts[resource]) for end, amounts in running[node]]
                    self.schedule.cumulative([*held, *asked], capacity)


# -- PCP'19 -----------------------------------------------------------------------------------------------------------


class Pcp19(CpDispatcher):
    """Plan the queue with a model that grows with the machine; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan, A. Sîrbu and Ö. Babaoglu, "Constraint programming-based job dispatching for modern HPC
    applications", CP 2019; as section 2.2 of the paper on PCP'20 has it.
    """

    def __init__(self, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0) -> None:
        super().__init__(on_nodes, warm=warm, seconds=seconds, workers=workers, seed=seed)


def on_nodes(search: Search) -> None:
    """Look for the best plan, by counts of units on nodes."""
    nodes, outcome = search.solve(PerNode)
    search.bound = outcome.bound
    if outcome.found:
        search.offer(nodes.plan(outcome))


def better(search: Search) -> None:
    """Find a plan that is better than the best so far, or prove that there is none."""
    if search.start is None:
        return
    queue, cost = search.queue(), search.times.cost(search.start)
    if (search.start == queue.windows.early).all():
        search.bound = cost
        return
    schedule = CpSchedule(queue)
    nodes = PerNode(schedule)
    schedule.better_than(cost)
    outcome = run(schedule.model, search.budget, search.effort)
    if outcome.found:
        search.offer(nodes.plan(outcome))
    search.bound = outcome.bound if outcome.found or not outcome.complete else cost


# -- PCP'20 -----------------------------------------------------------------------------------------------------------


class Pcp20(CpDispatcher):
    """Plan the queue with units as boxes, in a line of all that a resource has; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
    applications", arXiv:2009.10348 (2020).

    Notes
    -----
    In a box, a unit holds neighbouring cores throughout, which nodes do not ask for: what is free in two pieces can be
    had together. So the best plan of boxes need not be the best of all. It is called so only once a model of counts,
    PCP'19's, has shown that nothing is better; what windows leave of that one is small by then.
    """

    def __init__(self, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0) -> None:
        super().__init__(in_boxes, warm=warm, seconds=seconds, workers=workers, seed=seed)


def in_boxes(search: Search) -> None:
    """Look for the best plan of boxes, and then for one that is better than any of those."""
    boxes, outcome = search.solve(Boxes, ordered=True)  # OR-Tools 9.15 crashes on boxes that are not presolved
    search.notes["best of boxes"] = outcome.complete
    if outcome.found:
        search.offer(boxes.plan(outcome))
    if outcome.complete:
        began = time.perf_counter()
        better(search)
        search.notes["check_s"] = time.perf_counter() - began


# -- HCP'19 -----------------------------------------------------------------------------------------------------------


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


def allocate(instance: Instance, start: Floats) -> QueuePlan:
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
    return QueuePlan(begun, np.array(rows, dtype=np.int64).reshape(-1, 3))


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
