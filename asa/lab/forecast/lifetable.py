"""How much of their wall times jobs use: a life table, learned from jobs that are watched for a while only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput

BINS = 40
PRIOR_JOBS = 5.0
"""Jobs that every table has beside those it was taught: they are as likely to end at any share of their wall times."""

MEMORY_JOBS = 2000.0
"""Ends after which what was learned counts 1/e."""

_EDGES: Floats = np.linspace(0.0, 1.0, BINS + 1) ** 2  # narrow at the begin: many jobs end soon after their start
_WIDTHS: Floats = np.diff(_EDGES)
_PRIOR_ENDS: Floats = PRIOR_JOBS * _WIDTHS
_PRIOR_PASSED: Floats = PRIOR_JOBS * _WIDTHS * (1 - _EDGES[:-1] - _WIDTHS / 2)


class LifeTable:
    """Rate at which running jobs end, by the share of its wall time that a job has used.

    Each look at a queue tells of every running job that it went from one share to another, and whether it ended there.
    A job that still runs counts for the shares that it has passed: so long jobs are not missed because short ones end
    first. A job that ended between two looks has ended anywhere between them.

    Examples
    --------
    Jobs that always use a quarter of their wall times.

    >>> table = LifeTable()
    >>> for _ in range(200):
    ...     table.add(np.array([0.0, 0.24]), np.array([0.24, 0.26]), np.array([False, True]))
    >>> table.share(np.array([0.0, 0.2, 0.9]), np.array([0.5, 0.5, 0.5])).round(2).tolist()
    [0.25, 0.25, 0.95]

    References
    ----------
    E. L. Kaplan and P. Meier, "Nonparametric estimation from incomplete observations", J. Am. Stat. Assoc. 53, 1958:
    its actuarial estimate (section 3), with fixed intervals, and an end spread evenly over the time between the looks.
    Unlike theirs, old observations fade.
    """

    def __init__(self) -> None:
        self._ends, self._passed = np.zeros(BINS), np.zeros(BINS)

    def add(self, begin: Floats, end: Floats, ended: npt.NDArray[np.bool_]) -> None:
        """Jobs went from share `begin` to share `end`, at most 1, or had `ended` by then; shape (n,) each."""
        end = np.clip(np.maximum(end, begin + 1e-9), 0.0, 1.0)
        begin = np.minimum(np.clip(begin, 0.0, 1.0), end - 1e-9)
        low, high = np.maximum(begin[:, None], _EDGES[:-1]), np.minimum(end[:, None], _EDGES[1:])
        inside = np.maximum(high - low, 0.0)
        part = inside / (end - begin)[:, None]  # of the way from begin to end
        gone = ((low + high) / 2 - begin[:, None]) / (end - begin)[:, None]  # who ended on it, at the middle of the bin
        fade = np.exp(-ended.sum() / MEMORY_JOBS)
        self._passed = fade * self._passed + (inside * np.where(ended[:, None], 1 - gone, 1.0)).sum(axis=0)
        self._ends = fade * self._ends + part[ended].sum(axis=0)

    def share(self, used: Floats, chance: Floats) -> Floats:
        """Share of its wall time at which a job ends that has used so much of it so far, in [0, 1]; shape (n,) each.

        `chance`, in [0, 1), is that of ending earlier, given that it has not ended yet.
        """
        rate = (self._ends + _PRIOR_ENDS) / (self._passed + _PRIOR_PASSED)
        hazard = np.append(0.0, np.cumsum(rate * _WIDTHS))
        until = np.interp(used, _EDGES, hazard) - np.log1p(-chance)
        found: Floats = np.maximum(np.interp(until, hazard, _EDGES), used)
        return found

    def state(self) -> dict[str, list[float]]:
        """All of it, JSON-able."""
        return {"ends": self._ends.tolist(), "passed": self._passed.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state.

        Raises
        ------
        InvalidInput
            When it is incomplete or a number is negative.
        """
        columns = []
        for key in ("ends", "passed"):
            column = np.array(state.get(key, ()), dtype=np.float64)
            if column.shape != (BINS,) or not (np.isfinite(column) & (column >= 0)).all():
                raise InvalidInput(f"state[{key!r}] of a life table: {BINS} numbers of at least 0 expected")
            columns.append(column)
        self._ends, self._passed = columns
