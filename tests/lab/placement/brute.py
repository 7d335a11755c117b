"""Placements by their definitions, one unit or one set of nodes at a time; slow on purpose."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

Ints = npt.NDArray[np.int64]
UNTIMED = settings(deadline=None)
"""What is compiled takes seconds when it is first called."""


@st.composite
def machines(draw: st.DrawFn) -> tuple[Ints, Ints, int, int]:
    """Free amounts, what a unit needs, units, and most units per node."""
    columns = draw(st.integers(1, 3))
    amounts = st.lists(st.sampled_from([0, 0, -1, 1, 2, 3, 5, 6]), min_size=columns, max_size=columns)
    free = np.array(draw(st.lists(amounts, min_size=1, max_size=9)))
    if draw(st.integers(0, 9)) == 0:  # several blocks, most of them empty
        free = np.vstack([free, np.zeros((130, columns), dtype=np.int64), free])
    need = draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns))
    return free, np.array(need), draw(st.integers(1, 14)), draw(st.sampled_from([0, 0, 1, 2]))


def holds(free: Ints, need: Ints, per_node: int = 0) -> list[int]:
    """Units that each node can be given, found by giving one after the other (40 stand for any number)."""
    found = []
    for amounts in free.tolist():
        units, counted = 0, [(each, has) for each, has in zip(need.tolist(), amounts, strict=True) if each]
        while units < (per_node or 40) and all(each * (units + 1) <= has for each, has in counted):
            units += 1
        found.append(units)
    return found


def blocks(free: Ints) -> Ints:
    return np.array([(free[start : start + 64, 0] > 0).sum() for start in range(0, len(free), 64)])


def greedy(free: Ints, need: Ints, units: int, per_node: int, order: list[int]) -> list[int] | None:
    """Units on each node when nodes are filled in this order; None when there is no room."""
    most, given = holds(free, need, per_node), [0] * len(free)
    for node in order:
        given[node] = min(units - sum(given), most[node])
    return given if sum(given) == units else None


def stretches(given: list[int]) -> list[list[int]]:
    """The nodes of each run of neighbours that have something."""
    return [[node for node, _ in group] for has, group in groupby(enumerate(given), lambda item: item[1] > 0) if has]
