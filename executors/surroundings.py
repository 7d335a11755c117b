"""Which variables of an environment belong to a node, and which to a launcher and its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What srun told its own tasks, of which the supervisor is one, would be taken for wishes by an srun inside; what an MPI
# launcher told its ranks would make those inside believe that they belong to it.
_OF_ANOTHER = re.compile(
    r"SLURM_(STEP.*|NTASKS.*|NPROCS|NNODES|TASKS_PER_NODE|CPUS_PER_TASK|TRES_PER_TASK|GTIDS|PROCID|LOCALID|NODEID|"
    r"TASK_PID|CPU_BIND.*|MEM_BIND.*|DISTRIBUTION|LAUNCH_NODE_IPADDR|SRUN_COMM_.*|KILL_BAD_EXIT|WAIT|EXPORT_ENV|"
    r"OVERLAP|EXACT)"
    r"|PMI_.*|PMIX_.*|OMPI_COMM_.*|OMPI_UNIVERSE_SIZE"
)
_OF_NODE = re.compile(r"SLURM.*|MESOS_.*|HOSTNAME|TMPDIR|XDG_RUNTIME_DIR|(CUDA|ROCR|HIP)_VISIBLE_DEVICES")


def outside_ranks(environ: Mapping[str, str]) -> dict[str, str]:
    """All but what a launcher told its ranks.

    >>> outside_ranks({"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "PMIX_RANK": "3"})
    {'PATH': '/bin', 'SLURM_JOB_ID': '7'}
    """
    return {name: value for name, value in environ.items() if not _OF_ANOTHER.fullmatch(name)}


def elsewhere(environ: Mapping[str, str]) -> dict[str, str]:
    """What holds on another node, too.

    >>> elsewhere({"PATH": "/bin", "SLURMD_NODENAME": "n1"})
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environ.items() if not _OF_NODE.fullmatch(name)}


def of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """What holds on this node only.

    >>> of_node({"PATH": "/bin", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "3"})
    {'SLURMD_NODENAME': 'n1'}
    """
    return {name: value for name, value in outside_ranks(environ).items() if _OF_NODE.fullmatch(name)}
