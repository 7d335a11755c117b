"""Tasks of an allocation side by side: every task in lanes of its own, one lane a core."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pack(
    started: NDArray[np.float64], ended: NDArray[np.float64], cores: NDArray[np.int64], lanes: int
) -> NDArray[np.int64]:
    """The lowest of the neighbouring lanes that each task gets, shape (n,).

    Tasks take the lowest lanes that are free. Where none are free side by side (cores are handed out in any order, and
    clocks differ), a task gets those that are free soonest.

    Parameters
    ----------
    started, ended
        [s], shape (n,) each.
    cores
        Lanes that each task takes, shape (n,); cut to `lanes`.
    lanes
        Number of lanes.

    Examples
    --------
    >>> pack(np.array([0.0, 0.0, 5.0]), np.array([9.0, 4.0, 8.0]), np.array([1, 2, 1]), 3).tolist()
    [0, 1, 1]
    """
    free = np.zeros(lanes) - np.inf
    lowest = np.zeros(len(started), dtype=np.int64)
    for task in np.argsort(started, kind="stable"):
        width = min(int(cores[task]), lanes)
        ready = np.lib.stride_tricks.sliding_window_view(free, width).max(axis=1)
        room = np.flatnonzero(ready <= started[task] + 1e-6)
        lowest[task] = lane = room[0] if len(room) else ready.argmin()
        free[lane : lane + width] = ended[task]
    return lowest
