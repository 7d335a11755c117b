"""OpenPBS and PBS Professional, through their commands. Tried by hand on OpenPBS 23.06: ``docs/howto/pbs-flux.md``."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from asa.backends import batch
from asa.backends.batch import Ask, Asking, ErrorPatterns, by_subprocess, moment, of_known, reading, table
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Capabilities,
    Dependency,
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
from asa.core.units import MIB, check_number
from asa.core.view import QueueView

CLOCK_SKEW_S = 300.0
"""How far the server's clock may be from this machine's [s]."""

ERRORS = ErrorPatterns(
    no_answer=re.compile(
        r"cannot connect to server|connection (refused|reset|timed out)|no route to host|communication failure"
        r"|server (is )?(busy|shutting down)|premature end|end of file|timed? ?out|errno=1500[78]",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^(qsub|qstat|qalter|qdel|qselect|pbsnodes): "),
    ended=re.compile(r"unknown job id|job has finished|invalid state for job", re.IGNORECASE),
)
_UNKNOWN = re.compile(r"unknown job id:?\s*(\S+)", re.IGNORECASE)


class Pbs:
    """A cluster under OpenPBS or PBS Professional (14.1 or later), through its commands.

    It was written from PBS's documentation, and is tested with outputs recorded there. The server must keep a history
    of jobs (``job_history_enable``), or a job that has ended counts as lost.

    Parameters
    ----------
    queue, account
        qsub's ``-q`` and ``-A``; None for the site's default.
    chunk
        More resources of each chunk, such as ``model=bro``.
    setup, extra, poll_s, timeout_s, clock, ask
        As for `Flux`; `extra` holds options of qsub.

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
        check_number("poll_s", poll_s, 0, above=True)
        check_number("timeout_s", timeout_s, 0, above=True)
        lines = (setup,) if isinstance(setup, str) else tuple(setup)
        self._options = PbsOptions(queue, account, chunk, lines, extra)
        self._apart: dict[Options, Pbs] = {}
        self._ask = Asking(ask or by_subprocess(timeout_s), ERRORS)
        self._clock: Clock = clock or SystemClock()
        self._poll_s = poll_s

    def job_script(self, request: JobRequest) -> str:
        """The script that is submitted for a request."""
        return job_script(request, self._for(request.options)._options)

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return replace(self._site, apart=lambda options: self._for(options).capabilities())

    def _for(self, options: Options) -> Pbs:
        return batch.variant(self, self._apart, options, lambda made: made._take(options))

    def _take(self, options: Options) -> None:
        own = batch.own_options(options, {"partition": "queue", "account": "account"}, self._options.setup, "PBS")
        self._options = replace(self._options, **own)

    @cached_property
    def _site(self) -> Capabilities:
        name, server = parse_server(self._ask(["qstat", "-B", "-f", "-F", "json"]))
        queue = self._options.queue or str(server.get("default_queue", ""))
        settings = self._table("Queue", ["qstat", "-Q", "-f", "-F", "json", queue]).get(queue, {}) if queue else {}
        nodes = self._table("nodes", ["pbsnodes", "-a", "-F", "json"])
        return site_capabilities(name, queue, server, settings, nodes.values(), poll_s=self._poll_s)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has the site's own message.

        A job that could never start is refused here where PBS would not. It has no job arrays whose elements differ.
        """
        return batch.with_site_times(batch.outcomes(requests, self._submit), self._submitted)

    def preview(self, requests: Sequence[JobRequest]) -> list[str]:
        wanted = ((request, self._for(request.options)._options) for request in requests)
        lines = (["qsub", *qsub_options(request, options)] for request, options in wanted)
        return [shlex.join(batch.without(requests[0].withheld, line)) for line in lines]

    def _submit(self, request: JobRequest) -> JobHandle:
        own = self._for(request.options)
        request = batch.submittable(request, own._site, self.query, "PBS")
        now = self._clock.now()
        words = qsub_options(request, own._options)
        printed = self._ask(batch.without(request.withheld, ["qsub", *words]), job_script(request, own._options))
        return JobHandle(parse_job_id(printed), request.token, now)

    def _submitted(self, handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        known = self._jobs([handle.job_id for handle in handles])
        return {handle: at for handle in handles if (at := submit_time(known.get(handle.job_id, {}))) is not None}

    def _jobs(self, ids: Sequence[str]) -> dict[str, Attributes]:
        """All that is known of these jobs, ended ones included."""
        qstat = ["qstat", "-x", "-f", "-F", "json"]
        return document(of_known(ids, lambda some: self._ask([*qstat, *some]), _UNKNOWN), "Jobs")

    def _table(self, key: str, argv: Sequence[str]) -> dict[str, Attributes]:
        return document(self._ask(argv), key)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, from one qstat, and more for those that it does not know."""
        return batch.statuses(handles, self._query, self._clock)

    def _query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        known = self._jobs([handle.job_id for handle in handles])
        return [
            parse_status(handle, job)
            if (job := known.get(handle.job_id)) and _is_of(handle, job)
            else batch.lost(handle, "PBS")
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under: one qselect for each, and one qstat; two where there is none."""
        return batch.found_or_unknown_twice(tokens, self._find, self._clock)

    def _find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        ids = [job for token in tokens for job in self._ask(["qselect", "-x", "-N", token]).split()]
        known = self._jobs(ids).items()
        handles = (JobHandle(job_id, str(job.get("Job_Name")), submit_time(job) or 0.0) for job_id, job in known)
        return batch.first_submitted(handles, tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits.

        Raises a `BackendError` when it waits no more, is to follow one that failed, or the site says no; for
        throttles and parking, which PBS does not have.
        """
        if changes.throttle is not None or changes.parked is not None:
            name = batch.job_label(handle)
            raise BackendError(f"PBS job {name} cannot be changed so: it has neither throttles nor parking")
        batch.require_pending(self.query([handle])[0], "PBS")
        if changes.dependencies:
            changes = replace(changes, dependencies=batch.unfulfilled(changes.dependencies, self.query))
        if words := qalter_options(changes, self._clock.now(), self._options.chunk):
            self._ask(["qalter", *words, handle.job_id])

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; they are looked up first, and those that have ended passed over."""
        if live := batch.live_ids(self.query(handles)):
            self._ask(["qdel", *live], unless=ERRORS.only_ended)

    def look(self) -> QueueView | None:
        """Nothing: the queue of other users is not asked for."""
        return None

    def close(self) -> None:
        """There is nothing to close."""


def _is_of(handle: JobHandle, job: Attributes) -> bool:
    """Whether this is the job of the handle: ids may begin anew after a server has lost its state."""
    at = submit_time(job)
    return job.get("Job_Name") == handle.token and (at is None or abs(at - handle.submitted) <= CLOCK_SKEW_S)


# -- make a command ----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}")
_OURS = ("-N", "-l", "-W", "-o", "-e", "-j", "-a", "-h", "-J", "-I", "-X", "-r", "-z")


@dataclass(frozen=True, slots=True)
class PbsOptions:
    """What a user asks of every job, as in `Pbs`; raises `InvalidInput` for an extra option that ASA gives itself."""

    queue: str | None = None
    account: str | None = None
    chunk: str = ""
    setup: tuple[str, ...] = ()
    extra: str = ""

    def __post_init__(self) -> None:
        for word in self.words:
            if word[:2] in _OURS:
                raise InvalidInput(f"qsub's {word[:2]} cannot be passed through: it follows from the stage, or the run")

    @property
    def words(self) -> list[str]:
        return shlex.split(self.extra)


def qsub_options(request: JobRequest, wanted: PbsOptions) -> list[str]:
    """Options of qsub; raises `InvalidInput` when the token can be no name of a job."""
    if not _NAME.fullmatch(request.token):
        raise InvalidInput(f"token {request.token!r}: a letter expected first, then letters, digits and _ . + - only")
    found = ["-N", request.token, *size_options(request.resources, wanted.chunk), *limit_options(request.walltime_s)]
    found += ["-j", "oe", "-o", "/dev/null", "-r", "n"]  # the script says where its output goes, at once
    if request.dependencies:
        found += ["-W", f"depend={dependency_list(request.dependencies)}"]
    if request.begin is not None:
        found += ["-a", local_time(request.begin)]
    found += ["-q", wanted.queue] if wanted.queue else []
    found += ["-A", wanted.account] if wanted.account else []
    return [*found, *wanted.words]


def size_options(resources: Resources, chunk: str = "") -> list[str]:
    """As many equal chunks as nodes, each on a host of its own; units as chunks on any hosts; else one chunk."""
    nodes = resources.nodes or (resources.cores // resources.unit if resources.unit else 1)
    each = resources.on_each(nodes)
    words = [str(nodes), f"ncpus={each.cores}"]
    if each.memory is not None:
        words.append(f"mem={-(-each.memory // MIB)}mb")
    if each.gpus:
        words.append(f"ngpus={each.gpus}")
    place = "free" if resources.unit else "scatter" if nodes > 1 else "pack"
    return ["-l", "select=" + ":".join([*words, *filter(None, [chunk])]), "-l", f"place={place}"]


def limit_options(walltime_s: float) -> list[str]:
    """A wall time in whole seconds, rounded up, at least one."""
    minutes, seconds = divmod(max(1, math.ceil(walltime_s)), 60)
    return ["-l", f"walltime={minutes // 60:02}:{minutes % 60:02}:{seconds:02}"]


def job_script(request: JobRequest, wanted: PbsOptions) -> str:
    """The job script: the program once on each node."""
    lines = ["#!/bin/sh", f"cd {shlex.quote(request.workdir)} || exit 1"]
    target = "/dev/null" if request.output is None else shlex.quote(request.output)
    lines += [f"exec </dev/null >>{target} 2>&1", *wanted.setup]
    program = shlex.join(request.argv)
    unit = request.resources.unit
    if (request.resources.nodes or 1) == 1 and unit in (None, request.resources.cores):
        return "\n".join([*lines, f"exec {program}", ""])
    # pbsdsh starts it with the environment of the node's daemon, not with ours
    there = f'cd {shlex.quote(request.workdir)} && exec "$0" "$@"'
    variables = '"PATH=$PATH" "HOME=$HOME" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" "PBS_JOBID=$PBS_JOBID"'
    if unit is not None:
        cores = f'"ASA_CPUS_ON_NODE=$((chunks * {unit}))"'
        start = f"/usr/bin/env {variables} {cores} /bin/sh -c {shlex.quote(there)} {program}"
        return "\n".join([*lines, _ONCE_PER_HOST % start, ""])
    launch = f"exec pbsdsh -- /usr/bin/env {variables} /bin/sh -c {shlex.quote(there)} {program}"
    return "\n".join([*lines, launch, ""])


_ONCE_PER_HOST = """\
# each chunk has a line in the file, and several may be on one host
for host in $(awk '!n[$1]++ { f[$1] = NR - 1 } END { for (h in n) print f[h] ":" n[h] }' "$PBS_NODEFILE"); do
    chunks=${host#*:}
    pbsdsh -n "${host%%:*}" -- %s &
    all="$all $!"
done
code=0
for one in $all; do wait "$one" || code=$?; done
exit "$code"
"""


def qalter_options(wanted: JobChanges, now: float, chunk: str = "") -> list[str]:
    """Options of qalter for changes of a job that waits."""
    found: list[str] = []
    if wanted.resources is not None:
        found += size_options(wanted.resources, chunk)
    if wanted.walltime_s is not None:
        found += limit_options(wanted.walltime_s)
    if wanted.dependencies is not None:
        found += ["-W", f"depend={dependency_list(wanted.dependencies)}"]
    if wanted.begin is not None:
        found += ["-a", local_time(max(wanted.begin, now))]
    return found


def dependency_list(dependencies: Sequence[Dependency]) -> str:
    """PBS's words for dependencies that must all be fulfilled.

    >>> from asa.core.job import JobHandle
    >>> dependency_list([Dependency(JobHandle("7.server", "a", 0.0))])
    'afterok:7.server'
    """
    return ",".join(f"{item.kind.value}:{item.on.job_id}" for item in dependencies)


def local_time(at: float) -> str:
    """A time [s since the epoch] as qsub reads it: in this machine's time zone, whole seconds, rounded up."""
    return time.strftime("%Y%m%d%H%M.%S", time.localtime(math.ceil(at)))


# -- parse its output --------------------------------------------------------------------------------------------------

Attributes = Mapping[str, Any]

_SUFFIXES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_MEMORY = re.compile(r"(\d{1,18})\s*([kmgt]?b)?", re.IGNORECASE)
_TERMINATED = 91
"""Substate of a job that was deleted."""
_SIGNALLED = 256
_OUT_OF_WALLTIME, _OUT_OF_MEMORY = -29, (-26, -27)
"""Exit codes by which the daemon says that it ended a job (PBS Professional from 19 on)."""
_WAITING, _RUNNING, _ENDED = frozenset("QHWTMB"), frozenset("RESU"), frozenset("FXC")


_READABLE = "OpenPBS 14.1 or later expected, with 'qstat -f -F json'"


def document(text: str, key: str) -> dict[str, Attributes]:
    """One table of what a PBS command printed with ``-F json``; {} when it has none."""
    return table(text, lambda found: _mappings(found.get(key, {})), "PBS", _READABLE)


def _mappings(found: Any) -> dict[str, Attributes]:
    return {name: item for name, item in found.items() if isinstance(item, Mapping)}


def parse_job_id(text: str) -> str:
    """From the last line: a site's hook may print others before it."""
    words = text.split()
    if not words:
        raise BackendError("qsub printed no job id")
    return words[-1]


def parse_time(value: Any) -> float | None:
    """A time of PBS [s since the epoch], in this machine's time zone; None when there is none.

    >>> parse_time(1479277336), parse_time("")
    (1479277336.0, None)
    """
    if isinstance(value, int | float):
        return moment(value) if value else 0.0
    try:
        seconds = time.mktime(time.strptime(str(value), "%a %b %d %H:%M:%S %Y"))
        return moment(seconds) if seconds else 0.0
    except (ValueError, OverflowError):
        return None


def parse_duration(value: Any) -> float | None:
    """A duration of PBS [s], or None.

    >>> parse_duration("26:00:05"), parse_duration("90"), parse_duration(None)
    (93605.0, 90.0, None)
    """
    try:
        total = 0.0
        for part in str(value).split(":"):
            total = 60 * total + float(part)
        return total if 0 <= total < math.inf else None
    except ValueError:
        return None


def parse_memory(value: Any) -> int | None:
    """Memory of PBS [bytes], or None.

    >>> parse_memory("32gb"), parse_memory("1024kb"), parse_memory("?")
    (34359738368, 1048576, None)
    """
    match = _MEMORY.fullmatch(str(value).strip())
    return int(match[1]) * _SUFFIXES[(match[2] or "b").lower()] if match else None


@reading("PBS", _READABLE)
def submit_time(job: Attributes) -> float | None:
    """When a job was submitted [s since the epoch]."""
    return parse_time(job.get("ctime"))


@reading("PBS", _READABLE)
def parse_status(handle: JobHandle, job: Attributes) -> JobStatus:
    """How a job stands that PBS knows."""
    state, code = _state(job)
    start = None if state is JobState.PENDING else parse_time(job.get("stime"))
    if state is JobState.CANCELLED and "Exit_status" not in job:
        start = None  # it was deleted before it ran
    return JobStatus(
        handle,
        state,
        reason=_reason(job, state),
        eligible=parse_time(job.get("etime")),
        started=start,
        ended=_end(job, start) if state.final else None,
        nodes=() if start is None else parse_nodes(str(job.get("exec_host", ""))),
        exit_code=code,
        restarts=max(0, int(job.get("run_count", 1)) - 1),
        cores=None if start is None else parse_cores(str(job.get("exec_vnode", ""))),
    )


def _state(job: Attributes) -> tuple[JobState, int | None]:
    letter = str(job.get("job_state", ""))
    if letter in _WAITING:
        return JobState.PENDING, None
    if letter in _RUNNING:
        return JobState.RUNNING, None
    if letter not in _ENDED and "Exit_status" not in job:  # a newer one: a later answer has more
        return (JobState.RUNNING if job.get("exec_host") else JobState.PENDING), None
    exit_status = job.get("Exit_status")
    if exit_status is None:
        return JobState.CANCELLED, None
    code = int(exit_status)
    if code == _OUT_OF_WALLTIME:
        return JobState.TIMEOUT, None
    if code in _OUT_OF_MEMORY:
        return JobState.OUT_OF_MEMORY, None
    if code >= _SIGNALLED:
        code = 128 + code % _SIGNALLED
        if _used_up(job):
            return JobState.TIMEOUT, code
        if int(job.get("substate", 0)) == _TERMINATED:
            return JobState.CANCELLED, code
    if code < 0:
        return JobState.FAILED, None
    return (JobState.COMPLETED if code == 0 else JobState.FAILED), code


def _used_up(job: Attributes) -> bool:
    """Whether a job had all of its wall time: older servers say of those only that they were killed."""
    used = parse_duration(job.get("resources_used", {}).get("walltime"))
    asked = parse_duration(job.get("Resource_List", {}).get("walltime"))
    return used is not None and asked is not None and used >= asked


def _reason(job: Attributes, state: JobState) -> str:
    letter, comment = job.get("job_state"), str(job.get("comment", ""))
    if state is not JobState.PENDING:
        return comment if state.final else ""
    if letter == "W":
        return Reason.BEGIN
    if letter == "H":
        return Reason.DEPENDENCY if job.get("depend") else Reason.HELD
    return Reason.RESOURCES if "nsufficient" in comment else comment or Reason.PRIORITY


def _end(job: Attributes, start: float | None) -> float | None:
    used = parse_duration(job.get("resources_used", {}).get("walltime"))
    if (end := parse_time(job.get("obittime"))) is not None:
        return end
    return start + used if start is not None and used is not None else parse_time(job.get("mtime"))


def parse_nodes(exec_host: str) -> tuple[str, ...]:
    """Names of nodes, each once.

    >>> parse_nodes("n1/0*8+n2/0*8+n1/1")
    ('n1', 'n2')
    """
    return tuple(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))


def parse_cores(exec_vnode: str) -> int | None:
    """Cores of all chunks that a job was given; None where nothing is said of them.

    >>> parse_cores("(n1:ncpus=2:mem=4kb)+(n2:ncpus=2+n3:ncpus=1)"), parse_cores("")
    (5, None)
    """
    return sum(map(int, _CPUS.findall(exec_vnode))) or None


_CPUS = re.compile(r"\bncpus=(\d{1,9})(?!\d)")
_AWAY = ("down", "offline", "unknown", "stale", "provisioning")


def parse_server(text: str) -> tuple[str, Attributes]:
    """The server's name and settings, from ``qstat -B -f -F json``."""
    return next(iter(document(text, "Server").items()), ("pbs", {}))


@reading("PBS", _READABLE)
def site_capabilities(
    name: str, queue: str, settings: Attributes, of_queue: Attributes, nodes: Iterable[Attributes], *, poll_s: float
) -> Capabilities:
    """What a server, its settings, those of a queue, and its nodes amount to.

    The regime is the strictest: a job that waits for another is not eligible, and gathers no eligible time.
    """
    able = [node for node in nodes if not any(word in str(node.get("state", "")) for word in _AWAY)]
    rooms = [node.get("resources_available", {}) for node in able]
    cores = [int(room.get("ncpus", 0)) for room in rooms]
    memory = [parse_memory(room.get("mem")) for room in rooms]
    largest = None
    if sum(cores):
        known = [amount for amount in memory if amount is not None]
        whole = sum(known) if len(known) == len(memory) else None
        most = int(of_queue.get("resources_max", {}).get("ncpus", sum(cores)))
        gpus = sum(int(room.get("ngpus", 0)) for room in rooms)
        largest = Resources(max(1, min(sum(cores), most)), None, whole, gpus)
    details = {"reached through": "PBS's commands", "version": str(settings.get("pbs_version", "?"))}
    if str(settings.get("job_history_enable", "")).lower() != "true":
        details["job history"] = "off: jobs that have ended count as lost; ask the site for job_history_enable"
    return Capabilities(
        site=name,
        partition=queue,
        regime=QueueRegime.LIMITS,
        largest=largest,
        cores_per_node=max(cores, default=None),
        longest_s=parse_duration(of_queue.get("resources_max", {}).get("walltime")),
        poll_s=poll_s,
        details=details,
    )
