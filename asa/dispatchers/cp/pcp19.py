"""PCP'19: all in one model, with an interval for each unit on each node."""

from __future__ import annotations

from asa.dispatchers.cp.pernode import PerNode
from asa.dispatchers.cp.planner import CpDispatcher, Search
from asa.dispatchers.cp.schedule import Schedule
from asa.dispatchers.cp.solver import run


class Pcp19(CpDispatcher):
    """Plan the queue with a model that grows with the machine; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan, A. Sîrbu and Ö. Babaoglu, "Constraint programming-based job dispatching for modern HPC
    applications", CP 2019; as section 2.2 of the paper on PCP'20 has it.
    """

    def _search(self, search: Search) -> None:
        schedule, nodes = search.build(PerNode)
        if search.best is not None:
            nodes.hint(search.best)
        outcome = run(schedule.model, search.budget, search.effort)
        search.notes["solve_s"] = outcome.seconds
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
