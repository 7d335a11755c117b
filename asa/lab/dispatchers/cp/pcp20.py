"""PCP'20: all in one model, whose size does not depend on the machine's."""

from __future__ import annotations

import time

from asa.lab.dispatchers.cp.boxes import Boxes
from asa.lab.dispatchers.cp.pcp19 import better
from asa.lab.dispatchers.cp.planner import CpDispatcher, Search


class Pcp20(CpDispatcher):
    """Plan the queue with units as boxes, in a line of all that a resource has; see `CpDispatcher`.

    References
    ----------
    C. Galleguillos, Z. Kiziltan and R. Soto, "A constraint programming-based job dispatcher for modern HPC systems and
    applications", arXiv:2009.10348 (2020).

    Notes
    -----
    In a box, a unit holds neighbouring cores throughout, which nodes do not ask for: what is free in two pieces can be
    had together. So the best plan of boxes need not be the best of all. It is called so only once a model of counts,
    PCP'19's, has shown that nothing is better; what windows leave of that one is small by then.
    """

    def __init__(self, *, warm: bool = True, seconds: float | None = None, workers: int = 2, seed: int = 0) -> None:
        super().__init__(in_boxes, warm=warm, seconds=seconds, workers=workers, seed=seed)


def in_boxes(search: Search) -> None:
    """Look for the best plan of boxes, and then for one that is better than any of those."""
    boxes, outcome = search.solve(Boxes, ordered=True)  # OR-Tools 9.15 crashes on boxes that are not presolved
    search.notes["best of boxes"] = outcome.complete
    if outcome.found:
        search.offer(boxes.plan(outcome))
    if outcome.complete:
        began = time.perf_counter()
        better(search)
        search.notes["check_s"] = time.perf_counter() - began
