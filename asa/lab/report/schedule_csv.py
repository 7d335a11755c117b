"""A schedule as the table of jobs that Batsim writes (``_jobs.csv``) and evalys reads (``JobSet.from_csv``)."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.metrics.cores import core_runs

COLUMNS = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
)
"""Batsim's, in its order, but for the energy and what users add; evalys needs neither."""

_ENDED = {
    JobState.RUNNING: "RUNNING",
    JobState.COMPLETED: "COMPLETED_SUCCESSFULLY",
    JobState.TIMEOUT: "COMPLETED_WALLTIME_REACHED",
    JobState.FAILED: "COMPLETED_FAILED",
}
_STARTED = [_ENDED.get(state, "COMPLETED_KILLED") for state in OUTCOMES]
_NEVER_STARTED = ["SUBMITTED" if state is JobState.PENDING else "REJECTED" for state in OUTCOMES]


def write_csv(schedule: Schedule, path: str | Path, workload_name: str = "w0") -> None:
    """Write a schedule, a line per job in order of submission.

    A resource is a core, numbered through all nodes: with one core on each node it is the node. Times are in seconds,
    in as many digits as they have. What a job that never started does not have stays empty, and so does the stretch
    (turnaround over run time) of one that ran for no time. Without placements `allocated_resources` is empty, and
    evalys can draw neither Gantt chart nor utilisation.

    Raises
    ------
    InvalidInput
        When the file cannot be written.

    References
    ----------
    The Batsim documentation, "Jobs" (output), and evalys' ``jobset.py``.
    """
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(_lines(schedule, workload_name))
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _lines(schedule: Schedule, workload_name: str) -> Iterator[tuple[object, ...]]:
    jobs = schedule.workload
    run = schedule.end - schedule.start
    turnaround = schedule.end - jobs.submit
    stretch = np.divide(turnaround, run, out=np.full(len(jobs), np.nan), where=run > 0)
    started = (~np.isnan(schedule.start)).tolist()
    outcomes = zip(schedule.outcome.tolist(), started, strict=True)
    return zip(
        jobs.number.tolist(),
        itertools.repeat(workload_name, len(jobs)),
        (jobs.label("name", row) for row in range(len(jobs))),
        _texts(jobs.submit),
        jobs.cores.tolist(),
        _texts(jobs.walltime),
        (schedule.outcome == OUTCOMES.index(JobState.COMPLETED)).astype(int).tolist(),
        ((_STARTED if has_started else _NEVER_STARTED)[code] for code, has_started in outcomes),
        _texts(schedule.start),
        _texts(run),
        _texts(schedule.end),
        _texts(schedule.wait),
        _texts(turnaround),
        _texts(stretch),
        interval_sets(schedule),
        strict=True,
    )


def interval_sets(schedule: Schedule) -> Iterator[str]:
    """The cores that each job held, such as ``0-3 7``; "" for those that held none, or nobody wrote it down."""
    runs = core_runs(schedule)
    pairs = zip(runs.job.tolist(), runs.first.tolist(), runs.last.tolist(), strict=True)
    following = next(pairs, None)
    for row in range(len(schedule)):
        parts = []
        while following is not None and following[0] == row:
            _, first, last = following
            parts.append(str(first) if first == last else f"{first}-{last}")
            following = next(pairs, None)
        yield " ".join(parts)


def _texts(values: Floats) -> Iterable[str]:
    return ("" if value != value else repr(value) for value in values.tolist())
