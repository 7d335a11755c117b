"""The best bound that prices of nodes give, by column generation.

The linear relaxation of choosing one of all placements of each job, in which no leaf switch gives more nodes than it
has, is solved over some placements; its dual prices say which others would make it cheaper (`tree.cheapest`), until
there are none.

References
----------
G. B. Dantzig and P. Wolfe, "Decomposition principle for linear programs", Operations Research 8 (1960). Prices are
taken half way to the best ones so far: P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer
programming", International Transactions in Operational Research 4 (1997).
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.bound import answers, priced_nodes, without_potential
from asa.lab.placement.tjap.cost import cost, job_cost
from asa.lab.placement.tjap.instance import Placed, Window

ROUNDS = 200
"""Most times that the relaxation is solved."""
CLOSE = 1e-7
"""It is solved when no prices are known to prove less than its value, but for this share."""


def dantzig_wolfe(window: Window, found: Placed) -> tuple[float, Floats]:
    """No placement of a window has a lower cost of hops; and the price of a node of each leaf switch that proves it.

    It begins with the prices of `asa.lab.placement.tjap.bound`, and is at least as good. Whenever it is stopped, the
    bound holds: it follows from the prices alone (`asa.lab.placement.tjap.certificate`), not from a solver's
    tolerances.

    Parameters
    ----------
    found
        Some placement of all jobs.

    Raises
    ------
    InvalidInput
        When OR-Tools is not installed.
    """
    best, kept = priced_nodes(window, cost(window, found))
    size, copies = np.unique(window.sizes, return_counts=True)
    if not len(size):
        return best, kept
    tables = without_potential(window)
    room = np.bincount(tables.groups[0])
    relaxation = _Relaxation(copies, room)
    for places in found.places:
        has = np.bincount(tables.groups[0, places], minlength=len(room))
        relaxation.add(int(np.searchsorted(size, len(places))), has, job_cost(window, places))
    prices, columns = kept, np.zeros((len(size), len(room)), dtype=np.int64)
    for _ in range(ROUNDS):
        values = answers(tables, size, prices, columns)
        if (bound := float(copies @ values - prices @ room)) > best:
            best, kept = bound, prices
        fresh = [relaxation.add(k, column, values[k] - prices @ column) for k, column in enumerate(columns)]
        value, duals = relaxation.solve()
        if value <= best + CLOSE * abs(value):
            break
        prices = (kept + duals) / 2 if any(fresh) else duals
    return best, kept


class _Relaxation:
    """The linear program, whose variables come one by one: placements of a job, nodes from each leaf switch."""

    def __init__(self, copies: Ints, room: Ints) -> None:
        solver = _linear_solver().Solver.CreateSolver("GLOP")
        self._solver, self._objective = solver, solver.Objective()
        self._jobs = [solver.Constraint(float(count), float(count)) for count in copies.tolist()]
        self._room = [solver.Constraint(-math.inf, float(nodes)) for nodes in room.tolist()]
        self._known: set[tuple[int, bytes]] = set()

    def add(self, sort: int, has: Ints, paid: float) -> bool:
        """Add a placement, unless it is there; whether it was added."""
        key = sort, has.astype(np.int64).tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        share = self._solver.NumVar(0.0, math.inf, "")
        self._objective.SetCoefficient(share, paid)
        self._jobs[sort].SetCoefficient(share, 1.0)
        for leaf in np.flatnonzero(has).tolist():
            self._room[leaf].SetCoefficient(share, float(has[leaf]))
        return True

    def solve(self) -> tuple[float, Floats]:
        """The least cost, and what one node more of each leaf switch would save, shape (F,)."""
        self._objective.SetMinimization()
        self._solver.Solve()
        duals = np.array([constraint.dual_value() for constraint in self._room])
        return float(self._objective.Value()), np.maximum(-duals, 0.0)


def _linear_solver() -> Any:
    try:
        return importlib.import_module("ortools.linear_solver.pywraplp")
    except ImportError as error:
        raise InvalidInput("this bound needs ortools: pip install 'asa-hpc[cp]'") from error
