"""What PCP'19, HCP'19 and PCP'20 share: times in ticks, windows of starts, and the scheduling model.

Section 2.2 of the paper on PCP'20.

References
----------
C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
applications", arXiv:2009.10348 (2020).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.dispatchers.cp.solver import SolverBudget, SolverOutcome, cp_sat
from asa.lab.dispatchers.planning.instance import Instance, QueuePlan, held

# -- Times in whole units ----------------------------------------------------------------------------------------------

FINEST_S = 2.0**-10
"""The shortest tick [s]. A power of two: multiples of it, their sums, and quotients by it are exact."""

_MOST_TICKS = 2.0**40
_SCALE = 2**36
_MOST_COST = 2**61


@dataclass(frozen=True, eq=False)
class TickTimes:
    """An instance's times as whole numbers of ticks.

    Parameters
    ----------
    tick
        How long one is [s].
    exact
        Whether all times are multiples of it. Else they are rounded up: a plan in ticks still holds, but nothing is
        proven of it.
    duration, release
        Of the waiting jobs, shape (n,), at least 1; when what runs ends, shape (k,), at least 1.
    weight, scale
        What one tick of each job's wait costs, shape (n,): `scale` over its duration, rounded down. So costs over
        `scale` are slowdowns, and a bound on the cost is one on the slowdown.
    """

    tick: float
    exact: bool
    duration: Ints
    release: Ints
    weight: Ints
    scale: int

    @property
    def horizon(self) -> int:
        """When all is over at the latest: what runs, then one job after the other; ``eoh`` of PCP'20, section 2.2."""
        return int(self.release.max(initial=0) + self.duration.sum())

    def cost(self, start: Ints) -> int:
        """What starts cost, in ticks."""
        return sum(int(weight) * int(at) for weight, at in zip(self.weight, start, strict=True))

    def in_ticks(self, start: Floats) -> Ints:
        """Starts of a plan of the `rounded` instance [s], in ticks."""
        return np.round(start / self.tick).astype(np.int64)

    def rounded(self, instance: Instance) -> Instance:
        """The instance with these times; each of its plans is one of the instance as it was."""
        duration, release = (np.asarray(ticks * self.tick, np.float64) for ticks in (self.duration, self.release))
        return replace(instance, duration=duration, release_at=release)


