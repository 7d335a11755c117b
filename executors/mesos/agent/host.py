"""What a node has, and what its containers inherit of an agent's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from asa.core.errors import InvalidInput
from executors.mesos.codec import Message
from executors.mesos.resources import Kind, Resources, scalars

MIB = 1 << 20
PORTS = (31000, 32000)
"""The ports that Mesos' agents offer unless they are told otherwise."""

# What batch systems and people put there to prove who they are, and what another agent has told this one.
_PRIVATE = re.compile(
    r"SLURM_JWT|MESOS_.*|LIBPROCESS_.*|.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY)(_.*)?",
)


def resources(cores: float, memory: int, gpus: int, ports: tuple[int, int] | None = PORTS) -> Resources:
    """What an agent offers.

    Parameters
    ----------
    memory
        In bytes.
    ports
        First and last; None for none.

    Examples
    --------
    >>> [kind.name for kind, amount in resources(4, 1 << 30, 0)]
    ['cpus', 'mem', 'ports']
    """
    found = scalars(cpus=cores, mem=memory // MIB, gpus=gpus)
    return found if ports is None else found + Resources({Kind("ports"): (ports,)})


def cores(given: int | None, environ: Mapping[str, str]) -> int:
    """How many cores this node gives to the agent: fewer than `given` where Slurm has spread them unevenly."""
    allowed = len(os.sched_getaffinity(0))
    on_node = environ.get("SLURM_CPUS_ON_NODE", "")
    most = int(on_node) if on_node.isdecimal() and int(on_node) > 0 else None
    if given is None:
        return most or allowed
    return given if most is None else min(given, most)


def gpus(given: int, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the GPUs that the agent offers are called: so many of those that it may use itself, fewer if it has fewer.

    >>> gpus(2, {}), gpus(2, {"CUDA_VISIBLE_DEVICES": "3,5,7"}), gpus(2, {"CUDA_VISIBLE_DEVICES": "GPU-9f1c"})
    (('0', '1'), ('3', '5'), ('GPU-9f1c',))
    """
    names = environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return tuple(map(str, range(given)))
    found = [name.strip() for name in names.split(",")]
    # As CUDA has it, what comes after something that is no device is not seen; Slurm writes NoDevFiles for none.
    return tuple(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), found))[:given]


def memory(given: int | None, environ: Mapping[str, str]) -> int:
    """Memory of this node for the agent [bytes]: as given, as Slurm says [MiB], or all there is."""
    if given:
        return given
    of_job = environ.get("SLURM_MEM_PER_NODE", "")
    if of_job.isdecimal() and int(of_job) > 0:
        return int(of_job) * MIB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def ends(given: float | None, lasts: float | None, environ: Mapping[str, str], now: float) -> float | None:
    """When the allocation ends [s since the epoch]: as given, as Slurm says, or so long after now.

    >>> ends(None, 60.0, {}, 1000.0), ends(None, 60.0, {"SLURM_JOB_END_TIME": "1050"}, 1000.0)
    (1060.0, 1050.0)
    """
    if given is not None:
        return given
    of_job = environ.get("SLURM_JOB_END_TIME", "")
    if of_job.isdecimal():
        return float(of_job)
    return None if lasts is None else now + lasts


def attributes(pairs: Sequence[str]) -> list[Message]:
    """Mesos' Attributes from ``NAME=VALUE``; raises `InvalidInput` for what is none.

    >>> attributes(["rack=r1"])
    [{'name': 'rack', 'type': 'TEXT', 'text': {'value': 'r1'}}]
    """
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidInput(f"--attribute {pair!r}: expected NAME=VALUE")
        found.append({"name": name, "type": "TEXT", "text": {"value": value}})
    return found


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What containers find of the agent's environment: all but secrets.

    >>> inherited({"PATH": "/bin", "SLURM_JWT": "x", "MY_API_KEY": "y", "AWS_SECRET_ACCESS_KEY": "z"})
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environ.items() if not _PRIVATE.fullmatch(name.upper())}
