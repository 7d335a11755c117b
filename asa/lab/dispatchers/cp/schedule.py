"""The scheduling model that PCP'19, HCP'19 and PCP'20 have in common: section 2.2 of the paper on PCP'20.

References
----------
C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
applications", arXiv:2009.10348 (2020).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.dispatchers.cp.solver import Budget, Outcome, cp_sat
from asa.lab.dispatchers.cp.times import Times
from asa.lab.dispatchers.cp.windows import Ahead, Windows
from asa.lab.dispatchers.planning.instance import Instance, Plan


@dataclass(frozen=True, eq=False)
class Queue:
    """What is to be planned: an instance, its times, the windows of its jobs, and the time that there is."""

    instance: Instance
    times: Times
    windows: Windows
    budget: Budget

    @cached_property
    def need(self) -> Ints:
        """What a unit of each job needs, shape (n, resources)."""
        return self.instance.demands[self.instance.kind]

    def room(self) -> Iterator[Ints]:
        """Of each job, how many of its units each node holds when it starts at last, shape (nodes,)."""
        ahead = Ahead(self.instance)
        over = np.searchsorted(self.times.release, self.windows.late, side="right")
        for job, rows in enumerate(over.tolist()):
            self.budget.check()
            yield ahead.holds(job, rows)

    def running(self, demands: Ints) -> dict[int, list[tuple[int, Ints]]]:
        """What runs on each node, in order of its end: that [ticks], and what is held; (), by node, where nothing runs.

        Parameters
        ----------
        demands
            What a unit of each kind holds, shape (kinds, resources), in any unit of the amounts.
        """
        found = defaultdict(list)
        rows = zip(self.times.release.tolist(), self.instance.release.tolist(), strict=True)
        for end, (first, last, units, kind) in rows:
            for node in range(first, last + 1):
                found[node].append((end, units * demands[kind]))
        return found


class Schedule:
    """When jobs run.

    Attributes
    ----------
    model
        CP-SAT's.
    start, runs
        A variable and an interval for each waiting job.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue, self.model = queue, cp_sat().CpModel()
        self.start: list[Any] = []
        self.runs: list[Any] = []
        self._fixed: dict[tuple[int, int], Any] = {}
        self._intervals()
        self._capacity()
        self._shared()
        self._slowdown()

    @property
    def size(self) -> dict[str, int]:
        """How large the model is."""
        proto = self.model.proto
        return {"variables": len(proto.variables), "constraints": len(proto.constraints)}

    def starts(self, outcome: Outcome) -> Floats:
        """Starts of a solution [s]."""
        return np.array([outcome.value(variable) for variable in self.start]) * self.queue.times.tick

    def plan(self, outcome: Outcome, where: Iterable[tuple[int, int, int]]) -> Plan:
        """The plan of a solution whose jobs have these nodes: job, node, units there."""
        return Plan(self.starts(outcome), np.array(sorted(where), dtype=np.int64).reshape(-1, 3))

    def fixed(self, begin: int, end: int) -> Any:
        """An interval between two ticks that are known."""
        if (begin, end) not in self._fixed:
            self._fixed[begin, end] = self.model.new_fixed_size_interval_var(begin, end - begin, "")
        return self._fixed[begin, end]

    def hint(self, plan: Plan) -> None:
        """Let the search begin with the starts of a plan."""
        for variable, at in zip(self.start, self.queue.times.in_ticks(plan.start).tolist(), strict=True):
            self.model.add_hint(variable, at)

    def better_than(self, cost: int) -> None:
        """Only plans that cost less."""
        self.model.add(self.cost <= cost - 1)

    def cumulative(self, amounts: Iterable[tuple[Any, int]], capacity: int) -> None:
        """``cumulative``: whatever runs at a time takes no more than there is; intervals, and what each takes."""
        taken = [(interval, int(amount)) for interval, amount in amounts if amount]
        if taken:
            unit = math.gcd(*(amount for _, amount in taken))  # bytes are more than the solver can multiply by times
            heights = [amount // unit for _, amount in taken]
            self.model.add_cumulative([interval for interval, _ in taken], heights, int(capacity) // unit)

    def _intervals(self) -> None:
        """A job's interval begins between its first and its last possible start, at most ``eoh``; section 2.2."""
        times, windows = self.queue.times, self.queue.windows
        for job, length in enumerate(times.duration.tolist()):
            begin = self.model.new_int_var(int(windows.early[job]), int(windows.late[job]), f"s{job}")
            self.start.append(begin)
            self.runs.append(self.model.new_fixed_size_interval_var(begin, length, f"t{job}"))

    def _capacity(self) -> None:
        """``cumulative(s, d, req, Tcap)`` for each resource of all nodes together; section 2.2."""
        instance = self.queue.instance
        first, last, units, kind = instance.release.T
        held = ((last - first + 1) * units)[:, None] * instance.demands[kind]
        self._pooled(held, instance.units[:, None] * self.queue.need, instance.capacity.sum(axis=0))

    def _shared(self) -> None:
        """The same for what the machine has as a whole, such as power, which the paper leaves to later work."""
        instance = self.queue.instance
        draws = instance.units[:, None] * instance.shared_demands[instance.kind]
        self._pooled(instance.drawn, draws, instance.shared)

    def _pooled(self, held: Ints, asked: Ints, capacity: Ints) -> None:
        """Columns: resources; what rows of `Instance.release` hold, what jobs ask for, and what there is."""
        ends, row = np.unique(self.queue.times.release, return_inverse=True)
        for column, there in enumerate(capacity.tolist()):
            self.queue.budget.check()
            amounts = np.zeros(len(ends), dtype=np.int64)
            np.add.at(amounts, row, held[:, column])
            held_until = zip(ends.tolist(), amounts.tolist(), strict=True)
            running = [(self.fixed(0, end), amount) for end, amount in held_until if amount]
            self.cumulative([*running, *zip(self.runs, asked[:, column].tolist(), strict=True)], there)

    def _slowdown(self) -> None:
        """Least total slowdown; section 2.2. Without what no plan changes: waits until now, and the 1 of each job."""
        self.cost = cp_sat().LinearExpr.weighted_sum(self.start, self.queue.times.weight.tolist())
        self.model.minimize(self.cost)
