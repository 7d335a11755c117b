"""Accounting logs of PBS Professional, OpenPBS and Torque: ``MM/DD/YYYY HH:MM:SS;E;123.server;user=ann ...``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import UNKNOWN
from asa.lab.traces.csvlog import Accounting, count, seconds, size
from asa.lab.traces.load import Trace, contents, shown
from asa.lab.traces.rules import Sieve

_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]*);(.*)")
_FIELD = re.compile(r'([A-Za-z][\w.]*)=("[^"]*"|\S*)')
_ENDED, _DELETED, _WAITS_OR_RUNS = "E", ("D", "A"), ("Q", "S")
_KILLED = ("271", "265")  # PBS adds 256 to a signal: SIGTERM, SIGKILL
_DEVICES = ("ngpus", "gpus", "nmics", "mics")


def load_pbs(path: str | Path, *, units: str = "chunks", wait_from: str = "submit") -> Trace:
    """The trace in a PBS or Torque accounting log; daily files may stand one after the other in it.

    Jobs come from the records of their ends (E). A job that was deleted or aborted before it started has none and
    counts as cancelled, one that the log leaves waiting or running as unfinished; all other lines are events. Runs of
    a requeued job are jobs of their own.

    A request becomes as many units as it has chunks (``select=2:ncpus=8:ngpus=1``, ``nodes=2:ppn=8``, or ``nodect``
    with ``ncpus``), each with its cores, memory and GPUs; MICs count as GPUs. Chunks of ``nodes=`` and of
    ``place=scatter`` go to different nodes, as PBS has it. A request whose chunks differ falls apart into equal
    parts that are put anywhere: see `Accounting.trace`.

    Parameters
    ----------
    units, wait_from
        See `Accounting.trace`. Times are counted from ``ctime`` (submit) and ``etime`` (eligible).

    Raises
    ------
    InvalidInput
        When the file cannot be read, or most lines are no records.
    """
    jobs, fields, sieve = _read(path)

    def times(*names: str) -> Floats:
        return np.array([next((t for name in names if (t := _time(row.get(name, "")))), np.nan) for row in fields])

    def texts(*names: str) -> list[str]:
        return [next((row[name] for name in names if row.get(name)), "") for row in fields]

    start, end = times("start"), times("end")
    walltime = np.array([seconds(text) for text in texts("Resource_List.walltime")])
    used = np.array([seconds(text) for text in texts("resources_used.walltime")])
    run = np.where(np.isnan(end - start), used, end - start)
    chunks, cores, memory, gpus = np.array([_requested(row) for row in fields]).reshape(-1, 4).T
    accounting = Accounting(
        job=jobs,
        submit=times("ctime", "qtime"),
        eligible=times("etime"),
        start=start,
        run=run,
        walltime=walltime,
        nodes=chunks,
        cores=cores,
        memory=memory,
        gpus=gpus,
        outcome=np.array(
            [_outcome(row.get("Exit_status", ""), late) for row, late in zip(fields, run >= walltime, strict=True)],
            dtype=np.int8,
        ),
        spread=np.array([_scattered(row) for row in fields], dtype=np.bool_),
        user=texts("user"),
        group=texts("account", "group"),
        name=texts("jobname"),
        partition=texts("queue"),
    )
    return accounting.trace(sieve, units=units, wait_from=wait_from)


def _read(path: str | Path) -> tuple[list[str], list[dict[str, str]], Sieve]:
    """Job and fields of each line, none where it is not the record of an end, and a sieve that has dropped those."""
    lines = contents(path).decode("utf-8", errors="backslashreplace").split("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    found = [_LINE.match(lines[number - 1]) for number in numbers]
    sieve = Sieve(str(path), len(numbers), lambda row: f"line {numbers[row]}")
    sieve.drop("unreadable-line", [match is None for match in found])
    if 2 * int(sieve.keep.sum()) < len(found):
        number = numbers[int(np.argmin(sieve.keep))]
        raise InvalidInput(
            f"{path} is no accounting log of PBS: line {number} is {shown(lines[number - 1].encode())}, where "
            "'MM/DD/YYYY HH:MM:SS;TYPE;ID;...' was expected"
        )
    kinds = [match[1] if match else "" for match in found]
    jobs = [match[2] if match else "" for match in found]
    fate = _fates(kinds, jobs)
    for rule in ("cancelled", "unfinished", "event"):
        sieve.drop(rule, [word == rule for word in fate])
    fields = [_fields(match[3]) if match and kind == _ENDED else {} for match, kind in zip(found, kinds, strict=True)]
    sieve.drop_repeated((job, row.get("start"), row.get("end")) for job, row in zip(jobs, fields, strict=True))
    return jobs, fields, sieve


def _fates(kinds: list[str], jobs: list[str]) -> list[str]:
    """For each line the rule that leaves it out; "" for the record of an end."""
    ended = {job for kind, job in zip(kinds, jobs, strict=True) if kind == _ENDED}
    deleted = {job: row for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)) if kind in _DELETED}
    alive = {job: row for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)) if kind in _WAITS_OR_RUNS}
    found = []
    for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)):
        if kind == _ENDED:
            found.append("event" if "[]" in job else "")  # a whole array, whose elements have records of their own
        elif job not in ended and deleted.get(job) == row:
            found.append("cancelled")
        elif job not in ended and job not in deleted and alive.get(job) == row:
            found.append("unfinished")
        else:
            found.append("event")
    return found


def _fields(text: str) -> dict[str, str]:
    return {name: value.strip('"') for name, value in _FIELD.findall(text)}


def _time(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0  # 0 is PBS's word for never


def _requested(row: Mapping[str, str]) -> tuple[float, float, float, float]:
    """Chunks, cores, bytes of memory and GPUs, in all; no chunks where they differ from one another.

    >>> _requested({"Resource_List.select": "2:ncpus=8:mem=16gb:ngpus=1"})
    (2.0, 16.0, 34359738368.0, 2.0)
    >>> _requested({"Resource_List.nodes": "1:ppn=8+n07:ppn=4", "Resource_List.mem": "12gb"})
    (0.0, 12.0, 12884901888.0, 0.0)
    """
    asked = {
        key.removeprefix("Resource_List."): value for key, value in row.items() if key.startswith("Resource_List.")
    }
    cores, memory = count(asked.get("ncpus", "")), size(asked.get("mem", ""))
    gpus = sum(count(asked.get(device, "")) for device in _DEVICES)
    text = asked.get("select") or asked.get("nodes")
    if not text:
        chunks = count(asked.get("nodect", "")) or 1.0
        return chunks, cores or count(asked.get("nodect", "")), memory, gpus
    parts = [_chunk(part) for part in text.split("+")]
    alike = len({part[1:] for part in parts}) == 1
    chunks = sum(part[0] for part in parts) if alike else 0.0
    inside = [sum(part[0] * part[column] for part in parts) for column in (1, 2, 3)]
    return chunks, max(inside[0], cores), inside[1] or memory, inside[2] or gpus


def _chunk(text: str) -> tuple[float, float, float, float]:
    """How many chunks, and the cores, bytes of memory and GPUs of each: of ``2:ncpus=8:mem=1gb`` or ``node7:ppn=4``."""
    first, *others = text.split(":")
    words = dict(word.split("=", 1) for word in (first, *others) if "=" in word)
    cores = count(words.get("ncpus", "")) or count(words.get("ppn", "")) or 1.0
    gpus = sum(count(words.get(device, "")) for device in _DEVICES)
    return float(first) if first.isdecimal() else 1.0, cores, size(words.get("mem", "")), gpus


def _scattered(row: Mapping[str, str]) -> bool:
    return "Resource_List.nodes" in row or "scatter" in row.get("Resource_List.place", "")


def _outcome(status: str, late: bool) -> int:
    """Code of how a job ended. PBS has no word for a job killed at its wall time: it has the status of a kill."""
    if not status:
        return UNKNOWN
    if status == "0":
        return OUTCOMES.index(JobState.COMPLETED)
    if late:
        return OUTCOMES.index(JobState.TIMEOUT)
    return OUTCOMES.index(JobState.CANCELLED if status in _KILLED else JobState.FAILED)
