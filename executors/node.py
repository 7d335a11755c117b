"""What a node is to its supervisor, as the environment says: name, cores, GPUs, memory, where files may be.

It also says which variables belong to a node, and which to a launcher and its ranks. A supervisor looks here before it
joins, so this loads little.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any


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


_ROCR, _CUDA, _INTEL = "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"
_ABOVE_ROCR = ("HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_GPUS = (_CUDA, _ROCR, _INTEL, *_ABOVE_ROCR)
"""Variables that say which GPUs may be used: of NVIDIA, AMD (ROCm; HIP; OpenCL) and Intel. Slurm sets those of a node's
kind, or most of them, each with all of the job's devices in the same order."""


def gpus(given: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What our GPUs are called: so many of those that we may use, fewer if there are fewer.

    They are called as in the first of the variables that names any. Where there is none, Slurm may know their number.

    >>> gpus(2, {}), gpus(2, {"CUDA_VISIBLE_DEVICES": "3,5,7"}), gpus(2, {"ROCR_VISIBLE_DEVICES": "GPU-9f1c"})
    (('0', '1'), ('3', '5'), ('GPU-9f1c',))
    >>> gpus(2, {"SLURM_GPUS_ON_NODE": "1"}), gpus(2, {"CUDA_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": "0,1"})
    (('0',), ('0', '1'))
    """
    if not any(variable in environ for variable in _GPUS):
        return tuple(map(str, range(min(given, _positive(environ, "SLURM_GPUS_ON_NODE") or given))))
    return tuple(device[0] for device in zip(*_named(environ).values(), strict=False))[:given]


def visible(names: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which a task sees these of the node's GPUs and no others: those that name all of them to the node.

    >>> visible(["1"], {}), visible([], {"ROCR_VISIBLE_DEVICES": "0,1"})
    ({'CUDA_VISIBLE_DEVICES': '1', 'ZE_AFFINITY_MASK': '1'}, {'ROCR_VISIBLE_DEVICES': ''})
    >>> visible(["5"], {"ROCR_VISIBLE_DEVICES": "3,5", "HIP_VISIBLE_DEVICES": "0,1"})
    {'ROCR_VISIBLE_DEVICES': '5', 'HIP_VISIBLE_DEVICES': '0'}
    """
    if not any(variable in environ for variable in _GPUS):
        return dict.fromkeys((_CUDA, _INTEL), _listed(_CUDA, names))  # HIP takes CUDA's for its own
    named = _named(environ)
    devices = {device[0]: device for device in zip(*named.values(), strict=False)}
    mine = [devices[name] for name in names if name in devices]
    found = {variable: _listed(variable, [device[at] for device in mine]) for at, variable in enumerate(named)}
    if _ROCR in named:  # AMD's other libraries count among the devices that ROCm shows them
        above = (*_ABOVE_ROCR, _CUDA) if _is_amd() else _ABOVE_ROCR
        found |= {variable: _listed(variable, map(str, range(len(mine)))) for variable in above if variable in named}
    return found


def _named(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Devices by variable, without variables that name none. As CUDA has it, names after one that is no device do not
    count; Slurm writes NoDevFiles for none."""
    found = {}
    for variable in (each for each in _GPUS if each in environ):
        names = (name.strip() for name in environ[variable].split(","))
        if there := tuple(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names)):
            found[variable] = there
    return found


def _listed(variable: str, names: Iterable[str]) -> str:
    """Devices as the variable's library reads them: an empty list is none to ROCm, and all to HIP and Level Zero."""
    return ",".join(names) or ("" if variable == _ROCR else "-1")


def _is_amd() -> bool:
    return os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")


def gpu_rows() -> Iterator[dict[str, Any]]:
    """What ``asa doctor`` says of GPUs where it runs, as in a job that was given some."""
    found = [f"{variable}={os.environ[variable]}" for variable in _GPUS if variable in os.environ]
    if found:
        said = f"{len(gpus(sys.maxsize, os.environ))} here ({', '.join(found)}): tasks see their own by these variables"
        yield {"what": "gpus", "ok": True, "found": said}


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
_OF_NODE = re.compile(r"SLURM.*|MESOS_.*|HOSTNAME|TMPDIR|XDG_RUNTIME_DIR|ASA_SCRATCH|" + "|".join(_GPUS))


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
    return {name: value for name, value in environ.items() if not _OF_NODE.fullmatch(name)}


def of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """What holds on this node only.

    >>> of_node({"PATH": "/bin", "SLURMD_NODENAME": "n1", "SLURM_PROCID": "3"})
    {'SLURMD_NODENAME': 'n1'}
    """
    return {name: value for name, value in outside_ranks(environ).items() if _OF_NODE.fullmatch(name)}
