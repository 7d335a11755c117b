"""What a node is to its supervisor, as the environment says: name, cores, memory, where files may be.

It also says which variables belong to a node, and which to a launcher and its ranks. A supervisor looks here before it
joins, so this loads little.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from functools import cache


def name(environ: Mapping[str, str]) -> str:
    """What it is called: by Slurm, or by itself.

    >>> name({"SLURMD_NODENAME": "n1"})
    'n1'
    """
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def names(environ: Mapping[str, str]) -> list[str]:
    """What it may be called, in the order of preference: with its rank where Flux has another node on the same host.

    >>> names({"SLURMD_NODENAME": "n1"}), names({"SLURMD_NODENAME": "n1", "FLUX_TASK_RANK": "2"})
    (['n1'], ['n1', 'n1.2'])
    """
    host, rank = name(environ), environ.get("FLUX_TASK_RANK", "")
    return [host, f"{host}.{rank}"] if rank.isdecimal() else [host]


def cores(given: int | None, environ: Mapping[str, str]) -> int:
    """How many cores are ours: fewer than `given` where the batch system has spread them, or made the job smaller.

    Slurm says, or the job script (under PBS); Flux binds us to them.

    >>> cores(8, {"SLURM_CPUS_ON_NODE": "6"}), cores(4, {"SLURM_CPUS_ON_NODE": "6"}), cores(8, {})
    (6, 4, 8)
    """
    most = _positive(environ, "SLURM_CPUS_ON_NODE") or _positive(environ, "ASA_CPUS_ON_NODE")
    if most is None and (given is None or "FLUX_JOB_ID" in environ):
        most = len(os.sched_getaffinity(0))
    return min(count for count in (given, most) if count is not None)


def share(given: int, whole: int, here: int) -> int:
    """The part of a job's memory [bytes] that is on a node with so many of its cores; 0 is not limited.

    >>> share(800, 8, 3), share(800, 8, 8), share(0, 8, 3)
    (300, 800, 0)
    """
    return given * min(here, whole) // whole


def memory(given: int | None, environ: Mapping[str, str]) -> int:
    """How much memory is ours [bytes]: as given, as Slurm says [MiB], or all there is."""
    if given:
        return given
    if of_job := _positive(environ, "SLURM_MEM_PER_NODE"):
        return of_job << 20
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def scratch(environ: Mapping[str, str]) -> str:
    """A directory on its own disk: Slurm's for the job, else the user's, else ``/tmp``; only one that can be written.

    >>> scratch({"SLURM_TMPDIR": "/nowhere"})
    '/tmp'
    """
    wanted = (environ.get("SLURM_TMPDIR"), environ.get("TMPDIR"))
    return next((path for path in wanted if path and os.path.isdir(path) and os.access(path, os.W_OK)), "/tmp")


def _positive(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


# What srun sets for its own tasks, of which the supervisor is one, an srun inside would take for options; what an MPI
# launcher sets for its ranks would make those inside believe that they belong to it.
_OF_ANOTHER = re.compile(
    r"SLURM_(STEP.*|NTASKS.*|NPROCS|NNODES|TASKS_PER_NODE|CPUS_PER_TASK|TRES_PER_TASK|GTIDS|PROCID|LOCALID|NODEID|"
    r"TASK_PID|CPU_BIND.*|MEM_BIND.*|DISTRIBUTION|LAUNCH_NODE_IPADDR|SRUN_COMM_.*|KILL_BAD_EXIT|WAIT|EXPORT_ENV|"
    r"OVERLAP|EXACT)"
    r"|FLUX_TASK_.*|PMI_.*|PMIX_.*|OMPI_COMM_.*|OMPI_UNIVERSE_SIZE"
)


@cache
def _of_node() -> re.Pattern[str]:
    from asa.log.gpus import VARIABLES  # here: a supervisor joins sooner without it

    return re.compile(r"SLURM.*|MESOS_.*|HOSTNAME|TMPDIR|XDG_RUNTIME_DIR|ASA_SCRATCH|" + "|".join(VARIABLES))


def outside_ranks(environ: Mapping[str, str]) -> dict[str, str]:
    """All but what a launcher sets for its ranks.

    >>> outside_ranks({"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "PMIX_RANK": "3"})
    {'PATH': '/bin', 'SLURM_JOB_ID': '7'}
    """
    return {name: value for name, value in environ.items() if not _OF_ANOTHER.fullmatch(name)}


def elsewhere(environ: Mapping[str, str]) -> dict[str, str]:
    """What holds on another node, too.

    >>> elsewhere({"PATH": "/bin", "SLURMD_NODENAME": "n1"})
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environ.items() if not _of_node().fullmatch(name)}


def of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """What holds on this node only.

    >>> of_node({"PATH": "/bin", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "3"})
    {'SLURMD_NODENAME': 'n1'}
    """
    return {name: value for name, value in outside_ranks(environ).items() if _of_node().fullmatch(name)}
