"""What still fits beside the jobs that a decision has just started.

Dispatchers that pick jobs one by one ask a `FreeResources`: amounts that only count together (a `QueueView`, or a
machine of equal nodes), or the nodes of a machine on which it matters where a job goes. They only ever shrink: a job
that does not fit will not fit later in the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.decision import JobKey, Start
from asa.core.job import Resources
from asa.core.ports import Placement
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.placement.nodes import FIRST_FIT, amounts, choose, choose_within, keep_fullest, most_units


class FreeResources(Protocol):
    """Waiting jobs, known by their places in the queue, and what is free for them.

    `sizes`, shape (q,), `free` and `total` are counted in cores, or in the units that all jobs of a machine share.
    """

    sizes: Ints
    free: int
    total: int

    def fitting(self) -> Bools:
        """Which jobs fit, each on its own, shape (q,)."""

    def start(self, place: int) -> Start | None:
        """Give a job its resources; None when it does not fit, or when a placement refuses it."""


def room_of(view: QueueView | TableView, placement: Placement | None = None) -> FreeResources:
    """The room of a view; `placement` chooses nodes where it matters which (see `NodeResources`)."""
    if isinstance(view, QueueView):
        needs = [amounts_of(job.resources, view.capacity) for job in view.queue]
        held = [amounts_of(job.resources, view.capacity) for job in view.running]
        capacity = np.array(amounts_of(view.capacity, view.capacity), dtype=np.int64)
        free = capacity - np.array(held, dtype=np.int64).reshape(-1, len(capacity)).sum(axis=0)
        return PooledResources(
            [job.key for job in view.queue], np.array(needs, dtype=np.int64), free, view.capacity.cores
        )
    if view.slots >= 0:
        units = np.asarray(view.column("units"), dtype=np.int64)
        return PooledResources(view.waiting.tolist(), units[:, None], np.array([view.slots]), view.all_slots)
    return NodeResources(view, placement)


def columns(view: QueueView | TableView) -> tuple[Floats, Floats, Ints]:
    """Submission [s], expected run time [s] and cores of the waiting jobs, each of shape (q,)."""
    if isinstance(view, QueueView):
        return (
            np.array([job.submitted for job in view.queue], dtype=np.float64),
            np.array([job.walltime_s for job in view.queue], dtype=np.float64),
            np.array([job.resources.cores for job in view.queue], dtype=np.int64),
        )
    submit, predicted, cores = view.column("submit"), view.column("predicted"), view.column("cores")
    return np.asarray(submit, np.float64), np.asarray(predicted, np.float64), np.asarray(cores, np.int64)


class PooledResources:
    """Resources in one pool: only amounts count.

    Parameters
    ----------
    needs
        What they need, shape (q, resources); the one that sizes count comes first.
    total
        What the machine has of the first resource.
    """

    def __init__(self, keys: Sequence[JobKey], needs: Ints, free: Ints, total: int) -> None:
        self._keys, self._needs, self._left = keys, needs.reshape(-1, len(free)), free.tolist()
        self.sizes, self.free, self.total = self._needs[:, 0], max(0, int(free[0])), total

    def fitting(self) -> Bools:
        fitting: Bools = np.all(self._needs <= self._left, axis=1)
        return fitting

    def start(self, place: int) -> Start | None:
        left = [has - need for has, need in zip(self._left, self._needs[place].tolist(), strict=True)]
        if min(left) < 0:
            return None
        self._left, self.free = left, left[0]
        return Start(self._keys[place])


class NodeResources:
    """The nodes of a simulated machine: a job fits when those that are open to it hold all its units.

    Parameters
    ----------
    placement
        Chooses the nodes. When it is not given, the machine's own method does, if that is a compiled one, or else first
        fit.
    """

    def __init__(self, view: TableView, placement: Placement | None = None) -> None:
        self._choose = placement.choose if placement else partial(choose, max(view.placement, FIRST_FIT))
        cluster, self._demands, self._allowed = view.cluster, view.demands, view.allowed
        self._bound = not self._allowed.all()  # some nodes are not for all jobs
        self._left = view.free.copy()
        self._shared = np.array([name in cluster.shareable for name in cluster.resources])
        self._left[:, self._shared] = cluster.capacity[:, self._shared]  # each job that shares it may hold all of it
        self._rows, self._units = view.waiting.tolist(), np.asarray(view.column("units"), dtype=np.int64)
        self.sizes = np.asarray(view.column("cores"), dtype=np.int64)
        self.free, self.total = int(np.maximum(self._left[:, 0], 0).sum()), cluster.cores
        # Jobs of one sort fit up to some number of units; counted when asked for, and anew after each start.
        allowed = view.column("allowed")
        self._open, closed = None, np.zeros(len(allowed), dtype=np.int64)
        if len(view.windows):
            barred, closed = np.unique(view.barred(), axis=0, return_inverse=True)
            self._open = barred @ view.windows[:, 2 : 2 + len(self._left)] == 0
        asked = np.column_stack(
            [view.column("kind"), view.column("per_node"), allowed, view.column("max_nodes"), closed.reshape(-1)]
        )
        span = asked.max(axis=0, initial=0) + 1
        codes, self._sort = np.unique(np.ravel_multi_index(tuple(asked.T), tuple(span)), return_inverse=True)
        self._sorts = np.column_stack(np.unravel_index(codes, tuple(span))).tolist()
        self._most: dict[int, int] = {}
        self._asked = list(zip(self._units.tolist(), self._sort.tolist(), strict=True))

    def fitting(self) -> Bools:
        most = np.array([self._room(sort) for sort in range(len(self._sorts))], dtype=np.int64)
        fitting: Bools = self._units <= most[self._sort]
        return fitting

    def start(self, place: int) -> Start | None:
        units, sort = self._asked[place]
        if units > self._room(sort):
            return None
        kind, per_node, allowed, max_nodes, closed = self._sorts[sort]
        need = self._demands[kind]
        runs = choose_within(self._choose, self._seen(allowed, closed), need, units, per_node, max_nodes)
        if runs:
            taken = np.where(self._shared, 0, need)
            self._left -= amounts(runs, len(self._left))[:, None] * taken
            self.free -= units * int(taken[0])
            self._most.clear()
        return Start(self._rows[place], runs) if runs else None

    def _room(self, sort: int) -> int:
        if sort not in self._most:
            kind, per_node, allowed, max_nodes, closed = self._sorts[sort]
            seen = self._seen(allowed, closed)
            if max_nodes:
                seen = np.array(seen)
                keep_fullest(seen, self._demands[kind], per_node, max_nodes)
            self._most[sort] = most_units(seen, self._demands[kind], per_node)
        return self._most[sort]

    def _seen(self, allowed: int, closed: int) -> Ints:
        """What the nodes have left for jobs that may have the same ones, but for those that windows keep from them."""
        seen = self._left * self._allowed[allowed][:, None] if self._bound else self._left
        return seen if self._open is None else seen * self._open[closed][:, None]


def amounts_of(resources: Resources, capacity: Resources) -> list[int]:
    """Cores, GPUs, and memory where the machine states what it has; what a job does not state is nothing."""
    memory = [] if capacity.memory is None else [resources.memory or 0]
    return [resources.cores, resources.gpus, *memory]
