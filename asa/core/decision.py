"""What deciders return. They never change anything themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from asa.core.job import Resources


class NodeRun(NamedTuple):
    """Neighbouring nodes `first` .. `last` (inclusive), each of which gives `units` units to a job."""

    first: int
    last: int
    units: int


JobKey = str | int
"""How a dispatcher names a job: a batch system's own id, or a row of a simulated workload."""


@dataclass(frozen=True, slots=True)
class Start:
    """Dispatcher: start this queued job now, on these nodes (as many units on each); () leaves that to the machine."""

    job: JobKey
    nodes: tuple[NodeRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Dispatcher: this job is promised to start at `at` [s]."""

    job: JobKey
    at: float


@dataclass(frozen=True, slots=True)
class Reject:
    """Dispatcher: this queued job will never be started; it leaves the queue as cancelled."""

    job: JobKey
    reason: str


@dataclass(frozen=True, slots=True)
class SetSpeed:
    """Dispatcher: this running job gets on at this share of its full speed from now on; > 0."""

    job: JobKey
    speed: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Strategy: submit a job for these stages.

    Parameters
    ----------
    stages
        Stages it is meant for.
    resources, walltime_s
        Its size and wall time [s].
    after
        Keys of allocations that must end well before it may start.
    predicted_wait_s
        The wait it was planned with [s], or None.
    """

    stages: tuple[str, ...]
    resources: Resources
    walltime_s: float
    after: tuple[str, ...] = ()
    predicted_wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Predict:
    """Strategy: ask the estimator how long a job for this stage would wait."""

    stage: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Strategy: cancel this allocation (it holds no live work)."""

    allocation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Strategy: decide again at this time [s since the epoch], even when nothing happened."""

    at: float


StrategyDecision = Ask | Predict | Withdraw | Wake
DispatchDecision = Start | Reserve | Reject | SetSpeed
