"""What Slurm's commands print, as records. Pure; tolerant of what differs between versions 20.11 and 25.11."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from asa.backends.slurm.commands import ACCOUNTING_FIELDS, DELIMITER, QUEUE_FIELDS, VISIBLE_FIELDS
from asa.backends.slurm.hostlist import expand
from asa.backends.slurm.record import JobRecord, NodeGroup, VisibleJob
from asa.core.errors import BackendError, InvalidInput
from asa.core.units import MIB, duration

NOTHING = ("", "N/A", "None", "Unknown", "(null)", "None assigned")
_NO_LIMIT = ("UNLIMITED", "INFINITE", "NONE")
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_GPUS = re.compile(r"gpu(?::[^:,()]+)?:(\d+)")
_WALL_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_ELEMENTS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_OTHER_CLUSTER = "CLUSTER: "  # heading of the answer about another cluster


def version(text: str) -> tuple[int, ...]:
    """Version of ``slurm 23.11.4`` or ``slurm-wlm 22.05.8``.

    >>> version("slurm-wlm 22.05.8")
    (22, 5, 8)
    """
    match = _VERSION.search(text)
    if match is None:
        raise BackendError(f"sbatch --version printed {text.strip()!r}: expected something like 'slurm 22.05.8'")
    return tuple(int(part or 0) for part in match.groups())


def version_text(version: tuple[int, ...]) -> str:
    """A version as Slurm writes it.

    >>> version_text((22, 5, 8))
    '22.05.8'
    """
    return f"{version[0]}.{version[1]:02}" + "".join(f".{part}" for part in version[2:])


def job_id(text: str) -> str:
    """Id of the submitted job, from ``ID`` or ``ID;CLUSTER``."""
    lines = text.split()
    identity = lines[-1].partition(";")[0] if lines else ""  # a site's submit plugin may print lines before it
    if not identity.isdigit():
        raise BackendError(f"sbatch --parsable printed {text.strip()!r}: expected a job id")
    return identity


def queue(text: str) -> list[JobRecord]:
    """Jobs in the controller's queue."""
    return [_queued(job) for job in _jobs(text, "squeue", QUEUE_FIELDS)]


def _queued(job: Mapping[str, str]) -> JobRecord:
    return JobRecord(
        key=_key(job),
        name=job["Name"].removesuffix(DELIMITER),
        word=job["State"],
        reason=_text(job["Reason"]),
        submitted=time(job["SubmitTime"]) or 0.0,
        eligible=time(job["EligibleTime"]),
        start=time(job["StartTime"]),
        end=time(job["EndTime"]),
        ages_since=time(job["AccrueTime"]),
        exit_code=exit_status(job["exit_code"]),
        restarts=_count(job["RestartCnt"], 0),
        nodes=expand(_text(job["NodeList"])),
    )


def _key(job: Mapping[str, str]) -> str:
    array, index = job["ArrayJobID"], job["ArrayTaskID"]
    return f"{array}_{index}" if index.isdigit() else array


def everyone(text: str) -> list[VisibleJob]:
    """Anybody's jobs that wait or hold nodes."""
    return [_visible(job) for job in _jobs(text, "squeue", VISIBLE_FIELDS)]


def _visible(job: Mapping[str, str]) -> VisibleJob:
    return VisibleJob(
        key=_key(job),
        name=job["Name"].removesuffix(DELIMITER),
        user=job["UserName"],
        partition=job["Partition"],
        word=job["State"],
        reason=_text(job["Reason"]),
        priority=_count(job["PriorityLong"], 0),
        cores=_count(job["NumCPUs"], 1),
        nodes=_count(job["NumNodes"], 1),
        limit=wall_time_limit(job["TimeLimit"]),
        submitted=time(job["SubmitTime"]) or 0.0,
        end=time(job["EndTime"]),
        held=expand(_text(job["NodeList"])),
    )


def accounting(text: str) -> list[JobRecord]:
    """Jobs in the accounting, each once, as it was last.

    The accounting has a record for each time that a job was requeued (or resized); an id that was given out twice is
    two jobs here, told apart by their names.
    """
    latest: dict[tuple[str, str], JobRecord] = {}
    restarts: dict[tuple[str, str], int] = {}
    jobs = _jobs(text, "sacct", ACCOUNTING_FIELDS)
    for record in (_accounted(job, key) for job in jobs for key in _keys(job["JobID"])):
        which = (record.key, record.name)
        if before := latest.get(which):
            restarts[which] = restarts.get(which, 0) + (before.word != "RESIZING")
        if before is None or record.submitted >= before.submitted:
            latest[which] = record
    return [replace(record, restarts=restarts.get(which, 0)) for which, record in latest.items()]


