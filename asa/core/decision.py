"""What deciders return. They never change anything themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from asa.core.job import Resources

SOONEST_S = 1.0
"""How long a strategy waits at least before it looks again [s]: an expected end moves on while nothing happens."""


class NodeRun(NamedTuple):
    """Neighbouring nodes `first` .. `last` (inclusive), each of which gives `units` units to a job."""

    first: int
    last: int
    units: int


JobKey = str | int
"""How a dispatcher names a job: a batch system's own id, or a row of a simulated workload."""


@dataclass(frozen=True, slots=True)
class Start:
    """Dispatcher: start this queued job now, on these nodes (as many units on each); () leaves that to the machine.

    The running jobs that it `preempts` make room for it before.
    """

    job: JobKey
    nodes: tuple[NodeRun, ...] = ()
    preempts: tuple[JobKey, ...] = ()


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
class SetWidth:
    """Dispatcher: this waiting job, which is moldable, is to start with so many units; or this running one, which is
    malleable, is to go on with so many."""

    job: JobKey
    units: int


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
    predicted_wait_s, soon_wait_s
        The wait it was planned with [s], and how soon it may be over; None where nothing was asked.
    delay_s
        Not before so long from now [s]: time to change it before it can start.
    lives_s
        It is of no use any more so long from now [s]; None for a job that nothing can keep in the queue for ever.
    array
        Name of a job array that it is an element of, or "". All elements are asked for in one decision, in order; one
        of them runs at a time until the array is throttled wider (`Amend`).
    why
        Why it is for several stages, or is not, in plain words, or "".
    """

    stages: tuple[str, ...]
    resources: Resources
    walltime_s: float
    after: tuple[str, ...] = ()
    predicted_wait_s: float | None = None
    soon_wait_s: float | None = None
    delay_s: float = 0.0
    lives_s: float | None = None
    array: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Predict:
    """Strategy: ask the estimator how long a job for this stage would wait.

    Parameters
    ----------
    stage
        The stage.
    late, soon
        Quantiles of the wait, in (0, 1): the one to submit the job with, and the one by which its allocation may be
        there already; None for what the estimator plans with.
    """

    stage: str
    late: float | None = None
    soon: float | None = None


@dataclass(frozen=True, slots=True)
class Amend:
    """Strategy: change the job of an allocation that was asked for; None leaves a thing as it is.

    Parameters
    ----------
    allocation
        Its key.
    after
        Keys of allocations that must end well before it may start.
    throttle
        How many elements of its job array may run at a time.
    parked
        Whether it stands in the queue without being able to start.
    resources, walltime_s
        Its size and wall time [s].
    """

    allocation: str
    after: tuple[str, ...] | None = None
    throttle: int | None = None
    parked: bool | None = None
    resources: Resources | None = None
    walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Strategy: cancel this allocation's job: it is pending and holds no live work, or does not answer.

    `displaced` says that it is because its job did not keep its place in the queue.
    """

    allocation: str
    reason: str
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class Wake:
    """Strategy: decide again at this time [s since the epoch], even when nothing happened."""

    at: float


StrategyDecision = Ask | Predict | Amend | Cancel | Wake
DispatchDecision = Start | Reserve | Reject | SetSpeed | SetWidth
