"""The Slurm backend: what a submission, a status and a loss mean."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from asa.backends.slurm import array, directives, failures, identity, lookup, outlook, parse, regime, states
from asa.backends.slurm.directives import Flag, Options
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.reach import reach
from asa.backends.slurm.submission import Submissions
from asa.backends.slurm.transport import Transport
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobStatus,
    Refused,
)
from asa.core.ports import Clock
from asa.core.view import QueueView

OLDEST = (20, 11)
"""Oldest version of Slurm whose srun and squeue have the options that are used here."""


class _Site(NamedTuple):
    """What is asked once: what matters to planning, all partitions, and those of them that jobs go to."""

    capabilities: Capabilities
    partitions: Sequence[Mapping[str, str]]
    chosen: Sequence[Mapping[str, str]]


class Slurm:
    """A Slurm cluster.

    Nothing is tried again here: a `BackendError` that is ``transient`` says that the same call may be made again later.
    A job may have been accepted although sbatch reported a time-out: after such a `submit`, `find` tells what was.

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
        When an option is misspelt or cannot be passed through, the template cannot be used, or Slurm is to be reached
        in two ways.

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
        _check_names(flags)
        self._partition, self._poll_s = partition, poll_s
        self._options = Options(
            flags={"partition": partition, "account": account} | flags,
            setup=(setup,) if isinstance(setup, str) else tuple(setup),
            template=_template(template),
            requeue=requeue,
        )
        self._clock: Clock = clock or SystemClock()
        self._slurm = reach(
            transport=transport,
            options=self._options,
            rest=rest,
            rest_token=rest_token,
            rest_user=rest_user,
            rest_unencrypted=rest_unencrypted,
            timeout_s=timeout_s,
            now=self._clock.now,
        )
        self._submissions = Submissions(self._slurm, self._options, self._clock.now, self._never_fits)

    def job_script(self, request: JobRequest) -> str:
        """The script that is submitted for a request."""
        return directives.job_script(request, self._options)

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return self._site.capabilities

    @cached_property
    def _site(self) -> _Site:
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
        chosen = regime.chosen(partitions, partition)
        site = regime.capabilities(
            configuration,
            chosen,
            self._slurm.nodes(partition),
            version=version,
            partition=partition,
            poll_s=self._poll_s,
        )
        site = dataclasses.replace(
            site,
            arrays=self._slurm.arrays and configuration.get("MaxArraySize") not in ("0", "1"),
            parks=bool(outlook.node_names(chosen)),
            details={"reached through": self._slurm.name()} | dict(site.details),
        )
        return _Site(site, partitions, chosen)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has the site's own message.

        Submission times are the controller's. A job that could never start (larger than the partition, or after one
        that failed) is refused here where Slurm would not. The elements of an array are taken or refused together.
        """
        return self._submissions.submit(requests)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order: from one squeue, and one sacct for those that have left the queue."""
        return lookup.query(self._slurm, handles, self._clock.now())

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under; an array that was left half made is cancelled, and left out."""
        return lookup.find(self._slurm, tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits.

        Raises
        ------
        BackendError
            When the job (for a throttle, all of its array) is not in the queue any more, it is to follow one that
            failed, it has no throttle or there is none as small, the partition's nodes are not told (parking), or the
            site says no.
        InvalidInput
            When GPUs are asked for.
        """
        if changes.throttle is not None:
            self._throttle(handle, changes.throttle)
            changes = dataclasses.replace(changes, throttle=None)
        if changes == JobChanges():
            return
        depended_on = [item.on for item in changes.dependencies or ()]
        queued, now = lookup.in_queue(self._slurm, [handle, *depended_on]), self._clock.now()
        if handle not in queued:
            name = f"{identity.key(handle)} ({handle.token})"
            raise BackendError(f"Slurm job {name} cannot be changed: it is not in the queue any more")
        if changes.dependencies:
            needed = lookup.unfulfilled(self._slurm, changes.dependencies, queued, now)
            changes = dataclasses.replace(changes, dependencies=needed)
        settings = directives.settings(changes, now)
        if handle.array_index is not None:
            settings = array.allowed(settings)
        if changes.parked is not None:
            settings.append(directives.parking(changes.parked, self._nodes(), self._options))
        self._slurm.update(identity.key(handle), settings)

    def _throttle(self, handle: JobHandle, throttle: int) -> None:
        problem = None
        if handle.array_index is None:
            problem = "it is no element of a job array"
        elif throttle < 1:
            problem = f"it must be at least 1, not {throttle}"
        elif all(
            states.state_of(record).final or not identity.of_array(handle, record)
            for record in self._slurm.queue([handle.job_id])
        ):
            problem = "none of its array is in the queue any more"
        if problem is not None:
            name = f"{identity.key(handle)} ({handle.token})"
            raise BackendError(f"Slurm job {name} cannot be given another throttle: {problem}")
        try:
            self._slurm.update(handle.job_id, [f"ArrayTaskThrottle={throttle}"])
        except SiteRefusal as error:
            if not failures.for_the_others(error.reason):
                raise

    def _nodes(self) -> str:
        nodes = outlook.node_names(self._site.chosen)
        if not nodes:
            partition = self._site.capabilities.partition
            raise BackendError(
                f"Slurm does not tell the nodes of partition {partition!r}, so that jobs cannot be parked there: hold "
                "places in another way, such as hold:technique=auto"
            )
        return nodes

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; jobs that have ended, or that Slurm has forgotten, are passed over.

        They are looked up first: by now an id may belong to another job of the same user.
        """
        queued = lookup.in_queue(self._slurm, handles)
        live = [handle for handle, record in queued.items() if not states.state_of(record).final]
        self._slurm.cancel(identity.keys(live))

    def look(self) -> QueueView | None:
        """Everybody's jobs before the partition, as far as Slurm shows them to this user: one squeue and one sinfo.

        Jobs that run on the partition's nodes count whichever partition they came through.
        """
        try:
            site = self._site
            jobs = self._slurm.everyone(outlook.rivals(site.partitions, site.chosen))
            nodes = self._slurm.nodes(site.capabilities.partition)
            return outlook.view(self._clock.now(), jobs, nodes, site.chosen)
        except SiteRefusal:
            return None

    def _never_fits(self, request: JobRequest) -> str | None:
        try:
            site = self.capabilities()
        except SiteRefusal:  # no such partition: the submission will tell in the site's own words
            return None
        if site.details.get("EnforcePartLimits") != "NO" or "qos" in self._options.flags:
            return None  # the site refuses in its own words; a QOS may lift a partition's limits
        return regime.misfit(request, site)

    def close(self) -> None:
        """Nothing is held between calls; jobs go on."""


def _template(source: str | Path | None) -> str | None:
    if source is None or "\n" in str(source):
        return None if source is None else str(source)
    try:
        return Path(source).read_text()
    except OSError as error:
        raise InvalidInput(
            f"job script template {str(source)!r} cannot be read: {error.strerror}. Give the file of a whole job "
            "script, or its text"
        ) from error


def _check_names(flags: Iterable[str]) -> None:
    """Refuse what is one of `Slurm`'s own options, misspelt: sbatch would know nothing of it, and say so much later."""
    own = [name for name in inspect.signature(Slurm).parameters if name != "flags"]
    for name in flags:
        if near := difflib.get_close_matches(name.replace("-", "_"), own, n=1, cutoff=0.8):
            raise InvalidInput(f"Slurm option {name!r}: did you mean {near[0]!r}?")
