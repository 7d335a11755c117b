"""All of a resource in one line, node after node: where PCP'20 puts the units of jobs; section 3 of its paper.

Nodes of one class, which have the same and belong to the same partitions, are neighbours in the line. So the node of a
position is a division, and ``element`` of the paper's mapping array a linear constraint for each class.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.lab.dispatchers.cp.schedule import Queue


class NodeClass(NamedTuple):
    """Nodes that are alike: first and last place; where they begin in the line, and what each has, (resources,)."""

    first: int
    last: int
    base: Ints
    capacity: Ints

    def position(self, place: int, resource: int) -> int:
        """Where a node begins in the line of a resource."""
        return int(self.base[resource]) + (place - self.first) * int(self.capacity[resource])


class Block(NamedTuple):
    """Positions that are taken by what runs: from `begin` to `end` [ticks], from `low` on, `height` of them."""

    begin: int
    end: int
    low: int
    height: int
    places: range


class Layout:
    """Nodes in a line, and what runs on them.

    Only nodes that a waiting job can use in its window have a place. Of a class, those that are free first are last,
    and of these the fullest; classes that have most are first. So the largest position that is free is the best fit.

    Attributes
    ----------
    nodes, place
        The node at each place, and the place of each node; -1 for none.
    classes, suits
        Nodes that are alike, and those classes that each job can use.
    need
        What a unit of each job takes, shape (n, resources), counted in what all demands are multiples of.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue, instance = queue, queue.instance
        common = np.maximum(np.gcd.reduce(instance.demands, axis=0), 1)
        self.need: Ints = queue.need // common
        self._capacity = instance.capacity // common
        self._stacks = queue.running(instance.demands // common)
        usable = np.array([units > 0 for units in queue.room()])
        ready = self._ready(usable)
        there = np.flatnonzero(usable.any(axis=0))
        alike = np.column_stack([self._capacity, instance.members.T])[there]
        kinds, kind = np.unique(-alike, axis=0, return_inverse=True)
        space = (instance.free[there] / np.maximum(instance.capacity.max(axis=0), 1)).sum(axis=1)
        order = np.lexsort((-space, -ready[there], kind.reshape(-1)))
        self.nodes: Ints = there[order]
        self._ready_at = ready[self.nodes]
        self.place: Ints = np.full(len(instance.capacity), -1)
        self.place[self.nodes] = np.arange(len(self.nodes))
        self.classes = self._classes(kind.reshape(-1)[order], len(kinds))
        used = usable[:, self.nodes]
        self.suits = [[each for each in self.classes if row[each.first : each.last + 1].any()] for row in used]

    def blocks(self, resource: int) -> Iterator[Block]:
        """What runs: all of a node until any waiting job could use it, then what is held, the longest uppermost.

        So what is free of a node is always in one piece, as far as running jobs go.
        """
        for each in self.classes:
            capacity = int(each.capacity[resource])
            for ready, group in groupby(range(each.first, each.last + 1), key=self._ready_at.__getitem__):
                places = list(group)
                if ready and capacity:
                    low = each.position(places[0], resource)
                    yield Block(0, int(ready), low, len(places) * capacity, range(places[0], places[-1] + 1))
                for place in places:
                    top = each.position(place, resource) + capacity
                    for end, amounts in reversed(self._stacks[int(self.nodes[place])]):
                        if end > ready and amounts[resource]:
                            top -= int(amounts[resource])
                            yield Block(int(ready), end, top, int(amounts[resource]), range(place, place + 1))

    def _classes(self, kind: Ints, count: int) -> list[NodeClass]:
        """Classes of places that are in their order."""
        found, base = [], np.zeros(self.need.shape[1], dtype=np.int64)
        for first, last in zip(
            np.searchsorted(kind, np.arange(count)), np.searchsorted(kind, np.arange(count), side="right"), strict=True
        ):
            capacity = self._capacity[self.nodes[first]]
            found.append(NodeClass(int(first), int(last) - 1, base, capacity))
            base = base + (last - first) * capacity
        return found

    def _ready(self, usable: Bools) -> Ints:
        """When each node first has room for a unit of any job that may use it [ticks], shape (nodes,).

        Parameters
        ----------
        usable
            Nodes that have room for a unit of each job when it starts at last, shape (n, nodes).
        """
        ready = np.zeros(usable.shape[1], dtype=np.int64)
        for node, stack in self._stacks.items():
            jobs = np.flatnonzero(usable[:, node])
            if not len(jobs):
                continue
            self._queue.budget.check()
            held = np.array([amounts for _, amounts in stack])
            free = self._capacity[node] - np.cumsum(held[::-1], axis=0)[::-1]  # before each end
            fits = (free[:, None, :] >= self.need[None, jobs, :]).all(axis=2).any(axis=1)
            ready[node] = 0 if fits[0] else stack[int(np.argmax(fits)) - 1 if fits.any() else -1][0]
        return ready
