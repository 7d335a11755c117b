"""What the master knows. The machine's parts (`frameworks`, `agents`, `tasks` ...) change it; views read it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from executors.mesos.codec import Message
from executors.mesos.resources import NONE, Resources

COMPLETED_MOST = 1000
"""How many tasks of a framework, and how many frameworks, are remembered after they have ended."""


@dataclass(frozen=True)
class MasterOptions:
    """What a master is started with.

    Parameters
    ----------
    hostname, port
        Where clients reach it; as in ``MasterInfo``.
    heartbeat_s
        How often streams of schedulers and operators get a HEARTBEAT [s].
    ping_s, pings
        See `executors.mesos.agent_protocol`.
    agent_reregister_s
        How long agents have, after the master's restart, to come back before their tasks are unreachable [s].
    allocate_s
        How often resources are allocated at the latest [s]; events do it at once.
    offer_timeout_s
        After how long an offer without an answer is rescinded [s]; None for never.
    offers_most
        How many offers one OFFERS event has at most: clients parse large ones slowly.
    user
        The only user whose frameworks and tasks are taken; None for any name.
    authenticated
        Whether it is known who calls. Else a framework goes over to another scheduler only once its own is gone, and
        only to one that names the same principal.
    """

    hostname: str = "127.0.0.1"
    port: int = 5050
    heartbeat_s: float = 15.0
    ping_s: float = 15.0
    pings: int = 5
    agent_reregister_s: float = 600.0
    allocate_s: float = 1.0
    offer_timeout_s: float | None = None
    offers_most: int = 200
    user: str | None = None
    authenticated: bool = True


@dataclass(eq=False, slots=True)
class TaskRecord:
    """A task, from its launch until its last update is acknowledged."""

    id: str
    framework: str
    agent: str
    executor: str | None
    """None for a command task."""
    info: Message
    """The TaskInfo, as it was given, but for ``data``, which is not needed any more; resources know their role."""
    resources: Resources
    role: str
    state: str = "TASK_STAGING"
    """The latest state known, whether or not it was sent to the framework."""
    statuses: list[Message] = field(default_factory=list)
    """One status of each state it has been in, in order; without ``data``."""
    unacknowledged: str | None = None
    """The uuid, in base64, of the update that was sent to the framework last and not acknowledged yet."""
    pending: Message | None = None
    """That update's status, whole: it is sent again when the framework comes back."""
    end_sent: bool = False
    """Whether its agent has said, when it came back, that it had sent the end already; it sends that again."""
    kill: Message | None = None
    """The KILL that could not be sent to its agent; it is sent when the agent is back."""

    @property
    def key(self) -> tuple[str, str]:
        return self.framework, self.id


@dataclass(eq=False, slots=True)
class ExecutorRecord:
    """A custom executor that runs, or is being started, on an agent."""

    id: str
    framework: str
    agent: str
    info: Message
    resources: Resources
    role: str


@dataclass(eq=False, slots=True)
class FrameworkRecord:
    """A scheduler. It may be connected, disconnected for a while, or known only from before the master's restart."""

    id: str
    info: Message
    """FrameworkInfo with ``id``, ``principal`` and ``roles`` filled in."""
    roles: frozenset[str]
    registered: float
    """When it subscribed first [s since the epoch]."""
    principal: str | None = None
    suppressed: set[str] = field(default_factory=set)
    stream: str | None = None
    """None while it is disconnected."""
    reregistered: float | None = None
    disconnected: float | None = None
    """Since when it has been disconnected [s since the epoch]; its failover time runs from then."""
    tasks: dict[str, TaskRecord] = field(default_factory=dict)
    completed: deque[TaskRecord] = field(default_factory=lambda: deque(maxlen=COMPLETED_MOST))
    """Tasks that have ended and need no acknowledgement any more, oldest first."""
    unreachable: dict[str, TaskRecord] = field(default_factory=dict)
    """Tasks on agents that do not answer; they are not among `tasks`."""
    offers: dict[str, Offer] = field(default_factory=dict)

    def can(self, capability: str) -> bool:
        """Whether it has declared a capability: ``"PARTITION_AWARE"``."""
        return any(item.get("type") == capability for item in self.info.get("capabilities", ()))


@dataclass(eq=False, slots=True)
class AgentRecord:
    """A node of an allocation."""

    id: str
    info: Message
    """AgentInfo with ``id``."""
    total: Resources
    """All it has."""
    registered: float
    version: str = ""
    stream: str | None = None
    """None while it is disconnected."""
    reregistered: float | None = None
    unanswered: int = 0
    """Pings without a PONG."""
    active: bool = True
    """False once deactivated: it gets no new tasks."""
    drain: Message | None = None
    """DrainConfig, while an operator drains it."""
    unavailability: Message | None = None
    """When its allocation ends: Mesos' Unavailability."""
    tasks: dict[tuple[str, str], TaskRecord] = field(default_factory=dict)
    """Those that have not been acknowledged to their end, by framework and task id."""
    executors: dict[tuple[str, str], ExecutorRecord] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    used: Resources = NONE
    """What tasks that have not ended, and executors, take."""
    offered: Resources = NONE
    ip: str | None = None
    """Its address, where it is known."""
    tls: bool = False
    """Whether operators reach it over TLS only."""

    @property
    def hostname(self) -> str:
        return str(self.info.get("hostname", ""))

    @property
    def free(self) -> Resources:
        """What could be offered."""
        return self.total - self.used - self.offered


@dataclass(eq=False, slots=True)
class Offer:
    """Resources of one agent that one framework may take, until it is answered or rescinded."""

    id: str
    framework: str
    agent: str
    role: str
    resources: Resources
    made: float


@dataclass(eq=False)
class MasterState:
    """All of it.

    Agents are in exactly one of `agents`, `recovered` (known from before a restart and not back yet), `unreachable` and
    `gone`.
    """

    id: str
    options: MasterOptions
    started: float
    frameworks: dict[str, FrameworkRecord] = field(default_factory=dict)
    completed: dict[str, FrameworkRecord] = field(default_factory=dict)
    """Frameworks that were torn down or did not come back, oldest first."""
    agents: dict[str, AgentRecord] = field(default_factory=dict)
    recovered: dict[str, AgentRecord] = field(default_factory=dict)
    unreachable: dict[str, float] = field(default_factory=dict)
    """Agent id -> since when [s since the epoch]."""
    away: dict[str, AgentRecord] = field(default_factory=dict)
    """What is known of unreachable agents, but for their tasks."""
    gone: dict[str, float] = field(default_factory=dict)
    """Agents that an operator has given up, or that left for good: they may not come back under that id."""
    unreachable_tasks: dict[str, list[TaskRecord]] = field(default_factory=dict)
    """Agent id -> its tasks, which come back if it does."""
    offers: dict[str, Offer] = field(default_factory=dict)
    quota: dict[str, dict[str, int]] = field(default_factory=dict)
    """Role -> scalar -> limit [thousandths]."""
    operators: set[str] = field(default_factory=set)
    """Streams of operators that have subscribed."""
    streams: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Stream -> kind (``framework``, ``agent``, ``operator``) and the id behind it."""
    serial: dict[str, int] = field(default_factory=dict)
    """Last number given to an agent, a framework, an offer."""
    arrivals: int = 0
    """How often a framework has subscribed, or an agent registered."""
