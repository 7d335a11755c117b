"""What the compact policy sees: a row for the machine and one for each job, the same on machines of any size.

Sizes are shares of the machine, times are logarithms, and both are told beside what else is in the queue. A queue looks
the same on a machine of twice as many nodes, when all jobs ask for twice as many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import HOUR
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.selection import Selection

MINUTE = 60.0
COLUMNS = 16
"""Numbers in a row, of a job and of the machine alike."""
AHEAD_S = HOUR * np.array([1 / 6, 1 / 2, 1, 3, 6, 12, 24])
"""How far ahead it is told what is expected to be free [s]."""


@dataclass(frozen=True)
class Shares:
    """A row for the machine, then one for each job of the window, then zeros: see `machine_row` and `job_rows`.

    Parameters
    ----------
    window
        Jobs to select from at most, W; >= 1.

    Raises
    ------
    InvalidInput
        When the window is below 1.
    """

    window: int = 64

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {self.window}")

    def shape(self, nodes: int) -> tuple[int, ...]:
        """``(1 + W, COLUMNS)``, whatever the number of nodes."""
        return 1 + self.window, COLUMNS

    def __call__(self, selection: Selection) -> Reals:
        rows = np.zeros((1 + self.window, COLUMNS), np.float32)
        seen = rows_of(selection)
        rows[: len(seen)] = seen
        return rows


def rows_of(selection: Selection) -> Reals:
    """The same without the zeros, shape (1 + k, COLUMNS) for k jobs in the window."""
    queue = selection.queue
    order = np.argsort(queue.ends, kind="stable")
    ends, free = queue.ends[order] - queue.now, queue.free + np.cumsum([0, *queue.held[order]])
    rows = np.empty((1 + len(selection.places), COLUMNS))
    rows[0] = machine_row(selection, ends, free)
    rows[1:] = job_rows(selection, ends, free)
    return rows.astype(np.float32)


def machine_row(selection: Selection, ends: Floats, free: Ints) -> Floats:
    """A row for the machine; shape (COLUMNS,).

    In order: what is free now, and what is expected to be free `AHEAD_S` from now, in shares of the machine; whether
    something is reserved for; how long until that starts, and what is spare then; how many jobs wait, and how long they
    would keep the machine busy; which share of them fits now; the longest wait; the mean expected run time.

    Parameters
    ----------
    ends
        In how long running jobs are expected to end [s], rising, shape (r,).
    free
        What is expected to be free before the first of these, after it, and so on; shape (r + 1,).
    """
    queue, total = selection.queue, selection.queue.total
    left = selection.waiting
    size, estimate, wait = queue.size[left], queue.estimate[left], queue.wait[left]
    row = np.zeros(COLUMNS)
    row[0] = queue.free / total
    row[1:8] = free[np.searchsorted(ends, AHEAD_S, side="right")] / total
    if not math.isnan(selection.shadow):
        row[8] = 1.0
        row[9] = math.log1p((selection.shadow - queue.now) / MINUTE) / 8
        row[10] = max(selection.spare, 0) / total
    count = max(1, len(size))
    row[11] = math.log1p(len(size)) / 6
    row[12] = math.log1p(float((size * estimate).sum()) / (total * HOUR)) / 5
    row[13] = int((size <= queue.free).sum()) / count
    row[14] = math.log1p(float(wait.max(initial=0.0)) / MINUTE) / 8
    row[15] = math.log1p(float(estimate.sum()) / count / MINUTE) / 8
    return row


def job_rows(selection: Selection, ends: Floats, free: Ints) -> Floats:
    """A row for each job of the window; shape (k, COLUMNS).

    In order: 1; its size, and the logarithm of that; the logarithms of its expected run time, its wait and its expected
    slowdown so far; its wait in shares of the longest; whether it fits now, would end before what is reserved for
    starts, and fits beside that; the logarithm of its area; which share of the window is expected to run no longer, and
    which has no larger area; how long until it fits; what it would leave free, and where it stands in the queue.

    Parameters
    ----------
    ends, free
        As for `machine_row`.
    """
    queue, places = selection.queue, selection.places
    size, wait = queue.size[places], queue.wait[places]
    estimate: Floats = np.maximum(queue.estimate[places], 1.0)
    share: Floats = size / queue.total
    area = share * estimate
    fits = size <= queue.free
    rows = np.empty((len(places), COLUMNS))
    rows[:, 0] = 1.0
    rows[:, 1] = share
    rows[:, 2] = np.log(share) / 8
    rows[:, 3] = np.log(estimate / HOUR) / 4
    rows[:, 4] = np.log1p(wait / MINUTE) / 8
    rows[:, 5] = np.log1p(wait / np.maximum(estimate, MINUTE)) / 5
    rows[:, 6] = wait / max(float(queue.wait[selection.waiting].max(initial=0.0)), 1.0)
    rows[:, 7] = fits
    rows[:, 8] = ~(queue.now + estimate > selection.shadow)  # nothing is reserved for: NaN, and nothing is late
    rows[:, 9] = fits if math.isnan(selection.shadow) else size <= selection.spare
    rows[:, 10] = np.log(area / HOUR) / 8
    rows[:, 11] = _no_more(estimate)
    rows[:, 12] = _no_more(area)
    later = np.searchsorted(free, size)
    rows[:, 13] = (
        np.log1p(np.where(later > 0, ends[np.minimum(later, len(ends)) - 1] if len(ends) else 0.0, 0.0) / MINUTE) / 8
    )
    rows[:, 14] = np.maximum(queue.free - size, 0) / queue.total
    rows[:, 15] = places / max(1, len(queue.keys))
    return rows


def _no_more(values: Floats) -> Floats:
    """Which share of the values is no larger than each; equal values have equal shares."""
    return np.searchsorted(np.sort(values), values, side="right") / max(1, len(values))
