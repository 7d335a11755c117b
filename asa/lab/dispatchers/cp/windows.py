"""When each job can start at all: what holds for every plan, or for every plan that is better than a known one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asa.core.arrays import Ints
from asa.lab.dispatchers.cp.times import Times
from asa.lab.dispatchers.planning.instance import Instance, held

NEVER = -1


class Windows(NamedTuple):
    """The first and the last tick at which each job can start, shape (n,) each."""

    early: Ints
    late: Ints


def windows(instance: Instance, times: Times, known: Ints | None = None) -> Windows:
    """Windows of all plans, or of those that are no worse than one that is known, by its starts [ticks].

    What the known plan's jobs lose together against their first possible starts is the most that a single job of such a
    plan can lose.
    """
    ahead = Ahead(instance)
    early = np.array([0 if (k := ahead.first(job)) == 0 else int(times.release[k - 1]) for job in range(len(instance))])
    if known is None:
        late = np.full(len(instance), times.horizon)
    else:
        loss = float(((known - early) / times.duration).sum())
        late = early + np.floor(loss * times.duration * (1 + 1e-9) + 1e-6).astype(np.int64)
    return Windows(early.astype(np.int64), np.minimum(late, times.horizon))


class Ahead:
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
