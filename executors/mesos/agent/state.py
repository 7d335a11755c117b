"""The nouns of the agent's state machine: options, what the agent knows, and the effects that are to be carried out.

`AgentCore` is what the parts of the machine (`tasks`, `api`, `machine`) share during one call. Nothing here does I/O.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from executors.mesos import effects
from executors.mesos.codec import Message
from executors.mesos.effects import Close, CopyRow, KeepRow, Send
from executors.mesos.messages import TERMINAL, message
from executors.mesos.resources import Resources
from executors.mesos.timers import Timers

OUT_OF_MEMORY = "REASON_CONTAINER_LIMITATION_MEMORY"
"""Why a container has ended, in Mesos' word, when the kernel has killed a process of it for want of memory."""


class ToMaster(NamedTuple):
    """Send this to the master, if it is connected; what must reach it is sent again by the machine."""

    item: Message


class ContainerSpec(NamedTuple):
    """What to start, and within what limits.

    Parameters
    ----------
    id
        Unique; names the cgroup and is part of the sandbox's path.
    framework, executor
        Whose it is; for a command task, the executor has the task's id.
    argv
        Program and arguments; a shell command is ``("/bin/sh", "-c", TEXT)``.
    environment
        All of it: the agent's own, less its secrets, then Mesos' variables, then what the task asked for.
    sandbox
        Directory that it runs in; made before, with mode 0700. Standard output and error go to the files ``stdout`` and
        ``stderr`` in it.
    cpus
        What it may always have: its weight among others.
    cpus_limit
        What it may have at most; None for no limit.
    memory
        Limit [bytes]; None for none.
    """

    id: str
    framework: str
    executor: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    sandbox: str
    cpus: float
    cpus_limit: float | None
    memory: int | None


class StartContainer(NamedTuple):
    """Start a container; then `NodeAgent.started` is called, or `exited` when it cannot be."""

    container: ContainerSpec


class StopContainer(NamedTuple):
    """End a container: SIGTERM to its processes, SIGKILL after `grace_s` [s]; at once when that is 0."""

    id: str
    grace_s: float


class LimitCpu(NamedTuple):
    """Change how much CPU a container may have at most; None for no limit."""

    id: str
    cpus: float | None


class WeighCpu(NamedTuple):
    """Change how many cores a container should have when other containers are busy too."""

    id: str
    cpus: float


class HoldMemory(NamedTuple):
    """Take memory back from a container while it has more than this [bytes]; None for no such limit."""

    id: str
    memory: int | None


class SignalContainer(NamedTuple):
    """Send a signal to all processes of a container."""

    id: str
    signal: int


class RemoveContainer(NamedTuple):
    """Nothing of this container is needed any more, its cgroup least of all; its sandbox stays for people to read."""

    id: str


class ExitAgent(NamedTuple):
    """The agent's work is over: end the process with this code, once everything before is done."""

    code: int


AgentEffect = (
    ToMaster
    | StartContainer
    | StopContainer
    | LimitCpu
    | WeighCpu
    | HoldMemory
    | SignalContainer
    | RemoveContainer
    | ExitAgent
)
Effect = effects.Effect | AgentEffect


@dataclass(frozen=True)
class AgentOptions:
    """What an agent is started with; the durations are Mesos' defaults.

    Parameters
    ----------
    hostname, port
        Where operators reach it; in ``AgentInfo``.
    ip, tls
        The address of that host, if it is known, and whether operators reach it over TLS only; in offers.
    resources
        All it has: ``scalars(cpus=64, mem=262144)``, and perhaps ``ports`` and ``gpus``.
    attributes
        Mesos' Attributes, such as the batch job's id: frameworks read them in offers.
    directory
        Sandboxes are below it.
    environment
        What every container inherits, without any secret of the agent.
    endpoint
        ``IP:PORT``, where executors on this node connect to.
    gpus
        What its GPUs are called, see `asa.log.gpus.usable`: each container sees those that it asks for. Empty where
        they have no names.
    ends
        When its allocation ends [s since the epoch]; None for never.
    margin_s
        How long before that everything is stopped [s]; None to leave it to the batch system. By default as long as
        executors have by default, and 10 s in which the last updates are sent.
    registration_s
        A custom executor that has not subscribed so long after its launch is ended [s].
    grace_s
        How long an executor that is asked to end may take [s].
    recovery_s
        How long an executor whose connection broke, by an agent's restart perhaps, has to subscribe again [s].
    quotas
        Whether a container gets no more CPU than its tasks have asked for; else only what their ``limits`` say counts.
    user
        The only user whose tasks are taken; None for any name. All run as the agent's user, whatever they say.
    """

    hostname: str
    port: int
    resources: Resources
    directory: str
    endpoint: str
    attributes: list[Message] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    ends: float | None = None
    margin_s: float | None = 15.0
    registration_s: float = 60.0
    grace_s: float = 5.0
    recovery_s: float = 900.0
    quotas: bool = True
    user: str | None = None
    ip: str | None = None
    tls: bool = False


