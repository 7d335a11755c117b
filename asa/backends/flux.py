"""Flux, through its commands. Tried by hand on Flux 0.88: ``docs/howto/pbs-flux.md``.

References
----------
Flux RFC 19 (F58 job ids), 21 (job states and events).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from asa.backends import batch
from asa.backends.batch import (
    Ask,
    Asking,
    ErrorPatterns,
    by_subprocess,
    host_names,
    moment,
    of_known,
    reading,
    table,
)
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Capabilities,
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
from asa.core.units import check_number
from asa.core.view import QueueView

ERRORS = ErrorPatterns(
    no_answer=re.compile(
        r"unable to connect to flux|flux_open|connection (refused|reset|timed out)|no route to host|host is unreachable"
        r"|broken pipe|operation timed out|resource temporarily unavailable",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^flux-\w+: (ERROR: )?"),
    ended=re.compile(r"unknown|not found|inactive|no such", re.IGNORECASE),
)
_RESOURCES = "{state} {nnodes} {ncores} {ngpus}"
_UNKNOWN = re.compile(r"(?:jobid|job|id) (\S+?):? (?:unknown|not found)|unknown (?:job )?id:? (\S+)", re.IGNORECASE)


class Flux:
    """A cluster, or an allocation, under Flux, through its commands.

    It was written from Flux's documentation, and is tested with outputs in the form shown there. Of a waiting job only
    the wall time can be changed. Flux does not count memory, and neither do jobs.

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
        check_number("poll_s", poll_s, 0, above=True)
        check_number("timeout_s", timeout_s, 0, above=True)
        self._options = FluxOptions(queue, bank, (setup,) if isinstance(setup, str) else tuple(setup), extra)
        self._apart: dict[Options, Flux] = {}
        self._ask = Asking(ask or by_subprocess(timeout_s), ERRORS)
        self._clock: Clock = clock or SystemClock()
        self._name, self._poll_s = site, poll_s

    def capabilities(self) -> Capabilities:
        """What matters to planning; asked once."""
        return replace(self._site, apart=lambda options: self._for(options).capabilities())

    def _for(self, options: Options) -> Flux:
        return batch.variant(self, self._apart, options, lambda made: made._take(options))

    def _take(self, options: Options) -> None:
        own = batch.own_options(options, {"partition": "queue", "account": "bank"}, self._options.setup, "Flux")
        self._options = replace(self._options, **own)

    @cached_property
    def _site(self) -> Capabilities:
        queue = self._options.queue or ""
        where = [f"--queue={queue}"] if queue else []
        text = self._ask(["flux", "resource", "list", "-s", "free,allocated", "-n", *where, "-o", _RESOURCES])
        return parse_capabilities(text, site=self._name, queue=queue, poll_s=self._poll_s)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """One outcome per request, in order; a refusal has Flux's own message. It has no job arrays."""
        return batch.with_site_times(batch.outcomes(requests, self._submit), self._submitted)

    def preview(self, requests: Sequence[JobRequest]) -> list[str]:
        now = self._clock.now()
        lines = (submit_command(request, self._for(request.options)._options, now) for request in requests)
        return [shlex.join(batch.without(requests[0].withheld, line)) for line in lines]

    def _submit(self, request: JobRequest) -> JobHandle:
        own = self._for(request.options)
        request = batch.submittable(request, own._site, self.query, "Flux")
        now = self._clock.now()
        printed = self._ask(batch.without(request.withheld, submit_command(request, own._options, now)))
        return JobHandle(parse_job_id(printed), request.token, now)

    def _submitted(self, handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        known = self._known(handles)
        return {handle: submit_time(known[handle.job_id]) for handle in handles if handle.job_id in known}

    def _known(self, handles: Sequence[JobHandle]) -> dict[str, Attributes]:
        ids = [handle.job_id for handle in handles]
        return parse_jobs(of_known(ids, lambda some: self._ask(["flux", "jobs", "--json", "-a", *some]), _UNKNOWN))

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """One status per handle, in order, from one ``flux jobs``, and more for those that it does not know."""
        return batch.statuses(handles, self._query, self._clock)

    def _query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        known = self._known(handles)
        return [
            parse_status(handle, job)
            if (job := known.get(handle.job_id)) and job.get("name") == handle.token  # Flux never gives an id twice
            else batch.lost(handle, "Flux")
            for handle in handles
        ]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under, with one question for each, and more where there is none."""
        return batch.found_or_unknown_twice(tokens, self._find, self._clock)

    def _find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        question = ["flux", "jobs", "--json", "-a", "--count=0"]
        known = [item for token in tokens for item in parse_jobs(self._ask([*question, f"--name={token}"])).items()]
        handles = (JobHandle(key, str(job.get("name")), submit_time(job)) for key, job in known)
        return batch.first_submitted(handles, tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change the wall time of a job that waits.

        Raises a `BackendError` when it waits no more, the site says no, or anything else is to be changed.
        """
        if replace(changes, walltime_s=None) != JobChanges():
            raise BackendError(
                f"Flux job {batch.job_label(handle)}: only the wall time of a job that waits can be changed"
            )
        batch.require_pending(self.query([handle])[0], "Flux")
        if changes.walltime_s is not None:
            self._ask(["flux", "update", handle.job_id, f"duration={seconds(changes.walltime_s)}"])

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask that these jobs end; they are looked up first, and those that have ended passed over."""
        if live := batch.live_ids(self.query(handles)):
            self._ask(["flux", "cancel", *live], unless=ERRORS.only_ended)

    def look(self) -> QueueView | None:
        """Nothing: the queue of other users is not asked for."""
        return None

    def close(self) -> None:
        """There is nothing to close."""


# -- make a command ----------------------------------------------------------------------------------------------------

_OURS = re.compile(
    r"--(job-name|time-limit|nodes|ntasks|cores|cores-per-task|gpus-per-task|tasks-per-node|output|error|input|cwd"
    r"|dependency|begin-time|exclusive)(=.*)?|-[tNncgx].*"
)


SCRIPT = """exec </dev/null >>"$0" 2>&1
trap : TERM INT HUP
SETUP
(exec "$@")
code=$?
read -r _ _ _ _ group _ </proc/$$/stat
if [ "$group" = $$ ]; then
    trap '' TERM
    kill -TERM 0
    (sleep 1; kill -KILL 0) &
fi
exit $code
"""
"""What runs the program, whose output goes to the file ``$0``.

Flux waits for the end of a job's output, not only for that of its program: a child that had kept it open would hold the
allocation until its wall time ends. And its two streams would come out of order. So the program writes to the file
itself, and what it leaves behind is ended: Flux gives each task a process group of its own.
"""


@dataclass(frozen=True, slots=True)
class FluxOptions:
    """What a user asks of every job, as in `Flux`; raises `InvalidInput` for an extra option that ASA gives itself."""

    queue: str | None = None
    bank: str | None = None
    setup: tuple[str, ...] = ()
    extra: str = ""

    def __post_init__(self) -> None:
        for word in self.words:
            if _OURS.fullmatch(word):
                raise InvalidInput(f"flux's {word} cannot be passed through: it follows from the stage, or the run")

    @property
    def words(self) -> list[str]:
        return shlex.split(self.extra)


def submit_command(request: JobRequest, wanted: FluxOptions, now: float) -> list[str]:
    """``flux submit`` with the program: a task on each node, with all of the job's cores there.

    The program writes to its file itself, see `SCRIPT`. Flux has no option for memory: the request's is not passed on.
    """
    found = [
        f"--job-name={request.token}",
        *size(request.resources),
        f"--time-limit={seconds(request.walltime_s)}",
        f"--cwd={request.workdir}",
        "--input=/dev/null",
        "--output=/dev/null",
        "--error=/dev/null",
    ]
    found += [f"--dependency={item.kind.value}:{item.on.job_id}" for item in request.dependencies]
    if request.begin is not None and request.begin > now:
        found.append(f"--begin-time=+{seconds(request.begin - now)}")
    found += [f"--queue={wanted.queue}"] if wanted.queue else []
    found += [f"--bank={wanted.bank}"] if wanted.bank else []
    target = "/dev/null" if request.output is None else request.output
    script = SCRIPT.replace("SETUP\n", "".join(f"{line}\n" for line in wanted.setup))
    return ["flux", "submit", *found, *wanted.words, "--", "/bin/sh", "-c", script, target, *request.argv]


def size(resources: Resources) -> list[str]:
    """One task on each node; on any one node where the number of nodes is left open.

    Units are slots on any nodes; still one task, the program, runs on each node that has some.

    >>> size(Resources(16, nodes=2, gpus=4))
    ['--nodes=2', '--ntasks=2', '--cores-per-task=8', '--gpus-per-task=2']
    >>> size(Resources(16, unit=4))
    ['--ntasks=4', '--cores-per-task=4', '--setopt=per-resource.type=node']
    """
    if resources.unit is not None:
        slots = [f"--ntasks={resources.cores // resources.unit}", f"--cores-per-task={resources.unit}"]
        return [*slots, "--setopt=per-resource.type=node"]
    nodes = resources.nodes or 1
    each = resources.on_each(nodes)
    found = [f"--nodes={nodes}", f"--ntasks={nodes}", f"--cores-per-task={each.cores}"]
    return [*found, f"--gpus-per-task={each.gpus}"] if each.gpus else found


def seconds(duration: float) -> str:
    """A duration in Flux's words: whole seconds, rounded up, at least one.

    >>> seconds(0.2), seconds(5400)
    ('1s', '5400s')
    """
    return f"{max(1, math.ceil(duration))}s"


# -- parse its output --------------------------------------------------------------------------------------------------

Attributes = Mapping[str, Any]

_READABLE = "a flux with 'flux jobs --json' expected"
_ID_MOST = 100
_LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WAITING, _RUNNING = ("NEW", "DEPEND", "PRIORITY", "SCHED"), ("RUN", "CLEANUP")
_RESULTS = {
    "COMPLETED": JobState.COMPLETED,
    "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "FAILED": JobState.FAILED,
}


def parse_job_id(text: str) -> str:
    """The id that ``flux submit`` printed, in decimal.

    >>> parse_job_id("ƒ2oLuiaM\\n"), parse_job_id("f1"), parse_job_id("123")
    ('68486402978', '0', '123')
    """
    words = text.split()
    if not words:
        raise BackendError("flux submit printed no job id")
    word = words[-1]
    if word.isdecimal() and word.isascii():
        return word
    if len(word) > _ID_MOST:
        raise BackendError(f"flux submit printed {word[:100]!r}: a job id expected, like ƒ2oLuiaM")
    number = 0
    for letter in word[1:]:
        if word[0] not in "ƒf" or letter not in _LETTERS:
            raise BackendError(f"flux submit printed {word!r}: a job id expected, like ƒ2oLuiaM")
        number = 58 * number + _LETTERS.index(letter)
    return str(number)


def parse_jobs(text: str) -> dict[str, Attributes]:
    """Jobs by id, from ``flux jobs --json``, which prints a single one by itself."""
    return table(text, _listed, "flux", _READABLE)


def _listed(found: Any) -> dict[str, Attributes]:
    jobs = found.get("jobs", [found] if "id" in found else [])
    return {str(job["id"]): job for job in jobs if isinstance(job, Mapping)}


@reading("flux", _READABLE)
def parse_status(handle: JobHandle, job: Attributes) -> JobStatus:
    """How a job stands that Flux knows."""
    state, start = _state(job), _time(job, "t_run")
    end = _time(job, "t_cleanup") or _time(job, "t_inactive") if state.final else None
    sched = (job.get("annotations") or {}).get("sched") or {}
    planned = sched.get("t_estimate") if isinstance(sched, Mapping) else None
    return JobStatus(
        handle,
        state,
        reason=_reason(job, state),
        eligible=None if job.get("state") in ("NEW", "DEPEND") else _time(job, "t_submit"),
        started=start,
        ended=end,
        planned=moment(float(planned)) if planned else None,
        nodes=host_names(str(job["nodelist"])) if start is not None and job.get("nodelist") else (),
        exit_code=_exit_code(job) if state.final and start is not None else None,
        cores=int(job.get("ncores") or 0) or None if start is not None else None,
    )


@reading("flux", _READABLE)
def submit_time(job: Attributes) -> float:
    """When a job was submitted [s since the epoch]."""
    return _time(job, "t_submit") or 0.0


def _time(job: Attributes, key: str) -> float | None:
    """0 stands for a time that has not come."""
    value = job.get(key)
    return moment(float(value)) if value else None


def _exception(job: Attributes) -> Attributes:
    found = job.get("exception") or {}
    return found if isinstance(found, Mapping) and found.get("occurred") else {}


def _state(job: Attributes) -> JobState:
    state = job.get("state")
    if state in _WAITING:
        return JobState.PENDING
    if state in _RUNNING:
        return JobState.RUNNING
    if state != "INACTIVE" and job.get("result") not in _RESULTS:  # a newer word: a later answer has more
        return JobState.PENDING if _time(job, "t_run") is None else JobState.RUNNING
    kind = _exception(job).get("type")
    if kind == "dependency" and _time(job, "t_run") is None:
        return JobState.CANCELLED  # its dependency can never be fulfilled
    if kind == "node-failure":
        return JobState.NODE_FAIL
    return _RESULTS.get(str(job.get("result")), JobState.FAILED)


def _exit_code(job: Attributes) -> int | None:
    """The exit code, 128 + n after signal n."""
    code = job.get("returncode")
    if not isinstance(code, int):
        return None
    return code if code >= 0 else 128 - code


def _reason(job: Attributes, state: JobState) -> str:
    if state is JobState.PENDING:
        waits = [str(item) for item in job.get("dependencies") or ()]
        if any(item.startswith("begin-time") for item in waits):
            return Reason.BEGIN
        if waits or job.get("state") == "DEPEND":
            return Reason.DEPENDENCY
        return Reason.HELD if job.get("urgency") == 0 else Reason.RESOURCES
    return str(_exception(job).get("note", "")) if state.final else ""


@reading("flux", "states, nodes, cores and GPUs of 'flux resource list' expected")
def parse_capabilities(text: str, *, site: str, queue: str, poll_s: float) -> Capabilities:
    """What ``flux resource list`` amounts to: lines of state, nodes, cores and GPUs.

    The regime is the strictest, because Flux gives a job its place when what it waits for has ended.
    """
    nodes = cores = gpus = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] in ("free", "allocated"):
            nodes, cores, gpus = nodes + int(words[1]), cores + int(words[2]), gpus + int(words[3])
    return Capabilities(
        site=site,
        partition=queue,
        regime=QueueRegime.LIMITS,
        largest=Resources(cores, None, None, gpus) if cores else None,
        cores_per_node=cores // nodes if nodes else None,
        poll_s=poll_s,
        details={"reached through": "flux's commands"},
    )
