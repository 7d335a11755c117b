"""A run's part in a pool that it shares with other runs: what it wants, lends, and gives back.

Cores serve the run whose allocation they are, as long as it has work for them. A node that has had nothing to do for a
while is lent, once somebody wants it: its supervisor ends, and what it held is offered. A run takes what is offered
(`borrowing`) until the lender, or somebody who has less, wants it back: from then on the lease takes no more tasks, and
ends with those it has. When the lender's allocation is released, they have `NOTICE_S` left.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from asa.core.event import Event, Leased, LeaseEnded, Recalled
from asa.core.job import Resources
from asa.core.ports import Post
from executors.mesos.borrowing import Borrower, Lease
from executors.mesos.decisions import Outcome
from executors.mesos.neighbours import Neighbourhood, Node
from executors.mesos.offered import Need
from executors.mesos.operator import Operator
from executors.mesos.scheduler import Scheduler

IDLE_S = 2.0
"""How long a node has had nothing to do before it is lent [s]."""

NOTICE_S = 20.0
"""How long leases of an allocation that is released may go on [s]: its job would be cancelled a little later."""


class Tenant:
    """See the module. `step` is to be called about every second, by one thread; the others may come from any.

    Parameters
    ----------
    borrower
        That of the framework.
    scheduler
        Carries out what the framework decides.
    tell
        Tells the others whether we wait for room.
    dismiss_idle
        Ends our supervisors on nodes that were idle for so long [s].
    post
        Where events go.
    """

    def __init__(
        self,
        borrower: Borrower,
        scheduler: Scheduler,
        tell: Callable[[bool], None],
        dismiss_idle: Callable[[float], None],
        post: Post,
    ) -> None:
        self._borrower, self._scheduler, self._tell = borrower, scheduler, tell
        self._dismiss_idle, self._post = dismiss_idle, post
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
            self._tell(waits)
            if waits:
                self._scheduler.want(lambda framework, now: framework.renew(now))
        if task is None or (task.nodes or 1) > 1:  # what spans nodes needs an allocation of its own
            task, count = Resources(), 0
        need = Need(task.cores, task.memory or 0, task.gpus)
        self._scheduler.want(lambda framework, now: framework.borrow(need, count, now))

    def heed(self, outcome: Outcome) -> bool:
        """Something has become of a lease, or of a crew's program; whether it was a lease."""
        if outcome.state == "leased":
            self._post([_leased(self._borrower.leases[outcome.key])])
            return True
        if outcome.key.startswith(self._borrower.prefix):
            self._recalled.discard(outcome.key)
            self._post([LeaseEnded(time.time(), outcome.key, outcome.reason)])
            return True
        if outcome.state == "finished" and self._waits:  # it was lent, but meanwhile we want it ourselves
            self._scheduler.want(lambda framework, now: framework.renew(now))
        return False

    def step(self, hood: Neighbourhood, released: set[str], operator: Operator, now: float) -> None:
        """Lend, give back, and let agents of released allocations go; raises as `Operator` does."""
        ours = self._borrower.run
        waiting = {run: item for run, item in hood.runs.items() if item.waits and item.connected and run != ours}
        if waiting and not self._waits:
            self._dismiss_idle(IDLE_S)
        recalls: list[Event] = []
        for lease in list(self._borrower.leases.values()):
            if lease.key not in self._recalled and (reason := _claim(lease, hood, ours)):
                self._recalled.add(lease.key)
                recalls.append(Recalled(now, lease.key, reason))
        if recalls:
            self._post(recalls)
        for node in hood.nodes.values():
            if node.allocation in released:
                self._dismiss(node, operator, now)
        self._leaving = {agent: until for agent, until in self._leaving.items() if agent in hood.nodes}

    def _dismiss(self, node: Node, operator: Operator, now: float) -> None:
        until = self._leaving.setdefault(node.agent, now + NOTICE_S)
        if node.used and now < until:
            if node.active:
                operator.deactivate(node.agent)
        else:
            operator.call("MARK_AGENT_GONE", agent_id={"value": node.agent})


def _leased(lease: Lease) -> Leased:
    need = lease.need
    resources = Resources(int(need.cpus), memory=need.memory or None, gpus=int(need.gpus))
    return Leased(time.time(), lease.key, resources, lease.lender, lease.until)


def _claim(lease: Lease, hood: Neighbourhood, ours: str) -> str:
    """Why a lease is to be given back, or ""."""
    lender, node, us = hood.runs.get(lease.lender), hood.nodes.get(lease.agent), hood.runs.get(ours)
    if node is not None and not node.active:
        return f"the allocation {node.allocation} ends"
    if lender is None or not lender.connected:
        return f"run {lease.lender} has no driver any more"
    if lender.waits:
        return f"run {lease.lender} needs it"
    left = us.cores - lease.need.cpus if us else 0.0
    poorer = (item for item in hood.runs.values() if item.run != ours and item.connected and item.waits)
    return next((f"run {item.run} waits, and has less" for item in poorer if item.cores < left), "")
