"""The Slurm backend: what a submission, a status and a loss mean."""

from __future__ import annotations

import difflib
import inspect
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from asa.backends import batch
from asa.backends.batch import Submitted, host_names, job_label, key, whole
from asa.backends.slurm import array, commands, limits, words
from asa.backends.slurm.commands import NOTHING, SlurmCommands, SlurmTransport
from asa.backends.slurm.words import Flag, JobRecord, NodeGroup, SiteRefusal, SlurmOptions, VisibleJob
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    SETUP,
    Capabilities,
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    QueueRegime,
    Reason,
    Refused,
    Resources,
)
from asa.core.ports import Clock
from asa.core.queues import misfit
from asa.core.units import check_number
from asa.core.view import QueuedJob, QueueView, RunningJob

OLDEST = (20, 11)
"""Oldest version of Slurm whose srun and squeue have the options that are used here."""


Records = Mapping[JobHandle, JobRecord]


class _Site(NamedTuple):
    """What is asked once: what matters to planning, the limits that hold for the user's jobs, all partitions, and those
    of them that jobs go to."""

    capabilities: Capabilities
    limits: Sequence[limits.Limit]
    partitions: Sequence[Mapping[str, str]]
    chosen: Sequence[Mapping[str, str]]


class _Cluster(NamedTuple):
    """What is asked once of the whole cluster."""

    version: tuple[int, ...]
    configuration: Mapping[str, str]
    partitions: Sequence[Mapping[str, str]]
    nodes: Sequence[NodeGroup]


