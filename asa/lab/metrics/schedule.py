"""A schedule in a few dozen numbers."""

from __future__ import annotations

import math
import resource
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.job import JobState
from asa.core.units import HOUR, WEEK
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.metrics.job import bounded_slowdown, by_class, class_names, size_classes, spread, user_means
from asa.lab.metrics.system import jain_index, longest_queue, utilisation

STARVED_S = WEEK
"""A job that waited longer has starved [s]: a week, longer than a wall time may be on most machines."""


def summarise(schedule: Schedule, starved_s: float = STARVED_S) -> dict[str, Any]:
    """Numbers of a schedule, JSON-able; None where there is none (a mean of no jobs, say).

    Parameters
    ----------
    starved_s
        Jobs that waited longer than this [s] are counted as starved.

    Returns
    -------
    dict
        - `jobs` in the workload, `jobs_ran` that started and ended; `outcomes`: how many came out as what, `refused`
          being those that the machine could never have run; `restarts`: how often jobs were requeued.
        - `mean_`, `median_`, `p90_`, `p99_` and `max_` of `wait_s`, `turnaround_s` and `bounded_slowdown` of the jobs
          that ran; `by_size`: wait and bounded slowdown by size class.
        - `makespan_s`: first submission to last end; `utilisation` over the makespan, `utilisation_while_submitting`
          from the first to the last submission; `throughput_jobs_per_hour` over the makespan.
        - `starved` jobs and the `max_queue_age_s` that any job reached, those that never started included;
          `max_queue_length`, and `mean_queue_length` over the makespan. Jobs that another one holds back do not count.
        - `users`, `mean_user_bounded_slowdown`, `max_user_bounded_slowdown`: of the users' own means; `jain_index` of
          these (1: all users fared alike).
        - `decisions`, and `seconds` and `jobs_per_second` of the simulation loop; `peak_memory_mb` of the whole
          process so far, in units of 10^6 bytes.

    Notes
    -----
    Of a requeued job only the last run is in a schedule: core-seconds that earlier ones wasted are not counted as
    used.
    """
    workload, ran = schedule.workload, schedule.ran
    submit, start, end = workload.submit[ran], schedule.start[ran], schedule.end[ran]
    cores, capacity = workload.cores[ran], schedule.cluster.cores
    wait, turnaround, run = start - submit, end - submit, end - start
    slowdown = bounded_slowdown(turnaround, run)
    first = float(workload.submit.min(initial=math.inf))
    last_submit = float(workload.submit.max(initial=-math.inf))
    over = float(end.max(initial=-math.inf))
    makespan = over - first
    since, left = queued(schedule)
    ages = left - since
    users = user_means(slowdown, workload.user[ran])
    numbers: dict[str, Any] = {
        "jobs": len(schedule),
        "jobs_ran": len(wait),
        "refused": int(refused(schedule).sum()),
        "restarts": int(schedule.restarts.sum()),
        **_flat("wait_s", wait),
        **_flat("turnaround_s", turnaround),
        **_flat("bounded_slowdown", slowdown),
        "makespan_s": makespan,
        "utilisation": utilisation(start, end, cores, capacity, begin=first, until=over),
        "utilisation_while_submitting": utilisation(start, end, cores, capacity, begin=first, until=last_submit),
        "throughput_jobs_per_hour": len(wait) / makespan * HOUR if makespan > 0 else math.nan,
        "starved": int((ages > starved_s).sum()),
        "max_queue_age_s": float(ages.max(initial=0.0)),
        "max_queue_length": longest_queue(since, left),
        "mean_queue_length": float(ages.sum()) / makespan if makespan > 0 else math.nan,
        "users": len(users),
        "mean_user_bounded_slowdown": float(users.mean()) if len(users) else math.nan,
        "max_user_bounded_slowdown": float(users.max(initial=-math.inf)),
        "jain_index": jain_index(users),
        "decisions": schedule.decisions,
        "seconds": schedule.seconds,
        "jobs_per_second": len(schedule) / schedule.seconds if schedule.seconds > 0 else math.nan,
        "peak_memory_mb": peak_memory_mb(),
    }
    known = {name: value if isinstance(value, int) or math.isfinite(value) else None for name, value in numbers.items()}
    return known | {"outcomes": _outcomes(schedule), "by_size": _by_size(wait, slowdown, cores, capacity)}


def queued(schedule: Schedule) -> tuple[Floats, Floats]:
    """When jobs came into the queue and left it [s], shape (k,) each, of those that were in it.

    A job is in the queue from when it is eligible, so neither while another one holds it back nor when it was refused.
    One that never started left when it was cancelled, or waits until everything is over.
    """
    rows = ~np.isnan(schedule.eligible) & ~refused(schedule)
    left = np.where(np.isnan(schedule.start), schedule.end, schedule.start)
    times = np.concatenate([schedule.workload.submit, schedule.eligible, left, schedule.end])
    over = np.max(times, where=~np.isnan(times), initial=-math.inf)
    return schedule.eligible[rows], np.where(np.isnan(left), over, left)[rows]


def refused(schedule: Schedule) -> npt.NDArray[np.bool_]:
    """Which jobs the machine could never have run, shape (n,)."""
    mask: npt.NDArray[np.bool_] = np.isnan(schedule.start) & (schedule.outcome == OUTCOMES.index(JobState.FAILED))
    return mask


def peak_memory_mb() -> float:
    """Most memory that this process has held so far [10^6 bytes]."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _flat(name: str, values: Floats) -> dict[str, float]:
    return {f"{which}_{name}": value for which, value in asdict(spread(values)).items() if which != "count"}


def _outcomes(schedule: Schedule) -> dict[str, int]:
    counts = np.bincount(schedule.outcome[~refused(schedule)], minlength=len(OUTCOMES)).tolist()
    named = zip([*(state.value for state in OUTCOMES), "refused"], [*counts, len(schedule) - sum(counts)], strict=True)
    return {name: count for name, count in named if count}


def _by_size(wait: Floats, slowdown: Floats, cores: Any, capacity: int) -> list[dict[str, Any]]:
    """A row for each class that has jobs."""
    bounds = size_classes(capacity)
    rows = zip(class_names(bounds), by_class(wait, cores, bounds), by_class(slowdown, cores, bounds), strict=True)
    return [
        {
            "cores": name,
            "jobs": waits.count,
            "mean_wait_s": waits.mean,
            "median_wait_s": waits.median,
            "p90_wait_s": waits.p90,
            "max_wait_s": waits.max,
            "mean_bounded_slowdown": slowdowns.mean,
            "max_bounded_slowdown": slowdowns.max,
        }
        for name, waits, slowdowns in rows
        if waits.count
    ]
