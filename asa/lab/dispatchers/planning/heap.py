"""Binary heaps in arrays, compiled: the least of the first `size` keys is in front; each key has a value beside it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from asa.core.arrays import Floats
from asa.lab.core.compiled import inner

Values = npt.NDArray[Any]


@inner
def heapify(keys: Floats, values: Values, size: int) -> None:
    """Make a heap of the first keys."""
    for place in range(size // 2 - 1, -1, -1):
        _sink(keys, values, place, size)


@inner
def push(keys: Floats, values: Values, size: int, key: float, value: float) -> int:
    """Put one more in; the new size."""
    place = size
    while place > 0 and keys[(place - 1) // 2] > key:
        above = (place - 1) // 2
        keys[place], values[place] = keys[above], values[above]
        place = above
    keys[place], values[place] = key, value
    return size + 1


@inner
def pop(keys: Floats, values: Values, size: int) -> int:
    """Take the one in front out; the new size."""
    keys[0], values[0] = keys[size - 1], values[size - 1]
    _sink(keys, values, 0, size - 1)
    return size - 1


@inner
def _sink(keys: Floats, values: Values, place: int, size: int) -> None:
    """Let a key sink until none below it is less."""
    key, value, child = keys[place], values[place], 2 * place + 1
    while child < size:
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], values[place] = keys[child], values[child]
        place, child = child, 2 * child + 1
    keys[place], values[place] = key, value
