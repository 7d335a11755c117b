"""The PBS backend: what a submission, a status and a loss mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from asa.backends import batch
from asa.backends.asking import Ask, by_subprocess
from asa.backends.pbs import directives, parse, site
from asa.backends.pbs.commands import Commands
from asa.backends.pbs.directives import Options
from asa.core.clock import SystemClock
from asa.core.errors import BackendError
from asa.core.job import Capabilities, JobChanges, JobHandle, JobRequest, JobStatus, Refused
from asa.core.ports import Clock
from asa.core.view import QueueView

CLOCK_SKEW_S = 300.0
"""How far the server's clock may be from ours [s] when we tell whose a job is."""


class Pbs:
    """A cluster under OpenPBS or PBS Professional (14.1 or later), through its commands.

    It was written from PBS's documentation, and tested with outputs recorded there: it has not been tried on a live
    system. The server must keep a history of jobs (``job_history_enable``), or a job that has ended counts as lost.

    Parameters
    ----------
    queue, account
        qsub's ``-q`` and ``-A``; None for the site's default.
    chunk
        More resources of each chunk, such as ``model=bro``.
    setup
        Shell lines before the program, such as ``module load``.
    extra
        Other options of qsub, as they are written on a command line.
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

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> request = JobRequest("asa-1", Resources(cores=16), walltime_s=5400, argv=("/opt/python", "-V"), workdir="/work")
    >>> print(Pbs(setup="module load python").job_script(request), end="")
    #!/bin/sh
    cd /work || exit 1
    exec </dev/null >>/dev/null 2>&1
    module load python
    exec /opt/python -V
    """

    def __init__(
        self,
        queue: str | None = None,
        account: str | None = None,
        *,
        chunk: str = "",
        setup: str | Sequence[str] = (),
        extra: str = "",
        poll_s: float = 15.0,
        timeout_s: float = 60.0,
        clock: Clock | None = None,
        ask: Ask | None = None,
    ) -> None:
        lines = (setup,) if isinstance(setup, str) else tuple(setup)
        self._options = Options(queue, account, chunk, lines, extra)
        self._pbs = Commands(ask or by_subprocess(timeout_s))
        self._clock: Clock = clock or SystemClock()
        self._poll_s = poll_s

    def job_script(self, request: JobRequest) -> str:
        """The script that is submitted for a request."""
        return directives.script(request, self._options)

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return self._site

    @cached_property
    def _site(self) -> Capabilities:
        name, server = site.server(self._pbs.server())
        queue = self._options.queue or str(server.get("default_queue", ""))
        settings = parse.document(self._pbs.queue(queue), "Queue").get(queue, {}) if queue else {}
        nodes = parse.document(self._pbs.nodes(), "nodes")
        return site.capabilities(name, queue, server, settings, nodes.values(), poll_s=self._poll_s)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has the site's own message.

        A job that could never start is refused here where PBS would not. It has no job arrays whose elements differ.
        """
        return batch.by_their_clock(batch.outcomes(requests, self._submit), self._submitted)

    def _submit(self, request: JobRequest) -> JobHandle:
        request = batch.submittable(request, self._site, self.query, "PBS")
        now = self._clock.now()
        words = directives.options(request, self._options)
        told = self._pbs.submit(words, directives.script(request, self._options))
        return JobHandle(parse.job_id(told), request.token, now)

    def _submitted(self, handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        known = self._known(handles)
        return {handle: at for handle in handles if (at := parse.submitted(known.get(handle.job_id, {}))) is not None}

    def _known(self, handles: Sequence[JobHandle]) -> dict[str, parse.Attributes]:
        return parse.document(self._pbs.jobs([handle.job_id for handle in handles]), "Jobs")

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, from one qstat."""
        known = self._known(handles)
        return [
            parse.status(handle, job)
            if (job := known.get(handle.job_id)) and _is(handle, job)
            else batch.lost(handle, "PBS")
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under: one qselect for each, and one qstat."""
        ids = [job for token in tokens for job in self._pbs.named(token)]
        known = parse.document(self._pbs.jobs(ids), "Jobs")
        handles = (
            JobHandle(job_id, str(job["Job_Name"]), parse.submitted(job) or 0.0) for job_id, job in known.items()
        )
        return batch.first_submitted(handles, tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits.

        Raises
        ------
        BackendError
            When it waits no more, is to follow one that failed, or the site says no; for throttles and parking, which
            PBS has not.
        """
        if changes.throttle is not None or changes.parked is not None:
            name = batch.called(handle)
            raise BackendError(f"PBS job {name} cannot be changed so: it has neither throttles nor parking")
        batch.must_wait(self.query([handle])[0], "PBS")
        if changes.dependencies:
            changes = replace(changes, dependencies=batch.unfulfilled(changes.dependencies, self.query))
        if words := directives.changes(changes, self._clock.now(), self._options.chunk):
            self._pbs.alter(handle.job_id, words)

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; they are looked up first, and those that have ended passed over."""
        self._pbs.delete(batch.live(self.query(handles)))

    def look(self) -> QueueView | None:
        """Nothing: other people's jobs are not looked at."""
        return None

    def close(self) -> None:
        """Nothing is held between calls; jobs go on."""


def _is(handle: JobHandle, job: parse.Attributes) -> bool:
    """Whether this is the job of the handle: ids may begin anew after a server has lost its state."""
    at = parse.submitted(job)
    return job.get("Job_Name") == handle.token and (at is None or abs(at - handle.submitted) <= CLOCK_SKEW_S)
