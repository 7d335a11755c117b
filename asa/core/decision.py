"""What deciders return. They never change anything themselves."""

from __future__ import annotations

from dataclasses import dataclass

from asa.core.job import Resources


@dataclass(frozen=True, slots=True)
class Start:
    """Dispatcher: start this queued job now."""

    job: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Dispatcher: this job is promised to start at `at` [s]."""

    job: str
    at: float


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
DispatchDecision = Start | Reserve
