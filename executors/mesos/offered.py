"""Offers as a framework sees them, and how tasks are cut out of them. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from asa.core.units import MIB
from executors.mesos.codec import Message
from executors.mesos.messages import field, identity, value_of
from executors.mesos.resources import Kind, Resources, parse, scalars, to_json

CAPACITY = "capacity"
"""The attribute of an agent that owns a part of its node's processor only [cores]."""


@dataclass(frozen=True)
class Offered:
    """What one agent offers.

    Parameters
    ----------
    id, agent, hostname
        Of the offer, and whose it is.
    role
        As which the framework may use it.
    resources
        What is left of it.
    attributes
        The agent's, as texts.
    ends
        When the agent becomes unavailable [s since the epoch]; None when that is not known.
    made
        When the offer came [s since the epoch].
    """

    id: str
    agent: str
    hostname: str
    role: str
    resources: Resources
    attributes: Mapping[str, str]
    ends: float | None
    made: float

    @property
    def capacity(self) -> float | None:
        """Cores of the processor behind what the agent offers; None where it does not say, or makes no sense."""
        with suppress(ValueError):
            cores = float(self.attributes.get(CAPACITY, "nan"))
            return cores if 0 < cores < math.inf else None
        return None

    def has(self, wanted: Mapping[str, str]) -> bool:
        """Whether the agent has these attributes."""
        return all(self.attributes.get(name) == value for name, value in wanted.items())

    def lasts(self, until: float) -> bool:
        """Whether the agent is expected to be there for so long [s since the epoch]."""
        return self.ends is None or self.ends >= until

    def without(self, taken: Resources) -> Offered:
        """The same offer, less what a task takes."""
        return replace(self, resources=self.resources - taken)


class Need(NamedTuple):
    """What one task takes: cores, memory [bytes], GPUs."""

    cpus: float
    memory: int = 0
    gpus: int = 0

    def of(self, resources: Resources) -> Resources | None:
        """These amounts out of `resources`, what is reserved for us first; None when there is not enough."""
        wanted = scalars(cpus=self.cpus, mem=self.memory / MIB, gpus=self.gpus)
        found: dict[Kind, int] = {}
        for name, amount in wanted.scalars().items():
            for kind, there in sorted(resources, key=lambda item: item[0].role == "*"):
                if kind.name == name and not kind.revocable and isinstance(there, int) and amount:
                    found[kind] = min(amount, there)
                    amount -= found[kind]
            if amount:
                return None
        return Resources(dict(found))


def all_of(resources: Resources) -> Need:
    """All cores, memory and GPUs that are there."""
    return Need(resources.scalar("cpus"), int(resources.scalar("mem") * MIB), int(resources.scalar("gpus")))


def offered(offer: Message, now: float) -> Offered:
    """An Offer message, read.

    Raises
    ------
    BadMessage
        When it lacks what every offer has.
    """
    begins = field(offer, "unavailability.start.nanoseconds", int, None)
    attributes = {
        field(item, "name", str): _text(item) for item in field(offer, "attributes", list, []) if isinstance(item, dict)
    }
    return Offered(
        id=value_of(offer, "id"),
        agent=value_of(offer, "agent_id"),
        hostname=field(offer, "hostname", str, ""),
        role=field(offer, "allocation_info.role", str, "*"),
        resources=parse(field(offer, "resources", list, [])),
        attributes=attributes,
        ends=None if begins is None else begins / 1e9,
        made=now,
    )


def _text(attribute: Message) -> str:
    for kind in ("text", "scalar"):
        if kind in attribute:
            return str(attribute[kind].get("value", "") if isinstance(attribute[kind], dict) else "")
    return ""


class Program(NamedTuple):
    """What a task runs: a program with its arguments, and variables for its environment."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def task_info(task_id: str, name: str, offer: Offered, program: Program, taken: Resources) -> Message:
    """The TaskInfo of a command task on the agent of an offer."""
    variables = [{"name": key, "value": value} for key, value in program.environment]
    command: Message = {"shell": False, "value": program.argv[0], "arguments": list(program.argv)}
    if variables:
        command["environment"] = {"variables": variables}
    return {
        "name": name,
        "task_id": identity(task_id),
        "agent_id": identity(offer.agent),
        "resources": to_json(taken, offer.role),
        "command": command,
    }
