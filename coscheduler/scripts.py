"""A queue file made of job scripts as they are written for sbatch."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from asa.backends.slurm.commands import parse_elements
from asa.backends.slurm.rest_job import given_options
from asa.core.errors import InvalidInput, cause
from asa.core.units import DAY, HOUR, clock, duration
from coscheduler.queuefile import commands_of

ELEMENTS_MOST = 10_000
"""Of a job array."""
LARGEST = 1 << 22  # of a script, as Slurm has it by default [bytes]
_USED = {"array", "chdir", "cpus-per-task", "exclusive", "job-name", "nodes", "ntasks", "ntasks-per-node", "time"}
_REFUSED = {
    "dependency": "jobs of a queue do not wait for one another: write a workflow",
    "begin": 'write submit = "1h" into the queue file',
    "gres": "only CPUs are shared",
}
_CALLS_SLURM = re.compile(r"(?:^|[\s;&|(`])(srun|salloc|sbatch)(?=\s|$)")
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def queue_text(scripts: Sequence[str | Path], *, cores: int | None = None, walltime: str | None = None) -> str:
    """The queue file for these scripts; each starts as sbatch starts it: once, on the job's first node.

    Raises `InvalidInput` when a script cannot be read or asks for what a queue does not have; it names script, option
    and remedy.

    Parameters
    ----------
    cores
        Of the machine; as many as the largest job asks for when not given.
    walltime
        Of scripts that state none.
    """
    jobs = [job for script in scripts for job in _jobs(Path(script), walltime)]
    largest = max(job["cores"] for job in jobs)
    remark = "" if cores else "    # of the machine: this is what the largest job asks for"
    lines = [
        "# no job is ended at its wall time, unlike in Slurm: it is to plan with",
        f"cores = {cores or largest}{remark}",
    ]
    names = set[str]()
    for job in jobs:
        unused = job.pop("unused")
        base, number = job["name"], 2
        while job["name"] in names:
            job["name"], number = f"{base}-{number}", number + 1
        names.add(job["name"])
        lines += ["", "[[jobs]]", *(f"{name} = {_toml(value)}" for name, value in job.items())]
        if unused:
            lines.append(f"# without a meaning here: {_toml(' '.join(unused))[1:-1]}")
    text = "\n".join(lines) + "\n"
    commands_of(tomllib.loads(text))  # what `asa cosched run` would refuse is refused now
    return text


def _toml(value: str | int) -> str:
    """A value as TOML writes it, which is as JSON does but for one character."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _jobs(path: Path, walltime: str | None) -> Iterator[dict[str, Any]]:
    """The job of a script, or those of its array, as tables of a queue file."""
    text = _read(path)
    try:
        options = given_options([], text)
        yield from _tables(path, text, options, walltime)
    except (InvalidInput, ValueError) as error:
        said = str(error).partition(" to slurmrestd")[0]  # of an option that is not known
        raise InvalidInput(f"script {path}: {said}") from error


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"script {path} cannot be read: {cause(error)}") from error
    if any("\ud800" <= sign <= "\udfff" for sign in str(path.absolute())):
        raise InvalidInput(f"script {str(path)!r}: a path in UTF-8 expected, for a queue file")
    if len(text) > LARGEST:
        raise InvalidInput(f"script {path} is longer than {LARGEST >> 20} MiB: sbatch takes no such script either")
    return text


def _tables(path: Path, text: str, options: Mapping[str, str], walltime: str | None) -> Iterator[dict[str, Any]]:
    for name in options:
        reason = "only CPUs are shared" if name.startswith("gpus") else _REFUSED.get(name)
        if reason:
            raise InvalidInput(f"--{name}={options[name]}: {reason}")
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", options.get("job-name") or path.name).lstrip(".-")[:80] or "job"
    tasks, each = _tasks(options), _count(options, "cpus-per-task", 1)
    variables = {"SLURM_JOB_NAME": name, "SLURM_NTASKS": str(tasks), "SLURM_CPUS_PER_TASK": str(each)}
    variables["SLURM_SUBMIT_DIR"] = str(Path.cwd())
    job = {
        "name": name,
        "application": name,
        "cores": tasks * each,
        "walltime": clock(_walltime_s(options, walltime)),
        **({"exclusive": True} if "exclusive" in options else {}),
    }
    unused = [f"--{key}={value}" if value else f"--{key}" for key, value in options.items() if key not in _USED]
    where = Path.cwd() / options.get("chdir", "")
    for index in _indices(options["array"]) if "array" in options else [None]:
        more = {} if index is None else {"name": f"{name}-{index}"}
        said = variables if index is None else variables | {"SLURM_ARRAY_TASK_ID": str(index)}
        yield job | more | {"command": _command(path, text, where, said), "unused": unused}


def _command(path: Path, text: str, where: Path, variables: Mapping[str, str]) -> str:
    """What a shell is given on each node: the script runs on the first only, in the directory where sbatch runs it."""
    first, *rest = text.splitlines() or [""]
    if not first.startswith("#!"):
        raise InvalidInput("its first line names no interpreter: '#!/bin/bash' expected, as by sbatch")
    for number, line in enumerate(rest, 2):
        if not line.lstrip().startswith("#") and (found := _CALLS_SLURM.search(line)):
            raise InvalidInput(
                f"line {number} calls {found[1]}, which would ask Slurm for a job of its own: write the program "
                "itself. To start it once on each node, write the job into the queue file by hand"
            )
    words = [*shlex.split(first[2:]), str(path.absolute())]
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    start = f"exec env {' '.join(settings)} {shlex.join(words)}"
    return f'[ "$ASA_RANK" = 0 ] || exit 0; cd {shlex.quote(str(where))} && {start}'


def _tasks(options: Mapping[str, str]) -> int:
    if "ntasks" in options:
        return _count(options, "ntasks", 1)
    least = options.get("nodes", "1").partition("-")[0]  # of "2-4", what it can do with
    return _count({"nodes": least}, "nodes", 1) * _count(options, "ntasks-per-node", 1)


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise InvalidInput(f"--{name}={text}: a whole number of at least 1 expected")
    return int(text)


def _walltime_s(options: Mapping[str, str], default: str | None) -> float:
    """[s]; sbatch reads ``90`` as minutes, ``90:30`` as minutes and seconds, ``1-12`` as days and hours."""
    if (text := options.get("time")) is None:
        if default is None:
            raise InvalidInput("it has no --time: give --walltime TIME, for all scripts without one")
        return duration(default, what="--walltime")
    match = _LIMIT.fullmatch(text)
    if match is None or not any(int(part or 0) for part in match.groups()):
        raise InvalidInput(f"--time={text}: a wall time expected, such as 30 (minutes), 1:30:00 or 1-12")
    days, *parts = (int(part or 0) for part in match.groups())
    if match[1] is None and match[4] is None:  # minutes, or minutes and seconds
        return parts[0] * 60.0 + parts[1]
    return days * DAY + parts[0] * HOUR + parts[1] * 60.0 + parts[2]


def _indices(text: str) -> list[int]:
    """Of an array: ``0-15%4`` is 0 to 15; how many run at once is up to the machine.

    >>> _indices("1,3,8-12:2,3")
    [1, 3, 8, 10, 12]
    """
    words = [parse_elements(word) for word in text.partition("%")[0].split(",")]
    if not all(words) or sum(map(len, words)) > ELEMENTS_MOST:
        raise InvalidInput(f"--array={text}: 1 to {ELEMENTS_MOST} elements expected, such as 0-15 or 1,3,8-12:2")
    return [*dict.fromkeys(chain.from_iterable(words))]
