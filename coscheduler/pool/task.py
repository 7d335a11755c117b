"""What a master and an agent are told of a container that is to be launched."""

from __future__ import annotations

import math

from asa.core.units import MIB
from coscheduler.real.machine import Node, Program
from executors.mesos import offered
from executors.mesos.codec import Message
from executors.mesos.offered import Need, Offered
from executors.mesos.resources import LEAST_CPUS, THOUSAND, Resources

_MEMORY_PARTS = 100


def need_of(node: Node, request: float, limit: float) -> Need:
    """What the master counts of a node for a container: its request, in cores of the processor, and a little memory.

    It is rounded down, so that requests that fill a node fit, and is never more than the limit, which masters refuse.

    Examples
    --------
    >>> need_of(Node("a", 1, 1 << 30, speed=0.25), request=0.9, limit=1.0)
    Need(cpus=0.225, memory=10485760, gpus=0)
    >>> need_of(Node("a", 1, 1 << 30), request=0.9, limit=0.5).cpus
    0.5
    """
    cores = min(request * min(node.speed, 1.0), limit * node.speed)
    cpus = math.floor(cores * THOUSAND + 1e-6) / THOUSAND
    memory = node.memory // _MEMORY_PARTS // MIB * MIB
    return Need(max(cpus, LEAST_CPUS), memory or min(node.memory, MIB))


def command_task(name: str, offer: Offered, program: Program, taken: Resources, limit: float | None) -> Message:
    """The TaskInfo of a container.

    Parameters
    ----------
    name
        The container's, and the task's.
    limit
        Cores of the processor; infinite, or None, for no limit. Memory has none.
    """
    variables = tuple(program.environment.items())
    info = offered.task_info(name, name, offer, offered.Program(program.argv, variables), taken)
    most = "Infinity" if limit is None or math.isinf(limit) else limit
    return info | {"limits": {"cpus": {"value": most}, "mem": {"value": "Infinity"}}}
