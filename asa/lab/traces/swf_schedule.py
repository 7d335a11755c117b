"""Schedules as logs in the Standard Workload Format."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.swf import FIELDS, STATES, SwfLog
from asa.lab.traces.swf_header import SwfHeader, make_header


def log_of(schedule: Schedule) -> SwfLog:
    """A schedule as a log whose wait, run time and status are what became of the jobs; others can read it.

    Jobs that never started have neither wait nor run time. A job that reached its wall time has status 0.
    """
    jobs = schedule.workload
    started = ~np.isnan(schedule.start)
    status = np.zeros(len(OUTCOMES))
    status[OUTCOMES.index(JobState.PENDING)] = -1
    for code, state in STATES.items():
        status[OUTCOMES.index(state)] = code
    records = np.full((len(jobs), len(FIELDS)), -1.0)
    for name, values in {
        "number": jobs.number,
        "submit": jobs.submit,
        "wait": np.where(started, schedule.wait, -1.0),
        "run": np.where(schedule.ran, schedule.end - schedule.start, -1.0),
        "allocated": np.where(started, jobs.cores, -1.0),
        "requested": jobs.cores,
        "walltime": np.where(np.isnan(jobs.walltime), -1.0, jobs.walltime),
        "requested_memory": _memory(jobs),
        "status": status[schedule.outcome],
        "user": jobs.user,
        "group": jobs.group,
        "executable": jobs.name,
        "partition": jobs.partition,
        "preceding": np.where(jobs.after == UNKNOWN, -1, jobs.number[jobs.after]),
        "think": np.where(jobs.after != UNKNOWN, jobs.think, -1.0),
    }.items():
        records[:, FIELDS.index(name)] = values
    return SwfLog(_header(schedule), records, source="schedule")


def _memory(jobs: Workload) -> Floats:
    """KiB per processor, shape (n,); -1 where a job asks for none."""
    if "memory" not in jobs.resources:
        return np.full(len(jobs), -1.0)
    asked = jobs.units * jobs.demands[jobs.kind, jobs.resources.index("memory")]
    found: Floats = np.where(asked > 0, asked / jobs.cores / 1024, -1.0)
    return found


def _header(schedule: Schedule) -> SwfHeader:
    jobs = schedule.workload
    return make_header(
        {
            "Version": "2.2",
            "Computer": "simulated",
            "MaxJobs": len(jobs),
            "MaxRecords": len(jobs),
            "MaxNodes": schedule.cluster.nodes,
            "MaxProcs": schedule.cluster.cores,
            "Partition": [f"{code} {name}" for code, name in enumerate(jobs.labels.get("partition", ()))],
            "Note": "waits, run times and status are simulated",
        }
    )
