"""What PBS prints, and what it says of a job. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from asa.backends.asking import table
from asa.core.errors import BackendError
from asa.core.job import JobHandle, JobState, JobStatus
from asa.core.reason import Reason

Attributes = Mapping[str, Any]

_SUFFIXES = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_SIZE = re.compile(r"(\d+)\s*([kmgt]?b)?", re.IGNORECASE)
_TERMINATED = 91
"""Substate of a job that was deleted."""
_SIGNALLED = 256
_OUT_OF_WALLTIME, _OUT_OF_MEMORY = -29, (-26, -27)
"""Exit codes by which the daemon says that it ended a job (PBS Professional from 19 on)."""
_WAITING, _RUNNING = frozenset("QHWTMB"), frozenset("RES")


def document(text: str, key: str) -> dict[str, Attributes]:
    """One table of what a PBS command printed with ``-F json``; {} when it has none.

    Raises
    ------
    BackendError
        When it is no JSON.
    """
    expected = "OpenPBS 14.1 or later expected, with 'qstat -f -F json'"
    return table(text, lambda found: dict(found.get(key, {})), "PBS", expected)


def job_id(text: str) -> str:
    """The id that qsub printed."""
    words = text.split()
    if not words:
        raise BackendError("qsub printed no job id")
    return words[-1]


def moment(value: Any) -> float | None:
    """A time of PBS [s since the epoch], in this machine's time zone; None when there is none.

    >>> moment(1479277336), moment("")
    (1479277336.0, None)
    """
    if isinstance(value, int | float):
        return float(value)
    try:
        return time.mktime(time.strptime(str(value), "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        return None


def seconds(value: Any) -> float | None:
    """A duration of PBS [s], or None.

    >>> seconds("26:00:05"), seconds("90"), seconds(None)
    (93605.0, 90.0, None)
    """
    try:
        total = 0.0
        for part in str(value).split(":"):
            total = 60 * total + float(part)
        return total
    except ValueError:
        return None


def size(value: Any) -> int | None:
    """Memory of PBS [bytes], or None.

    >>> size("32gb"), size("1024kb"), size("?")
    (34359738368, 1048576, None)
    """
    match = _SIZE.fullmatch(str(value).strip())
    return int(match[1]) * _SUFFIXES[(match[2] or "b").lower()] if match else None


def submitted(job: Attributes) -> float | None:
    """When a job was submitted [s since the epoch]."""
    return moment(job.get("ctime"))


def status(handle: JobHandle, job: Attributes) -> JobStatus:
    """How a job stands that PBS knows."""
    state, code = _state(job)
    start = None if state is JobState.PENDING else moment(job.get("stime"))
    if state is JobState.CANCELLED and "Exit_status" not in job:
        start = None  # it was deleted before it ran
    return JobStatus(
        handle,
        state,
        reason=_reason(job, state),
        eligible=moment(job.get("etime")),
        started=start,
        ended=_end(job, start) if state.final else None,
        nodes=() if start is None else nodes(str(job.get("exec_host", ""))),
        exit_code=code,
        restarts=max(0, int(job.get("run_count", 1)) - 1),
    )


def _state(job: Attributes) -> tuple[JobState, int | None]:
    letter = str(job.get("job_state", ""))
    if letter in _WAITING:
        return JobState.PENDING, None
    if letter in _RUNNING:
        return JobState.RUNNING, None
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
    used = seconds(job.get("resources_used", {}).get("walltime"))
    asked = seconds(job.get("Resource_List", {}).get("walltime"))
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
    used = seconds(job.get("resources_used", {}).get("walltime"))
    if (end := moment(job.get("obittime"))) is not None:
        return end
    return start + used if start is not None and used is not None else moment(job.get("mtime"))


def nodes(exec_host: str) -> tuple[str, ...]:
    """Names of nodes, each once.

    >>> nodes("n1/0*8+n2/0*8+n1/1")
    ('n1', 'n2')
    """
    return tuple(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))
