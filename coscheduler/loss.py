"""How much harm was done to a job whose cores were shared: 0 for none, 1 for the most that counts.

The paper says both: section 3.2 compares with the wall time that the user asked for, section 4.4 has 1 for "degraded by
at least 50 %". Wall times are padded, so that the first form sees no slowdown within the padding.
"""

from __future__ import annotations

from collections.abc import Callable

from coscheduler.nouns import SharedRun

Loss = Callable[[SharedRun], float | None]
"""The loss of a job in [0, 1], or None where it cannot be known."""


def walltime(run: SharedRun) -> float:
    """By how much it overran its wall time, as a share of that: min(1, max(0, T - W) / W).

    >>> walltime(SharedRun("a", "blast", 8, 100.0, 140.0, None, 0.0, 1.0, 0.1))
    0.4
    """
    return min(1.0, max(0.0, run.run_time_s - run.walltime_s) / run.walltime_s)


def slowdown(run: SharedRun) -> float | None:
    """Twice by how much slower it was than alone: min(1, 2 max(0, T / T_alone - 1)); None where that is not known.

    >>> slowdown(SharedRun("a", "blast", 8, 200.0, 125.0, 100.0, 0.0, 1.0, 0.1))
    0.5
    """
    return None if run.slowdown is None else min(1.0, 2 * (run.slowdown - 1))


LOSSES: dict[str, Loss] = {"slowdown": slowdown, "walltime": walltime}
