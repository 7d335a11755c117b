"""A job in the books of the queue, and what its driver is to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from asa.core.job import JobChanges, JobRequest, JobState, JobStatus


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the queue's books.

    Parameters
    ----------
    request, status
        What was asked, and how it stands.
    ending
        The state in which it will end once its program is gone: it is being cancelled, or out of wall time.
    array
        Id of the first element of its job array, or "".
    throttle
        How many elements of that array may run at a time.
    parked
        Whether it asks for nodes that are not to be had.
    """

    request: JobRequest
    status: JobStatus
    ending: JobState | None = None
    array: str = ""
    throttle: int = 1
    parked: bool = False

    @property
    def job_id(self) -> str:
        return self.status.handle.job_id

    @property
    def running(self) -> bool:
        return self.status.state is JobState.RUNNING

    @property
    def pending(self) -> bool:
        return self.status.state is JobState.PENDING

    @property
    def ends(self) -> float:
        """When a running job's wall time is over [s]."""
        assert self.status.started is not None, "only a running job ends"
        return self.status.started + self.request.walltime_s


@dataclass(frozen=True)
class Actions:
    """What the driver is to do now: programs to start, and programs to kill."""

    start: list[Entry] = field(default_factory=list)
    kill: list[Entry] = field(default_factory=list)


def only_throttles(changes: JobChanges) -> bool:
    """Whether these change the throttle of an array and nothing else, so that the job named need not wait."""
    return changes.throttle is not None and replace(changes, throttle=None) == JobChanges()


def throttle_problem(throttle: int | None, array: bool, lives: bool) -> str:
    """Why the throttle of a job's array cannot be changed, or "".

    `array` tells whether the job is an element of one, `lives` whether any element has not ended.
    """
    if throttle is None:
        return ""
    if not array:
        return "is no element of a job array: there is no throttle to change"
    if throttle < 1:
        return f"has an array of which at least 1 element may run, not {throttle!r}"
    return "" if lives else "belongs to an array whose elements have all ended"