COMPLETED_MOST = 1000
"""How many tasks that have ended are remembered."""
ACKNOWLEDGED_MOST = 64
"""How many acknowledged updates of a task are remembered, in case its executor sends them again."""


_LIVE = ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
_ENDS = {"finished": "TASK_FINISHED", "failed": "TASK_FAILED", "killed": "TASK_KILLED"}
TASK_TRANSITIONS: Mapping[tuple[str, str], str] = {
    ("TASK_STAGING", "refused"): "TASK_ERROR",  # it cannot run on this agent, whatever happens
    ("TASK_STAGING", "dropped"): "TASK_DROPPED",  # its executor, or the agent, is about to end
    ("TASK_STAGING", "lost"): "TASK_LOST",  # the same, as frameworks hear it that are not PARTITION_AWARE
    ("TASK_STAGING", "started"): "TASK_RUNNING",
    ("TASK_RUNNING", "asked to end"): "TASK_KILLING",  # reported to frameworks with TASK_KILLING_STATE only
} | {(state, event): end for state in _LIVE for event, end in _ENDS.items()}
"""(State, event) -> state: what the agent itself reports of a task.

A custom executor reports the states of its tasks as it likes, until one is terminal; when it ends, the agent reports
those that it has left.
"""


class ContainerPhase(Enum):
    """Where a container stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


CONTAINER_TRANSITIONS: Mapping[tuple[ContainerPhase, str], ContainerPhase] = {
    (ContainerPhase.STARTING, "started"): ContainerPhase.RUNNING,
    (ContainerPhase.STARTING, "asked to end"): ContainerPhase.STOPPING,
    (ContainerPhase.STARTING, "ended"): ContainerPhase.ENDED,  # it could not be started
    (ContainerPhase.RUNNING, "asked to end"): ContainerPhase.STOPPING,
    (ContainerPhase.RUNNING, "ended"): ContainerPhase.ENDED,
    (ContainerPhase.STOPPING, "started"): ContainerPhase.STOPPING,  # the start was under way
    (ContainerPhase.STOPPING, "asked to end"): ContainerPhase.STOPPING,  # sooner, perhaps
    (ContainerPhase.STOPPING, "ended"): ContainerPhase.ENDED,
}
"""(Phase, event) -> phase: what becomes of a container."""


class TaskShare(NamedTuple):
    """What something takes: cores that it asks for; cores and memory [bytes] at most, infinite for no limit; GPUs."""

    cpus: float
    limit: float
    memory: float
    gpus: int = 0


class TaskEnd(NamedTuple):
    """What is reported of a task when its container ends, whatever it ended with."""

    event: str
    """One of `TASK_TRANSITIONS`."""
    reason: str | None
    text: str


@dataclass(eq=False)
class AgentTask:
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
    """Whether it was sent to its custom executor."""
    verdict: TaskEnd | None = None
    """Set once the task is to end, from outside."""
    share: TaskShare | None = None
    """What it takes, once that was computed."""

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def executor_id(self) -> str:
        """That of its executor, which for a command task is the task's own."""
        return self.executor or self.id


@dataclass(eq=False)
class AgentExecutor:
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
    tasks: dict[str, AgentTask] = field(default_factory=dict)
    """Those that are not over."""
    verdict: TaskEnd | None = None
    """Set once it is to end: what is reported of the tasks it leaves behind."""
    capped: int | None = None
    """The CPU limits of itself and its tasks together [thousandths of a core], once computed."""
    uncapped: int = 0
    """How many of these have no limit."""


@dataclass(eq=False)
class AgentFramework:
    """A framework of which something runs here, or has ended without having been acknowledged yet."""

    id: str
    info: Message
    over: bool = False
    """It is gone: its tasks are ended, and their updates are not sent."""
    tasks: dict[str, AgentTask] = field(default_factory=dict)
    executors: dict[str, AgentExecutor] = field(default_factory=dict)

    def can(self, capability: str) -> bool:
        """Whether it has declared a capability: ``"PARTITION_AWARE"``."""
        declared = self.info.get("capabilities")
        items = declared if isinstance(declared, list) else []
        return any(isinstance(item, dict) and item.get("type") == capability for item in items)


