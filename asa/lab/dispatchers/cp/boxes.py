"""PCP'20's allocation model: each unit is a box on each resource, and boxes do not overlap.

A position for each unit and resource, and the place of its node: how many there are does not depend on the machine.
Sections are those of the paper:

C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
applications", arXiv:2009.10348 (2020). It numbers no equations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from asa.lab.dispatchers.cp.layout import Layout, NodeClass
from asa.lab.dispatchers.cp.schedule import Schedule
from asa.lab.dispatchers.cp.solver import Outcome, cp_sat
from asa.lab.dispatchers.planning.instance import Plan

Taken = tuple[int, int, int, int]
"""Positions that are taken on a node: begin and end [ticks], the lowest one, and how many."""


class Boxes:
    """The whole model: when jobs run, and where.

    Attributes
    ----------
    schedule
        When.
    place
        Which node, in the line of `Layout`, by job and unit.
    position
        Where each unit begins, by job, unit and resource.
    """

    def __init__(self, schedule: Schedule) -> None:
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

    def plan(self, outcome: Outcome) -> Plan:
        """The plan of a solution."""
        places = ((job, outcome.value(place)) for job, units in enumerate(self.place) for place in units)
        given = Counter((job, int(self.layout.nodes[place])) for job, place in places)
        return self.schedule.plan(outcome, ((*key, units) for key, units in given.items()))

    def hint(self, plan: Plan) -> None:
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
        ``cumulative(s, d, req, Tcap)``, is `Schedule`'s.
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
