"""Whose record is it? An id alone does not tell: a controller that lost its state gives ids out again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from asa.backends.slurm.record import JobRecord
from asa.core.job import JobHandle

CLOCK_SKEW_S = 300.0
"""Two machines of one cluster cannot differ by more [s]: munge refuses credentials that old or that new."""


def key(handle: JobHandle) -> str:
    """What Slurm's commands call the job.

    >>> key(JobHandle("464", "token", submitted=0.0, array_index=2))
    '464_2'
    """
    return handle.job_id if handle.array_index is None else f"{handle.job_id}_{handle.array_index}"


def keys(handles: Iterable[JobHandle]) -> list[str]:
    """Each job's key, once."""
    return list(dict.fromkeys(map(key, handles)))


def agrees(handle: JobHandle, record: JobRecord) -> bool:
    """Whether the record is of this job.

    Id, name and submission time must all fit. A requeued job's submission time is that of its last requeue.
    """
    near = abs(record.submitted - handle.submitted) <= CLOCK_SKEW_S
    later = record.restarts > 0 and record.submitted > handle.submitted
    return record.key == key(handle) and record.name == handle.token and (near or later)


def of_array(handle: JobHandle, record: JobRecord) -> bool:
    """Whether the record is of an element, whichever, of the array that the job belongs to."""
    near = abs(record.submitted - handle.submitted) <= CLOCK_SKEW_S
    return handle.array_index is not None and near and record.key.startswith(f"{handle.job_id}_")


def match(handles: Sequence[JobHandle], records: Iterable[JobRecord]) -> dict[JobHandle, JobRecord]:
    """The record of each of these jobs that has one."""
    by_key: dict[str, list[JobRecord]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    return {handle: record for handle in handles for record in by_key.get(key(handle), ()) if agrees(handle, record)}


def handle_of(record: JobRecord) -> JobHandle:
    """A handle on the job that a record is of."""
    job_id, _, index = record.key.partition("_")
    return JobHandle(job_id, record.name, record.submitted, int(index) if index else None)
