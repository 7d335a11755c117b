"""Allocations: cores held by a job from its start to its end."""

from __future__ import annotations

from dataclasses import dataclass

from asa.core.job import Resources


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
