"""Agents that own a part of their node's processor only."""

from __future__ import annotations

from collections.abc import Iterable

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import probe
from executors.cgroup.group import Quotas
from executors.mesos.codec import Message
from executors.mesos.offered import CAPACITY
from executors.mesos.resources import LEAST_CPUS


def keep(quotas: Quotas, cores: float, most: float) -> None:
    """All containers together have at most so many cores of the processor.

    Parameters
    ----------
    most
        What the agent offers [cores].

    Raises
    ------
    InvalidInput
        When that is no part of what the agent offers.
    StateError
        When it cannot be kept here.
    """
    if not LEAST_CPUS <= cores <= most:
        raise InvalidInput(f"--capacity {cores:g}: expected from {LEAST_CPUS} to the {most:g} cores that are offered")
    try:
        quotas.bound(cores)
        probe.attempt(quotas)  # a kernel that refuses does so now, and not when the first container is to start
    except StateError as error:
        raise StateError(f"--capacity {cores:g}: {error}") from error


def attributes(given: Iterable[Message], cores: float | None) -> list[Message]:
    """An agent's attributes, with that of its capacity, if it has one.

    Raises
    ------
    InvalidInput
        When another attribute has that name.

    Examples
    --------
    >>> attributes([], 0.3)
    [{'name': 'capacity', 'type': 'SCALAR', 'scalar': {'value': 0.3}}]
    """
    found = list(given)
    if cores is None:
        return found
    if any(item["name"] == CAPACITY for item in found):
        raise InvalidInput(f"--attribute {CAPACITY}=...: expected another name, --capacity says this one")
    return [*found, {"name": CAPACITY, "type": "SCALAR", "scalar": {"value": cores}}]
