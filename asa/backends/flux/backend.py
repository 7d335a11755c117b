"""The Flux backend: what a submission, a status and a loss mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from asa.backends import batch
from asa.backends.asking import Ask, by_subprocess
from asa.backends.flux import directives, parse
from asa.backends.flux.commands import Commands
from asa.backends.flux.directives import Options
from asa.core.clock import SystemClock
from asa.core.errors import BackendError
from asa.core.job import Capabilities, JobChanges, JobHandle, JobRequest, JobStatus, Refused
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
        return batch.by_their_clock(batch.outcomes(requests, self._submit), self._submitted)

    def _submit(self, request: JobRequest) -> JobHandle:
        request = batch.submittable(request, self._site, self.query, "Flux")
        now = self._clock.now()
        told = self._flux.submit(directives.submission(request, self._options, now))
        return JobHandle(parse.job_id(told), request.token, now)

    def _submitted(self, handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        known = self._known(handles)
        return {handle: parse.submitted(known[handle.job_id]) for handle in handles if handle.job_id in known}

    def _known(self, handles: Sequence[JobHandle]) -> dict[str, parse.Attributes]:
        return parse.jobs(self._flux.jobs([handle.job_id for handle in handles]))

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, from one ``flux jobs``."""
        known = self._known(handles)
        return [
            parse.status(handle, job)
            if (job := known.get(handle.job_id)) and job.get("name") == handle.token  # Flux never gives an id twice
            else batch.lost(handle, "Flux")
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under, with one question for each."""
        known = {key: job for token in tokens for key, job in parse.jobs(self._flux.named(token)).items()}
        handles = (JobHandle(key, str(job.get("name")), parse.submitted(job)) for key, job in known.items())
        return batch.first_submitted(handles, tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change the wall time of a job that waits.

        Raises
        ------
        BackendError
            When it waits no more, the site says no, or something else is to be changed: Flux changes nothing else.
        """
        if replace(changes, walltime_s=None) != JobChanges():
            raise BackendError(
                f"Flux job {batch.called(handle)}: only the wall time of a job that waits can be changed"
            )
        batch.must_wait(self.query([handle])[0], "Flux")
        if changes.walltime_s is not None:
            self._flux.limit(handle.job_id, directives.seconds(changes.walltime_s))

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; they are looked up first, and those that have ended passed over."""
        self._flux.cancel(batch.live(self.query(handles)))

    def look(self) -> QueueView | None:
        """Nothing: other people's jobs are not looked at."""
        return None

    def close(self) -> None:
        """Nothing is held between calls; jobs go on."""
