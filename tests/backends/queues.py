"""Requests, and a queue that is given them, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asa.backends.queue import BatchQueue
from asa.core.job import JobHandle, JobRequest, Resources

CAPACITY = Resources(cores=4, memory=100, gpus=1)


def request(token: str = "a", cores: int = 1, walltime_s: float = 10.0, **fields: Any) -> JobRequest:
    return replace(JobRequest(token, Resources(cores=cores), walltime_s, ("true",)), **fields)


def put(queue: BatchQueue, job: JobRequest, now: float = 0.0) -> JobHandle:
    (outcome,) = queue.submit([job], now)
    assert isinstance(outcome, JobHandle)
    return outcome


def started(queue: BatchQueue, now: float) -> list[str]:
    return [entry.request.token for entry in queue.tick(now).start]


def array(queue: BatchQueue, *jobs: JobRequest, now: float = 0.0) -> list[JobHandle]:
    outcomes = queue.submit([replace(job, array="a") for job in jobs], now)
    handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
    assert len(handles) == len(jobs)
    return handles
