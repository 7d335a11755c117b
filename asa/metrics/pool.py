"""How large a run's pool was over time, and how much of it was at work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.metrics.workflow import RunSummary


@dataclass(frozen=True, eq=False)
class PoolSize:
    """Steps: from `times[i]` to `times[i + 1]` the pool held `held[i]` cores, of which tasks used `busy[i]`.

    Parameters
    ----------
    times
        Ascending [s since the epoch], shape (n,).
    held, busy
        Cores, shape (n,) each; 0 at the end.
    """

    times: Floats
    held: Ints
    busy: Ints


def pool_size(run: RunSummary) -> PoolSize:
    """The pool of a run; jobs that run count up to the summary's `now`. ``held`` integrates to the core-hours charged
    and those that leases held, ``busy`` to those used."""
    spans = [(start, end, job.cores) for job in run.jobs for start, end in job.runs]
    table = np.array(spans, dtype=np.float64).reshape(-1, 3)
    held = steps(table[:, 0], table[:, 1], table[:, 2].astype(np.int64))
    busy = steps(run.attempts.started, run.attempts.ended, run.attempts.cores)
    times = np.union1d(held[0], busy[0])
    return PoolSize(times, level_at(times, *held), level_at(times, *busy))


def steps(started: Floats, ended: Floats, amount: Ints) -> tuple[Floats, Ints]:
    """Times, shape (m,), and the sum of the amounts that are on from each to the next, shape (m,).

    >>> times, level = steps(np.array([0.0, 2.0]), np.array([4.0, 6.0]), np.array([3, 5]))
    >>> times.tolist(), level.tolist()
    ([0.0, 2.0, 4.0, 6.0], [3, 8, 5, 0])
    """
    times, where = np.unique(np.concatenate([started, ended]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, where, np.concatenate([amount, -amount]))
    return times, np.cumsum(change)


def level_at(when: Floats, times: Floats, level: Ints) -> Ints:
    """Levels of a step function at other times, shape as `when`; 0 before its first step."""
    return np.concatenate([np.zeros(1, dtype=np.int64), level])[np.searchsorted(times, when, side="right")]
