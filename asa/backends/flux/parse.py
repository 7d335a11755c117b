"""What Flux prints, and what it says of a job. Pure.

References
----------
Flux RFC 19 (F58 job ids), 21 (job states and events).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asa.backends.asking import table
from asa.backends.slurm.hostlist import expand
from asa.core.errors import BackendError
from asa.core.job import Capabilities, JobHandle, JobState, JobStatus, QueueRegime, Resources
from asa.core.reason import Reason

Attributes = Mapping[str, Any]

_LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_WAITING, _RUNNING = ("NEW", "DEPEND", "PRIORITY", "SCHED"), ("RUN", "CLEANUP")
_RESULTS = {"COMPLETED": JobState.COMPLETED, "CANCELED": JobState.CANCELLED, "TIMEOUT": JobState.TIMEOUT}


def job_id(text: str) -> str:
    """The id that ``flux submit`` printed, in decimal.

    >>> job_id("ƒ2oLuiaM\\n"), job_id("f1"), job_id("123")
    ('68486402978', '0', '123')
    """
    words = text.split()
    if not words:
        raise BackendError("flux submit printed no job id")
    word = words[-1]
    if word.isdecimal():
        return word
    number = 0
    for letter in word[1:]:
        if word[0] not in "ƒf" or letter not in _LETTERS:
            raise BackendError(f"flux submit printed {word!r}: a job id expected, like ƒ2oLuiaM")
        number = 58 * number + _LETTERS.index(letter)
    return str(number)


def jobs(text: str) -> dict[str, Attributes]:
    """Jobs by id, from ``flux jobs --json``, which prints a single one by itself.

    Raises
    ------
    BackendError
        When it is no JSON.
    """
    return table(text, _listed, "flux", "a flux with 'flux jobs --json' expected")


def _listed(found: Any) -> dict[str, Attributes]:
    return {str(job["id"]): job for job in found.get("jobs", [found] if "id" in found else [])}


def status(handle: JobHandle, job: Attributes) -> JobStatus:
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
        planned=float(planned) if planned else None,
        nodes=expand(str(job["nodelist"])) if start is not None and job.get("nodelist") else (),
        exit_code=_exit_code(job) if state.final and start is not None else None,
    )


def submitted(job: Attributes) -> float:
    """When a job was submitted [s since the epoch]."""
    return _time(job, "t_submit") or 0.0


def _time(job: Attributes, key: str) -> float | None:
    """0 stands for a time that has not come."""
    value = job.get(key)
    return float(value) if value else None


def _exception(job: Attributes) -> Attributes:
    found = job.get("exception") or {}
    return found if isinstance(found, Mapping) and found.get("occurred") else {}


def _state(job: Attributes) -> JobState:
    state = job.get("state")
    if state in _WAITING:
        return JobState.PENDING
    if state in _RUNNING:
        return JobState.RUNNING
    kind = _exception(job).get("type")
    if kind == "dependency" and _time(job, "t_run") is None:
        return JobState.CANCELLED  # what it waited for can never come true
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


def capabilities(text: str, *, site: str, queue: str, poll_s: float) -> Capabilities:
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
