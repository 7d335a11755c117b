"""The Flux backend: what a submission, a status and a loss mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from asa.backends.flux import directives, parse
from asa.backends.flux.commands import Ask, Commands, Refusal, by_subprocess
from asa.backends.flux.directives import Options
from asa.core.clock import SystemClock
from asa.core.errors import BackendError
from asa.core.job import (
    Capabilities,
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
)
from asa.core.ports import Clock
from asa.core.view import QueueView


class Flux:
    """A cluster, or an allocation, under Flux, through its commands.

    It was written from Flux's documentation, and tested with outputs in the form shown there: it has not been tried on
    a live system. Of a waiting job only the wall time can be changed. Flux does not count memory, and neither do jobs.

    Parameters
    ----------
    queue, bank
        ``--queue`` and ``--bank``; None for the site's default.
    setup
        Shell lines before the program, such as ``module load``.
    extra
        Other options of ``flux submit``, as they are written on a command line.
    site
        What the cluster is called: waits are learned under this name.
    poll_s
        Seconds between status queries [s].
    timeout_s
        How long one command may take [s].
    clock
        Time.
    ask
        How commands are run; None for subprocesses.

    Raises
    ------
    InvalidInput
        When an extra option is one that ASA gives itself.
    """

    def __init__(
        self,
        queue: str | None = None,
        bank: str | None = None,
        *,
        setup: str | Sequence[str] = (),
        extra: str = "",
        site: str = "flux",
        poll_s: float = 5.0,
        timeout_s: float = 60.0,
        clock: Clock | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._options = Options(queue, bank, (setup,) if isinstance(setup, str) else tuple(setup), extra)
        self._flux = Commands(ask or by_subprocess(timeout_s))
        self._clock: Clock = clock or SystemClock()
        self._name, self._poll_s = site, poll_s

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return self._site

    @cached_property
    def _site(self) -> Capabilities:
        queue = self._options.queue
        text = self._flux.resources(queue)
        return parse.capabilities(text, site=self._name, queue=queue or "", poll_s=self._poll_s)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has Flux's own message. It has no job arrays."""
        outcomes: list[JobHandle | Refused] = []
        for request in requests:
            try:
                outcomes.append(self._submit(request))
            except BackendError as error:
                if error.transient:
                    raise
                outcomes.append(Refused(request.token, error.reason if isinstance(error, Refusal) else str(error)))
        return self._with_their_time(outcomes)

    def _submit(self, request: JobRequest) -> JobHandle:
        need, site = request.resources, self._site
        if request.array:
            raise Refusal("the Flux backend has no job arrays")
        each = need.cores // (need.nodes or 1)
        if site.largest is not None and not replace(need, memory=None).fits(site.largest):
            raise Refusal(f"it asks for {need}, more than there is: {site.largest}")
        if site.cores_per_node is not None and each > site.cores_per_node:
            raise Refusal(f"it asks for {need}, and a node has {site.cores_per_node} cores: give it more nodes")
        request = replace(
            request,
            workdir=os.path.abspath(request.workdir),
            dependencies=self._unfulfilled(request.dependencies),
        )
        now = self._clock.now()
        told = self._flux.submit(directives.submission(request, self._options, now))
        return JobHandle(parse.job_id(told), request.token, now)

    def _unfulfilled(self, dependencies: Sequence[Dependency]) -> tuple[Dependency, ...]:
        """Those that are not fulfilled yet; Flux forgets jobs that have ended after a while."""
        left: list[Dependency] = []
        for item, status in zip(dependencies, self.query([item.on for item in dependencies]), strict=True):
            if not status.state.final and not (item.kind is DependencyKind.AFTER and status.started is not None):
                left.append(item)
            elif item.kind is DependencyKind.AFTER_OK and status.state is not JobState.COMPLETED:
                raise Refusal(
                    f"it was to follow job {item.on.job_id} ({item.on.token}), which ended as {status.state.value}"
                )
        return tuple(left)

    def _with_their_time(self, outcomes: list[JobHandle | Refused]) -> list[JobHandle | Refused]:
        """Submission is told by Flux's clock, by which waits are measured, where it answers."""
        ids = [outcome.job_id for outcome in outcomes if isinstance(outcome, JobHandle)]
        try:
            known = parse.jobs(self._flux.jobs(ids))
        except BackendError:  # the jobs are in; this machine's clock has to do
            return outcomes
        return [
            replace(outcome, submitted=parse.submitted(known[outcome.job_id]))
            if isinstance(outcome, JobHandle) and outcome.job_id in known
            else outcome
            for outcome in outcomes
        ]

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, from one ``flux jobs``."""
        known = parse.jobs(self._flux.jobs([handle.job_id for handle in handles]))
        return [
            parse.status(handle, job)
            if (job := known.get(handle.job_id)) and job.get("name") == handle.token  # Flux never gives an id twice
            else JobStatus(handle, JobState.LOST, "Flux does not know it (any more)")
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under, with one question for each."""
        found: dict[str, JobHandle] = {}
        for token in tokens:
            named = [(key, job) for key, job in parse.jobs(self._flux.named(token)).items() if job.get("name") == token]
            for key, job in sorted(named, key=lambda item: parse.submitted(item[1]), reverse=True):
                found[token] = JobHandle(key, token, parse.submitted(job))
        return found

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change the wall time of a job that waits.

        Raises
        ------
        BackendError
            When it waits no more, the site says no, or something else is to be changed: Flux changes nothing else.
        """
        name = f"{handle.job_id} ({handle.token})"
        if replace(changes, walltime_s=None) != JobChanges():
            raise BackendError(f"Flux job {name}: only the wall time of a job that waits can be changed")
        (status,) = self.query([handle])
        if status.state is not JobState.PENDING:
            raise BackendError(f"Flux job {name} cannot be changed: it is {status.state.value}")
        if changes.walltime_s is not None:
            self._flux.limit(handle.job_id, directives.seconds(changes.walltime_s))

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; they are looked up first, and those that have ended passed over."""
        self._flux.cancel([status.handle.job_id for status in self.query(handles) if not status.state.final])

    def look(self) -> QueueView | None:
        """Nothing: other people's jobs are not looked at."""
        return None

    def close(self) -> None:
        """Nothing is held between calls; jobs go on."""