def times_of(instance: Instance) -> TickTimes:
    """The times of an instance, in the longest tick of which all, rounded up to `FINEST_S` or a little more, are
    multiples.

    Raises
    ------
    InvalidInput
        When a time is not finite; names the job.
    """
    for job in np.flatnonzero(~np.isfinite(instance.duration))[:1].tolist():
        raise InvalidInput(f"job {instance.names[job]!r} takes {instance.duration[job]:g} s: a finite time expected")
    if not np.isfinite(instance.release_at).all():
        raise InvalidInput(f"what runs ends after {instance.release_at.max():g} s at last: a finite time expected")
    seconds = np.concatenate([instance.duration, instance.release_at])
    finest = FINEST_S
    while seconds.sum() / finest > _MOST_TICKS:
        finest *= 2
    whole = np.maximum(np.ceil(seconds / finest), 1).astype(np.int64)
    common = int(np.gcd.reduce(whole)) if len(whole) else 1
    duration, release = np.split(whole // common, [len(instance)])
    horizon = int(release.max(initial=0) + duration.sum())
    scale = min(_SCALE, _MOST_COST * int(duration.min(initial=horizon)) // (max(horizon, 1) * (len(instance) + 1)))
    exact = bool((whole * finest == seconds).all())
    return TickTimes(finest * common, exact, duration, release, scale // np.maximum(duration, 1), scale)


# -- Windows ----------------------------------------------------------------------------------------------------------

NEVER = -1


class Windows(NamedTuple):
    """The first and the last tick at which each job can start, shape (n,) each."""

    early: Ints
    late: Ints


def windows(instance: Instance, times: TickTimes, known: Ints | None = None) -> Windows:
    """Windows of all plans, or of those that are no worse than one that is known, by its starts [ticks].

    What the known plan's jobs lose together against their first possible starts is the most that a single job of such a
    plan can lose.
    """
    ahead = CapacityAfter(instance)
    early = np.array([0 if (k := ahead.first(job)) == 0 else int(times.release[k - 1]) for job in range(len(instance))])
    if known is None:
        late = np.full(len(instance), times.horizon)
    else:
        loss = float(((known - early) / times.duration).sum())
        late = early + np.floor(loss * times.duration * (1 + 1e-9) + 1e-6).astype(np.int64)
    return Windows(early.astype(np.int64), np.minimum(late, times.horizon))


class CapacityAfter:
    """What a machine has left once so many rows of `Instance.release` are over, and nothing else has begun.

    It only grows, so that what fits at some time fits for ever after.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._free: dict[int, Ints] = {}

    def free(self, over: int) -> Ints:
        """What nodes have left, shape (nodes, resources)."""
        if over not in self._free:
            instance = self._instance
            running = held(instance.release[over:], instance.demands, len(instance.capacity))
            self._free[over] = instance.capacity - running
        return self._free[over]

    def holds(self, job: int, over: int) -> Ints:
        """How many units of a job each node holds, shape (nodes,)."""
        instance, free = self._instance, self.free(over)
        need = instance.demands[instance.kind[job]]
        asked = need > 0
        most = (free[:, asked] // need[asked]).min(axis=1, initial=int(instance.units[job]))
        if instance.per_node[job]:
            most = np.minimum(most, instance.per_node[job])
        return np.asarray(np.maximum(most, 0) * instance.members[instance.partition[job]])

    def first(self, job: int) -> int:
        """How many rows must be over before a job can start; `NEVER` when that does not help."""
        low, high = 0, len(self._instance.release)
        if not self._fits(job, high):
            return NEVER
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(job, middle) else (middle + 1, high)
        return low

    def _fits(self, job: int, over: int) -> bool:
        instance = self._instance
        units = int(instance.units[job])
        pool = instance.shared - instance.drawn[over:].sum(axis=0)
        if (units * instance.shared_demands[instance.kind[job]] > pool).any():
            return False
        return bool(self.holds(job, over).sum() >= units)


# -- Schedules --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CpQueue:
    """What is to be planned: an instance, its times, the windows of its jobs, and the time that there is."""

    instance: Instance
    times: TickTimes
    windows: Windows
    budget: SolverBudget

    @cached_property
    def need(self) -> Ints:
        """What a unit of each job needs, shape (n, resources)."""
        return self.instance.demands[self.instance.kind]

    def room(self) -> Iterator[Ints]:
        """Of each job, how many of its units each node holds when it starts at last, shape (nodes,)."""
        ahead = CapacityAfter(self.instance)
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


class CpSchedule:
    """When jobs run."""

    def __init__(self, queue: CpQueue) -> None:
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
        proto = self.model.proto
        return {"variables": len(proto.variables), "constraints": len(proto.constraints)}

    def starts(self, outcome: SolverOutcome) -> Floats:
        """Starts of a solution [s]."""
        return np.array([outcome.value(variable) for variable in self.start]) * self.queue.times.tick

    def plan(self, outcome: SolverOutcome, where: Iterable[tuple[int, int, int]]) -> QueuePlan:
        """The plan of a solution whose jobs have these nodes: job, node, units there."""
        return QueuePlan(self.starts(outcome), np.array(sorted(where), dtype=np.int64).reshape(-1, 3))

    def fixed(self, begin: int, end: int) -> Any:
        """An interval between two ticks that are known."""
        if (begin, end) not in self._fixed:
            self._fixed[begin, end] = self.model.new_fixed_size_interval_var(begin, end - begin, "")
        return self._fixed[begin, end]

    def hint(self, plan: QueuePlan) -> None:
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
