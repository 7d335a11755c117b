"""What backends make of jobs alike, whichever batch system they speak to.

Before a submission: whether it can be made, and how (`submittable`). After it: what came of it (`outcomes`), and when,
by the clock by which waits are measured (`by_their_clock`). How questions are put stands in `asa.backends.asking`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from asa.backends.asking import SiteRefusal
from asa.core.errors import BackendError
from asa.core.job import (
    Capabilities,
    Dependency,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
)
from asa.core.units import brief

Query = Callable[[Sequence[JobHandle]], Sequence[JobStatus]]
"""One status per handle, in order: a backend's `query`."""

Outcome = JobHandle | Refused


def submittable(request: JobRequest, site: Capabilities, query: Query, system: str) -> JobRequest:
    """The request as it can be submitted: in a directory told in full, after jobs that have not ended.

    Raises
    ------
    SiteRefusal
        When it could never start, or is an element of an array where there are none.
    """
    if request.array and not site.arrays:
        raise SiteRefusal(f"the {system} backend has no job arrays")
    if (reason := misfit(request, site)) is not None:
        raise SiteRefusal(reason)
    needed = unfulfilled(request.dependencies, query)
    return replace(request, workdir=os.path.abspath(request.workdir), dependencies=needed)


def misfit(request: JobRequest, site: Capabilities) -> str | None:
    """Why a job could never start there, or None."""
    need = request.resources
    if site.largest is not None and not need.fits(site.largest):
        return f"it asks for {need}, more than there is: {site.largest}"
    if site.cores_per_node is not None and need.cores // (need.nodes or 1) > site.cores_per_node:
        return f"it asks for {need}, and a node has {site.cores_per_node} cores at most: give it more nodes"
    if site.longest_s is not None and request.walltime_s > site.longest_s:
        return (
            f"it asks for {brief(request.walltime_s)}, more than the {brief(site.longest_s)} of queue {site.partition}"
        )
    return None


def unfulfilled(dependencies: Sequence[Dependency], query: Query) -> tuple[Dependency, ...]:
    """Dependencies that are not fulfilled yet.

    The others are better not told: a batch system may turn a job down that is to follow one that has ended, or have
    forgotten how that ended.

    Raises
    ------
    SiteRefusal
        When one can never be fulfilled.
    """
    left: list[Dependency] = []
    for item, status in zip(dependencies, query([item.on for item in dependencies]), strict=True):
        if not status.state.final and not (item.kind is DependencyKind.AFTER and status.started is not None):
            left.append(item)
        elif item.kind is DependencyKind.AFTER_OK and status.state is not JobState.COMPLETED:
            raise SiteRefusal(f"it was to follow job {called(item.on)}, which ended as {status.state.value}")
    return tuple(left)


def outcomes(requests: Iterable[JobRequest], submit: Callable[[JobRequest], JobHandle]) -> list[Outcome]:
    """One outcome per request, in order; a refusal of one holds up no other.

    Raises
    ------
    BackendError
        ``transient``, when `submit` raised that.
    """
    found: list[Outcome] = []
    for request in requests:
        try:
            found.append(submit(request))
        except BackendError as error:
            found.append(Refused(request.token, why_refused(error)))
    return found


def why_refused(error: BackendError) -> str:
    """Why the site refused; an error that may pass is raised."""
    if error.transient:
        raise error
    return error.reason if isinstance(error, SiteRefusal) else str(error)


def by_their_clock(
    outcomes: list[Outcome], submitted: Callable[[Sequence[JobHandle]], Mapping[JobHandle, float]]
) -> list[Outcome]:
    """Outcomes whose submission is told by the batch system's clock, where it answers: `submitted` asks [s].

    Waits are differences of its times.
    """
    try:
        times = submitted([outcome for outcome in outcomes if isinstance(outcome, JobHandle)])
    except BackendError:  # the jobs are in; this machine's clock has to do
        return outcomes
    return [
        replace(outcome, submitted=times[outcome]) if isinstance(outcome, JobHandle) and outcome in times else outcome
        for outcome in outcomes
    ]


def first_submitted(handles: Iterable[JobHandle], tokens: Sequence[str]) -> dict[str, JobHandle]:
    """The job of each of these tokens that has one; of several, the one submitted first."""
    ordered = sorted(handles, key=lambda handle: handle.submitted, reverse=True)
    return {handle.token: handle for handle in ordered if handle.token in tokens}


def lost(handle: JobHandle, system: str) -> JobStatus:
    """The status of a job that the batch system does not know."""
    return JobStatus(handle, JobState.LOST, f"{system} does not know it (any more)")


def live(statuses: Iterable[JobStatus]) -> list[str]:
    """Ids of the jobs that have not ended."""
    return [status.handle.job_id for status in statuses if not status.state.final]


def must_wait(status: JobStatus, system: str) -> None:
    """Let a job be changed only while it waits.

    Raises
    ------
    BackendError
        When it waits no more.
    """
    if status.state is not JobState.PENDING:
        raise BackendError(f"{system} job {called(status.handle)} cannot be changed: it is {status.state.value}")


def called(handle: JobHandle) -> str:
    """A job in a message.

    >>> called(JobHandle("464", "asa-1", 0.0)), called(JobHandle("464", "asa-2", 0.0, array_index=1))
    ('464 (asa-1)', '464_1 (asa-2)')
    """
    element = "" if handle.array_index is None else f"_{handle.array_index}"
    return f"{handle.job_id}{element} ({handle.token})"
