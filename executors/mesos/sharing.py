"""A run's part in a pool that it shares with other runs: what it wants, lends, and returns.

Cores serve the run whose allocation they are, as long as it has work for them. A node that has had nothing to do for a
while is lent, once another run wants it: its supervisor ends, and what it held is offered. A run takes what is offered
(`framework.Borrower`) until the lender, or a run that has less, wants it back: from then on the lease takes no more
tasks, and ends with those it has. When the lender's allocation is released, they have `NOTICE_S` left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from asa.core.clock import Joinable
from asa.core.errors import AsaError
from asa.core.event import Event, Leased, LeaseEnded, Recalled
from asa.core.job import Resources
from asa.core.ports import Post
from executors.mesos.codec import BadMessage, Message
from executors.mesos.framework import RUN, Borrower, FrameworkOutcome, Lease, TaskNeed
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.messages import attribute, field, identity
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.resources import parse
from executors.mesos.scheduler import FrameworkScheduler

ALLOCATION, GRACE = "allocation", "grace"
"""Attributes of an agent: the key of the allocation that it belongs to; how long that outlives its driver [s]."""

_PREFIX = "asa "
_WAITS = "asa.waits"


@dataclass(frozen=True, slots=True)
class PoolRun:
    """A run's framework: whether it has a driver, whether tasks of it wait for room, and how many cores it holds."""

    run: str
    connected: bool
    waits: bool
    cores: float


@dataclass(frozen=True, slots=True)
class PoolNode:
    """An agent; run and allocation are "" for one that was started by hand.

    It outlives the run's driver by `grace_s` [s]. Nothing new is to run on it unless it is `active`. `used` are the
    cores that tasks of all runs hold.
    """

    agent: str
    run: str
    allocation: str
    grace_s: float
    active: bool
    used: float


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """A pool at one time: runs by name, nodes by the agent's id."""

    runs: dict[str, PoolRun]
    nodes: dict[str, PoolNode]


def look_at_pool(operator: Operator) -> PoolSnapshot:
    """Ask the master; raises as `Operator` does, and `BadMessage` when the answer makes no sense."""
    frameworks, agents = operator.get_frameworks(), operator.get_agents()
    runs = {found.run: found for item in frameworks if (found := _pool_run(item)) is not None}
    return PoolSnapshot(runs, {found.agent: found for found in map(_pool_node, agents)})


def framework_name(run: str) -> str:
    """What a run's framework is called."""
    return _PREFIX + run


def framework_labels(*, waits: bool) -> Message:
    """Labels of a framework, from which the other runs see whether it waits."""
    return {"labels": [{"key": _WAITS, "value": "true"}] if waits else []}


def _pool_run(item: Message) -> PoolRun | None:
    name: str = field(item, "framework_info.name", str, "")
    if not name.startswith(_PREFIX):
        return None
    found = field(item, "framework_info.labels.labels", list, [])
    return PoolRun(
        run=name.removeprefix(_PREFIX),
        connected=field(item, "connected", bool, False),
        waits=any(field(label, "key", str, "") == _WAITS for label in found),
        cores=parse(field(item, "allocated_resources", list, [])).scalar("cpus"),
    )


def _pool_node(item: Message) -> PoolNode:
    info: Message = field(item, "agent_info", dict)
    return PoolNode(
        agent=field(info, "id.value", str),
        run=attribute(info, RUN),
        allocation=attribute(info, ALLOCATION),
        grace_s=float(attribute(info, GRACE, "0") or 0),
        active=not field(item, "deactivated", bool, False),
        used=parse(field(item, "allocated_resources", list, [])).scalar("cpus"),
    )


IDLE_S = 2.0
"""How long a node has had nothing to do before it is lent [s]."""

NOTICE_S = 20.0
"""How long leases of an allocation that is released may go on [s]: its job would be cancelled a little later."""


