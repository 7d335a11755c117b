"""PCP'19's allocation model: an optional interval for each unit on each node; section 2.2 of the paper on PCP'20."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.lab.dispatchers.cp.schedule import Schedule
from asa.lab.dispatchers.cp.solver import Outcome
from asa.lab.dispatchers.planning.instance import Plan


class PerNode:
    """The whole model: when jobs run, and on which nodes.

    Attributes
    ----------
    schedule
        When.
    present
        Whether a unit is there, by job and node: as many as fit.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.queue, self._model = schedule, schedule.queue, schedule.model
        self.present: dict[tuple[int, int], list[Any]] = {}
        self._on: dict[int, list[tuple[int, Any]]] = defaultdict(list)  # job and interval, by node
        for job, fits in enumerate(self.queue.room()):
            self._alternative(job, self._units(job, fits))
        self._capacity()

    def plan(self, outcome: Outcome) -> Plan:
        """The plan of a solution."""
        counts = ((job, node, sum(map(outcome.value, units))) for (job, node), units in self.present.items())
        return self.schedule.plan(outcome, (row for row in counts if row[2]))

    def hint(self, plan: Plan) -> None:
        """Let the search begin with a plan."""
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
