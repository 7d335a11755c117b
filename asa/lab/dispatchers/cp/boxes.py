"""PCP'20's allocation model: each unit is a box on each resource, and boxes do not overlap.

A position for each unit and resource, and the place of its node: how many there are does not depend on the machine.
Sections are those of the paper:

C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
applications", arXiv:2009.10348 (2020). It numbers no equations.

Nodes of one class, which have the same and belong to the same partitions, are neighbours in the line. So the node of a
position is a division, and ``element`` of the paper's mapping array a linear constraint for each class.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.lab.dispatchers.cp.model import CpQueue, CpSchedule
from asa.lab.dispatchers.cp.solver import SolverOutcome, cp_sat
from asa.lab.dispatchers.planning.instance import QueuePlan

# -- Layout -----------------------------------------------------------------------------------------------------------


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

    def __init__(self, queue: CpQueue) -> None:
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
        """When each node first has room for a unit of any job that may use it [ticks], shape (nodes,)."""
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


# -- Boxes ------------------------------------------------------------------------------------------------------------

Taken = tuple[int, int, int, int]
"""Positions that are taken on a node: begin and end [ticks], the lowest one, and how many."""


class Boxes:
    """The whole model: when jobs run, and where."""

    def __init__(self, schedule: CpSchedule) -> None:
        self.schedule, self.queue = schedule, schedule.queue
        self._model, self._cp = schedule.model, cp_sat()
        self.layout = Layout(self.queue)
        self.place: list[list[Any]] = []
        self.position: list[list[dict[int, Any]]] = []
        self._boxes: dict[int, list[tuple[Any, Any, int]]] = defaultdict(list)  # x, y, length, by resource
        self._among: dict[int, list[Any]] = {}  # of which class a unit's node is, where several suit; by its place
        for job in range(len(self.queue.instance)):
            self.queue.budget.check()
            self._units(job)
            self._alldifferent(job)
            self._in_order(job)
        self._running()
        for boxes in self._boxes.values():
            self.queue.budget.check()
            self._diffn(boxes)
            self._cumulative(boxes)
        self._search()

    def plan(self, outcome: SolverOutcome) -> QueuePlan:
        places = ((job, outcome.value(place)) for job, units in enumerate(self.place) for place in units)
        given = Counter((job, int(self.layout.nodes[place])) for job, place in places)
        return self.schedule.plan(outcome, ((*key, units) for key, units in given.items()))

    def hint(self, plan: QueuePlan) -> None:
        """Let the search begin with a plan, as far as its units find room in one piece, lowest first."""
        self.schedule.hint(plan)
        start = self.queue.times.in_ticks(plan.start)
        taken = {resource: self._taken(resource) for resource in self._boxes}
        for job in np.argsort(start, kind="stable").tolist():
            span = int(start[job]), int(start[job] + self.queue.times.duration[job])
            nodes = sorted((int(self.layout.place[node]), units) for node, units in plan.nodes(job))
            places = (place for place, units in nodes for _ in range(units))
            for place, variable, positions in zip(places, self.place[job], self.position[job], strict=True):
                self._model.add_hint(variable, place)
                each = self._class_of(place)
                for literal, suited in zip(self._among[variable.index], self.layout.suits[job], strict=False):
                    self._model.add_hint(literal, suited is each)
                for resource, position in positions.items():
                    need, there = int(self.layout.need[job, resource]), taken[resource][place]
                    low = _lowest(there, span, each.position(place, resource), need)
                    there.append((*span, low, need))
                    self._model.add_hint(position, low)

    def _taken(self, resource: int) -> dict[int, list[Taken]]:
        """What runs on each place."""
        found: dict[int, list[Taken]] = defaultdict(list)
        for begin, end, low, height, places in self.layout.blocks(resource):
            for place in places:
                found[place].append((begin, end, low, height))
        return found

    def _class_of(self, place: int) -> NodeClass:
        return next(each for each in self.layout.classes if each.first <= place <= each.last)

    def _units(self, job: int) -> None:
        """``y``: a position for each unit on each resource that it needs, with its box there; section 3, allocation.

        And the place of its node, which is what the paper's ``element`` constraints compare.
        """
        suits, need = self.layout.suits[job], self.layout.need[job]
        asked = np.flatnonzero(need).tolist()
        places = self._cp.Domain.from_intervals([[each.first, each.last] for each in suits])
        self.place.append([])
        self.position.append([])
        for unit in range(int(self.queue.instance.units[job])):
            self.queue.budget.check()
            place = self._model.new_int_var_from_domain(places, f"n{job}_{unit}")
            found = {}
            for resource in asked:
                last = [each.position(each.last + 1, resource) - int(need[resource]) for each in suits]
                lines = [[int(each.base[resource]), end] for each, end in zip(suits, last, strict=True)]
                domain = self._cp.Domain.from_intervals(lines)
                found[resource] = self._model.new_int_var_from_domain(domain, f"y{job}_{unit}_{resource}")
                self._box(job, resource, found[resource])
            self._element(place, found, job)
            self.place[job].append(place)
            self.position[job].append(found)

    def _element(self, place: Any, positions: dict[int, Any], job: int) -> None:
        """``element(map, y) = element(map', y')``, and the last position too: a unit is on one node; section 3.

        Deviations: the mapping is linear for each class of nodes (see `Layout`), so that there is a linear constraint
        for each class instead of an array as long as the machine; and the last position is y + req - 1, where the paper
        has y + req, which is the first one that the unit does not have.
        """
        suits = self.layout.suits[job]
        among = [self._model.new_bool_var("") for _ in suits] if len(suits) > 1 else []
        self._among[place.index] = among
        if among:
            self._model.add_exactly_one(among)
        for number, each in enumerate(suits):
            bounds = [self._model.add_linear_constraint(place, each.first, each.last)] if among else []
            for resource, position in positions.items():
                height, need = int(each.capacity[resource]), int(self.layout.need[job, resource])
                low = each.position(0, resource)
                bounds.append(self._model.add_linear_constraint(position - height * place, low, low + height - need))
            for bound in bounds if among else ():
                bound.only_enforce_if(among[number])

    def _box(self, job: int, resource: int, position: Any) -> None:
        """A unit on a resource: from start to end, and from position to position; figure 3."""
        needs = self._model.new_fixed_size_interval_var(position, int(self.layout.need[job, resource]), "")
        self._boxes[resource].append((self.schedule.runs[job], needs, int(self.queue.times.duration[job])))

    def _alldifferent(self, job: int) -> None:
        """``alldifferent(y)`` for each resource of a job of several units; section 3, implied by ``diffn``."""
        units = self.position[job]
        if len(units) > 1:
            for resource in units[0]:
                self._model.add_all_different([unit[resource] for unit in units])

    def _in_order(self, job: int) -> None:
        """Units of a job are alike: they are in order, and no more than `per_node` of them are on one node.

        Not in the paper, which has neither such a limit nor anything against symmetry (section 6: later work).
        """
        units, most = self.position[job], int(self.queue.instance.per_node[job])
        total = np.maximum(self.queue.instance.capacity.max(axis=0), 1)
        main = int(np.argmax(self.queue.need[job] / total))
        need = int(self.layout.need[job, main])
        for before, after in pairwise(units) if need else ():  # what takes nothing has no positions
            self._model.add(after[main] >= before[main] + need)
        for before, after in zip(self.place[job], self.place[job][most:], strict=False) if most else ():
            self._model.add(after >= before + 1)

    def _running(self) -> None:
        """Boxes of what runs, which stay where they are; section 2.2, running jobs."""
        for resource, boxes in self._boxes.items():
            self.queue.budget.check()
            for block in self.layout.blocks(resource):
                x = self.schedule.fixed(block.begin, block.end)
                y = self._model.new_fixed_size_interval_var(block.low, block.height, "")
                boxes.append((x, y, block.end - block.begin))

    def _diffn(self, boxes: list[tuple[Any, Any, int]]) -> None:
        """``diffn(s, d, y, req)``: boxes do not overlap; section 3."""
        self._model.add_no_overlap_2d([x for x, _, _ in boxes], [y for _, y, _ in boxes])

    def _cumulative(self, boxes: list[tuple[Any, Any, int]]) -> None:
        """``cumulative(y, req, d, eoh)``: no position is taken for longer than there is time; section 3, implied.

        Deviation: the paper has s for d, but how high a box is in this direction is how long it lasts. The other one,
        ``cumulative(s, d, req, Tcap)``, is `CpSchedule`'s.
        """
        self.schedule.cumulative([(y, length) for _, y, length in boxes], self._horizon)

    @property
    def _horizon(self) -> int:
        windows, times = self.queue.windows, self.queue.times
        return max(int((windows.late + times.duration).max()), int(times.release.max(initial=0)))

    def _search(self) -> None:
        """Job after job by slowdown until now: as early as it can, where it fits best; section 3, search.

        Deviation: the paper takes the first of those jobs that can start first. CP-SAT has no such rule over the starts
        and positions of many jobs, so the order is that of priorities alone.
        """
        instance = self.queue.instance
        priority = (instance.waited + instance.duration) / instance.duration
        for job in np.argsort(-priority, kind="stable").tolist():
            earliest = self._cp.CHOOSE_FIRST, self._cp.SELECT_MIN_VALUE
            self._model.add_decision_strategy([self.schedule.start[job]], *earliest)
            positions = [position for unit in self.position[job] for position in unit.values()]
            best = self._cp.CHOOSE_MIN_DOMAIN_SIZE, self._cp.SELECT_MAX_VALUE
            self._model.add_decision_strategy(positions, *best)


def _lowest(there: list[Taken], span: tuple[int, int], low: int, need: int) -> int:
    """The lowest position from `low` on at which so many are free all the time from one tick to another.

    >>> _lowest([(0, 9, 0, 2), (0, 3, 3, 2)], (0, 5), 0, 1), _lowest([(0, 9, 0, 2), (0, 3, 3, 2)], (0, 5), 0, 2)
    (2, 5)
    """
    for begin, end, first, height in sorted(there, key=lambda box: box[2]):
        if begin < span[1] and span[0] < end and low + need > first:
            low = max(low, first + height)
    return low
