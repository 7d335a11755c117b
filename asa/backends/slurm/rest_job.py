"""sbatch's options and scontrol's settings as properties of a job in slurmrestd's interface. Pure.

The differences between the versions of the interface, as far as jobs are written, are here and in `rest_options`.
"""

from __future__ import annotations

import itertools
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asa.backends.slurm.rest_options import PROPERTIES
from asa.core.errors import InvalidInput

OLDEST_TYPED = 40
"""From v0.0.40 on values have types. v0.0.39 is not used: its servers also speak v0.0.38 or v0.0.40."""

_LONG = {known.letter: name for name, known in PROPERTIES.items() if known.letter}
_NEVER = 1  # a time long past: 0 would mean that no time is given [s since the epoch]
_COMMANDS = "leave out rest=... to go through Slurm's commands"


def submission(options: Sequence[str], script: str, inherited: Mapping[str, str], version: int) -> dict[str, Any]:
    """What is posted for a batch job.

    slurmrestd takes the script as it is, so its ``#SBATCH`` lines are read here; `options` win over them.

    Parameters
    ----------
    inherited
        Environment that the job gets where ``--export`` does not say otherwise.
    version
        Last number of the interface's version.

    Raises
    ------
    InvalidInput
        When an option cannot be given through slurmrestd, or not in this version.
    """
    given = given_options(options, script)
    export = given.pop("export", "ALL")
    if "chdir" in given:
        given["chdir"] = os.path.abspath(given["chdir"])
    job: dict[str, Any] = {}
    for name, value in given.items():
        _add(job, name, value, version)
    variables = environment(export, inherited)
    if version >= OLDEST_TYPED:
        if "tasks" in job:
            job["minimum_cpus"] = job["tasks"] * job.get("cpus_per_task", 1)
        job["environment"] = [f"{name}={value}" for name, value in variables.items()]
    else:
        job["environment"] = variables
    return {"script": script, "job": job}


def given_options(options: Sequence[str], script: str) -> dict[str, str]:
    """All options of a submission; see `read`."""
    return read(_directives(script)) | read(options)


def read(tokens: Iterable[str]) -> dict[str, str]:
    """Options of sbatch by their long names; a flag's value is "".

    >>> read(["--nice", "-Cbig", "-p", "core", "--mem=2G", "--no-requeue"])
    {'nice': '100', 'constraint': 'big', 'partition': 'core', 'mem': '2G', 'requeue': 'no'}

    Raises
    ------
    InvalidInput
        When one is not known.
    """
    found: dict[str, str] = {}
    rest = iter(tokens)
    for token in rest:
        if token.startswith("--"):
            name, equals, value = token[2:].partition("=")
        else:
            name, value = _LONG.get(token[1:2], token[1:2]), token[2:]
            equals = value
        known = PROPERTIES.get(name)
        if name == "no-requeue":
            found["requeue"] = "no"
            continue
        if name != "export" and (known is None or not token.startswith("-")):
            raise InvalidInput(f"sbatch option {token!r} is not known to slurmrestd's interface: {_COMMANDS}")
        if not equals and known is not None and (known.flag or known.bare):
            value = known.bare
        elif not equals:
            value = next(rest, "")
        found[name] = value
    return found


def environment(export: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The job's environment by the rules of ``sbatch --export``: ALL, NONE, or names with and without values.

    >>> environment("ALL,B=2", {"A": "1"})
    {'A': '1', 'B': '2'}
    """
    words = export.split(",")
    if "ALL" in words:
        found = dict(inherited)
    else:  # without its user's own environment, a job would not even have a PATH
        found = {"SLURM_GET_USER_ENV": "1"} | ({"SLURM_EXPORT_ENV": "NONE"} if words == ["NONE"] else {})
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif name in inherited:
            found[name] = inherited[name]
    return found


def changes(settings: Sequence[str], version: int) -> dict[str, Any]:
    """What is posted for scontrol's ``Name=value`` settings of a waiting job.

    Raises
    ------
    InvalidInput
        When one cannot be given through slurmrestd.
    """
    given = dict(setting.split("=", 1) for setting in settings)
    job: dict[str, Any] = {}
    for setting, value in given.items():
        if setting in _SETTINGS:
            _add(job, _SETTINGS[setting], value, version)
        elif setting != "NumCPUs":
            raise InvalidInput(f"{setting} of a job cannot be changed through slurmrestd: {_COMMANDS}")
    if "NumCPUs" in given:
        if version >= OLDEST_TYPED:
            job["minimum_cpus"] = int(given["NumCPUs"])
        else:  # there is no word for it, but it follows from the CPUs of each task
            job["cpus_per_task"] = int(given["NumCPUs"]) // int(given["NumTasks"])
    return job


_SETTINGS = {
    "NumTasks": "ntasks",
    "NumNodes": "nodes",
    "TasksPerNode": "ntasks-per-node",
    "MinCPUsNode": "mincpus",
    "MinMemoryNode": "mem",
    "MinMemoryCPU": "mem-per-cpu",
    "TimeLimit": "time",
    "Dependency": "dependency",
    "StartTime": "begin",
    "ExcNodeList": "exclude",
}


def _add(job: dict[str, Any], name: str, value: str, version: int) -> None:
    """Add an option to a job's properties."""
    known = PROPERTIES[name]
    typed = version >= OLDEST_TYPED
    key = known.new if typed else known.old
    if key is None:
        raise InvalidInput(f"sbatch option --{name} cannot be given through slurmrestd v0.0.{version}: {_COMMANDS}")
    if name == "begin":
        job[key] = _begin(value, typed)
    elif name == "requeue" and not typed:
        job["requeue" if value != "no" else "no_requeue"] = True
    elif known.flag:
        job[key] = value != "no"
    elif not typed:
        job[key] = value
    else:
        try:
            converted = known.typed(value)
        except ValueError:
            expected = "expected a plain number (memory may have K, M, G or T)"
            raise InvalidInput(f"sbatch option --{name}={value!r}: {expected} for slurmrestd v0.0.{version}") from None
        job[key] = f"{job[key]},{converted}" if key.startswith("tres_") and key in job else converted


def _begin(value: str, typed: bool) -> Any:
    """A time as ``YYYY-MM-DDTHH:MM:SS`` on this machine's clock: the server's may be in another time zone."""
    if value == "now":
        return {"set": True, "infinite": False, "number": _NEVER} if typed else value
    seconds = int(time.mktime(time.strptime(value, "%Y-%m-%dT%H:%M:%S")))
    return {"set": True, "infinite": False, "number": seconds} if typed else f"uts{seconds}"


def _directives(script: str) -> list[str]:
    """Options in a script's ``#SBATCH`` lines, which end with the first line that is neither empty nor a comment."""
    comments = itertools.takewhile(lambda line: not line.strip() or line.startswith("#"), script.splitlines())
    lines = (line.removeprefix("#SBATCH") for line in comments if line.startswith(("#SBATCH ", "#SBATCH\t")))
    return [word for line in lines for word in shlex.split(line, comments=True)]
