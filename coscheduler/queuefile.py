"""Queues as TOML files: see docs/coscheduler.md for the format."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.sharing import WaitingJob
from asa.core.units import duration, share
from coscheduler.workload import Load, Phase, paper_queue, phases

_QUEUE = {"cores", "contention", "paper", "seed", "jobs"}
_JOB = {"name", "application", "cores", "walltime", "submit", "exclusive", "run_time", "cpu", "phases", "memory"}


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A machine of so many cores, what sharing costs on it, and its jobs."""

    cores: int
    contention: str
    loads: tuple[Load, ...]


def read_queue(path: str | Path) -> QueueFile:
    """Read a queue.

    Raises
    ------
    InvalidInput
        When the file cannot be read, or something in it makes no sense; the message says where.
    """
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"queue {path}: {error}") from error
    try:
        return _queue(data)
    except InvalidInput as error:
        raise InvalidInput(f"queue {path}: {error}") from error


def _queue(data: Mapping[str, Any]) -> QueueFile:
    _only(data, _QUEUE, "the file")
    cores = _whole(data, "cores", "the file")
    contention = str(data.get("contention", "paper-like"))
    if data.get("paper"):
        return QueueFile(cores, contention, paper_queue(cores, np.random.default_rng(int(data.get("seed", 0)))))
    jobs = data.get("jobs", [])
    if not jobs:
        raise InvalidInput("it has no jobs: [[jobs]] tables expected, or paper = true")
    return QueueFile(cores, contention, tuple(_load(job, f"job {place}") for place, job in enumerate(jobs, 1)))


def _load(job: Mapping[str, Any], where: str) -> Load:
    _only(job, _JOB, where)
    cores, name = _whole(job, "cores", where), str(job.get("name", where.replace(" ", "-")))
    request = WaitingJob(
        name=name,
        application=str(job.get("application", name)),
        cores=cores,
        walltime_s=duration(_given(job, "walltime", where), what=f"{where}: walltime"),
        submitted=0.0 if not job.get("submit") else duration(job["submit"], what=f"{where}: submit"),
        exclusive=bool(job.get("exclusive", False)),
    )
    return Load(request, _phases(job, cores, where), share(job.get("memory", 0.1), what=f"{where}: memory"))


def _phases(job: Mapping[str, Any], cores: int, where: str) -> tuple[Phase, ...]:
    """Phases as they are given, or those of a job that uses so much CPU on average."""
    if "phases" not in job:
        run_time_s = duration(_given(job, "run_time", where), what=f"{where}: run_time")
        return phases(run_time_s, share(job.get("cpu", 1.0), what=f"{where}: cpu"), cores)
    found = []
    for phase in job["phases"]:
        _only(phase, {"time", "cpu"}, f"{where}: a phase")
        time_s = duration(_given(phase, "time", where), what=f"{where}: time")
        cpu = share(phase.get("cpu", 1.0), what=f"{where}: cpu")
        found.append(Phase(time_s, cpu, cpu * cores > 1))
    return tuple(found)


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := set(table) - known:
        raise InvalidInput(f"{where} has {min(unknown)!r}, which is none of {', '.join(sorted(known))}")


def _given(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise InvalidInput(f"{where} has no {name!r}")
    return table[name]


def _whole(table: Mapping[str, Any], name: str, where: str) -> int:
    value = _given(table, name, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{where}: {name} is {value!r}: a whole number of at least 1 expected")
    return value
