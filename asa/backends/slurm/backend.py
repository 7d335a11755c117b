"""The Slurm backend: what a submission, a status and a loss mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.backends.slurm import directives, identity, parse, regime, states
from asa.backends.slurm.directives import Flag, Options
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.reach import reach
from asa.backends.slurm.record import JobRecord
from asa.backends.slurm.transport import Transport
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, InvalidInput
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

OLDEST = (20, 11)
"""Oldest version of Slurm whose srun and squeue have the options that are used here."""


class Slurm:
    """A Slurm cluster.

    Nothing is tried again here: a `BackendError` that is ``transient`` says that the same call may be made again later.
    That is safe for `submit` too. A job may have been accepted although sbatch reported a time-out, so a token whose
    submission ended in doubt is looked up before it is submitted again, and what an interrupted call had submitted is
    not submitted twice.

    Parameters
    ----------
    partition, account
        sbatch's; None for the site's default.
    template
        Text of a whole job script, or the file that has it. `directives.PLACEHOLDERS` in double braces are filled in.
    setup
        Shell lines before the program, such as ``module load``.
    requeue
        Whether Slurm may start a job again whose node failed.
    poll_s
        Seconds between status queries [s].
    timeout_s
        How long one command, or one answer of slurmrestd, may take [s].
    rest
        slurmrestd's Unix socket, or its address on the network, when it is to be used instead of Slurm's commands.
    rest_token
        File that has a token for it, open to its owner only; None to take ``$SLURM_JWT``, or ask ``scontrol token``.
    rest_user
        The user's name in Slurm; None for the name on this machine.
    rest_unencrypted
        Allow plain HTTP to another machine.
    clock
        Submission times come from it when the controller does not tell its own.
    transport
        How Slurm is reached; None for what `rest` says.
    **flags
        Any other option of sbatch: ``nice=10``, ``exclusive=True``, ``gres="gpu:1"``. `Options` has the rules.

    Raises
    ------
    InvalidInput
        When an option cannot be passed through, or the template cannot be used.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> slurm = Slurm(partition="core", nice=10)
    >>> request = JobRequest("asa-1", Resources(cores=16, nodes=2), walltime_s=5400, argv=("/opt/python", "-V"))
    >>> print(slurm.job_script(request), end="")
    #!/bin/sh
    #SBATCH --job-name=asa-1
    #SBATCH --ntasks=16
    #SBATCH --nodes=2
    #SBATCH --ntasks-per-node=8
    #SBATCH --time=90
    #SBATCH --chdir=.
    #SBATCH --output=/dev/null
    #SBATCH --open-mode=append
    #SBATCH --no-requeue
    #SBATCH --partition=core
    #SBATCH --nice=10
    exec srun --ntasks-per-node=1 --cpu-bind=none --overlap --kill-on-bad-exit=0 --wait=0 --export=ALL --nodes=2 \
