"""Sorting inside compiled code; numba's own argsort takes seconds to compile."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.compiled import inner_allocating


@inner_allocating
def ranking(keys: Floats) -> Ints:
    """Places of the keys in rising order, equal ones as they stand; shape (n,). Merges ever longer runs."""
    count = len(keys)
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    for k in range(count):
        order[k] = k
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right = begin, middle
            for k in range(begin, end):
                if left < middle and (right == end or keys[order[left]] <= keys[order[right]]):
                    other[k] = order[left]
                    left += 1
                else:
                    other[k] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@inner_allocating
def picked(values: Ints, places: Ints) -> Ints:
    """The values at these places; shape (k,)."""
    found = np.empty(len(places), np.int64)
    for k in range(len(places)):
        found[k] = values[places[k]]
    return found
