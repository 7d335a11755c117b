"""PCP'19: all in one model, with an interval for each unit on each node."""

from __future__ import annotations

from asa.lab.dispatchers.cp.pernode import PerNode
from asa.lab.dispatchers.cp.planner import CpDispatcher, Search
from asa.lab.dispatchers.cp.schedule import Schedule
from asa.lab.dispatchers.cp.solver import run


class Pcp19(CpDispatcher):
    """Plan the queue with a model that grows with the machine; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan, A. Sîrbu and Ö. Babaoglu, "Constraint programming-based job dispatching for modern HPC
    applications", CP 2019; as section 2.2 of the paper on PCP'20 has it.
    """

    def __init__(self, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0) -> None:
        super().__init__(on_nodes, warm=warm, seconds=seconds, workers=workers, seed=seed)


def on_nodes(search: Search) -> None:
    """Look for the best plan, by counts of units on nodes."""
    nodes, outcome = search.solve(PerNode)
    search.bound = outcome.bound
    if outcome.found:
        search.offer(nodes.plan(outcome))


def better(search: Search) -> None:
    """Find a plan that is better than the best so far, or prove that there is none."""
    if search.start is None:
        return
    queue, cost = search.queue(), search.times.cost(search.start)
    if (search.start == queue.windows.early).all():
        search.bound = cost
        return
    schedule = Schedule(queue)
    nodes = PerNode(schedule)
    schedule.better_than(cost)
    outcome = run(schedule.model, search.budget, search.effort)
    if outcome.found:
        search.offer(nodes.plan(outcome))
    search.bound = outcome.bound if outcome.found or not outcome.complete else cost
