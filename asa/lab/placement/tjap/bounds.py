"""Lower bounds on what any placement costs, by prices of nodes: subgradients, and column generation.

If nodes have prices, jobs may overlap: each goes where it costs least, prices included (`tree.cheapest`). What they all
cost then, less the price of every idle node, is no more than any placement costs. Prices rise where jobs overlap.

The linear relaxation of choosing one of all placements of each job, in which no leaf switch gives more nodes than it
has, is solved over some placements; its dual prices say which others would make it cheaper (`tree.cheapest`), until
there are none.

References
----------
A. M. Geoffrion, "Lagrangean relaxation for integer programming", Mathematical Programming Study 2 (1974). With the best
prices this is the linear relaxation of choosing one of all placements of each job, in which no leaf switch gives more
nodes than it has (Dantzig and Wolfe, Operations Research 8, 1960).
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
from asa.lab.core.compiled import compiled
from asa.lab.placement.tjap.instance import Placed, Tables, Window, cost, job_cost
from asa.lab.placement.tjap.native import cheapest, tree_of

# -- Bound ------------------------------------------------------------------------------------------------------------

STEPS, PATIENCE = 500, 20
"""Most times that prices are changed; and that they may be in vain, until steps become shorter."""
WORK = 2e8
"""About how many additions may be spent: prices of a large window are changed less often."""
CLOSE_PRICES = 1e-6
"""A placement is taken for optimal when it costs no more than the bound and this share of it."""


def priced_nodes(window: Window, known: float | None = None) -> tuple[float, Floats]:
    """A lower bound on the cost of hops, whatever the potential, and the prices of nodes that prove it.

    A node below each leaf switch has one price. What some placement costs, `known`, only helps to find good ones.
    """
    leaves = int(window.tables.groups[0, -1]) + 1 if len(window.idle) else 0
    prices = np.zeros(leaves)
    if not len(window.sizes):
        return 0.0, prices
    sizes, copies = np.unique(window.sizes, return_counts=True)
    steps = int(min(STEPS, max(40.0, WORK / (len(window.idle) * int(sizes.sum())))))
    return float(raise_prices(without_potential(window), sizes, copies, prices, known or -1.0, steps)), prices


def without_potential(window: Window) -> Tables:
    """The tables of a window as if it had none."""
    return window.tables._replace(kept=np.zeros(len(window.tables.kept)))


@compiled
def answers(t: Tables, sizes: Ints, prices: Floats, found: Ints) -> Floats:
    """What jobs of these sizes cost where each costs least, prices included; shape (sorts,).

    `found`, shape (sorts, F), is filled with how many nodes of each leaf switch they have there.
    """
    tree, values = tree_of(t, sizes.max()), np.empty(len(sizes))
    for sort in range(len(sizes)):
        values[sort] = cheapest(tree, sizes[sort], tree.room, prices, found[sort])
    return values


@compiled
def raise_prices(t: Tables, sizes: Ints, copies: Ints, prices: Floats, known: float, steps: int) -> float:
    """The best bound found; `prices`, shape (leaf switches,), begin with 0 and become the bound's.

    Parameters
    ----------
    sizes, copies
        The different sizes of jobs, and how many jobs there are of each; shape (sorts,).
    known
        What some placement costs; negative where none is known: then steps are as if it cost 5 % more than the bound.
    """
    tree = tree_of(t, sizes.max())
    leaves = len(tree.room)
    answer, asked, turn, kept = np.zeros(leaves, np.int64), np.zeros(leaves), np.zeros(leaves), prices.copy()
    best, reach, stale = -math.inf, 1.0, 0
    for _ in range(steps):
        bound = 0.0
        asked[:] = 0.0
        for sort in range(len(sizes)):
            bound += copies[sort] * cheapest(tree, sizes[sort], tree.room, prices, answer)
            for leaf in range(leaves):
                asked[leaf] += copies[sort] * answer[leaf]
        for leaf in range(leaves):
            bound -= prices[leaf] * tree.room[leaf]
        stale += 1
        if bound > best:
            best, stale = bound, 0
            kept[:] = prices
        elif stale == PATIENCE:
            reach, stale = reach * 0.7, 0
            prices[:] = kept
        norm = 0.0
        for leaf in range(leaves):
            over = asked[leaf] - tree.room[leaf]
            if over < 0 and prices[leaf] <= 0:
                over = 0.0
            turn[leaf] = over + 0.7 * turn[leaf]
            norm += turn[leaf] ** 2
        upper = known if known >= 0 else 1.05 * best
        if norm == 0 or (known >= 0 and known <= best * (1 + CLOSE_PRICES)):
            break
        step = reach * max(upper - bound, 1e-9 * upper) / norm
        for leaf in range(leaves):
            prices[leaf] = max(0.0, prices[leaf] + step * turn[leaf])
    prices[:] = kept
    return best


# -- Columns ----------------------------------------------------------------------------------------------------------

ROUNDS = 200
"""Most times that the relaxation is solved."""
CLOSE_COLUMNS = 1e-7
"""It is solved when no prices are known to prove less than its value, but for this share."""


def dantzig_wolfe(window: Window, found: Placed) -> tuple[float, Floats]:
    """No placement of a window has a lower cost of hops; and the price of a node of each leaf switch that proves it.

    It begins with the prices of `asa.lab.placement.tjap.bounds`, and is at least as good. Whenever it is stopped, the
    bound holds: it follows from the prices alone (`asa.lab.placement.tjap.instance`), not from a solver's
    tolerances.

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
        if value <= best + CLOSE_COLUMNS * abs(value):
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
