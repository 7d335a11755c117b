"""What the agent knows. The machine's parts (`tasks`, `executors`, `updates` ...) change it; views read it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from executors.mesos.agent.command import Share
from executors.mesos.codec import Message
from executors.mesos.messages import TERMINAL

COMPLETED_MOST = 1000
"""How many tasks that have ended are remembered."""
ACKNOWLEDGED_MOST = 64
"""How many acknowledged updates of a task are remembered, in case its executor sends them again."""


class Verdict(NamedTuple):
    """What is said of a task when its container ends, whatever it ended with."""

    state: str
    reason: str | None
    text: str


@dataclass(eq=False)
class Task:
    """A task, from its launch until its last update is acknowledged."""

    id: str
    framework: str
    executor: str | None
    """None for a command task."""
    info: Message
    launched: float
    """When it came [s since the epoch]."""
    container: str | None = None
    """Its own; None for a task of a custom executor, which runs it in its own way."""
    group: tuple[str, ...] = ()
    """The tasks, itself included, that it was launched with as one."""
    state: str = "TASK_STAGING"
    statuses: list[Message] = field(default_factory=list)
    """The latest status of each state it has been in, in order; without ``data``."""
    pending: deque[Message] = field(default_factory=deque)
    """Updates that the framework has not acknowledged, in order; the first is on its way."""
    acknowledged: deque[str] = field(default_factory=lambda: deque(maxlen=ACKNOWLEDGED_MOST))
    """Updates that it has acknowledged, by uuid in base64."""
    tries: int = 0
    """How often the first pending update was sent."""
    delivered: bool = False
    """Whether its custom executor was told to launch it."""
    verdict: Verdict | None = None
    """Set once the task is to end, from outside."""
    share: Share | None = None
    """What it takes, once somebody has asked."""

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def executor_id(self) -> str:
        """That of its executor, which for a command task is the task's own."""
        return self.executor or self.id


@dataclass(eq=False)
class Executor:
    """A custom executor: a process that runs tasks in its own way."""

    id: str
    framework: str
    info: Message
    container: str
    launched: float
    stream: str | None = None
    """None while it is not connected."""
    subscribed: bool = False
    """Whether it ever was."""
    tasks: dict[str, Task] = field(default_factory=dict)
    """Those that are not over."""
    verdict: Verdict | None = None
    """Set once it is to end: what is said of the tasks it leaves behind."""
    capped: int | None = None
    """The CPU limits of itself and its tasks together [thousandths of a core], once somebody has asked."""
    uncapped: int = 0
    """How many of these have no limit."""


@dataclass(eq=False)
class Framework:
    """A framework of which something runs here, or has ended without having been acknowledged yet."""

    id: str
    info: Message
    over: bool = False
    """It is gone: its tasks are ended, and nobody waits for their updates."""
    tasks: dict[str, Task] = field(default_factory=dict)
    executors: dict[str, Executor] = field(default_factory=dict)

    def can(self, capability: str) -> bool:
        """Whether it has declared a capability: ``"PARTITION_AWARE"``."""
        declared = self.info.get("capabilities")
        items = declared if isinstance(declared, list) else []
        return any(isinstance(item, dict) and item.get("type") == capability for item in items)


@dataclass(eq=False)
class Instance:
    """A container that was told to start and has not ended."""

    id: str
    framework: str
    executor: str
    task: str | None
    """None for the process of a custom executor."""
    sandbox: str
    request: float
    """How many cores it should have, by right, when others want theirs too."""
    cpus: float | None
    """At most so many, by right; None for as many as there are."""
    memory: int | None
    """At most so much [bytes]."""
    pid: int | None = None
    """None until it has started."""
    birth: int = 0
    """When its process started [clock ticks since the machine did]."""
    lease: float | None = None
    """At most so many until the lease of its limit ends, infinite for no limit; None without such a lease."""
    until: float = 0.0
    """When that ends [s since the epoch]."""
    request_lease: float | None = None
    """How many cores it should have until the lease of its weight ends; None without such a lease."""
    request_until: float = 0.0
    """When that ends [s since the epoch]."""
    fixed: bool = False
    """Whether `cpus` was set by an operator for good: what its tasks ask for changes it no more."""
    weighed: bool = False
    """Whether its weight was ever changed."""
    gpus: tuple[str, ...] = ()
    """Those of the agent's that it sees."""

    @property
    def limit(self) -> float | None:
        """How many cores it may have at most now; None for as many as there are."""
        if self.lease is None:
            return self.cpus
        return None if math.isinf(self.lease) else self.lease

    @property
    def weight(self) -> float:
        """How many cores it should have now when others want theirs too."""
        return self.request if self.request_lease is None else self.request_lease


@dataclass(frozen=True)
class Departure:
    """The agent is about to end.

    Parameters
    ----------
    reason
        Why, for the master.
    until
        When it ends at the latest, even if updates have not been acknowledged [s since the epoch].
    told
        Whether the master has sent it away and so waits for nothing from it.
    """

    reason: str
    until: float
    told: bool = False


@dataclass(eq=False)
class State:
    """All of it."""

    started: float
    id: str | None = None
    """Given by the master; None before it has registered for the first time."""
    registered: bool = False
    """Whether the master knows, on the connection of now, what is here."""
    frameworks: dict[str, Framework] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Stream -> framework and executor behind it."""
    departure: Departure | None = None
    """Set once the agent is about to end."""
    left: bool = False
    """Whether it has."""
    completed: deque[Message] = field(default_factory=lambda: deque(maxlen=COMPLETED_MOST))
    """Tasks that have ended and been acknowledged, as messages."""
    counters: dict[str, int] = field(default_factory=dict)
    """Metrics that only grow: ``tasks_finished`` and so on."""

    def task(self, framework_id: str, task_id: str) -> Task | None:
        framework = self.frameworks.get(framework_id)
        return None if framework is None else framework.tasks.get(task_id)

    def executor(self, framework_id: str, executor_id: str) -> Executor | None:
        framework = self.frameworks.get(framework_id)
        return None if framework is None else framework.executors.get(executor_id)
