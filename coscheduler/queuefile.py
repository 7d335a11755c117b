"""Queues as TOML files: see docs/coscheduler.md for the format."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from asa.core.errors import InvalidInput, cause
from asa.core.units import duration, share
from coscheduler.nouns import WaitingJob
from coscheduler.workload import Load, Phase, paper_queue, phases

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_QUEUE = {"cores", "contention", "paper", "seed", "jobs"}
_JOB = {"name", "application", "cores", "walltime", "submit", "exclusive"}
_JOB |= {"run_time", "cpu", "phases", "memory", "command"}


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A machine of so many cores, what sharing costs on it, and its jobs."""

    cores: int
    contention: str
    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A job that really runs.

    Parameters
    ----------
    request
        What was asked for.
    line
        What a shell is given on each of its nodes.
    alone_s
        Its run time on cores of its own [s], None where that is not known.
    """

    request: WaitingJob
    line: str
    alone_s: float | None = None


@dataclass(frozen=True, slots=True)
class Commands:
    """Jobs that really run, on so many cores."""

    cores: int
    jobs: tuple[Command, ...]


def read_commands(path: str | Path) -> Commands:
    """Read a queue whose jobs have a `command`.

    Raises
    ------
    InvalidInput
        When the file cannot be read, or something in it makes no sense; the message says where.
    """
    return _read(path, _commands)


def read_queue(path: str | Path) -> QueueFile:
    """Read a queue to be simulated.

    Raises
    ------
    InvalidInput
        When the file cannot be read, or something in it makes no sense; the message says where.
    """
    return _read(path, _queue)


def _read(path: str | Path, parse: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"queue {path}: {cause(error)}. Expected a TOML file with cores and [[jobs]]") from error
    try:
        _only(data, _QUEUE, "the file")
        return parse(data)
    except InvalidInput as error:
        raise InvalidInput(f"queue {path}: {error}") from error


def _commands(data: Mapping[str, Any]) -> Commands:
    if data.get("paper"):
        raise InvalidInput("paper = true is a simulated queue: [[jobs]] tables with a command expected")
    jobs = tuple(_command(job, f"job {place}") for place, job in enumerate(data.get("jobs", []), 1))
    if not jobs:
        raise InvalidInput("it has no jobs: [[jobs]] tables expected")
    cores = _whole(data, "cores", "the file")
    check(jobs, cores)
    return Commands(cores, jobs)


def check(jobs: Iterable[Command], cores: int) -> None:
    """Make sure that jobs can really run on so many cores.

    Raises
    ------
    InvalidInput
        When two have one name, or a name cannot be that of a directory, or a job never fits.
    """
    known = set()
    for name, asked in ((job.request.name, job.request.cores) for job in jobs):
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"job {name!r}: a name of letters, digits, '_', '-' and '.' expected, for its directory")
        if name in known:
            raise InvalidInput(f"there are two jobs called {name!r}: each needs a name of its own")
        if asked > cores:
            raise InvalidInput(f"job {name!r} asks for {asked} cores: the machine has {cores}")
        known.add(name)


def _command(job: Mapping[str, Any], where: str) -> Command:
    _only(job, _JOB, where)
    alone = job.get("run_time")
    return Command(
        _request(job, where),
        _shell_command(job, where),
        None if alone is None else duration(alone, what=f"{where}: run_time"),
    )


def _shell_command(job: Mapping[str, Any], where: str) -> str:
    command = _given(job, "command", where)
    if not isinstance(command, str) or not command.strip():
        raise InvalidInput(f'{where}: command is {command!r}: text for a shell expected, such as "sleep 4"')
    return command


def _queue(data: Mapping[str, Any]) -> QueueFile:
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
    request = _request(job, where)
    memory = share(job.get("memory", 0.1), what=f"{where}: memory")
    return Load(request, _phases(job, request.cores, where), memory)


def _request(job: Mapping[str, Any], where: str) -> WaitingJob:
    name = str(job.get("name", where.replace(" ", "-")))
    return WaitingJob(
        name=name,
        application=str(job.get("application", name)),
        cores=_whole(job, "cores", where),
        walltime_s=duration(_given(job, "walltime", where), what=f"{where}: walltime"),
        submitted=0.0 if not job.get("submit") else duration(job["submit"], what=f"{where}: submit"),
        exclusive=bool(job.get("exclusive", False)),
    )


def _phases(job: Mapping[str, Any], cores: int, where: str) -> tuple[Phase, ...]:
    """Phases as they are given, or those of a job that uses so much CPU on average."""
    if "phases" not in job:
        if "run_time" not in job and "command" in job:
            raise InvalidInput(f"{where} has no 'run_time', which a simulation needs; --on local runs its command")
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
