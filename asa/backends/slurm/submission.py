"""Submissions: each ends as a handle or as a refusal, and an array as a whole one or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from asa.backends.batch import Outcome, by_their_clock, why_refused
from asa.backends.slurm import array, directives, lookup
from asa.backends.slurm.directives import Options
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.record import JobRecord
from asa.backends.slurm.transport import Transport
from asa.core.errors import BackendError
from asa.core.job import JobHandle, JobRequest, Refused

Misfit = Callable[[JobRequest], str | None]


class Submissions:
    """Jobs and job arrays on their way into Slurm.

    Parameters
    ----------
    slurm
        How Slurm is reached.
    options
        What the user wants of every job.
    now
        The time [s since the epoch].
    misfit
        Why a job could never start here, or None.
    """

    def __init__(self, slurm: Transport, options: Options, now: Callable[[], float], misfit: Misfit) -> None:
        self._slurm, self._options, self._now, self._misfit = slurm, options, now, misfit

    def submit(self, requests: Sequence[JobRequest]) -> list[Outcome]:
        """One outcome per request, in order.

        Raises
        ------
        BackendError
            ``transient``, when Slurm did not answer; `lookup.find` tells what was submitted.
        """
        outcomes: dict[str, Outcome] = {}
        waited_for = lookup.in_queue(self._slurm, [item.on for request in requests for item in request.dependencies])
        for group in array.groups(requests):
            told = self._together(group, waited_for) if group[0].array else [self._single(group[0], waited_for)]
            outcomes |= zip((request.token for request in group), told, strict=True)
        return by_their_clock([outcomes[request.token] for request in requests], self._submitted)

    def _single(self, request: JobRequest, waited_for: Mapping[JobHandle, JobRecord]) -> Outcome:
        if (reason := self._misfit(request)) is not None:
            return Refused(request.token, reason)
        submitted = self._now()
        try:
            needed = lookup.unfulfilled(self._slurm, request.dependencies, waited_for, submitted)
            request = dataclasses.replace(request, dependencies=needed)
            options = directives.sbatch_options(request, self._options)
            script = directives.job_script(request, self._options)
            return JobHandle(self._slurm.submit(options, script), request.token, submitted)
        except BackendError as error:
            return Refused(request.token, why_refused(error))

    def _together(self, requests: Sequence[JobRequest], waited_for: Mapping[JobHandle, JobRecord]) -> list[Outcome]:
        """All elements of an array, or none: one that is not as it was asked for is cancelled before it may start."""
        submitted = self._now()
        try:
            if (reason := self._no_array(requests)) is not None:
                raise SiteRefusal(reason)
            needed = lookup.unfulfilled(self._slurm, requests[0].dependencies, waited_for, submitted)
            requests = [dataclasses.replace(request, dependencies=needed) for request in requests]
            options, script = array.submission(requests, self._options, submitted)
            job_id = self._slurm.submit(options, script)
            self._edit(job_id, requests)
        except BackendError as error:
            reason = why_refused(error)
            return [Refused(request.token, reason) for request in requests]
        return [JobHandle(job_id, request.token, submitted, at) for at, request in enumerate(requests)]

    def _edit(self, job_id: str, requests: Sequence[JobRequest]) -> None:
        try:
            for at, settings in array.edits(requests, self._options):
                self._slurm.update(f"{job_id}_{at}", settings)
        except BackendError as error:
            if not error.transient:
                self._slurm.cancel([job_id])
            raise

    def _no_array(self, requests: Sequence[JobRequest]) -> str | None:
        if not self._slurm.arrays:
            return f"{self._slurm.name()} cannot change the elements of a job array: leave out rest=..."
        misfits = (f"{request.token}: {why}" for request in requests if (why := self._misfit(request)))
        return array.problem(requests, self._options) or next(misfits, None)

    def _submitted(self, handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        return {handle: record.submitted for handle, record in lookup.in_queue(self._slurm, handles).items()}