def _keys(key: str) -> list[str]:
    """Elements that have not been split from their array yet are in one row, ``ID_[0-3%1]``."""
    array, bracket, words = key.partition("_[")
    return [f"{array}_{index}" for index in elements(words.rstrip("]"))] if bracket else [key]


def elements(text: str) -> list[int]:
    """Indices of a job array.

    >>> elements("0,2-3,10-14:2%4")
    [0, 2, 3, 10, 12, 14]
    """
    words = text.partition("%")[0].split(",")
    ranges = [match.groups() for match in map(_ELEMENTS.fullmatch, words) if match]
    return [index for low, high, step in ranges for index in range(int(low), int(high or low) + 1, int(step or 1))]


def _accounted(job: Mapping[str, str], key: str) -> JobRecord:
    return JobRecord(
        key=key,
        name=job["JobName"],
        word=job["State"],
        submitted=time(job["Submit"]) or 0.0,
        eligible=time(job["Eligible"]),
        start=time(job["Start"]),
        end=time(job["End"]),
        exit_code=exit_status(job["ExitCode"]),
        nodes=expand(_text(job["NodeList"])),
    )


def configuration(text: str) -> dict[str, str]:
    """``Name = value`` lines of ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): _text(value.strip()) for name, _, value in pairs}


def oneliners(text: str) -> list[dict[str, str]]:
    """``Name=value`` words of ``scontrol --oneliner show ...``, one mapping a line."""
    found = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    return [fields for fields in found if fields]


def nodes(text: str) -> list[NodeGroup]:
    """Groups of like nodes."""
    return [
        NodeGroup(partition, int(count), int(cores), int(memory.rstrip("+")) * MIB, gpus(resources), state)
        for partition, count, cores, memory, resources, state in _rows(text, "sinfo", 6)
    ]


def gpus(text: str) -> int:
    """GPUs in a list of generic resources.

    >>> gpus("gpu:a100:4(S:0-1),gpu:2,nvme:1")
    6
    """
    return sum(int(number) for number in _GPUS.findall(text))


def time(text: str) -> float | None:
    """Seconds since the epoch, or None where Slurm has no time to tell."""
    if text in NOTHING:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise BackendError(f"Slurm printed the time {text!r}: expected seconds since the epoch") from None
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def limit(text: str) -> float | None:
    """A time limit [s] such as ``1-00:00:00``; None where there is none."""
    if text.upper() in _NO_LIMIT or text in NOTHING:
        return None
    try:
        return duration(text, what="Slurm's time limit")
    except InvalidInput as error:
        raise BackendError(str(error)) from error


def wall_time_limit(text: str) -> float | None:
    """A job's time limit [s] as squeue prints it, where the last number is seconds; None where there is none.

    >>> wall_time_limit("1:30"), wall_time_limit("2:00:00"), wall_time_limit("1-00:00:00"), wall_time_limit("UNLIMITED")
    (90.0, 7200.0, 86400.0, None)
    """
    match = _WALL_TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def exit_status(text: str) -> int | None:
    """Exit code from ``CODE:SIGNAL`` or from a wait status; 128 + n after signal n, as shells say it.

    >>> exit_status("3:0"), exit_status("0:9"), exit_status("256"), exit_status("N/A")
    (3, 137, 1, None)
    """
    code, colon, signal = text.partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None
    number, killed = (int(code), int(signal)) if colon else (int(code) >> 8, int(code) & 0x7F)
    return 128 + killed if killed else number


def _jobs(text: str, command: str, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    """What was printed of each job, by the field that was asked for."""
    return (dict(zip(fields, row, strict=True)) for row in _rows(text, command, len(fields)))


def _rows(text: str, command: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        if not line.strip() or line.startswith(_OTHER_CLUSTER):
            continue
        row = line.split(DELIMITER, width - 1)
        if len(row) != width:
            raise BackendError(f"{command} printed {line!r}: expected {width} fields separated by {DELIMITER!r}")
        yield row


def _text(value: str) -> str:
    return "" if value in NOTHING else value


def _count(value: str, otherwise: int) -> int:
    return int(value) if value.isdigit() else otherwise
