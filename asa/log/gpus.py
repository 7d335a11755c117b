"""Which GPUs there are, what they are called, and the variables by which a program sees some of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

_ROCR, _CUDA, _INTEL = "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"
_ABOVE_ROCR = ("HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
VARIABLES = (_CUDA, _ROCR, _INTEL, *_ABOVE_ROCR)
"""They say which GPUs may be used: of NVIDIA, AMD (ROCm; HIP; OpenCL) and Intel. Slurm sets those of a node's kind, or
most of them, each with all of the job's devices in the same order."""


def found(environ: Mapping[str, str], root: str = "/") -> tuple[str, ...]:
    """What the machine's GPUs are called that programs here may use.

    Those that variables name; else as many as NVIDIA's driver has device files, or AMD's says, counted from 0. Others
    are not found.
    """
    if any(variable in environ for variable in VARIABLES):
        return usable(sys.maxsize, environ)
    devices = sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in _names(os.path.join(root, "dev")))
    if not devices:  # a node of the topology is a processor where its id is 0
        nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
        devices = sum(_read(os.path.join(nodes, name, "gpu_id")).strip() not in ("", "0") for name in _names(nodes))
    return tuple(map(str, range(devices)))


def usable(given: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What our GPUs are called: so many of those that we may use, fewer if there are fewer.

    They are called as in the first of the variables that names any. Where there is none, Slurm may know their number.

    >>> usable(2, {}), usable(2, {"CUDA_VISIBLE_DEVICES": "3,5,7"}), usable(2, {"ROCR_VISIBLE_DEVICES": "GPU-9f1c"})
    (('0', '1'), ('3', '5'), ('GPU-9f1c',))
    >>> usable(2, {"SLURM_GPUS_ON_NODE": "1"}), usable(2, {"CUDA_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": "0,1"})
    (('0',), ('0', '1'))
    """
    if not any(variable in environ for variable in VARIABLES):
        there = environ.get("SLURM_GPUS_ON_NODE", "")
        return tuple(map(str, range(min(given, int(there) if there.isdecimal() and int(there) else given))))
    return tuple(device[0] for device in zip(*_named(environ).values(), strict=False))[:given]


def visible(names: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables by which a task sees these of the node's GPUs and no others: those that name all of them to the node.

    >>> visible(["1"], {}), visible([], {"ROCR_VISIBLE_DEVICES": "0,1"})
    ({'CUDA_VISIBLE_DEVICES': '1', 'ZE_AFFINITY_MASK': '1'}, {'ROCR_VISIBLE_DEVICES': ''})
    >>> visible(["5"], {"ROCR_VISIBLE_DEVICES": "3,5", "HIP_VISIBLE_DEVICES": "0,1"})
    {'ROCR_VISIBLE_DEVICES': '5', 'HIP_VISIBLE_DEVICES': '0'}
    """
    if not any(variable in environ for variable in VARIABLES):
        return dict.fromkeys((_CUDA, _INTEL), _listed(_CUDA, names))  # HIP takes CUDA's for its own
    named = _named(environ)
    devices = {device[0]: device for device in zip(*named.values(), strict=False)}
    mine = [devices[name] for name in names if name in devices]
    seen = {variable: _listed(variable, [device[at] for device in mine]) for at, variable in enumerate(named)}
    if _ROCR in named:  # AMD's other libraries count among the devices that ROCm shows them
        above = (*_ABOVE_ROCR, _CUDA) if _is_amd() else _ABOVE_ROCR
        seen |= {variable: _listed(variable, map(str, range(len(mine)))) for variable in above if variable in named}
    return seen


def doctor_rows() -> Iterator[dict[str, Any]]:
    """What ``asa doctor`` says of GPUs where it runs, as in a job that was given some."""
    named = [f"{variable}={os.environ[variable]}" for variable in VARIABLES if variable in os.environ]
    if (count := len(found(os.environ))) or named:
        said = f"{count} here: each task with gpus= sees its own, by {', '.join(named) or VARIABLES[0]}"
        yield {"what": "gpus", "ok": True, "found": said}


def _named(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Devices by variable, without variables that name none. As CUDA has it, names after one that is no device do not
    count; Slurm writes NoDevFiles for none."""
    named = {}
    for variable in (each for each in VARIABLES if each in environ):
        names = (name.strip() for name in environ[variable].split(","))
        if there := tuple(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names)):
            named[variable] = there
    return named


def _listed(variable: str, names: Iterable[str]) -> str:
    """Devices as the variable's library reads them: an empty list is none to ROCm, and all to HIP and Level Zero."""
    return ",".join(names) or ("" if variable == _ROCR else "-1")


def _is_amd() -> bool:
    return os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:  # a device that this user may not use
        return ""
