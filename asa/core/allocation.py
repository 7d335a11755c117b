"""Allocations: cores held by a job from its start to its end, and when they stop taking tasks."""

from __future__ import annotations

from dataclasses import dataclass

from asa.core.job import Resources

DRAIN_SHARE = 0.05
DRAIN_MOST_S = 30.0

_FRESH_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Allocation:
    """What an executor must know of an allocation to join its nodes to the pool.

    Parameters
    ----------
    key
        The job's token; unique among all runs.
    resources
        What it holds.
    walltime_s
        Wall time [s].
    """

    key: str
    resources: Resources
    walltime_s: float


def drain_margin(walltime_s: float) -> float:
    """How long before its wall time an allocation takes no more tasks [s]: 5 % of the wall time, at most 30 s.

    >>> drain_margin(60), drain_margin(86400)
    (3.0, 30.0)
    """
    return min(DRAIN_MOST_S, DRAIN_SHARE * walltime_s)


def takes(task_s: float, now: float, ends: float, walltime_s: float) -> bool:
    """Whether a task expected to take `task_s` [s] may still start in an allocation that ends at `ends` [s].

    An allocation that has just started takes any task: a task almost as long as the wall time finds no better one.

    >>> takes(10.0, now=0.0, ends=60.0, walltime_s=60.0), takes(10.0, now=50.0, ends=60.0, walltime_s=60.0)
    (True, False)
    >>> takes(59.0, now=1.0, ends=60.0, walltime_s=60.0)
    True
    """
    return now + min(task_s, _FRESH_SHARE * walltime_s) <= ends - drain_margin(walltime_s)