@dataclass(eq=False)
class CpuShare:
    """A container's CPU limit or its weight."""

    right: float
    """What it has a right to [cores]; infinite for no limit."""
    lent: float | None = None
    """What it has until its lease ends [cores]; None without a lease."""
    until: float = 0.0
    """When that ends [s since the epoch]."""
    changed: bool = False
    """Whether an operator ever changed it."""
    fixed: bool = False
    """Whether `right` was set by an operator for good: what its tasks ask for changes it no more."""

    @property
    def now(self) -> float:
        return self.right if self.lent is None else self.lent


@dataclass(eq=False)
class ContainerState:
    """A container, from the effect that starts it until it has ended."""

    id: str
    framework: str
    executor: str
    task: str | None
    """None for the process of a custom executor."""
    sandbox: str
    limits: CpuShare
    """At most so many cores."""
    requests: CpuShare
    """How many cores it should have when other containers are busy too."""
    memory: int | None
    """At most so much [bytes]."""
    phase: ContainerPhase = ContainerPhase.STARTING
    pid: int | None = None
    """None until it has started."""
    birth: int = 0
    """When its process started [clock ticks since the machine did]."""
    gpus: tuple[str, ...] = ()
    """Those of the agent's that it sees."""

    @property
    def limit(self) -> float | None:
        """How many cores it may have at most now; None for as many as there are."""
        return None if math.isinf(self.limits.now) else self.limits.now


@dataclass(frozen=True)
class Departure:
    """The agent is about to end."""

    reason: str
    until: float
    """When it ends at the latest, even if updates have not been acknowledged [s since the epoch]."""
    notified: bool = False
    """Whether the master has sent it away and so waits for nothing from it."""


@dataclass(eq=False)
class AgentState:
    """All of it."""

    started: float
    id: str | None = None
    """Given by the master; None before it has registered for the first time."""
    registered: bool = False
    """Whether the master knows, on the connection of now, what is here."""
    frameworks: dict[str, AgentFramework] = field(default_factory=dict)
    instances: dict[str, ContainerState] = field(default_factory=dict)
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Stream -> framework and executor behind it."""
    departure: Departure | None = None
    """Set once the agent is about to end."""
    left: bool = False
    """Whether it has."""
    completed: deque[Message] = field(default_factory=lambda: deque(maxlen=COMPLETED_MOST))
    """Tasks that have ended and been acknowledged, as messages."""

    def task(self, framework_id: str, task_id: str) -> AgentTask | None:
        framework = self.frameworks.get(framework_id)
        return None if framework is None else framework.tasks.get(task_id)

    def executor(self, framework_id: str, executor_id: str) -> AgentExecutor | None:
        framework = self.frameworks.get(framework_id)
        return None if framework is None else framework.executors.get(executor_id)


@dataclass(eq=False)
class AgentCore:
    """One call into the machine: its parts change `state` and add effects, in order; `NodeAgent` takes these."""

    options: AgentOptions
    state: AgentState
    fresh: Callable[[], bytes]
    """Returns 16 random bytes."""
    now: float
    """The time of this call [s since the epoch]."""
    timers: Timers = field(default_factory=Timers)
    effects: list[Effect] = field(default_factory=list)

    def add(self, effect: Effect) -> None:
        self.effects.append(effect)

    def send(self, stream: str | None, event: Message) -> None:
        """Send an event to an executor; without a stream it is dropped."""
        if stream is not None:
            self.effects.append(Send(stream, event))

    def close(self, stream: str | None) -> None:
        """End an executor's stream and forget what it was."""
        if stream is not None:
            self.state.streams.pop(stream, None)
            self.timers.cancel("heartbeat", stream)
            self.effects.append(Close(stream))

    def send_to_master(self, kind: str, **payload: Any) -> None:
        """Send an item to the master, if the agent is registered."""
        if self.state.registered:
            self.effects.append(ToMaster(message(kind, **payload)))

    def keep(self, table: str, key: str, row: Message | None, *, copied: bool = False) -> None:
        """Write a row of the journal, or remove it; nothing waits for one that is `copied` (see `CopyRow`)."""
        self.effects.append((CopyRow if copied else KeepRow)(table, key, row))

    def new_id(self) -> str:
        return str(uuid.UUID(bytes=self.fresh(), version=4))

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects
