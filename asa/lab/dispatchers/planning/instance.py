"""One dispatching problem: a machine with what runs on it, and the jobs that wait, all at one instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.core.compiled import compiled_alone
from asa.lab.placement.native import most_units

LEAST_S = 1.0
"""What a job that should be over, or that has no length, is still expected to run [s]; section 2.2 of PCP'20."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A machine and its queue. Times are [s] from now on.

    Parameters
    ----------
    capacity
        What the nodes have, shape (nodes, resources).
    resources
        Names of the resources.
    demands
        What one unit of a job of each kind needs, shape (kinds, resources).
    members
        Nodes of each partition, shape (partitions, nodes): 1 where a node belongs to it.
    names
        What the waiting jobs are called; n of them.
    units, kind, per_node, partition
        Of the waiting jobs, shape (n,): how many units, a row of `demands`, most units that may share a node (0: no
        limit), a row of `members`.
    duration
        How long they are expected to run, shape (n,); above 0.
    waited
        How long they have waited by now, shape (n,); at least 0.
    release_at, release
        When what runs is expected to end, in order, and what comes back then, shape (k,) and (k, 4): first node, last
        node, units of each, kind.
    shared, shared_names, shared_demands
        What the machine has as a whole, such as power or licences: amounts, shape (s,), their names, and what one unit
        of a job of each kind draws while it runs, shape (kinds, s). None unless given.
    """

    capacity: Ints
    resources: tuple[str, ...]
    demands: Ints
    members: Ints
    names: tuple[str | int, ...]
    units: Ints
    kind: Ints
    per_node: Ints
    partition: Ints
    duration: Floats
    waited: Floats
    release_at: Floats
    release: Ints
    shared: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shared_names: tuple[str, ...] = ()
    shared_demands: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.shared_names:
            object.__setattr__(self, "shared_demands", np.zeros((len(self.demands), 0), dtype=np.int64))

    def check(self) -> None:
        """Raise `InvalidInput` when something makes no sense; who makes an instance of a checked machine need not."""
        self._refuse(self.units < 1, "units", self.units)
        self._refuse(~(self.duration > 0), "seconds as its duration", self.duration)
        for sort, need in enumerate(self.need):
            room = self.capacity * self.members[self.sorts[sort, 2]][:, None]
            most = int(most_units(room, need, int(self.sorts[sort, 1])))
            for job in np.flatnonzero((self.sort == sort) & (self.units > most))[:1].tolist():
                raise InvalidInput(
                    f"job {self.names[job]!r} can never run here: it has {self.units[job]} units of "
                    f"{amounts(self.resources, need.tolist())}, of which the empty machine holds {most}"
                )
        draws = self.units[:, None] * self.shared_demands[self.kind]
        for job in np.flatnonzero((draws > self.shared).any(axis=1))[:1].tolist():
            raise InvalidInput(
                f"job {self.names[job]!r} can never run here: it draws "
                f"{amounts(self.shared_names, draws[job].tolist())}"
                f", but the machine has {amounts(self.shared_names, self.shared.tolist())}"
            )

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def free(self) -> Ints:
        """What nodes have left, shape (nodes, resources)."""
        return self.capacity - held(self.release, self.demands, len(self.capacity))

    @property
    def drawn(self) -> Ints:
        """What each row of `release` draws of what is shared, shape (k, s)."""
        first, last, units, kind = self.release.T
        found: Ints = ((last - first + 1) * units)[:, None] * self.shared_demands[kind]
        return found

    @property
    def pool(self) -> Ints:
        """What is left of what is shared, shape (s,)."""
        return np.asarray(self.shared - self.drawn.sum(axis=0))

    @cached_property
    def sorts(self) -> Ints:
        """The different (kind, `per_node`, partition) of the waiting jobs, shape (sorts, 3)."""
        return self._sorted[0]

    @cached_property
    def sort(self) -> Ints:
        """Which of them each job is, shape (n,)."""
        return self._sorted[1]

    @property
    def need(self) -> Ints:
        """What a unit of each sort needs, shape (sorts, resources)."""
        return self.demands[self.sorts[:, 0]]

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        asked = self.kind, self.per_node, self.partition
        span = tuple(int(column.max(initial=0)) + 1 for column in asked)
        codes, sort = np.unique(np.ravel_multi_index(asked, span), return_inverse=True)
        return np.column_stack(np.unravel_index(codes, span)).astype(np.int64), sort.astype(np.int64)

    def slowdown(self, start: Floats) -> Floats:
        """Response over duration of jobs that start then, shape (n,)."""
        found: Floats = (self.waited + start + self.duration) / self.duration
        return found

    def _refuse(self, wrong: Any, what: str, values: Any) -> None:
        for job in np.flatnonzero(wrong)[:1].tolist():
            raise InvalidInput(f"job {self.names[job]!r} has {values[job]:g} {what}: more than 0 expected")


@compiled_alone
def held(release: Ints, demands: Ints, nodes: int) -> Ints:
    """What running jobs, as in `Instance.release`, hold of each node; shape (nodes, resources)."""
    found = np.zeros((nodes, demands.shape[1]), np.int64)
    for row in range(len(release)):
        for node in range(release[row, 0], release[row, 1] + 1):
            for k in range(demands.shape[1]):
                found[node, k] += release[row, 2] * demands[release[row, 3], k]
    return found


def amounts(resources: Sequence[str], of_each: Sequence[int]) -> str:
    """Amounts of resources, in words."""
    return ", ".join(f"{amount} {name}" for name, amount in zip(resources, of_each, strict=True))


@dataclass(frozen=True, eq=False)
class Plan:
    """When and where all jobs of an instance start.

    Parameters
    ----------
    start
        Start [s] from now on, shape (n,).
    where
        Job, node, units on it; shape (rows, 3).
    """

    start: Floats
    where: Ints

    def objective(self, instance: Instance) -> float:
        """Mean slowdown; 0 where nobody waits."""
        return float(instance.slowdown(self.start).mean()) if len(instance) else 0.0

    def nodes(self, job: int) -> list[tuple[int, int]]:
        """Nodes of a job, and units on each."""
        rows = self.where[self.where[:, 0] == job]
        return [(node, units) for _, node, units in rows.tolist()]


@dataclass(frozen=True, eq=False)
class Planned:
    """What a planner has come to.

    Parameters
    ----------
    plan
        None where there was no time to find one.
    status
        ``"optimal"`` when there is no better one, ``"feasible"``, or ``"unknown"`` without a plan.
    bound
        What the planner itself has proven: no plan has a smaller mean slowdown; None where it proves nothing.
    notes
        What else it tells, JSON-able.
    """

    plan: Plan | None
    status: str
    bound: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """A dispatcher that plans whole instances."""

    def solve(self, instance: Instance, seconds: float) -> Planned:
        """Plan all waiting jobs, within about so many seconds."""


def example() -> Instance:
    """Two nodes of two cores, one of them busy for 10 s; three jobs wait: long, wide, and short.

    >>> len(example()), example().free.tolist()
    (3, [[0], [2]])
    """
    demands, none = np.array([[1], [2]]), np.zeros(3, dtype=np.int64)
    return Instance(
        np.array([[2], [2]]), ("cores",), demands, np.ones((1, 2), dtype=np.int64), ("long", "wide", "short"),
        np.array([1, 2, 1]), np.array([0, 1, 0]), none, none, np.array([20.0, 5.0, 8.0]), np.array([0.0, 3.0, 1.0]),
        np.array([10.0]), np.array([[0, 0, 1, 1]]),
    )  # fmt: skip