class Tenant:
    """See the module. `step` is to be called about every second, by one thread; the others may come from any.

    `announce` informs the other runs whether ours waits for room; `dismiss_idle` ends our supervisors on nodes that
    were idle for so long [s]. `now` is the time of what is posted.
    """

    def __init__(
        self,
        borrower: Borrower,
        scheduler: FrameworkScheduler,
        announce: Callable[[bool], None],
        dismiss_idle: Callable[[float], None],
        post: Post,
        now: Callable[[], float],
    ) -> None:
        self._borrower, self._scheduler, self._announce = borrower, scheduler, announce
        self._dismiss_idle, self._post, self._now = dismiss_idle, post, now
        self._waits = False
        self._recalled: set[str] = set()
        self._leaving: dict[str, float] = {}  # agent -> until when its tasks may go on

    @property
    def leaving(self) -> bool:
        """Whether agents are about to go."""
        return bool(self._leaving)

    def want(self, task: Resources | None, count: int) -> None:
        """As `asa.core.ports.Sharing.want`."""
        waits = task is not None
        if waits is not self._waits:
            self._waits = waits
            self._announce(waits)
            if waits:
                self._scheduler.want(lambda framework, now: framework.renew(now))
        if (
            task is None or (task.nodes or 1) > 1 or task.unit is not None
        ):  # what spans nodes needs an allocation of its own
            task, count = Resources(), 0
        need = TaskNeed(task.cores, task.memory or 0, task.gpus)
        self._scheduler.want(lambda framework, now: framework.borrow(need, count, now))

    def on_outcome(self, outcome: FrameworkOutcome) -> bool:
        """Something has become of a lease, or of a node program; whether it was a lease."""
        if outcome.state == "leased":
            self._post([_leased_event(self._borrower.leases[outcome.key], self._now())])
            return True
        if outcome.key.startswith(self._borrower.prefix):
            self._recalled.discard(outcome.key)
            self._post([LeaseEnded(self._now(), outcome.key, outcome.reason)])
            return True
        if outcome.state == "finished" and self._waits:  # it was lent, but meanwhile we want it ourselves
            self._scheduler.want(lambda framework, now: framework.renew(now))
        return False

    def step(self, pool: PoolSnapshot, released: set[str], operator: Operator, now: float) -> None:
        """Lend, return, and dismiss agents of released allocations; raises as `Operator` does."""
        ours = self._borrower.run
        waiting = {run: item for run, item in pool.runs.items() if item.waits and item.connected and run != ours}
        if waiting and not self._waits:
            self._dismiss_idle(IDLE_S)
        recalls: list[Event] = []
        for lease in list(self._borrower.leases.values()):
            if lease.key not in self._recalled and (reason := _recall_reason(lease, pool, ours)):
                self._recalled.add(lease.key)
                recalls.append(Recalled(now, lease.key, reason))
        if recalls:
            self._post(recalls)
        for node in pool.nodes.values():
            if node.allocation in released:
                self._dismiss(node, operator, now)
        self._leaving = {agent: until for agent, until in self._leaving.items() if agent in pool.nodes}

    def _dismiss(self, node: PoolNode, operator: Operator, now: float) -> None:
        until = self._leaving.setdefault(node.agent, now + NOTICE_S)
        if node.used and now < until:
            if node.active:
                operator.deactivate(node.agent)
        else:
            operator.call("MARK_AGENT_GONE", agent_id=identity(node.agent))


def _leased_event(lease: Lease, now: float) -> Leased:
    need = lease.need
    resources = Resources(int(need.cpus), memory=need.memory or None, gpus=int(need.gpus))
    return Leased(now, lease.key, resources, lease.lender, lease.until)


def _recall_reason(lease: Lease, pool: PoolSnapshot, ours: str) -> str:
    """Why a lease is to be returned, or ""."""
    lender, node, us = pool.runs.get(lease.lender), pool.nodes.get(lease.agent), pool.runs.get(ours)
    if node is not None and not node.active:
        return f"the allocation {node.allocation} ends"
    if lender is None or not lender.connected:
        return f"run {lease.lender} has no driver any more"
    if lender.waits:
        return f"run {lease.lender} needs it"
    left = us.cores - lease.need.cpus if us else 0.0
    poorer = (item for item in pool.runs.values() if item.run != ours and item.connected and item.waits)
    return next((f"run {item.run} waits, and has less" for item in poorer if item.cores < left), "")


ORPHANS_EVERY_S = 2.0


class OrphanWatch:
    """Looks after a pool's orphans, in a thread of its own; a context manager.

    A run's own tasks end by themselves when its driver is gone. What other runs have leased of its nodes is not harmed:
    the run that has it ends it. Agents that were started by hand belong to no run, and stay.
    """

    def __init__(self, directory: PoolDirectory, host: PoolHost = POOL_HOST) -> None:
        self._operator, self._host = Operator(directory, host=host), host
        self._since: dict[str, float] = {}
        self._over = threading.Event()
        self._thread: Joinable | None = None

    def __enter__(self) -> OrphanWatch:
        self._thread = self._host.start(self._run, "asa-orphans")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._operator.close()

    def step(self, now: float) -> None:
        """Look, and do what is due; raises as `Operator` does."""
        pool = look_at_pool(self._operator)
        alone = {}
        for node in pool.nodes.values():
            run = pool.runs.get(node.run)
            if not node.run or (run is not None and run.connected):
                continue
            alone[node.agent] = since = self._since.get(node.agent, now)
            if now < since + node.grace_s:
                continue
            if node.used == 0:
                self._operator.call("MARK_AGENT_GONE", agent_id=identity(node.agent), orphaned=True)
            elif node.active:
                self._operator.deactivate(node.agent)
        self._since = alone

    def _run(self) -> None:
        while not self._host.wait(self._over, ORPHANS_EVERY_S):
            with suppress(AsaError, BadMessage, OSError):  # an agent may just have gone; or the master ends
                self.step(self._host.time())
