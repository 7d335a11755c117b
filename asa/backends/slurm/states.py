"""Slurm's job states in ASA's words."""

from __future__ import annotations

import re

from asa.backends.slurm.identity import key
from asa.backends.slurm.record import JobRecord
from asa.core.job import JobHandle, JobState, JobStatus

STATES = {
    # waits
    "PENDING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,  # requeued and held because of its exit code
    "EXPEDITING": JobState.PENDING,
    # holds its cores, whether or not its program runs just now
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "POWER_UP_NODE": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "UPDATE_DB": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,  # alone it hides how the job ends; the word that follows tells
    # has ended
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,  # started elsewhere in a federation
    "PREEMPTED": JobState.PREEMPTED,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "NODE_FAIL": JobState.NODE_FAIL,
    "BOOT_FAIL": JobState.NODE_FAIL,
    "LAUNCH_FAILED": JobState.NODE_FAIL,
    "RECONFIG_FAIL": JobState.NODE_FAIL,
}
"""Slurm's word -> state, for the words of squeue, sacct and the REST interface up to 25.11."""

_NOW_S = 2.0  # the controller's clock may be ahead, and tells whole seconds
_BY = re.compile(r"CANCELLED by (\d+)")
_SEPARATOR = re.compile(r"[,+ ]")


def state_of(record: JobRecord) -> JobState:
    """Where the job stands.

    A word that is not in the table counts as RUNNING for a job that holds nodes and as PENDING for others: such a job
    is neither submitted again nor given up, and a later answer tells more. Newer versions add flags to a state
    (``CANCELLED,COMPLETING``); the state comes first.
    """
    return meaning(record.word, holds_nodes=bool(record.nodes))


def meaning(word: str, *, holds_nodes: bool = False) -> JobState:
    """Where a job stands of which Slurm says this; see `state_of`."""
    fallback = JobState.RUNNING if holds_nodes else JobState.PENDING
    return STATES.get(_SEPARATOR.split(word)[0], fallback)


def status(handle: JobHandle, queued: JobRecord | None, accounted: JobRecord | None, now: float) -> JobStatus:
    """What the controller's record says of a job or, once the controller has forgotten it, the accounting's.

    The controller keeps a job as long as it waits or runs and a while longer (``MinJobAge``). A job that it has
    forgotten is over, even if the accounting still shows it as running. A job whose age is to count from later than
    `now` [s since the epoch] does not age yet.
    """
    if queued is not None:
        return _told(handle, queued, now)
    if accounted is not None and state_of(accounted).final:
        return _told(handle, accounted, now)
    return _lost(handle, accounted)


def _told(handle: JobHandle, record: JobRecord, now: float) -> JobStatus:
    state = state_of(record)
    ages = state is JobState.PENDING and record.ages_since is not None and record.ages_since <= now + _NOW_S
    ran = bool(record.nodes)  # a job cancelled while it waited has a start time all the same
    return JobStatus(
        handle=handle,
        state=state,
        reason=_reason(record),
        eligible=record.eligible,
        started=record.start if ran else None,
        ended=record.end if state.final else None,
        planned=record.start if state is JobState.PENDING else None,
        ages_since=record.ages_since if ages else None,
        nodes=record.nodes,
        exit_code=record.exit_code if state.final and ran else None,
        restarts=record.restarts,
    )


def _reason(record: JobRecord) -> str:
    said = [record.reason] if record.reason else []
    if match := _BY.fullmatch(record.word):
        said.append(f"cancelled by uid {match[1]}")
    elif _SEPARATOR.split(record.word)[0] not in STATES:
        said.append(f"unknown state {record.word!r}")
    return "; ".join(said)


def _lost(handle: JobHandle, last: JobRecord | None) -> JobStatus:
    known = "the accounting has no record of it" if last is None else f"the accounting still says {last.word}"
    reason = f"Slurm's controller does not know job {key(handle)} ({handle.token}) any more, and {known}"
    return JobStatus(
        handle,
        JobState.LOST,
        reason=reason,
        started=last.start if last and last.nodes else None,
        nodes=last.nodes if last else (),
    )
