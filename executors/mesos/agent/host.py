"""What a node has, and what its containers inherit of an agent's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from asa.core.errors import InvalidInput
from asa.core.units import MIB
from executors.mesos.codec import Message
from executors.mesos.resources import Kind, Resources, scalars

_PORTS = (31000, 32000)  # those that Mesos' agents offer unless they are told otherwise

# What batch systems and people put there to prove who they are, and what another agent has told this one.
_PRIVATE = re.compile(
    r"SLURM_JWT|MESOS_.*|LIBPROCESS_.*|.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY)(_.*)?",
)


def resources(cores: float, memory: int, gpus: int) -> Resources:
    """What an agent offers; `memory` is in bytes.

    Examples
    --------
    >>> [kind.name for kind, amount in resources(4, 1 << 30, 0)]
    ['cpus', 'mem', 'ports']
    """
    return scalars(cpus=cores, mem=memory // MIB, gpus=gpus) + Resources({Kind("ports"): (_PORTS,)})


def ends(given: float | None, lasts: float | None, environ: Mapping[str, str], now: float) -> float | None:
    """When the allocation ends [s since the epoch]: as given, as Slurm says, or so long after now.

    >>> ends(None, 60.0, {}, 1000.0), ends(None, 60.0, {"SLURM_JOB_END_TIME": "1050"}, 1000.0)
    (1060.0, 1050.0)
    >>> ends(1040.0, 60.0, {"SLURM_JOB_END_TIME": "1050"}, 1000.0)
    1040.0
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