class Slurm:
    """A Slurm cluster.

    Nothing is retried here: a `BackendError` that is ``transient`` says that the same call may be made again later.
    A job may have been accepted although sbatch reported a time-out: after such a `submit`, `find` says which.

    Parameters
    ----------
    partition, account
        sbatch's; None for the site's default.
    template
        Text of a whole job script, or the file that has it. `words.PLACEHOLDERS` in double braces are filled in.
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
        Submission times come from it, until a status has the controller's.
    transport
        How Slurm is reached; None for what `rest` says.
    **flags
        Any other option of sbatch: ``nice=10``, ``exclusive=True``, ``gres="gpu:1"``. `SlurmOptions` has the rules.

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
        transport: SlurmTransport | None = None,
        **flags: Flag,
    ) -> None:
        _check_names(flags)
        check_number("poll_s", poll_s, 0, above=True)
        check_number("timeout_s", timeout_s, 0, above=True)
        self._partition, self._poll_s = partition, poll_s
        self._apart: dict[Options, Slurm] = {}
        self._options = SlurmOptions(
            flags={"partition": partition, "account": account} | flags,
            setup=(setup,) if isinstance(setup, str) else tuple(setup),
            template=_template(template),
            requeue=requeue,
        )
        self._clock: Clock = clock or SystemClock()
        # Elements that waited, by key and token: Slurm 26.05 keeps no record of some of them.
        self._cancelled: set[tuple[str, str]] = set()
        self._slurm = choose_transport(
            transport=transport,
            options=self._options,
            rest=rest,
            rest_token=rest_token,
            rest_user=rest_user,
            rest_unencrypted=rest_unencrypted,
            timeout_s=timeout_s,
            now=self._clock.now,
        )

    def job_script(self, request: JobRequest) -> str:
        """The script that is submitted for a request."""
        return words.job_script(request, self._for(request.options)._options)

    def _for(self, options: Options) -> Slurm:
        """This, for jobs with options of their own: their partition, limits and options of sbatch."""
        return batch.variant(self, self._apart, options, lambda made: made._take(options))

    def _take(self, options: Options) -> None:
        own: dict[str, Flag] = {name.replace("-", "_"): value or True for name, value in options}
        setup = str(own.pop(SETUP, "")).splitlines()
        _check_names(own.keys() - {"partition", "account"})
        self._partition = str(own.get("partition") or own.get("p") or self._partition or "") or None
        flags = {name.replace("_", "-"): value for name, value in own.items()}
        kept = {name: value for name, value in self._options.flags.items() if name not in flags}
        self._options = replace(self._options, flags=kept | flags, setup=(*self._options.setup, *setup))

    @property
    def questions(self) -> int:
        return self._slurm.questions

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return self._site.capabilities

    @cached_property
    def _cluster(self) -> _Cluster:
        version = self._slurm.version()
        if version < OLDEST:
            found, least = commands.version_text(version), commands.version_text(OLDEST)
            raise BackendError(f"Slurm {found} is too old: expected {least} or newer")
        try:
            configuration = self._slurm.configuration()
        except SiteRefusal:  # not for ordinary users: the strictest is assumed
            configuration = {}
        partitions = self._slurm.partitions()
        nodes = self._slurm.nodes(",".join(item["PartitionName"] for item in partitions))
        return _Cluster(version, configuration, partitions, nodes)

    @cached_property
    def _site(self) -> _Site:
        version, configuration, partitions, nodes = self._cluster
        partition = self._partition or default_partition(partitions)
        chosen = chosen_partitions(partitions, partition)
        there, said = self._limits(configuration, chosen)
        site = site_capabilities(
            configuration,
            chosen,
            nodes,
            version=version,
            partition=partition,
            poll_s=self._poll_s,
        )
        largest, longest_s, bounds = limits.bounded(site.largest, site.longest_s, there)
        able = self._slurm.arrays and configuration.get("MaxArraySize") not in ("0", "1")
        site = replace(
            site,
            largest=largest,
            longest_s=longest_s,
            bounds=bounds,
            most_jobs=limits.most_jobs(there),
            arrays=able and not site.unordered,
            parks=bool(node_names(chosen)),
            wide_first=wide_first(configuration),
            apart=lambda options: self._for(options).capabilities(),
            preemptible=is_preemptible(chosen, partitions, preemption_tiers(configuration, partitions)),
            whole_nodes=site.whole_nodes or self._options.flags.get("exclusive") is True,
            details={"reached through": self._slurm.name(), "limits": said} | dict(site.details),
        )
        return _Site(site, there, partitions, chosen)

    def _limits(
        self, configuration: Mapping[str, str], chosen: Sequence[Mapping[str, str]]
    ) -> tuple[list[limits.Limit], str]:
        """The limits that hold in whichever partition and QOS jobs go to, and what to say of them; none where they are
        unknown.

        Account and QOS are those of the options, or of sbatch's variables, or the user's own.
        """
        if not _words(configuration.get("AccountingStorageEnforce", "")) & _LIMITS:
            return [], "not enforced" if configuration else "not known: the configuration is not shown"
        if _CHOOSES.search(self._options.template or ""):
            return [], "not looked at: the job script template chooses account or QOS"
        flags = self._options.flags
        account = str(flags.get("account") or os.environ.get("SBATCH_ACCOUNT", ""))
        qos = str(flags.get("qos") or flags.get("q") or os.environ.get("SBATCH_QOS", ""))
        of_partitions = {item["PartitionName"]: item.get("QoS", "") for item in chosen}
        choices = [
            limits.JobAccount(account, each, name, "" if own in NOTHING else own)
            for name, own in of_partitions.items()
            for each in qos.split(",")
        ]
        try:
            first, *others = limits.read(self._slurm, configuration.get("ClusterName", ""), choices)
        except BackendError as error:
            batch.log.info("limits of accounts and QOS are not known: %s", error)
            return [], "enforced, but not shown: " + str(error).partition("\n")[0]
        found = [limit for limit in first if all(limit in other for other in others)]
        return found, "; ".join(map(str, found)) or "none"

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has the site's own message.

        Submission times are this machine's; a status has the controller's. A job that could never start (larger than
        the partition or a limit allows, or after one that failed) is refused here where Slurm would not. The elements
        of an array are taken or refused together. Once one was refused because the user has as many jobs in the queue
        as may be, those that take no less room are not tried.
        """
        outcomes: dict[str, Submitted] = {}
        predecessors = self._queued([item.on for request in requests for item in request.dependencies])
        full: Sequence[Submitted] = ()
        for group in _groups(requests):
            of_group = self._for(group[0].options)
            submit = of_group._submit_array if group[0].array else of_group._submit_single
            if not full or len(group) < len(full):
                found = submit(group, predecessors)
                full = found if isinstance(found[0], Refused) and found[0].later else full
            else:
                found = [replace(full[0], token=request.token) for request in group]
            outcomes |= zip((request.token for request in group), found, strict=True)
        return [outcomes[request.token] for request in requests]

    def preview(self, requests: Sequence[JobRequest]) -> list[str]:
        """The commands that submit these; nothing is run, and ``ID`` stands for an id that is not known yet."""
        found: list[str] = []
        for group in _groups(requests):
            in_array, slurm = bool(group[0].array), self._for(group[0].options)
            if (reason := slurm._no_array(group) if in_array else slurm._misfit(group[0])) is not None:
                found.append(f"# refused: {reason}")
            if in_array:
                options, _ = array.submission(group, slurm._options, self._clock.now())
            else:
                options = words.sbatch_options(group[0], slurm._options)
            lines = [batch.without(group[0].withheld, self._slurm.submission(options))]
            edits = array.edits(group, slurm._options) if in_array else ()
            lines += [["scontrol", "update", f"JobId=ID_{at}", *settings] for at, settings in edits]
            found += map(shlex.join, lines)
        return found

    def _submit_single(self, requests: Sequence[JobRequest], predecessors: Records) -> list[Submitted]:
        (request,), submitted = requests, self._clock.now()
        try:
            if (reason := self._misfit(request)) is not None:
                raise SiteRefusal(reason)
            needed = self._unfulfilled(request.dependencies, predecessors)
            request = replace(request, dependencies=needed)
            options = words.sbatch_options(request, self._options)
            job_id = self._slurm.submit(options, self.job_script(request), request.withheld)
        except BackendError as error:
            return self._refused(requests, error)
        return [JobHandle(job_id, request.token, submitted)]

    def _refused(self, requests: Sequence[JobRequest], error: BackendError) -> list[Submitted]:
        """The outcomes of requests that Slurm turned down together."""
        found = [batch.refusal(request, error) for request in requests]
        limited = "_site" in self.__dict__ and self._site.capabilities.most_jobs is not None
        later = isinstance(error, SiteRefusal) and words.is_full(error.reason, limited)
        return [replace(refused, later=later) for refused in found]

    def _submit_array(self, requests: Sequence[JobRequest], predecessors: Records) -> list[Submitted]:
        """All elements of an array, or none: one that is not as it was asked for is cancelled before it may start."""
        submitted = self._clock.now()
        try:
            if (reason := self._no_array(requests)) is not None:
                raise SiteRefusal(reason)
            needed = self._unfulfilled(requests[0].dependencies, predecessors)
            requests = [replace(request, dependencies=needed) for request in requests]
            options, script = array.submission(requests, self._options, submitted)
            job_id = self._slurm.submit(options, script, requests[0].withheld)
            self._edit_elements(job_id, requests)
        except BackendError as error:
            return self._refused(requests, error)
        return [JobHandle(job_id, request.token, submitted, at) for at, request in enumerate(requests)]

    def _edit_elements(self, job_id: str, requests: Sequence[JobRequest]) -> None:
        try:
            for at, settings in array.edits(requests, self._options):
                self._slurm.update(f"{job_id}_{at}", settings)
        except BackendError as error:
            if not error.transient:
                self._slurm.cancel([job_id])
            raise

    def _no_array(self, requests: Sequence[JobRequest]) -> str | None:
        """Why these cannot be submitted as an array, or None."""
        if not self._slurm.arrays:
            return f"{self._slurm.name()} cannot change the elements of a job array: leave out rest=..."
        misfits = (f"{request.token}: {why}" for request in requests if (why := self._misfit(request)))
        return array.problem(requests, self._options) or next(misfits, None)

    def _misfit(self, request: JobRequest) -> str | None:
        """Why Slurm would accept a job and never start it (``EnforcePartLimits=NO``, the default), or None."""
        try:
            site = self.capabilities()
        except SiteRefusal:  # no such partition: the submission will be refused in the site's own words
            return None
        if (limit := limits.broken(request, self._site.limits)) is not None:
            return limits.why_broken(request, limit)
        if site.details.get("EnforcePartLimits") != "NO" or "qos" in self._options.flags:
            return None  # the site refuses in its own words; a QOS may lift a partition's limits
        return misfit(request, site, "partition", spreads=True)

    def _unfulfilled(self, dependencies: Sequence[Dependency], queued: Records) -> tuple[Dependency, ...]:
        """Dependencies that are not fulfilled yet; `queued` is what the controller has of the jobs that they name.

        Slurm takes a job that it has forgotten for one that ended well, so those are judged here. Raises `SiteRefusal`
        when one can never be fulfilled.
        """
        there = [item for item in dependencies if item.on in queued]
        gone = [item for item in dependencies if item.on not in queued and item.kind is DependencyKind.AFTER_OK]
        return (*there, *batch.unfulfilled(gone, self.query))

    def _queued(self, handles: Sequence[JobHandle]) -> dict[JobHandle, JobRecord]:
        """What the controller has of these jobs."""
        return words.match(handles, self._slurm.queue(words.keys(handles)))

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order: from one squeue, and one sacct for those that have left the queue.

        Those that neither knows are asked about again.
        """
        return batch.statuses(handles, self._query, self._clock)

    def _query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        now = self._clock.now()
        queued = self._queued(handles)
        gone = [handle for handle in handles if handle not in queued]
        accounted = words.match(gone, self._slurm.accounting(words.keys(gone)))
        return [
            words.was_cancelled(handle)
            if (key(handle), handle.token) in self._cancelled and handle not in queued and handle not in accounted
            else words.job_status(handle, queued.get(handle), accounted.get(handle), now)
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        return batch.found_or_unknown_twice(tokens, self._find, self._clock)

    def _find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        queued = self._slurm.queue_by_name(tokens)
        halves = _half_made(tokens, queued)
        live = {record.key.partition("_")[0] for record in queued if not words.state_of(record).final}
        self._slurm.cancel(sorted(halves & live))
        found = _named(tokens, queued, halves)
        missing = [token for token in tokens if token not in found]
        return found | _named(missing, self._slurm.accounting_by_name(missing), halves)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits.

        Raises
        ------
        BackendError
            When the job (for a throttle, all of its array) is not in the queue any more, it is to follow one that
            failed, it has no throttle or there is none as small, the partition's nodes are unknown (parking), or the
            site says no.
        InvalidInput
            When GPUs are asked for.
        """
        if changes.throttle is not None:
            self._throttle(handle, changes.throttle)
            changes = replace(changes, throttle=None)
        if changes == JobChanges():
            return
        depended_on = [item.on for item in changes.dependencies or ()]
        queued, now = self._queued([handle, *depended_on]), self._clock.now()
        if handle not in queued:
            raise BackendError(f"Slurm job {job_label(handle)} cannot be changed: it is not in the queue any more")
        if changes.dependencies:
            needed = self._unfulfilled(changes.dependencies, queued)
            changes = replace(changes, dependencies=needed)
        settings = words.scontrol_settings(changes, now)
        if handle.array_index is not None:
            settings = array.allowed(settings)
        if changes.parked is not None:
            settings.append(words.parking_setting(changes.parked, self._partition_nodes(), self._options))
        self._slurm.update(key(handle), settings)

    def _throttle(self, handle: JobHandle, throttle: int) -> None:
        problem = None
        if handle.array_index is None:
            problem = "it is no element of a job array"
        elif throttle < 1:
            problem = f"it must be at least 1, not {throttle}"
        elif all(
            words.state_of(record).final or not words.is_of_same_array(handle, record)
            for record in self._slurm.queue([handle.job_id])
        ):
            problem = "none of its array is in the queue any more"
        if problem is not None:
            raise BackendError(f"Slurm job {job_label(handle)} cannot be given another throttle: {problem}")
        try:
            self._slurm.update(handle.job_id, [f"ArrayTaskThrottle={throttle}"])
        except SiteRefusal as error:
            if not words.changed_the_others(error.reason):
                raise

    def _partition_nodes(self) -> str:
        chosen = [item for slurm in (self, *self._apart.values()) for item in slurm._site.chosen]
        nodes = node_names([item for at, item in enumerate(chosen) if item not in chosen[:at]])
        if not nodes:
            partition = self._site.capabilities.partition
            raise BackendError(
                f"Slurm does not show the nodes of partition {partition!r}, so that jobs cannot be parked there: hold "
                "places in another way, such as hold:technique=auto"
            )
        return nodes

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; jobs that have ended, or that Slurm has forgotten, are passed over.

        They are looked up first: by now an id may belong to another job of the same user.
        """
        queued = self._queued(handles)
        live = [handle for handle, record in queued.items() if not words.state_of(record).final]
        self._slurm.cancel(words.keys(live))
        waited = (handle for handle in live if words.state_of(queued[handle]) is JobState.PENDING)
        self._cancelled |= {(key(handle), handle.token) for handle in waited if handle.array_index is not None}

    def look(self) -> QueueView | None:
        """Everybody's jobs before the partition, as far as Slurm shows them to this user: one squeue and one sinfo.

        Jobs that run on the partition's nodes count whichever partition they came through.
        """
        return self.looks([()])[0]

    def looks(self, queues: Sequence[Options]) -> list[QueueView | None]:
        """`look` for jobs with each of these options: one squeue and one sinfo in all; None where there is nothing."""
        sites: list[_Site | None] = []
        for options in queues:
            try:
                sites.append(self._for(options)._site)
            except SiteRefusal:
                sites.append(None)
        rivals = [[] if site is None else competing_partitions(site.partitions, site.chosen) for site in sites]
        there = sorted({name for names in rivals for name in names})
        try:
            jobs = self._slurm.visible_jobs(there) if there else []
            nodes = self._slurm.nodes(",".join(there)) if there else []
        except SiteRefusal:
            return [None] * len(sites)
        now, tiers = self._clock.now(), preemption_tiers(self._cluster.configuration, self._cluster.partitions)
        return [
            None
            if site is None
            else queue_view(
                now,
                [job for job in jobs if not own.isdisjoint(job.partition.split(","))],
                nodes,
                site.chosen,
                tiers,
            )
            for site, own in zip(sites, map(set, rivals), strict=True)
        ]

    def prints(self, argv: Sequence[str]) -> str:
        """What one of Slurm's commands prints that only asks, such as ``scontrol show node``.

        Raises
        ------
        BackendError
            When it does not answer, or slurmrestd is used instead of commands.
        """
        ask: Callable[[Sequence[str]], str] | None = getattr(self._slurm, "prints", None)
        if ask is None:
            raise BackendError(f"{self._slurm.name()} does not print what {argv[0]} does")
        return ask(argv)

    def close(self) -> None:
        """There is nothing to close."""


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


def _groups(requests: Sequence[JobRequest]) -> Iterable[list[JobRequest]]:
    """Jobs that are submitted together: the elements of each array, and every other job by itself."""
    arrays: dict[object, list[JobRequest]] = {}
    for number, request in enumerate(requests):
        arrays.setdefault(request.array or number, []).append(request)
    return arrays.values()


# -- lookup ------------------------------------------------------------------------------------------------------------


def _half_made(tokens: Sequence[str], records: Sequence[JobRecord]) -> set[str]:
    """Ids of arrays of which several elements have one name: that of the first, until they are given their own."""
    names = {record.key: record.name for record in records if record.name in tokens}
    elements = Counter((key.partition("_")[0], name) for key, name in names.items())
    return {job_id for (job_id, _), count in elements.items() if count > 1}


def _named(tokens: Sequence[str], records: Sequence[JobRecord], without: Collection[str]) -> dict[str, JobHandle]:
    """Handles of the jobs of these names; of several, that which has not ended, and then the one submitted first.

    In the accounting, elements of an array that were not given their own names have the first one's.
    """
    wanted, found = set(tokens), dict[str, JobHandle]()
    ordered = sorted(
        (words.state_of(record).final, handle.submitted, handle.array_index or 0, at)
        for at, record in enumerate(records)
        for handle in [words.handle_of(record)]
        if record.name in wanted and handle.job_id not in without
    )
    for *_, at in ordered:
        found.setdefault(records[at].name, words.handle_of(records[at]))
    return found


# -- a site, for planning ----------------------------------------------------------------------------------------------

_LIMITS = frozenset({"LIMITS", "SAFE", "ALL"})
_CHOOSES = re.compile(r"^#SBATCH\s.*(--account|--qos|-A|-q)\b", re.MULTILINE)
_UNSTATED_MEMORY = 2**20  # what Slurm shows of a node whose RealMemory is not configured [bytes]
_SHOWN = (
    "PriorityType", "PriorityFlags", "PriorityWeightAge", "PriorityMaxAge", "PriorityWeightFairShare",
    "PriorityWeightJobSize", "PriorityWeightTRES", "PriorityWeightQOS", "PriorityWeightPartition",
    "PriorityWeightAssoc", "PrioritySiteFactorPlugin", "AccountingStorageType",
    "AccountingStorageEnforce", "EnforcePartLimits", "SchedulerType", "SchedulerParameters", "SelectType",
    "SelectTypeParameters", "PreemptMode", "JobRequeue", "MaxArraySize", "MaxJobCount", "MinJobAge", "MessageTimeout",
)  # fmt: skip
_SHOWN_OF_PARTITION = (
    "State", "TotalNodes", "TotalCPUs", "MaxNodes", "MaxTime", "DefaultTime", "OverSubscribe", "Exclusive", "QoS",
    "PriorityTier", "PreemptMode",
)  # fmt: skip


def queue_regime(configuration: Mapping[str, str]) -> QueueRegime:
    """Whether a job that waits for another keeps its place and age; the strictest regime when that is unknown.

    Measured on Slurm 22.05: with limits enforced, a job's age is reset whenever it gets a dependency; otherwise a
    dependency at submission costs the age and a later one does not; ``ACCRUE_ALWAYS`` counts the age from submission in
    any case, and ``priority/basic`` knows no age.
    """
    kind = configuration.get("PriorityType", "").rpartition("/")[2].lower()
    if kind == "basic":
        return QueueRegime.FIFO
    if kind != "multifactor":
        return QueueRegime.LIMITS
    if "ACCRUE_ALWAYS" in _words(configuration.get("PriorityFlags", "")):
        return QueueRegime.ACCRUE_ALWAYS
    if "AccountingStorageEnforce" not in configuration:
        return QueueRegime.LIMITS
    enforced = _words(configuration["AccountingStorageEnforce"])
    return QueueRegime.LIMITS if enforced & _LIMITS else QueueRegime.MULTIFACTOR


def size_weight(configuration: Mapping[str, str]) -> str:
    """The setting by which a job's size counts in its priority; "" where it does not.

    Elements of a job array are as old as one another, so that there their sizes decide which starts first.

    >>> size_weight({"PriorityType": "priority/multifactor", "PriorityWeightTRES": "CPU=1000,GRES/gpu=10"})
    'PriorityWeightTRES=CPU=1000'
    """
    if configuration.get("PriorityType", "").rpartition("/")[2].lower() != "multifactor":
        return ""
    tres = (item for item in configuration.get("PriorityWeightTRES", "").split(",") if "/" not in item)
    weights = {f"PriorityWeightTRES={name}": weight for name, _, weight in (item.partition("=") for item in tres)}
    weights["PriorityWeightJobSize"] = configuration.get("PriorityWeightJobSize", "")
    return next((f"{name}={weight}" for name, weight in weights.items() if weight.strip("0.")), "")


def wide_first(configuration: Mapping[str, str]) -> bool:
    """Whether a job's size counts in its priority, the larger the better, and its age does not.

    >>> wide_first({"PriorityType": "priority/multifactor", "PriorityWeightAge": "0", "PriorityWeightJobSize": "100"})
    True
    """
    ages = configuration.get("PriorityWeightAge", "").strip("0.")
    favours_small = configuration.get("PriorityFavorSmall", "").upper() == "YES"
    return bool(size_weight(configuration)) and not ages and not favours_small


def _words(text: str) -> set[str]:
    return {word.strip().upper() for word in text.split(",")}


def site_capabilities(
    configuration: Mapping[str, str],
    partitions: Sequence[Mapping[str, str]],
    nodes: Sequence[NodeGroup],
    *,
    version: tuple[int, ...],
    partition: str,
    poll_s: float,
) -> Capabilities:
    """What planning needs to know of a site.

    Parameters
    ----------
    configuration
        The controller's settings; empty when the user may not read them.
    partitions, nodes
        Those that jobs may go to, and the groups of all nodes: where there are GPUs is worth showing.
    partition
        The partitions' names as jobs are given them.
    """
    most = {item["PartitionName"]: whole(item.get("MaxCPUsPerNode", "")) for item in partitions}
    own = [group for group in nodes if group.partition in {item["PartitionName"] for item in partitions}]
    usable = [replace(group, cores=min(group.cores, most.get(group.partition) or group.cores)) for group in own]
    largest = [size for item in partitions if (size := _largest(item, usable)) is not None]
    limits = [commands.parse_limit(item.get("MaxTime", "UNLIMITED")) for item in partitions]
    finite = [limit for limit in limits if limit is not None]
    shown = {name: configuration[name] for name in _SHOWN if configuration.get(name)}
    if weight := size_weight(configuration):
        shown["job arrays"] = f"hold no places: sizes count in priorities ({weight}), so elements start by size"
    elif configuration:
        alike = f"account, QOS and partition{'s' * (len(partitions) > 1)}"
        shown["job arrays"] = f"keep their order: sizes do not count in priorities, and elements have the same {alike}"
    for item in partitions:
        found = (f"{name}={item[name]}" for name in _SHOWN_OF_PARTITION if name in item)
        shown[f"partition {item['PartitionName']}"] = " ".join(found)
    for group in (group for group in nodes if group in own or group.gpus):
        name = f"nodes of {group.partition}, {group.state}"
        shape = f"{group.count} x {group.cores} cores, {group.memory >> 20} MiB, {group.gpus} GPUs"
        shape += f" ({group.kinds})" if group.kinds else ""
        shown[name] = f"{shown[name]}; {shape}" if name in shown else shape
    return Capabilities(
        site=configuration.get("ClusterName", "slurm"),
        partition=partition,
        regime=queue_regime(configuration),
        unordered=weight,
        largest=max(largest, key=lambda size: size.cores, default=None),
        cores_per_node=max((group.cores for group in usable), default=None),
        gpus_per_node=max((group.gpus for group in usable), default=None),
        longest_s=max(finite) if limits and len(finite) == len(limits) else None,
        poll_s=poll_interval(configuration, poll_s),
        whole_nodes=any(map(_gives_whole_nodes, partitions)),
        details={"Slurm": commands.version_text(version), **shown},
    )


def preemption_tiers(
    configuration: Mapping[str, str], partitions: Iterable[Mapping[str, str]]
) -> dict[str, tuple[int, bool]]:
    """Tier of each partition, and whether jobs of a higher one may take the nodes of its jobs.

    >>> low = {"PartitionName": "low", "PriorityTier": "1", "PreemptMode": "REQUEUE"}
    >>> preemption_tiers({"PreemptType": "preempt/partition_prio"}, [low])
    {'low': (1, True)}
    """
    by_tier = configuration.get("PreemptType", "").endswith("/partition_prio")
    found = {}
    for item in partitions:
        modes = _words(item.get("PreemptMode", ""))
        tier = whole(item.get("PriorityTier", "1"))
        found[item["PartitionName"]] = 1 if tier is None else tier, by_tier and bool(modes & {"REQUEUE", "CANCEL"})
    return found


def is_preemptible(
    chosen: Iterable[Mapping[str, str]],
    partitions: Sequence[Mapping[str, str]],
    tiers: Mapping[str, tuple[int, bool]],
) -> bool:
    """Whether jobs of another partition may take the nodes of those in a chosen one."""
    for item in chosen:
        tier, yields = tiers[item["PartitionName"]]
        others = competing_partitions(partitions, [item])
        if yields and any(tiers[name][0] > tier for name in others):
            return True
    return False


def _gives_whole_nodes(partition: Mapping[str, str]) -> bool:
    """In the words of releases before 26.05, and since."""
    return partition.get("OverSubscribe") == "EXCLUSIVE" or partition.get("Exclusive") in ("NODE", "TOPO")


def poll_interval(configuration: Mapping[str, str], wanted_s: float) -> float:
    """Seconds between status queries [s]: without accounting, short enough to see how each job ends."""
    kept_s = configuration.get("MinJobAge", "").split()
    store = configuration.get("AccountingStorageType", "unknown")  # without accounting "(null)" from 24.11 on: nothing
    accounted = store != "" and not store.endswith("/none")
    kept = whole(kept_s[0]) if kept_s else None
    return wanted_s if accounted or kept is None else min(wanted_s, max(1.0, kept / 2))


def default_partition(partitions: Sequence[Mapping[str, str]]) -> str:
    """Name of the partition that jobs go to by default; "" when there is none."""
    return next((item["PartitionName"] for item in partitions if item.get("Default") == "YES"), "")


def chosen_partitions(partitions: Sequence[Mapping[str, str]], names: str) -> list[Mapping[str, str]]:
    """The partitions of these names (commas between); raises `SiteRefusal` when none of them exists."""
    found = [item for item in partitions if item["PartitionName"] in names.split(",")]
    if not found:
        known = ", ".join(sorted(item["PartitionName"] for item in partitions))
        problem = f"Slurm has no partition {names!r}" if names else "Slurm names no default partition"
        raise SiteRefusal(f"{problem}: choose one of {known}" + ("" if names else ", with partition=NAME"))
    return found


def _largest(partition: Mapping[str, str], nodes: Iterable[NodeGroup]) -> Resources | None:
    """The largest job of one partition: its biggest nodes, as many as a job may have."""
    groups = sorted((g for g in nodes if g.partition == partition["PartitionName"]), key=lambda g: -g.cores)
    limit = whole(partition.get("MaxNodes", ""))
    left = sum(g.count for g in groups) if limit is None else limit
    cores = memory = gpus = used = 0
    for group in groups:
        taken = min(left, group.count)
        cores += taken * group.cores
        memory += taken * group.memory
        gpus += taken * group.gpus
        used += taken
        left -= taken
    if cores == 0:
        return None
    stated = memory if memory > used * _UNSTATED_MEMORY else None
    return Resources(cores, nodes=used if cores % used == 0 else None, memory=stated, gpus=gpus)


# -- the queue ---------------------------------------------------------------------------------------------------------

NOT_ELIGIBLE = frozenset(
    {
        Reason.DEPENDENCY, Reason.NEVER, Reason.BEGIN, Reason.HELD, "JobHeldAdmin", Reason.THROTTLED, Reason.BARRED,
    }
)  # fmt: skip
"""Reasons of jobs that could not start if all nodes were free: they keep no other job waiting."""

_GONE = re.compile(r"(down|drain|drained|fail|futr|future|inval|unk|unknown|error)\b|idle\S*\+(drain|fail|invalid)")


def node_names(partitions: Iterable[Mapping[str, str]]) -> str:
    """Slurm's list of all nodes of these partitions; "" when Slurm does not show it."""
    return ",".join(nodes for item in partitions if (nodes := item.get("Nodes", "")) not in NOTHING)