--ntasks=2 /opt/python -V
    """

    def __init__(
        self,
        partition: str | None = None,
        account: str | None = None,
        *,
        template: str | Path | None = None,
        setup: str | Sequence[str] = (),
        requeue: bool = False,
        poll_s: float = 15.0,
        timeout_s: float = 60.0,
        rest: str | None = None,
        rest_token: str | Path | None = None,
        rest_user: str | None = None,
        rest_unencrypted: bool = False,
        clock: Clock | None = None,
        transport: Transport | None = None,
        **flags: Flag,
    ) -> None:
        self._partition, self._poll_s = partition, poll_s
        self._options = Options(
            flags={"partition": partition, "account": account} | flags,
            setup=(setup,) if isinstance(setup, str) else tuple(setup),
            template=_template(template),
            requeue=requeue,
        )
        self._clock: Clock = clock or SystemClock()
        self._slurm = transport or reach(
            options=self._options,
            rest=rest,
            rest_token=rest_token,
            rest_user=rest_user,
            rest_unencrypted=rest_unencrypted,
            timeout_s=timeout_s,
            now=self._clock.now,
        )
        self._capabilities: Capabilities | None = None
        self._in_doubt: set[str] = set()
        self._outcomes: dict[str, JobHandle | Refused] = {}  # of a call to submit that was interrupted

    def job_script(self, request: JobRequest) -> str:
        """The script that is submitted for a request."""
        return directives.job_script(request, self._options)

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        if self._capabilities is None:
            self._capabilities = self._survey()
        return self._capabilities

    def _survey(self) -> Capabilities:
        version = self._slurm.version()
        if version < OLDEST:
            found, least = parse.version_text(version), parse.version_text(OLDEST)
            raise BackendError(f"Slurm {found} is too old: expected {least} or newer")
        try:
            configuration = self._slurm.configuration()
        except SiteRefusal:  # not for ordinary users: the strictest is assumed
            configuration = {}
        partitions = self._slurm.partitions()
        partition = self._partition or regime.default_partition(partitions)
        site = regime.capabilities(
            configuration,
            regime.chosen(partitions, partition),
            self._slurm.nodes(partition),
            version=version,
            partition=partition,
            poll_s=self._poll_s,
        )
        return dataclasses.replace(site, details={"reached through": self._slurm.name()} | dict(site.details))

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has the site's own message.

        Submission times are the controller's. A job that could never start (larger than the partition, or after one
        that failed) is refused here where Slurm would not.
        """
        waited_for = self._in_queue([item.on for request in requests for item in request.dependencies])
        for request in requests:
            if request.token not in self._outcomes:
                self._outcomes[request.token] = self._submit(request, waited_for)
        outcomes = [self._outcomes[request.token] for request in requests]
        self._outcomes.clear()
        return self._with_controllers_time(outcomes)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order: from one squeue, and one sacct for those that have left the queue."""
        queued = self._in_queue(handles)
        gone = [handle for handle in handles if handle not in queued]
        accounted = identity.match(gone, self._slurm.accounting(identity.keys(gone)))
        return [states.status(handle, queued.get(handle), accounted.get(handle)) for handle in handles]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under; a token that no job carries is left out."""
        found = _found(tokens, self._slurm.queue_by_name(tokens))
        missing = [token for token in tokens if token not in found]
        return found | _found(missing, self._slurm.accounting_by_name(missing))

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits.

        Raises
        ------
        BackendError
            When the job is not in the queue any more, it is to follow one that failed, or the site says no.
        InvalidInput
            When GPUs are asked for.
        """
        depended_on = [item.on for item in changes.dependencies or ()]
        queued = self._in_queue([handle, *depended_on])
        if handle not in queued:
            name = f"{identity.key(handle)} ({handle.token})"
            raise BackendError(f"Slurm job {name} cannot be changed: it is not in the queue any more")
        if changes.dependencies:
            changes = dataclasses.replace(changes, dependencies=self._open(changes.dependencies, queued))
        if settings := directives.settings(changes, self._clock.now()):
            self._slurm.update(identity.key(handle), settings)

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; jobs that have ended, or that Slurm has forgotten, are passed over.

        They are looked up first: by now an id may belong to another job of the same user.
        """
        queued = self._in_queue(handles)
        live = [handle for handle, record in queued.items() if not states.state_of(record).final]
        self._slurm.cancel(identity.keys(live))

    def close(self) -> None:
        """Nothing is held between calls; jobs go on."""

    def _in_queue(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobRecord]:
        """What the controller has of these jobs."""
        return identity.match(handles, self._slurm.queue(identity.keys(handles)))

    def _submit(self, request: JobRequest, waited_for: Mapping[JobHandle, JobRecord]) -> JobHandle | Refused:
        if request.token in self._in_doubt and (found := self.find([request.token])):
            self._in_doubt.discard(request.token)
            return found[request.token]
        if (reason := self._never_fits(request)) is not None:
            return Refused(request.token, reason)
        submitted = self._clock.now()
        outcome: JobHandle | Refused
        try:
            request = dataclasses.replace(request, dependencies=self._open(request.dependencies, waited_for))
            options = directives.sbatch_options(request, self._options)
            self._in_doubt.add(request.token)
            outcome = JobHandle(self._slurm.submit(options, self.job_script(request)), request.token, submitted)
        except BackendError as error:
            if error.transient:
                raise
            outcome = Refused(request.token, error.reason if isinstance(error, SiteRefusal) else str(error))
        self._in_doubt.discard(request.token)
        return outcome

    def _never_fits(self, request: JobRequest) -> str | None:
        try:
            site = self.capabilities()
        except SiteRefusal:  # no such partition: the submission will tell in the site's own words
            return None
        if site.details.get("EnforcePartLimits") != "NO" or "qos" in self._options.flags:
            return None  # the site refuses in its own words; a QOS may lift a partition's limits
        return regime.misfit(request, site)

    def _open(
        self, dependencies: Sequence[Dependency], waited_for: Mapping[JobHandle, JobRecord]
    ) -> tuple[Dependency, ...]:
        """Dependencies that are not fulfilled yet.

        Slurm takes a job that it has forgotten for one that ended well, so those are judged here.

        Raises
        ------
        SiteRefusal
            When one can never be fulfilled.
        """
        needed = [item.on for item in dependencies if item.kind is DependencyKind.AFTER_OK]
        for status in self.query([handle for handle in needed if handle not in waited_for]):
            if status.state is not JobState.COMPLETED:
                name = f"{identity.key(status.handle)} ({status.handle.token})"
                reason = f"it was to follow job {name}, which ended as {status.state.value}"
                raise SiteRefusal(reason, reason)
        return tuple(item for item in dependencies if item.on in waited_for)

    def _with_controllers_time(self, outcomes: list[JobHandle | Refused]) -> list[JobHandle | Refused]:
        """Waits are differences of the controller's times, so submission is told by its clock too, where it answers."""
        try:
            queued = self._in_queue([outcome for outcome in outcomes if isinstance(outcome, JobHandle)])
        except BackendError:  # the jobs are in; this machine's clock has to do
            return outcomes
        return [
            dataclasses.replace(outcome, submitted=queued[outcome].submitted)
            if isinstance(outcome, JobHandle) and outcome in queued
            else outcome
            for outcome in outcomes
        ]


def _template(source: str | Path | None) -> str | None:
    if source is None or "\n" in str(source):
        return None if source is None else str(source)
    try:
        return Path(source).read_text()
    except OSError as error:
        raise InvalidInput(f"job script template {str(source)!r} cannot be read: {error.strerror}") from error


def _found(tokens: Sequence[str], records: Sequence[JobRecord]) -> dict[str, JobHandle]:
    """Handles of the jobs of these names; of several, that which has not ended, and then the one submitted first."""
    wanted = set(tokens)
    found: dict[str, JobHandle] = {}
    for record in sorted(records, key=lambda record: (states.state_of(record).final, record.submitted)):
        if record.name in wanted:
            found.setdefault(record.name, identity.handle_of(record))
    return found
