"""sbatch's options and scontrol's settings as properties of a job in slurmrestd's interface. Pure.

The differences between the versions of the interface, as far as jobs are written, are here: versions up to v0.0.38 take
sbatch's own words for a value, later ones typed values.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asa.core.errors import InvalidInput

_UNITS = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}  # [MiB]


def _number(value: str) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": int(value)}


def _mib(value: str) -> dict[str, Any]:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if match is None:
        raise ValueError
    return _number(str(round(int(match[1]) * _UNITS[match[2]])))


def _dependency_flag(value: str) -> list[str]:
    return ["NO_KILL_INVALID_DEPENDENCY" if value == "no" else "KILL_INVALID_DEPENDENCY"]


def _upper_words(value: str) -> list[str]:
    return value.upper().split(",")


def _gres(value: str) -> str:
    return ",".join(f"gres/{item}" for item in value.split(","))


def _gpus(value: str) -> str:
    return f"gres/gpu:{value}"


def _shared(value: str) -> list[str]:
    return ["none" if value == "exclusive" else value]


@dataclass(frozen=True, slots=True)
class Property:
    """An option of sbatch in slurmrestd's words.

    Parameters
    ----------
    old, new
        Its name up to v0.0.38, and from v0.0.40 on; None where there is none.
    typed
        Its value from v0.0.40 on, from sbatch's word; raises a ValueError for a word that it cannot convert.
    letter
        sbatch's short option.
    flag
        Whether it takes no value.
    bare
        What it means without its value, if that is optional.
    """

    old: str | None
    new: str | None
    typed: Callable[[str], Any] = str
    letter: str = ""
    flag: bool = False
    bare: str = ""


PROPERTIES: dict[str, Property] = {
    "account": Property("account", "account", letter="A"),
    "acctg-freq": Property("account_gather_frequency", "account_gather_frequency"),
    "array": Property(None, None, letter="a"),
    "batch": Property("batch_features", "batch_features"),
    "bb": Property("burst_buffer", "burst_buffer"),
    "begin": Property("begin_time", "begin_time"),
    "chdir": Property("current_working_directory", "current_working_directory", letter="D"),
    "comment": Property("comment", "comment"),
    "constraint": Property("constraints", "constraints", letter="C"),
    "container": Property("container", "container"),
    "contiguous": Property(None, "contiguous", flag=True),
    "core-spec": Property("core_specification", "core_specification", int, "S"),
    "cores-per-socket": Property("cores_per_socket", None),
    "cpu-freq": Property("cpu_frequency", "cpu_frequency"),
    "cpus-per-gpu": Property("cpus_per_gpu", None),
    "cpus-per-task": Property("cpus_per_task", "cpus_per_task", int, "c"),
    "deadline": Property("deadline", None),
    "dependency": Property("dependency", "dependency", letter="d"),
    "distribution": Property("distribution", "distribution", letter="m"),
    "error": Property("standard_error", "standard_error", letter="e"),
    "exclude": Property("exclude_nodes", "excluded_nodes", letter="x"),
    "exclusive": Property("exclusive", "shared", _shared, bare="exclusive"),
    "gpu-bind": Property("gpu_binding", "tres_bind"),
    "gpu-freq": Property("gpu_frequency", "tres_freq"),
    "gpus": Property("gpus", "tres_per_job", _gpus, "G"),
    "gpus-per-node": Property("gpus_per_node", "tres_per_node", _gpus),
    "gpus-per-socket": Property("gpus_per_socket", "tres_per_socket", _gpus),
    "gpus-per-task": Property("gpus_per_task", "tres_per_task", _gpus),
    "gres": Property("gres", "tres_per_node", _gres),
    "gres-flags": Property("gres_flags", None),
    "hint": Property("cpu_binding_hint", None),
    "input": Property("standard_input", "standard_input", letter="i"),
    "job-name": Property("name", "name", letter="J"),
    "kill-on-invalid-dep": Property("kill_on_invalid_dependency", "flags", _dependency_flag),
    "licenses": Property("licenses", "licenses", letter="L"),
    "mail-type": Property("mail_type", "mail_type", _upper_words),
    "mail-user": Property("mail_user", "mail_user"),
    "mcs-label": Property("mcs_label", "mcs_label"),
    "mem": Property("memory_per_node", "memory_per_node", _mib),
    "mem-per-cpu": Property("memory_per_cpu", "memory_per_cpu", _mib),
    "mem-per-gpu": Property("memory_per_gpu", None),
    "mincpus": Property("minimum_cpus_per_node", "minimum_cpus_per_node", int),
    "nice": Property("nice", "nice", int, bare="100"),
    "no-kill": Property("no_kill", None, letter="k", bare="set"),
    "nodelist": Property("nodelist", "required_nodes", letter="w"),
    "nodes": Property("nodes", "nodes", letter="N"),
    "ntasks": Property("tasks", "tasks", int, "n"),
    "ntasks-per-core": Property("tasks_per_core", "tasks_per_core", int),
    "ntasks-per-gpu": Property("ntasks_per_gpu", "ntasks_per_tres", int),
    "ntasks-per-node": Property("tasks_per_node", "tasks_per_node", int),
    "ntasks-per-socket": Property("tasks_per_socket", "tasks_per_socket", int),
    "open-mode": Property("open_mode", "open_mode", _upper_words),
    "output": Property("standard_output", "standard_output", letter="o"),
    "overcommit": Property(None, "overcommit", letter="O", flag=True),
    "oversubscribe": Property("oversubscribe", "shared", lambda _: ["oversubscribe"], "s", flag=True),
    "partition": Property("partition", "partition", letter="p"),
    "prefer": Property("prefer", "prefer"),
    "priority": Property("priority", "priority", _number),
    "profile": Property("profile", "profile", _upper_words),
    "qos": Property("qos", "qos", letter="q"),
    "reboot": Property(None, "reboot", flag=True),
    "requeue": Property("requeue", "requeue", flag=True),
    "reservation": Property("reservation", "reservation"),
    "signal": Property("signal", None),
    "sockets-per-node": Property("sockets_per_node", "sockets_per_node", int),
    "spread-job": Property("spread_job", None, flag=True),
    "switches": Property(None, "required_switches", _number),
    "thread-spec": Property("thread_specification", "thread_specification", int),
    "threads-per-core": Property("threads_per_core", "threads_per_core", int),
    "time": Property("time_limit", "time_limit", _number, "t"),
    "time-min": Property("time_minimum", "time_minimum", _number),
    "tmp": Property("temporary_disk_per_node", "temporary_disk_per_node", int),
    "wait-all-nodes": Property("wait_all_nodes", None),
    "wckey": Property("wckey", "wckey"),
}


OLDEST_TYPED = 40
"""From v0.0.40 on values have types. v0.0.39 is not used: its servers also speak v0.0.38 or v0.0.40."""

_LONG = {known.letter: name for name, known in PROPERTIES.items() if known.letter}
_NEVER = 1  # a time long past: 0 would mean that no time is given [s since the epoch]
_COMMANDS = "leave out rest=... to go through Slurm's commands"


def submission(options: Sequence[str], script: str, inherited: Mapping[str, str], version: int) -> dict[str, Any]:
    """What is posted for a batch job.

    slurmrestd takes the script as it is, so its ``#SBATCH`` lines are read here; `options` win over them. The job
    gets the environment `inherited` where ``--export`` does not say otherwise; `version` is the last number of the
    interface's. Raises `InvalidInput` when an option cannot be given through slurmrestd, or not in this version.
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

    Raises `InvalidInput` when one cannot be given through slurmrestd.
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
    "CPUsPerTask": "cpus-per-task",
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
