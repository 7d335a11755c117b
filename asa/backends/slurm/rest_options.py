"""What slurmrestd's interface calls sbatch's options, and the values it takes.

Versions up to v0.0.38 take sbatch's own words for a value; later ones take typed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


def _words(value: str) -> list[str]:
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
    "mail-type": Property("mail_type", "mail_type", _words),
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
    "open-mode": Property("open_mode", "open_mode", _words),
    "output": Property("standard_output", "standard_output", letter="o"),
    "overcommit": Property(None, "overcommit", letter="O", flag=True),
    "oversubscribe": Property("oversubscribe", "shared", lambda _: ["oversubscribe"], "s", flag=True),
    "partition": Property("partition", "partition", letter="p"),
    "prefer": Property("prefer", "prefer"),
    "priority": Property("priority", "priority", _number),
    "profile": Property("profile", "profile", _words),
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
