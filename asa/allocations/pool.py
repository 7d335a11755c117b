"""Allocations held or asked for, and the room in them. Folded from events; never does anything itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.allocations.lifetime import drain_margin
from asa.core.context import Context
from asa.core.event import (
    AllocationStarted,
    Amended,
    Amending,
    Cancelled,
    Event,
    JobEnded,
    Learned,
    Leased,
    LeaseEnded,
    NodeJoined,
    NodeLost,
    Queued,
    Recalled,
    Released,
    Requeued,
    SubmitRefused,
    Submitted,
    Submitting,
)
from asa.core.job import JobHandle, JobRequest, Resources
from asa.core.view import AllocationView


@dataclass
class Held:
    """One allocation from the decision to ask for it until its job has ended; or a lease, until that is over.

    `running` maps a task (stage, index) to what it uses and when it was launched [s since the epoch], `lost` one that
    its node took along to when it was launched and lost [s since the epoch]; `useful` says that a task ran to its end
    in it, `taught` that its wait was learned from, `dependable` that the batch system lets other jobs wait for it.
    `used` is when its first task was launched [s since the epoch], `dismissed` why it was released or cancelled,
    `amending` a change of its job that is on its way, `amended` that its job was made to wait, or parked, `refused` why
    the last change was not made. Of a lease, `lender` is the run that has the allocation, and `recalled` says that it
    is to be given back.
    """

    request: JobRequest
    stages: tuple[str, ...]
    after: tuple[str, ...]
    asked: float
    predicted_wait_s: float | None
    soon_wait_s: float | None = None
    context: Context | None = None
    parked: bool = False
    amending: Amending | None = None
    amended: bool = False
    refused: str = ""
    reason: str = ""
    ages_since: float | None = None
    used: float | None = None
    handle: JobHandle | None = None
    started: float | None = None
    requeued: bool = False
    useful: bool = False
    taught: bool = False
    dependable: bool = True
    released: float | None = None
    cancelled: float | None = None
    dismissed: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    running: dict[tuple[str, int], tuple[Resources, float]] = field(default_factory=dict)
    lost: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    cores_busy: int = 0
    memory_busy: int = 0
    gpus_busy: int = 0
    lender: str = ""
    recalled: bool = False

    @property
    def key(self) -> str:
        return self.request.token

    @property
    def ends(self) -> float | None:
        """When its wall time is over [s since the epoch], or None while it waits."""
        return None if self.started is None else self.started + self.request.walltime_s

    @property
    def drains(self) -> float | None:
        """When it stops taking tasks [s since the epoch], or None while it waits."""
        return None if self.ends is None else self.ends - drain_margin(self.request.walltime_s)

    @property
    def gated(self) -> bool:
        """Whether its place in the queue was, or is, held: its wait is not the queue's alone."""
        behind = bool(self.request.array) and bool(self.handle and self.handle.array_index)
        return self.amended or behind or self.request.begin is not None

    @property
    def ending(self) -> bool:
        """Released, cancelled or recalled: it takes no more tasks, whatever time is left."""
        return self.released is not None or self.cancelled is not None or self.recalled

    def leaving(self, now: float) -> bool:
        """Whether it takes no more tasks."""
        return self.ending or (self.drains is not None and now >= self.drains)

    def room(self, task: Resources, ahead: float) -> int:
        """How many more such tasks it takes, with `ahead` times its capacity allowed to queue up inside it."""
        factor = 1.0 + ahead
        cores = sum(self.nodes.values())
        if task.cores > cores or not self._holds_abreast(task):
            return 0
        room = int((cores * factor - self.cores_busy) // task.cores)
        if task.memory and self.request.resources.memory:
            room = min(room, int((self.request.resources.memory * factor - self.memory_busy) // task.memory))
        if task.gpus:
            room = min(room, int((self.request.resources.gpus * factor - self.gpus_busy) // task.gpus))
        return max(room, 0)

    def _holds_abreast(self, task: Resources) -> bool:
        """Whether enough of its nodes are large enough for a task that spans some."""
        if task.nodes is None:
            return True
        return sum(cores >= task.cores // task.nodes for cores in self.nodes.values()) >= task.nodes

    def take(self, task: tuple[str, int], needs: Resources, now: float) -> None:
        """Count a task in."""
        self.running[task] = (needs, now)
        self.used = now if self.used is None else self.used
        self._count(needs, +1)

    def drop(self, task: tuple[str, int]) -> float | None:
        """Count a task out; when it was launched [s since the epoch], or None when it was not here."""
        if (entry := self.running.pop(task, None)) is None:
            return None
        self._count(entry[0], -1)
        return entry[1]

    def _count(self, needs: Resources, sign: int) -> None:
        self.cores_busy += sign * needs.cores
        self.memory_busy += sign * (needs.memory or 0)
        self.gpus_busy += sign * needs.gpus

    def idle_core_s(self, now: float) -> float:
        """Cores times the time that it held nothing before its first task [s]; nobody pays for that of a lease."""
        if self.started is None or self.lender:
            return 0.0
        return self.request.resources.cores * max(0.0, (now if self.used is None else self.used) - self.started)

    def view(self, now: float, throttle: int = 1) -> AllocationView:
        """What a strategy sees of it; `throttle` is that of its array."""
        return AllocationView(
            key=self.key,
            stages=self.stages,
            submitted=self.asked if self.handle is None else self.handle.submitted,
            queued=self.handle is not None and self.dependable,
            started=self.started,
            ends=self.ends,
            leaving=self.leaving(now),
            busy=bool(self.running),
            resources=self.request.resources,
            walltime_s=self.request.walltime_s,
            predicted_wait_s=self.predicted_wait_s,
            soon_wait_s=self.soon_wait_s,
            after=self.after,
            array=self.request.array,
            throttle=throttle,
            parked=self.parked,
            amending=self.amending is not None,
            refused=self.refused,
            reason=self.reason,
            ages_since=self.ages_since,
        )


class Pool:
    """All allocations that have not ended, by key, in order of asking.

    `throttles` is how many elements of each job array may run; `idle_core_s` what allocations that have ended held
    nothing for before their first task, cores times time [s].
    """

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.throttles: dict[str, int] = {}
        self.idle_core_s = 0.0

    def on(self, event: Event) -> None:
        """Fold an event; events of allocations that are not (or no longer) held change nothing."""
        if isinstance(event, Submitting):
            self._submitting(event)
        elif isinstance(event, Leased):
            self.held[event.allocation] = Held(  # it started as soon as it was given
                event.request, (), (), event.at, None, started=event.at, lender=event.lender
            )
        elif held := self.held.get(getattr(event, "allocation", "")):
            self._on_held(held, event)

    def _submitting(self, event: Submitting) -> None:
        self.held[event.allocation] = Held(
            event.request,
            event.stages,
            event.after,
            event.at,
            event.predicted_wait_s,
            event.soon_wait_s,
            event.context,
        )
        if event.request.array:
            self.throttles.setdefault(event.request.array, 1)

    def _on_held(self, held: Held, event: Event) -> None:
        match event:
            case Submitted():
                held.handle = event.handle
            case Amending():
                held.amending = event
            case Amended():
                self._amended(held, event)
            case Queued():
                held.reason, held.ages_since = event.reason, event.ages_since
            case NodeJoined():
                held.nodes[event.node] = event.cores
                held.started = event.at if held.started is None else held.started
            case NodeLost():
                held.nodes.pop(event.node, None)
            case AllocationStarted():
                held.started = event.started
            case Requeued():  # of nodes only the executor tells: new ones may have joined before this became known
                held.started, held.requeued = None, True
            case Learned():
                held.taught = True
            case Released():
                held.released, held.dismissed = event.at, event.reason
            case Cancelled():
                held.cancelled, held.dismissed = event.at, event.reason
            case Recalled():
                held.recalled = True
            case JobEnded() | SubmitRefused() | LeaseEnded():
                self.idle_core_s += held.idle_core_s(event.at)
                del self.held[event.allocation]

    def _amended(self, held: Held, event: Amended) -> None:
        """A change that was asked for has been made, or refused."""
        change, held.amending, held.refused = held.amending, None, event.refused
        if change is None or event.refused:
            return
        held.reason, held.ages_since = "", None  # to be asked anew
        held.request = change.changed(held.request)
        if change.after is not None:
            held.after, held.amended = change.after, True
        if change.parked is not None:
            held.parked, held.amended = change.parked, True
        if change.throttle is not None:
            self.throttles[held.request.array] = change.throttle

    def forget_nodes(self) -> None:
        """A new driver took over: nodes join again, with fresh workers. Leases were the old one's."""
        self.held = {key: held for key, held in self.held.items() if not held.lender}
        for held in self.held.values():
            held.nodes.clear()
            held.amending = None  # whether it was made is not known; making it again does no harm
            for task in list(held.running):
                held.drop(task)
