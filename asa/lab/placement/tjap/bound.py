"""What all placements cost at least, neighbours or not: prices of nodes.

If nodes have prices, jobs may overlap: each goes where it costs least, prices included (`tree.cheapest`). What they all
cost then, less the price of every idle node, is no more than any placement costs. Prices rise where jobs overlap.

References
----------
A. M. Geoffrion, "Lagrangean relaxation for integer programming", Mathematical Programming Study 2 (1974). With the best
prices this is the linear relaxation of choosing one of all placements of each job, in which no leaf switch gives more
nodes than it has (Dantzig and Wolfe, Operations Research 8, 1960).
"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import compiled
from asa.lab.placement.tjap.instance import Tables, Window
from asa.lab.placement.tjap.tree import cheapest, tree_of

STEPS, PATIENCE = 500, 20
"""Most times that prices are changed; and that they may be in vain, until steps become shorter."""
WORK = 2e8
"""About how many additions may be spent: prices of a large window are changed less often."""
CLOSE = 1e-6
"""A placement is taken for optimal when it costs no more than the bound and this share of it."""


def lower_bound(window: Window, known: float | None = None) -> float:
    """No placement of a window has a lower cost of hops, whatever its potential; 0 where there are no jobs.

    Parameters
    ----------
    known
        What some placement costs; it only helps to find good prices.
    """
    return priced_nodes(window, known)[0]


def priced_nodes(window: Window, known: float | None = None) -> tuple[float, Floats]:
    """The bound, and the price of a node below each leaf switch that gives it."""
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
        if norm == 0 or (known >= 0 and known <= best * (1 + CLOSE)):
            break
        step = reach * max(upper - bound, 1e-9 * upper) / norm
        for leaf in range(leaves):
            prices[leaf] = max(0.0, prices[leaf] + step * turn[leaf])
    prices[:] = kept
    return best