def competing_partitions(partitions: Iterable[Mapping[str, str]], chosen: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of the partitions whose jobs compete with those of the chosen ones: they have nodes in common.

    >>> core = {"PartitionName": "core", "Nodes": "n[1-4]"}
    >>> short, gpu = {"PartitionName": "short", "Nodes": "n[4-5]"}, {"PartitionName": "gpu", "Nodes": "g1"}
    >>> competing_partitions([core, short, gpu], [core])
    ['core', 'short']
    """
    own, nodes = {item["PartitionName"] for item in chosen}, _node_set(chosen)
    return [
        item["PartitionName"]
        for item in partitions
        if item["PartitionName"] in own or not nodes.isdisjoint(_node_set([item]))
    ]


def queue_view(
    now: float,
    jobs: Iterable[VisibleJob],
    groups: Sequence[NodeGroup],
    chosen: Sequence[Mapping[str, str]],
    tiers: Mapping[str, tuple[int, bool]] | None = None,
) -> QueueView | None:
    """The queue before the chosen partitions; None when they have no node that works.

    Jobs that wait are in order of priority, the highest first, and then of submission; those that could not start on
    an empty machine are left out. Running jobs are those on the partitions' nodes, whichever partition they came
    through, and end when their wall time does. Memory and GPUs are left out. `jobs` are those of the
    `competing_partitions`, `groups` the nodes of the chosen ones. Jobs of partitions with higher `tiers` come first,
    and those of lower tiers that would be preempted are left out.
    """
    capacity, nodes = _capacity(groups, chosen), _node_set(chosen)
    if capacity is None:
        return None
    waiting: list[VisibleJob] = []
    running: list[RunningJob] = []
    known = tiers or {}
    own = max((known[item["PartitionName"]][0] for item in chosen if item["PartitionName"] in known), default=0)

    def tier(job: VisibleJob) -> int:
        return max((known[name][0] for name in job.partition.split(",") if name in known), default=0)

    for job in jobs:
        if tier(job) < own and all(known.get(name, (0, False))[1] for name in job.partition.split(",")):
            continue
        state = words.state_of_word(job.word, holds_nodes=bool(job.held))
        if state is JobState.PENDING and job.reason not in NOT_ELIGIBLE and job.priority > 0:
            waiting.append(job)
        elif job.held and not nodes.isdisjoint(job.held):
            ends = math.inf if job.end is None else max(job.end, now)
            running.append(RunningJob(job.key, Resources(job.cores), ends, job.limit))
    waiting.sort(key=lambda job: (-tier(job), -job.priority, job.submitted, _job_number(job.key)))
    queue = (
        QueuedJob(job.key, _asked(job), math.inf if job.limit is None else job.limit, job.submitted, job.user, job.name)
        for job in waiting
    )
    return QueueView(now, capacity, tuple(queue), tuple(running))


def _node_set(partitions: Iterable[Mapping[str, str]]) -> set[str]:
    return set(host_names(node_names(partitions)))


def _capacity(groups: Sequence[NodeGroup], chosen: Sequence[Mapping[str, str]]) -> Resources | None:
    """Cores of all nodes that work; a partition whose nodes were counted with another one's is passed over."""
    counted: set[str] = set()
    cores = nodes = 0
    for item in chosen:
        own = _node_set([item])
        if counted.isdisjoint(own):
            counted |= own
            working = [g for g in groups if g.partition == item["PartitionName"] and not _GONE.match(g.state)]
            cores += sum(group.count * group.cores for group in working)
            nodes += sum(group.count for group in working)
    return Resources(cores, nodes=_divides(cores, nodes)) if cores else None


def _asked(job: VisibleJob) -> Resources:
    """What a job that waits asks for. One node may mean that the number of nodes is open."""
    return Resources(job.cores, nodes=_divides(job.cores, job.nodes) if job.nodes > 1 else None)


def _divides(cores: int, nodes: int) -> int | None:
    return nodes if nodes > 0 and cores % nodes == 0 else None


def _job_number(key: str) -> tuple[int, ...]:
    return tuple(number for part in key.split("_") if (number := whole(part)) is not None)


# -- transport ---------------------------------------------------------------------------------------------------------


def choose_transport(
    *,
    transport: SlurmTransport | None,
    options: SlurmOptions,
    rest: str | None,
    rest_token: str | Path | None,
    rest_user: str | None,
    rest_unencrypted: bool,
    timeout_s: float,
    now: Callable[[], float],
) -> SlurmTransport:
    """The transport that the options of `Slurm` ask for.

    Raises `InvalidInput` when they contradict each other, cannot be given through slurmrestd, or hold an address that
    cannot be used; `StateError` when the token's file cannot be read, or others can read it.
    """
    clusters = options.flags.get("clusters")
    if clusters is not None and "," in str(clusters):
        raise InvalidInput(f"Slurm option clusters={clusters!r}: expected one, jobs of a run must know each other")
    others = {"rest_token": rest_token, "rest_user": rest_user, "rest_unencrypted": rest_unencrypted}
    given = ", ".join(name for name, value in others.items() if value)
    if transport is not None:
        if rest or given:
            raise InvalidInput(f"transport and {'rest' if rest else given}: give one way to reach Slurm")
        return transport
    if rest is None:
        if given:
            raise InvalidInput(f"{given} without rest: add rest=ADDRESS, that of slurmrestd, or leave out {given}")
        return SlurmCommands(None if clusters is None else str(clusters), timeout_s, os.environ)
    if clusters is not None:
        raise InvalidInput(f"clusters={clusters!r} with rest={rest!r}: name the slurmrestd of that cluster instead")
    # Here, because requests takes longer to import than all else of this backend.
    from asa.backends.slurm import rest_job
    from asa.backends.slurm.rest import RestServer, SlurmRest, Tokens

    anything = JobRequest("anything", Resources(), 60.0, ("true",))
    rest_job.given_options(words.sbatch_options(anything, options), words.job_script(anything, options))
    user = commands.own_name() if rest_user is None else str(rest_user)
    tokens = Tokens(user, None if rest_token is None else Path(rest_token), os.environ, timeout_s, now)
    server = RestServer(
        str(rest),
        tokens,
        always=rest_token is not None,
        unencrypted=rest_unencrypted,
        timeout_s=timeout_s,
        authorities=os.environ.get("REQUESTS_CA_BUNDLE"),
    )
    return SlurmRest(server, user, timeout_s, os.environ)
