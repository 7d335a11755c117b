"""Nodes on which jobs share cores: what they are asked to do, and what they report. Agents, or a fake in tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node of a machine.

    Parameters
    ----------
    cores
        Whole cores that it offers, at least 1.
    memory
        What it offers [bytes].
    speed
        What one of its cores is worth, in cores of the processor: below 1 on an agent that was given a fraction.
    agent
        What its agent is called, if it has one.
    """

    name: str
    cores: int
    memory: int
    speed: float = 1.0
    agent: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ContainerProgram:
    """What a container runs: program and arguments, and what is added to the node's own environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class ContainerUsage(NamedTuple):
    """What a container has used since it was started: CPU time [s], in seconds of the processor, and what it has in
    memory now [bytes]; for how long it has waited for memory [s]; the memory that the machine under it can still give
    [bytes]; for how long its processors were others' while it wanted them, on average over these [s]; and for how long
    it was held back by quotas, all processors together [s]. None for what is not counted."""

    cpu_s: float
    memory: int | None
    stalled_s: float | None = None
    available: int | None = None
    waited_s: float | None = None
    throttled_s: float | None = None


class ContainerStarted(NamedTuple):
    """A container runs."""

    container: str


class ContainerEnded(NamedTuple):
    """A container has ended, or could not be started; `problem` says what went wrong, "" for nothing.

    `lost`: it was not its own fault: its node, or the agent there, is gone. `killed`: by SIGKILL, as the kernel kills
    for want of memory. `ended`: when, by `time.monotonic` [s], of one that was taken over; None for just now.
    """

    container: str
    problem: str = ""
    lost: bool = False
    killed: bool = False
    ended: float | None = None


ContainerEvent = ContainerStarted | ContainerEnded


class SharedMachine(Protocol):
    """Nodes that run containers. Calls come from one thread; none waits for a container."""

    @property
    def nodes(self) -> tuple[SharedNode, ...]:
        """Nodes that are there now; one that was lost is not."""

    def start(self, container: str, node: str, program: ContainerProgram, request: float, limit: float) -> None:
        """Start a container; `news` says what becomes of it.

        Parameters
        ----------
        container
            Letters, digits, ``-``, ``_`` and ``.``; never used twice.
        request
            Cores of this node that it has when others want theirs too: its weight; in (0, cores of the node].
        limit
            Cores of this node that it has at most; the node's cores for no limit.
        """

    def stop(self, container: str) -> None:
        """End a container; `news` says when it has ended. Nothing happens when it has."""

    def share(self, container: str, request: float, limit: float, lease_s: float | None) -> None:
        """Change what a container may have: for so long [s], then it has again what it had; None for good."""

    def hold_memory(self, container: str, memory: int | None, lease_s: float | None) -> None:
        """Take memory back from a container while it has more than this [bytes], for so long [s]; None for no such
        limit, and for good.

        Nothing happens where that is not possible, or it does not run.
        """

    def signal(self, container: str, name: str) -> None:
        """Send a signal, by its name without ``SIG``, to all processes of a container, if it runs."""

    def used(self) -> Mapping[str, ContainerUsage]:
        """What the containers that run have used, those included that were started just now."""

    def news(self, timeout_s: float) -> list[ContainerEvent]:
        """What has happened since this was asked last, in order; waits for something at most so long [s]."""

    def close(self) -> None:
        """End all containers, and what was started for them."""
