"""A schedule for a terminal, and as Batsim's CSV file of jobs."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.command import table
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.core.units import brief
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.metrics.cores import core_runs
from asa.report.words import counted

COMPARED = (
    "mean_wait_s",
    "max_wait_s",
    "mean_bounded_slowdown",
    "max_bounded_slowdown",
    "utilisation",
    "makespan_s",
    "jain_index",
    "starved",
    "refused",
    "seconds",
)
"""What a comparison shows of each dispatcher."""
ENERGY = ("energy_kwh", "co2_kg")
"""And this, where the power of nodes is declared."""


def title(row: Mapping[str, Any]) -> str:
    """What was simulated, on what."""
    return f"{row['trace']} on {counted(row['nodes'], 'node')}, {counted(row['cores'], 'core')}"


def comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of dispatchers."""

    def short(value: Any) -> Any:
        return round(value) if isinstance(value, float) and abs(value) >= 1000 else value

    names = ("dispatcher", *COMPARED, *(name for name in ENERGY if name in rows[0]))
    return table([{name: short(row[name]) for name in names} for row in rows], "nothing")


def in_words(row: Mapping[str, Any]) -> str:
    """All that matters of one schedule."""

    def times(name: str) -> str:
        mean, median, p90, most = (row[f"{which}_{name}"] for which in ("mean", "median", "p90", "max"))
        return f"mean {_span(mean)}, median {_span(median)}, 90 % within {_span(p90)}, longest {_span(most)}"

    slow = [row[f"{which}_bounded_slowdown"] for which in ("mean", "median", "p90", "max")]
    outcomes = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in row["outcomes"].items())
    again = f"; requeued {row['restarts']:,} times" if row["restarts"] else ""
    lines = {
        "jobs": f"{row['jobs']:,}: {outcomes}{again}",
        "wait": times("wait_s"),
        "turnaround": times("turnaround_s"),
        "bounded slowdown": "mean {}, median {}, 90 % within {}, largest {}".format(*map(_number, slow)),
        "utilisation": f"{_percent(row['utilisation'])}, until the last submission "
        f"{_percent(row['utilisation_while_submitting'])}",
        "makespan": f"{_span(row['makespan_s'])}, {_number(row['throughput_jobs_per_hour'])} jobs an hour",
        "queue": f"mean {_number(row['mean_queue_length'])} jobs, most {row['max_queue_length']:,}; "
        f"{row['starved']:,} waited longer than a week",
        "users": f"{row['users']:,}, mean bounded slowdown {_number(row['mean_user_bounded_slowdown'])}, worst "
        f"{_number(row['max_user_bounded_slowdown'])}; Jain's index {_number(row['jain_index'])}",
        **_energy(row),
        "simulation": f"{_number(row['seconds'])} s, {_number(row['jobs_per_second'])} jobs a second, "
        f"{_number(row['peak_memory_mb'])} MB",
    }
    head = f"{row['dispatcher']}: {title(row)}"
    body = [f"  {name:16}  {text}" for name, text in lines.items()]
    sizes = [
        {
            "cores": entry["cores"],
            "jobs": entry["jobs"],
            "mean wait": _span(entry["mean_wait_s"]),
            "longest": _span(entry["max_wait_s"]),
            "mean slowdown": _number(entry["mean_bounded_slowdown"]),
        }
        for entry in row["by_size"]
    ]
    return "\n".join([head, *body, "", table(sizes, "no job ran")])


def _energy(row: Mapping[str, Any]) -> dict[str, str]:
    """The line of energy, where there is one."""
    words = [
        f"{_number(row[all_])} {unit}, {_number(row[jobs])} by busy cores"
        for all_, jobs, unit in (("energy_kwh", "energy_jobs_kwh", "kWh"), ("co2_kg", "co2_jobs_kg", "kg of CO2"))
        if all_ in row
    ]
    return {"energy": "; ".join(words)} if words else {}


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else brief(seconds)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


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
    """The cores that each job held, such as ``0-3 7``; "" for those that held none, or where it was not recorded."""
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
