"""What is known of a job as a row of numbers, of like size whatever their units."""

from __future__ import annotations

import math
import operator

import numpy as np

from asa.core.context import Context
from asa.core.units import DAY
from asa.estimators.loss import OFFSET_S, Vector

MISSING = -1.0
"""Stands for what nobody tells; less than any value that is told, so that one split of a tree sets it apart."""

TIMES = ("walltime_s", "pending_s", "backlog_s", "planned_s", "oldest_s", "left_s", "own_backlog_s")
COUNTS = ("cores", "free_cores", "queued", "alike_queued", "own_queued", "own_cores")
FEATURES = ("cosine", "sine", "last_s", *TIMES, *COUNTS)
"""Names of the columns: time of day as a point of a circle, the last wait of a job of as many cores, and fields of
`Context`."""

_times, _counts = operator.attrgetter(*TIMES), operator.attrgetter(*COUNTS)
LAST, CORES = FEATURES.index("last_s"), FEATURES.index("cores")


def features(context: Context | None) -> Vector:
    """The row of a job, shape (f,): logarithms of times and counts, `MISSING` where nothing is known.

    The column `LAST` is left to who knows waits. Rounded to half precision, as it is kept.

    Examples
    --------
    >>> row = features(Context(at=43200.0, cores=7, queued=0))
    >>> dict(zip(FEATURES, row.round(2).tolist())) | {"walltime_s": ...}  # doctest: +ELLIPSIS
    {'cosine': -1.0, 'sine': 0.0, 'last_s': -1.0, 'walltime_s': Ellipsis, 'pending_s': -1.0, ...}
    """
    if context is None:
        return np.full(len(FEATURES), MISSING)
    angle = context.at % DAY * (2 * math.pi / DAY)
    row = [math.cos(angle), math.sin(angle), MISSING]
    row += [encoded(time_s) for time_s in _times(context)]
    row += [MISSING if count is None else math.log1p(count) for count in _counts(context)]
    return np.array(row, dtype=np.float16).astype(np.float64)


def encoded(time_s: float | None) -> float:
    """The logarithm of a time [s], after `OFFSET_S` is added; `MISSING` for None."""
    return MISSING if time_s is None else math.log(time_s + OFFSET_S)
