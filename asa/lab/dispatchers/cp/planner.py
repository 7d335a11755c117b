"""What the dispatchers that plan by constraints have in common: a start, a limit, and an honest answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.core.decision import Start
from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from asa.lab.dispatchers.cp.model import NEVER, CapacityAfter, CpQueue, CpSchedule, TickTimes, times_of, windows
from asa.lab.dispatchers.cp.solver import Effort, SolverBudget, SolverOutcome, TimeOver, cp_sat, run
from asa.lab.dispatchers.listplan import ListPlan, starts_now
from asa.lab.dispatchers.planning.instance import Instance, PlannedJob, QueuePlan, from_view

DECISION_S, INSTANCE_S = 1.0, 10.0
"""Time for a plan, if nothing is said: of a decision in a simulated queue, and of a single instance."""

MOST_WORKERS = 10_000
"""As many threads CP-SAT takes; it refuses more."""

ROUNDING = 1e-6
"""A plan is called the best when its mean slowdown is within this share of the bound: costs are whole numbers."""


class CpModel(Protocol):
    """A model whose search can begin with a plan."""

    def hint(self, plan: QueuePlan) -> None:
        """Let it."""


Made = TypeVar("Made", bound=CpModel)


@dataclass
class Search:
    """One search for a plan: what it is given, and what it comes to.

    Attributes
    ----------
    instance, times, budget, effort
        What is to be planned, in whole ticks, in how much time, and how.
    by
        Who has found it: ``"warm start"``, ``"cp"``, or ``"improved"``, which is CP with a warm start.
    bound
        What no plan's cost is below, if anything is known.
    """

    instance: Instance
    times: TickTimes
    budget: SolverBudget
    effort: Effort
    best: QueuePlan | None
    by: str | None
    bound: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> Ints | None:
        """Starts of the best plan [ticks]."""
        return None if self.best is None else self.times.in_ticks(self.best.start)

    def queue(self) -> CpQueue:
        """The queue with windows of all plans that are no worse than the best one."""
        return CpQueue(self.instance, self.times, windows(self.instance, self.times, self.start), self.budget)

    def offer(self, plan: QueuePlan) -> None:
        """Take this plan if it is better."""
        now = math.inf if self.best is None else self.best.objective(self.instance)
        if plan.objective(self.instance) < now * (1 - 1e-12):
            self.best, self.by = plan, "cp" if self.by in (None, "cp") else "improved"

    def solve(self, allocate: Callable[[CpSchedule], Made], *, ordered: bool = False) -> tuple[Made, SolverOutcome]:
        """Make a model and solve it, from the best plan so far on; its size, and what took how long, is noted."""
        began = time.perf_counter()
        try:
            schedule = CpSchedule(self.queue())
            made = allocate(schedule)
            self.notes |= schedule.size
        finally:
            self.notes["build_s"] = time.perf_counter() - began
        if self.best is not None:
            made.hint(self.best)
        outcome = run(schedule.model, self.budget, self.effort, ordered=ordered)
        self.notes["solve_s"] = outcome.seconds
        return made, outcome


Method = Callable[[Search], None]
"""How plans are looked for. It offers to the search those that it finds, and tells it what is proven of all."""


class CpDispatcher:
    """Plan the queue by constraint programming, and start what begins now.

    Parameters
    ----------
    method
        Looks for plans.
    warm
        Begin with a list plan, which the answer is never worse than (with times as the solver has them: rounded up to
        1/1024 s). Else the solver is on its own.
    seconds
        Time for each decision in a simulated queue [s], building included, above 0; unless given, 1. If it is given,
        `asa dispatch` plans for as long too.
    workers
        Threads of the solver, from 1 to `MOST_WORKERS`. With one, and time enough, the answer is always the same.

    Raises
    ------
    InvalidInput
        When an option is out of range; when OR-Tools is not installed, once there is something to plan.
    """

    needs_estimates = True

    def __init__(
        self, method: Method, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0
    ) -> None:
        if seconds is not None and not 0 < seconds < math.inf:
            raise InvalidInput(f"seconds is {seconds!r}: a finite number above 0 expected")
        if not (1 <= workers <= MOST_WORKERS and workers == int(workers)):
            raise InvalidInput(f"workers is {workers!r}: a whole number from 1 to {MOST_WORKERS:,} expected")
        if not (0 <= seed < 2**31 and seed == int(seed)):
            raise InvalidInput(f"seed is {seed!r}: a whole number from 0 to 2^31 - 1 expected")
        self._method, self._warm, self._effort = method, warm, Effort(int(workers), int(seed))
        self._seconds = DECISION_S if seconds is None else seconds
        self.default_limit_s = INSTANCE_S if seconds is None else seconds  # for asa dispatch without a limit

    def decide(self, view: QueueView | TableView) -> list[Start]:
        """What to start now, in the queue's order. There is no search where nothing can start now."""
        if not len(view.queue if isinstance(view, QueueView) else view.waiting):
            return []
        instance = from_view(view)
        ahead = CapacityAfter(instance)
        first = np.array([ahead.first(job) for job in range(len(instance))])
        if not (first == 0).any():
            return []
        instance = _only(instance, first != NEVER)  # nodes that the others need are down
        plan = self.solve(instance, self._seconds).plan
        return [] if plan is None else starts_now(view, instance, plan)

    def solve(self, instance: Instance, seconds: float) -> PlannedJob:
        """Plan all waiting jobs within about so many seconds, building included, the warm start not.

        Raises
        ------
        InvalidInput
            When a job can never run on this machine, or has no finite duration; when OR-Tools is not installed.
        """
        cp_sat()
        instance.check()
        if not len(instance):
            return PlannedJob(QueuePlan(np.zeros(0), np.zeros((0, 3), dtype=np.int64)), "optimal", 0.0)
        times = times_of(instance)
        whole = times.rounded(instance)
        best = ListPlan().solve(whole, 0.0).plan if self._warm else None
        by = None if best is None else "warm start"
        search = Search(whole, times, SolverBudget(seconds), self._effort, best, by)
        try:
            self._method(search)
        except TimeOver:
            search.notes["out of time"] = "while building"
        return _answer(search)


def _answer(search: Search) -> PlannedJob:
    """What has been found, in the planner's words."""
    notes: Mapping[str, Any] = search.notes | {"by": search.by}
    if search.best is None:
        return PlannedJob(None, "unknown", notes=notes)
    if search.bound is None or not search.times.exact:
        return PlannedJob(search.best, "feasible", notes=notes)
    unavoidable = search.instance.slowdown(np.zeros(len(search.instance))).mean()
    bound = float(max(0.0, search.bound) / search.times.scale / len(search.instance) + unavoidable)
    reached = search.best.objective(search.instance)
    if reached <= bound * (1 + ROUNDING):
        return PlannedJob(search.best, "optimal", reached, notes)
    return PlannedJob(search.best, "feasible", bound, notes)


def _only(instance: Instance, jobs: Bools) -> Instance:
    """An instance without the other jobs."""
    names = tuple(name for name, there in zip(instance.names, jobs.tolist(), strict=True) if there)
    return replace(
        instance, names=names, units=instance.units[jobs], kind=instance.kind[jobs], per_node=instance.per_node[jobs],
        partition=instance.partition[jobs], duration=instance.duration[jobs], waited=instance.waited[jobs],
    )  # fmt: skip
