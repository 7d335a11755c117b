"""The two stages of the Synthetic workflow as plain functions.

All numbers are multiples of 1/1024 and stay small enough for a float to hold them exactly, and so do their sums in
whatever order: the result can be compared with the closed form by ``==``.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PERIOD = 1024
GAIN = 0.25  # what a round adds to a number

Part = dict[str, float]


def fill(floats: int, out: Path) -> Path:
    """Stage 1, sequential: fill memory with numbers, 0, 1/1024, 2/1024 ... 1023/1024 again and again; keep them."""
    path = out / "floats.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.tile(np.arange(PERIOD) / PERIOD, -(-floats // PERIOD))[:floats]
    values.tofile(path)
    return path


def compute(part: int, parts: int, floats: int, path: Path, *, rounds: int, seconds: float | None) -> Part:
    """Stage 2, parallel: load a part of the numbers, add and multiply them, round after round, and check their sum.

    Parameters
    ----------
    part, parts
        Which of how many parts of about the same size.
    floats
        How many numbers there are.
    path
        Where they are.
    rounds
        How often to go through them.
    seconds
        If given, go on instead until so much CPU time has passed [s].

    Returns
    -------
    Part
        The ``first`` number's place, ``count`` of numbers, ``rounds`` made and ``sum``.

    Raises
    ------
    ArithmeticError
        If the sum is wrong.
    """
    first, end = (floats * edge // parts for edge in (part, part + 1))
    values = np.fromfile(path, count=end - first, offset=first * np.dtype(float).itemsize)
    made, begin = 0, time.thread_time()
    while made < rounds if seconds is None else time.thread_time() - begin < seconds:
        _go_through(values)
        made += 1
    total, expected = float(values.sum()), expected_sum(first, end - first, made)
    if total != expected:
        raise ArithmeticError(
            f"numbers {first} to {end} of {path} sum to {total!r} after {made} rounds, expected {expected!r}: "
            "is this the file that the first stage wrote?"
        )
    return {"first": first, "count": end - first, "rounds": made, "sum": total}


def expected_sum(first: int, count: int, rounds: int) -> float:
    """Return the sum of `count` numbers from place `first` on after so many rounds, in closed form.

    >>> expected_sum(0, 1024, 0)  # 1023 / 2
    511.5
    """
    return (_units_below(first + count) - _units_below(first)) / PERIOD + GAIN * rounds * count


def _go_through(values: NDArray[np.float64]) -> None:
    """One round, ((2 x + 1) / 2) - 1/4 = x + 1/4: two additions and two multiplications for each number."""
    values *= 2.0
    values += 1.0
    values *= 0.5
    values -= 0.25


def _units_below(place: int) -> int:
    """Return the sum of the first `place` numbers, in units of 1/1024."""
    whole, rest = divmod(place, PERIOD)
    return whole * (PERIOD * (PERIOD - 1) // 2) + rest * (rest - 1) // 2


def summary(parts: list[Part]) -> Part:
    """Put the parts' results together: how many ``floats`` and ``operations``, and the ``sum``."""
    return {
        "floats": sum(part["count"] for part in parts),
        "operations": sum(4 * part["rounds"] * part["count"] for part in parts),
        "sum": math.fsum(part["sum"] for part in parts),
    }
