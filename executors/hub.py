"""The driver's side: the executor that a run sees, and the hub's thread, which keeps the nodes of its allocations busy.

`HubExecutor` is the executor port: it says which program each node runs, listens for the nodes, and publishes where.
`Hub` knows the nodes of each allocation; `executors.assignment` decides which gets what. `local` configures both for
worker processes of the allocation's own nodes, with nothing but Python installed there.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import selectors
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.event import REPLACED, CoresUnused, Event, NodeJoined, NodeLost, TaskDone, TaskFailed, TasksKept, Trouble
from asa.core.ports import Report, RunContext
from asa.core.task import Task
from asa.security.files import private_directory, write_private
from executors.assignment import AssignedNode, Assignment, Batching
from executors.host import HOST, Bell, Host
from executors.kept import recovered
from executors.wire import (
    LARGEST,
    RELEASED,
    RENDEZVOUS,
    Alive,
    Channel,
    ChannelListener,
    ExpectCommands,
    ForgetCommands,
    Hello,
    KeepOrders,
    KeptOrder,
    KeptOrders,
    Leaving,
    OrderOutcome,
    OutcomesLogged,
    ReleaseNode,
    RunOrders,
    TaskOrder,
    TaskReport,
    Unused,
    Welcome,
    check,
)

log = logging.getLogger(__name__)


def task_order(task: Task, ticket: int, spanning: bool) -> TaskOrder:
    """A task as it travels; unless `spanning`, all it needs is on one node, whatever it says of nodes."""
    arguments = task.arguments
    if isinstance(arguments, bytes):
        arguments = bytes(memoryview(arguments))  # what pickle makes holds on to several times as much memory
    anywhere = task.resources.unit is not None and task.launch is not None
    nodes = (0 if anywhere else task.resources.nodes or 1) if spanning else 1
    each = task.resources.on_each(nodes or 1)
    return TaskOrder(
        ticket,
        task.stage,
        task.index,
        task.function,
        arguments,
        task.inputs,
        each.cores,
        each.memory or 0,
        each.gpus,
        nodes,
        task.launch,
        identity=task.identity,
        secrets=task.secrets,
        timeout_s=task.timeout_s or 0.0,
        checkpoints=task.checkpoints,
        ends=task.ends or 0.0,
        staging=task.staging,
        shares=task.shares,
        guest=task.guest,
    )


def task_event(task_order: TaskOrder, outcome: OrderOutcome, allocation: str, node: str) -> Event:
    """How an order ended, as an event at its node's own time [s since the epoch]."""
    stage, index, value = task_order.stage, task_order.number, outcome.value
    if value is None:
        return TaskFailed(
            outcome.ended, stage, index, allocation, node, outcome.started,
            outcome.error, outcome.traceback, outcome.stderr, outcome.infrastructure, outcome.cause, outcome.exit,
            outcome.peak, outcome.cpu_s, outcome.given, outcome.source,
        )  # fmt: skip
    data, path = (value, None) if isinstance(value, bytes) else (None, value)
    return TaskDone(
        outcome.ended, stage, index, allocation, node, outcome.started, data, path,
        outcome.cpu_s, outcome.peak, outcome.given, outcome.source,
    )  # fmt: skip


def lost_event(task_order: TaskOrder, allocation: str, node: str, reason: str, now: float) -> TaskFailed:
    """An order was lost with its node; the task is not to blame."""
    error = f"node {node} was lost: {reason}"
    return TaskFailed(now, task_order.stage, task_order.number, allocation, node, now, error, infrastructure=True)


_LENT = "it is lent to others"
_HELLO_S = 10.0
_UNAUTHENTICATED_MOST = 256
_ACCEPTED_MOST = 64  # before those that are there are heard again: a thousand nodes may come at once
_UNSENT_MOST = 1 << 20
_CLOSING_S = 2.0
_LOGGED_S = 1.0  # how long what a node need not keep any longer may wait for other messages to travel with
_LONG_S = 0.05
_ASK_S = 1.0  # how often it is asked whether another driver has taken the run over
_GATHER_S, _CROWD, _COUNTED_S = 0.005, 1000, 0.1
"""Time between two looks at the nodes [s] while so many report in a second, which is counted so often [s]."""


@dataclass(eq=False)
class _Peer:
    """A connection; without a `node` until it has introduced itself."""

    channel: Channel
    heard: float
    patience: float = _HELLO_S
    """How long it may be silent [s]."""
    worked: float = math.inf
    """When it last got an order or reported one [s, monotonic]."""
    allocation: str = ""
    node: AssignedNode | None = None
    kept: list[KeptOrder] | None = field(default_factory=list)
    """What it has of an earlier driver's orders, until that is settled; None before it has said so."""
    logged: list[int] = field(default_factory=list)
    """Tickets of outcomes that are safe, which it does not know yet."""
    reason: str = "the connection was lost"

    @property
    def settled(self) -> bool:
        return self.kept == []


class Hub:
    """Supervisors connect to it; it gives them orders and posts what becomes of them.

    Parameters
    ----------
    listener
        Where supervisors connect; the hub closes it.
    welcome
        The answer to a new supervisor.
    post
        Where events go, in batches.
    heartbeat_s
        A supervisor that was silent for so long [s] is lost; they report four times as often.
    spanning
        Whether tasks may span nodes; without, an allocation is one machine, whatever its tasks say of nodes.
    host
        The machine.
    now
        The time of what it reports [s since the epoch]; the machine's by default.
    newest
        Asks for the generation of the run's newest driver: if that is above the one in `welcome`, this hub gives no
        orders any more, and ends its connections, so that supervisors look for the other one.
    """

    def __init__(
        self,
        listener: ChannelListener,
        welcome: Welcome,
        post: Report,
        heartbeat_s: float = 60.0,
        spanning: bool = True,
        host: Host = HOST,
        now: Callable[[], float] | None = None,
        newest: Callable[[], int] = lambda: 0,
    ) -> None:
        self._listener, self._welcome, self._post = listener, welcome, post
        self._newest, self._replaced, self._asked = newest, False, -math.inf
        self._heartbeat, self._spanning, self._host = heartbeat_s, spanning, host
        self._now = now or host.time
        self._tickets = itertools.count(int(host.time() * 1e9))  # those of earlier drivers are others
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell: Bell | None = host.bell()
        self._selector = host.selector()
        self._peers: dict[_Peer, None] = {}
        self._strangers: dict[_Peer, None] = {}  # have not introduced themselves
        self._supervisors: dict[tuple[str, str, int], _Peer] = {}  # by allocation, node and process
        self._deaf = False  # whether no more files may be open
        self._checked = self._host.monotonic()
        self._nodes: dict[AssignedNode, _Peer] = {}
        self._assignments: dict[str, Assignment] = {}
        self._released: set[str] = set()
        self._lent: dict[str, str] = {}  # allocation all of whose nodes are lent -> the last of them
        self._busy: dict[str, None] = {}  # allocations in which something may be dealt, by when that was noted
        self._events: list[Event] = []
        self._reported: dict[_Peer, list[int]] = {}
        self._unsaid: dict[_Peer, None] = {}  # who does not know yet what is logged
        self._say_at = math.inf
        self._reporting: set[_Peer] = set()  # not long ago
        self._crowded, self._counted, self._turned = False, self._host.monotonic(), 0.0
        self._batching = Batching()
        self._closing: float | None = None
        self._thread = host.start(self._run, "asa-hub")

    # ------------------------------------------------------- from any thread

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order."""
        orders = [task_order(task, next(self._tickets), self._spanning) for task in tasks]
        self._tell(partial(self._launch, orders, allocation))

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        """An earlier driver gave these tasks to this allocation, and these nodes had joined it."""
        orders = [task_order(task, 0, self._spanning) for task in tasks]
        self._tell(partial(self._adopt, orders, allocation, nodes))

    def release(self, allocation: str) -> None:
        """End the allocation's supervisors, those that connect later included; forget its tasks."""
        self._tell(partial(self._release, allocation))

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._tell(partial(self._dismiss, self._host.monotonic() - idle_s))

    def close(self) -> None:
        """Stop listening, and return once released supervisors have heard of it, or a few seconds later."""
        if self._bell:
            self._tell(self._close)
            self._thread.join(2 * _CLOSING_S)
            self._bell.close()
            self._bell = None

    def _tell(self, call: Callable[[], None]) -> None:
        if self._bell:
            self._inbox.append(call)
            self._bell.ring()

    # ------------------------------------------------------- the hub's thread

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        bell = self._bell
        assert bell, "it is there until this has ended"
        self._selector.register(bell, selectors.EVENT_READ)
        while not self._finished():
            self._gather()
            ready = self._selector.select(self._timeout())
            for key, mask in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is bell:
                    bell.hush()
                elif key.data in self._peers:  # it may have been dropped since
                    self._serve(key.data, mask)
            while self._inbox:
                self._inbox.popleft()()
            self._expire(self._host.monotonic())
            if self._busy and self._is_replaced():
                break
            for allocation in self._busy:
                self._deal(allocation)
            self._busy.clear()
            if self._unsaid and self._host.monotonic() >= self._say_at:
                self._say_logged()
            if self._events or self._reported:
                events, self._events = self._events, []
                reported, self._reported = self._reported, {}
                self._post(events, partial(self._tell, partial(self._logged, reported)) if reported else None)
        if self._replaced:
            self._listener.close()
        else:
            self._say_logged()
        for peer in list(self._peers):
            peer.reason = REPLACED if self._replaced else peer.reason
            self._drop(peer)
        if self._replaced:
            self._post([*self._events, Trouble(self._now(), REPLACED)])  # the runner cannot log them, and ends
        self._selector.close()

    def _is_replaced(self) -> bool:
        """Whether the run has a later driver. A process that was stopped asks before it gives orders again."""
        now = self._host.monotonic()
        if not self._replaced and now >= self._asked + _ASK_S:
            self._asked = now
            if (newest := self._newest()) > self._welcome.generation:
                log.warning("driver %d has taken the run over: no more orders from here", newest)
                self._replaced = True
        return self._replaced

    def _gather(self) -> None:
        """While many nodes report, wait a little for more of them: what is done for each batch is done less often."""
        now = self._host.monotonic()
        if now >= self._counted + _COUNTED_S:
            self._crowded, self._counted = len(self._reporting) >= _CROWD * (now - self._counted), now
            self._reporting.clear()
        if self._crowded and self._closing is None and (left := self._turned + _GATHER_S - now) > 0:
            self._host.sleep(left)
            now += left
        self._turned = now

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        awaited = any(peer.allocation in self._released for peer in self._peers)
        return not awaited or self._host.monotonic() >= self._closing

    def _timeout(self) -> float | None:
        if self._closing is not None:
            return max(0.0, self._closing - self._host.monotonic())
        patience = self._patience() if self._peers else None
        if not self._unsaid:
            return patience
        return max(0.0, self._say_at - self._host.monotonic())

    def _patience(self) -> float:
        return min(_HELLO_S, self._heartbeat / 2)

    def _launch(self, orders: list[TaskOrder], allocation: str) -> None:
        log.debug("%d tasks for allocation %s", len(orders), allocation)
        if (node := self._lent.get(allocation)) is not None:  # they were launched before that was known
            self._events += [lost_event(order, allocation, node, _LENT, self._now()) for order in orders]
        elif allocation not in self._released:
            self._assignments.setdefault(allocation, Assignment()).add(orders)
            self._busy[allocation] = None

    def _adopt(self, orders: list[TaskOrder], allocation: str, nodes: Collection[str]) -> None:
        log.info("%d tasks of an earlier driver are looked for in allocation %s", len(orders), allocation)
        assignment = self._assignments.setdefault(allocation, Assignment())
        assignment.adopt(orders, nodes, self._host.monotonic() + self._heartbeat)
        for node in assignment.nodes:
            self._claim(self._nodes[node])

    def _claim(self, peer: _Peer) -> None:
        """A node has said what it has of an earlier driver's orders: it learns which of them are wanted."""
        assignment, node = self._assignments.get(peer.allocation), peer.node
        if assignment is None or node is None or not assignment.adopted or peer.kept is None:
            return
        kept, peer.kept = peer.kept, []
        wanted = assignment.claim(node, kept)
        if kept:
            log.info("of %d orders that node %s has kept %d are wanted", len(kept), node.name, len(wanted))
        if node.hello.kept:
            self._send(peer, KeepOrders(wanted))
        self._settle(peer.allocation)
        self._busy[peer.allocation] = None

    def _settle(self, allocation: str) -> None:
        if (kept := self._assignments[allocation].settled(self._host.monotonic())) is not None:
            self._events.append(TasksKept(self._now(), allocation, tuple(kept)))

    def _logged(self, reported: dict[_Peer, list[int]]) -> None:
        """Outcomes are safe: nodes hear of it with their next orders, or in a while."""
        if not self._unsaid:
            self._say_at = self._host.monotonic() + _LOGGED_S
        for peer, tickets in reported.items():
            peer.logged += tickets
            self._unsaid[peer] = None

    def _say_logged(self) -> None:
        for peer in list(self._unsaid):
            self._send(peer)

    def _release(self, allocation: str) -> None:
        log.info("allocation %s is released", allocation)
        self._released.add(allocation)
        for node in (self._assignments.pop(allocation, None) or Assignment()).nodes:
            self._send(self._nodes.pop(node), ReleaseNode())

    def _close(self) -> None:
        self._closing = self._host.monotonic() + _CLOSING_S
        if not self._deaf:
            self._selector.unregister(self._listener)
        self._listener.close()

    def _dismiss(self, since: float) -> None:
        for node, peer in list(self._nodes.items()):
            assignment = self._assignments[peer.allocation]
            if peer.settled and peer.worked <= since and assignment.is_idle(node):
                assignment.leave(node)
                del self._nodes[node]
                log.info("node %s of allocation %s is dismissed: idle", node.name, peer.allocation)
                self._events.append(NodeLost(self._now(), peer.allocation, node.name, _LENT))
                self._send(peer, ReleaseNode())
                if not assignment.nodes:
                    self._lent[peer.allocation] = node.name

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_MOST):
            try:
                channel = self._listener.accept()
            except OSError as error:
                log.error("nodes cannot connect: %s; of `ulimit -Hn` files each takes one", error)
                self._selector.unregister(self._listener)
                self._deaf = True
                return
            if channel is None:
                return
            if len(self._strangers) >= _UNAUTHENTICATED_MOST:
                # our own nodes introduce themselves at once: the one that has been silent longest is none
                first = next(iter(self._strangers))
                first.reason = f"{_UNAUTHENTICATED_MOST} connections have not introduced themselves"
                self._drop(first)
            peer = _Peer(channel, self._host.monotonic())
            self._peers[peer] = self._strangers[peer] = None
            log.debug("connection from %s", channel.peer)
            self._selector.register(channel, selectors.EVENT_READ, peer)

    def _serve(self, peer: _Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                peer.channel.flush()
                peer.channel.watch(self._selector)
                self._busy[peer.allocation] = None
            if mask & selectors.EVENT_READ:
                messages = peer.channel.receive()
                if peer.allocation:
                    peer.heard = self._host.monotonic()
                for message in messages:
                    self._receive(peer, message)
        except Exception as error:  # what a peer sends must not end the hub, whatever it is
            if not isinstance(error, OSError):
                peer.reason = f"it sent an invalid message: {error!r}"
            elif peer.node is None or isinstance(error, ConnectionAbortedError):
                peer.reason = str(error)
            self._drop(peer)

    def _receive(self, peer: _Peer, message: Any) -> None:
        check(message)
        node = peer.node
        if isinstance(message, Hello) and node is None:
            self._join(peer, message)
        elif isinstance(message, TaskReport) and node is not None:
            peer.worked = self._host.monotonic()
            self._reporting.add(peer)
            if message.outcomes:
                self._reported.setdefault(peer, []).extend(outcome.ticket for outcome in message.outcomes)
            if (assignment := self._assignments.get(peer.allocation)) is not None:
                self._report(assignment, peer.allocation, node, message)
        elif isinstance(message, Unused) and node is not None:
            if (assignment := self._assignments.get(peer.allocation)) is not None:
                found = assignment.note_unused(
                    node, {stage: (cores, memory) for stage, cores, memory in message.stages}
                )
                now, where = self._now(), (peer.allocation, node.name)
                self._events += [CoresUnused(now, *where, stage, *left) for stage, left in found.items()]
                self._busy[peer.allocation] = None
        elif isinstance(message, KeptOrders) and node is not None and peer.kept is None:
            peer.kept = message.orders
            self._claim(peer)
        elif isinstance(message, Leaving):
            peer.reason = message.reason
        elif not isinstance(message, Alive | TaskReport):
            raise ValueError(f"{type(message).__name__} was not expected")

    def _join(self, peer: _Peer, hello: Hello) -> None:
        peer.channel.largest, peer.allocation, peer.patience = LARGEST, hello.allocation, self._heartbeat
        if hello.newest > self._welcome.generation:
            self._asked = -math.inf  # a node's word is not enough: the run's directory says
        if self._is_replaced() or hello.newest > self._welcome.generation:
            self._busy[hello.allocation] = None
            raise ConnectionAbortedError(f"it knows of driver {hello.newest}, and this is {self._welcome.generation}")
        if hello.allocation in self._released:
            log.info("node %s (process %d) came to released allocation %s", hello.node, hello.pid, hello.allocation)
            self._send(peer, ReleaseNode())
            return
        assignment = self._assignments.setdefault(hello.allocation, Assignment())
        who = hello.allocation, hello.node, hello.pid
        if (other := self._supervisors.get(who)) in self._peers:
            self._drop(other)  # it has connected anew, and the old connection is not closed yet
        del self._strangers[peer]
        self._supervisors[who] = peer
        peer.node, peer.worked = AssignedNode(hello), self._host.monotonic()
        peer.kept = None if hello.kept else []
        assignment.join(peer.node)
        self._nodes[peer.node] = peer
        self._lent.pop(hello.allocation, None)
        log.info(
            "node %s joined allocation %s: process %d, %d cores, %d GPUs, memory %d, from %s",
            hello.node,
            hello.allocation,
            hello.pid,
            hello.cores,
            hello.gpus,
            hello.memory,
            peer.channel.peer,
        )
        self._events.append(NodeJoined(self._now(), hello.allocation, hello.node, hello.cores))
        self._busy[hello.allocation] = None
        self._send(peer, self._welcome)
        self._claim(peer)

    def _report(self, assignment: Assignment, allocation: str, node: AssignedNode, report: TaskReport) -> None:
        for outcome in report.outcomes:
            if assignment.is_hurt(outcome.ticket):
                outcome = outcome._replace(infrastructure=True)
            finished = assignment.finish(node, outcome.ticket)
            if finished is not None:
                log.debug(
                    "%s-%d ended on %s after %.3f s%s",
                    finished.stage,
                    finished.number,
                    node.name,
                    outcome.ended - outcome.started,
                    f": {outcome.error}" if outcome.error else "",
                )
                self._tell_hosts(assignment, finished, ForgetCommands(finished.ticket))
                self._batching.learn(finished.stage, outcome.ended - outcome.started)
                self._events.append(task_event(finished, outcome, allocation, node.name))
        if report.returned:
            log.debug("node %s returned %d orders that it could not start soon", node.name, len(report.returned))
        for stage in assignment.take_back(node, report.returned):
            self._batching.learn(stage, _LONG_S)
        self._busy[allocation] = None

    def _deal(self, allocation: str) -> None:
        if (assignment := self._assignments.get(allocation)) is not None:
            for node, orders in assignment.assign(self._batching, self._is_ready).items():
                self._nodes[node].worked = self._host.monotonic()
                log.debug("%d orders to node %s: %s", len(orders), node.name, _named(orders))
                for order in orders:
                    self._tell_hosts(assignment, order, ExpectCommands(order.ticket))
                self._send(self._nodes[node], RunOrders(orders, now=self._host.time()))

    def _tell_hosts(self, assignment: Assignment, order: TaskOrder, message: object) -> None:
        """Tell the other nodes of an order whose launcher starts ranks through their supervisors."""
        if order.launch is not None and order.launch.kind != "srun":
            for node in assignment.nodes:
                if node.name in order.hosts[1:]:
                    self._send(self._nodes[node], message)

    def _is_ready(self, node: AssignedNode) -> bool:
        peer = self._nodes[node]
        return peer.settled and peer.channel.unsent < _UNSENT_MOST

    def _send(self, peer: _Peer, *messages: object) -> None:
        """Send these, after what the peer is to know by now."""
        if peer in self._unsaid:
            del self._unsaid[peer]
            messages = OutcomesLogged(peer.logged), *messages
            peer.logged = []
        if peer not in self._peers:
            return
        with suppress(OSError):  # its end is read next
            peer.channel.send(*messages)
        peer.channel.watch(self._selector)

    def _expire(self, now: float) -> None:
        """Drop who has been silent for too long. All that was there has been read: it does not matter if we slept."""
        if now - self._checked < self._patience():
            return
        self._checked = now
        if self._deaf and self._closing is None:
            self._deaf = False
            self._selector.register(self._listener, selectors.EVENT_READ)
        for allocation in self._assignments:
            self._settle(allocation)
        for peer in list(self._peers):
            if now - peer.heard > peer.patience:
                peer.reason = f"it has been silent for {now - peer.heard:.0f} s"
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.channel)
        del self._peers[peer]
        self._strangers.pop(peer, None)
        peer.channel.close()
        if peer.node is None and not peer.allocation:
            log.warning("refused the connection from %s: %s", peer.channel.peer, peer.reason)
        node, assignment = peer.node, self._assignments.get(peer.allocation)
        if node and self._supervisors.get(who := (peer.allocation, node.name, node.hello.pid)) is peer:
            del self._supervisors[who]
        if node is None or assignment is None or self._nodes.pop(node, None) is None or self._closing is not None:
            return
        now = self._now()
        log.warning("node %s of allocation %s is lost: %s", node.name, peer.allocation, peer.reason)
        # Reported one by one, since other nodes of the allocation may go on.
        for gone in assignment.leave(node):
            self._tell_hosts(assignment, gone, ForgetCommands(gone.ticket))
            self._events.append(lost_event(gone, peer.allocation, node.name, peer.reason, now))
        self._events.append(NodeLost(now, peer.allocation, node.name, peer.reason))


def _named(orders: Sequence[TaskOrder]) -> str:
    first, last = orders[0], orders[-1]
    return f"{first.stage}-{first.number}" + (f" to {last.stage}-{last.number}" if len(orders) > 1 else "")


VALUES = "values"
"""Directory of results that are too long to travel, in the run's directory."""


def node_resources(allocation: Allocation, context: RunContext) -> dict[str, int]:
    """What each node of an allocation holds: cores and, where they were asked for, memory [bytes] and GPUs.

    Where the cores may be on any nodes it is all of the allocation: a node looks how much of it is there.
    """
    each = allocation.resources.on_each(1 if context.local else allocation.resources.nodes or 1)
    found = {"cores": each.cores}
    if each.memory:
        found["memory"] = each.memory
    if each.gpus:
        found["gpus"] = each.gpus
    return found


def node_program(module: str, options: Mapping[str, object]) -> tuple[str, ...]:
    """The command line of a program that runs on nodes. An option whose value is a tuple is repeated.

    ``-P``: a file in the working directory must not pose as a standard module.
    """
    pairs = ((name, item) for name, value in options.items() for item in (value if type(value) is tuple else (value,)))
    return sys.executable, "-P", "-m", module, *(word for name, item in pairs for word in (f"--{name}", str(item)))


class HubProxy(Protocol):
    """Stands between the hub and the nodes of a run (`executors.dask`)."""

    def front(self, listener: ChannelListener) -> ChannelListener:
        """The hub's listener, where each connection to `listener` passes through the proxy."""

    def wait(self) -> None:
        """Return once it works; raises what keeps it from that."""

    def close(self) -> None: ...


class HubExecutor:
    """The executor port: runs tasks under supervisors, and publishes in the run's directory where it listens.

    Parameters
    ----------
    worker_pool, options
        What supervisors start, as ``module:Class``, and what they pass on to it; see `executors.supervisor.WorkerPool`.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.
    proxy
        Makes a proxy between the hub and the nodes, from the run's context and where the driver listens; by default
        there is none.
    host
        The machine.

    Raises
    ------
    InvalidInput
        When `heartbeat_s` is out of range.
    """

    def __init__(
        self,
        worker_pool: str,
        options: Mapping[str, Any] | None = None,
        *,
        heartbeat_s: float = 60.0,
        proxy: Callable[[RunContext, ChannelListener], HubProxy] | None = None,
        host: Host = HOST,
    ) -> None:
        if not (0 < heartbeat_s <= 366 * 86400.0 or heartbeat_s == math.inf):
            raise InvalidInput(f"heartbeat_s={heartbeat_s!r} must be seconds, above 0 and at most a year, or inf")
        self._pool, self._options, self._heartbeat, self._proxy = worker_pool, dict(options or {}), heartbeat_s, proxy
        self._host = host
        self._hub: Hub | None = None
        self._released: set[str] = set()
        self._opened = ExitStack()

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The supervisor's command line, for each node of an allocation."""
        options = {"directory": context.directory, "allocation": allocation.key, "grace": context.orphan_grace_s}
        return node_program("executors.supervisor", options | node_resources(allocation, context))

    def exposes(self) -> str:
        """Why others than their tasks could see secrets; "": workers get them over mutual TLS, or on this machine."""
        if self._proxy is not None:
            why = "dask's scheduler sees all that goes to tasks, and a worker may run others' beside them"
            return f"{why}: say executor='local', or 'mesos'"
        return self.mingles()

    def mingles(self) -> str:
        if self._options.get("workers") == "threads":
            return "the threads of a node have one environment: say workers='processes'"
        return ""

    def outlasts(self) -> str:
        if self._proxy is not None:
            return "dask ends no task that runs: leave timeout= out, or say executor='local', or 'mesos'"
        return "" if not self.mingles() else "the threads of a node are one process: say workers='processes'"

    def crowds(self) -> str:
        if self._proxy is not None:
            return "dask's workers have one priority: say executor='local', or 'mesos'"
        return "" if not self.mingles() else "threads of one process have one priority: say workers='processes'"

    def start(self, context: RunContext, post: Report) -> None:
        """Listen, and say where.

        Raises
        ------
        StateError
            When the run's directory cannot be used.
        """
        values = private_directory(private_directory(context.directory) / VALUES)
        alive_s = self._heartbeat / 4
        limit = {} if context.output_limit is None else {"output_limit": context.output_limit}
        options = self._options | limit
        where = str(values), context.workdir, context.sys_path
        welcome = Welcome(self._pool, options, *where, alive_s, context.generation)
        listener = self._host.listen(context)
        try:
            proxy = self._proxy(context, listener) if self._proxy else None
            if proxy:
                self._opened.callback(proxy.close)
            front = proxy.front(listener) if proxy else listener
            spans = not context.local
            self._hub = Hub(front, welcome, post, self._heartbeat, spans, self._host, context.now, context.newest)
            self._opened.callback(self._close_hub, context.directory)
            self._opened.enter_context(rendezvous(context, listener))
            if proxy:
                proxy.wait()  # meanwhile nodes connect, load what they need, and get orders
        except BaseException:
            self.close()
            raise

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        self._started().launch(tasks, allocation)

    def recover(self, tasks: Sequence[Task], allocation: str, context: RunContext) -> list[Event]:
        """What supervisors of this allocation have left in files of these tasks' outcomes."""
        wanted = {(task.stage, task.index, task.identity): task for task in tasks}
        found: list[Event] = []
        for order, node, outcome in recovered(context.directory, allocation):
            if task := wanted.pop((order.stage, order.number, order.identity), None):
                log.info("%s-%d ended on %s without a driver", task.stage, task.index, node)
                found.append(task_event(task_order(task, 0, False), outcome, allocation, node))
        return found

    def adopt(self, tasks: Sequence[Task], allocation: str, nodes: Collection[str]) -> None:
        self._started().adopt(tasks, allocation, nodes)

    def release(self, allocation: str) -> None:
        self._released.add(allocation)
        self._started().release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        self._started().dismiss_idle(idle_s)

    def close(self) -> None:
        self._opened.close()

    def _close_hub(self, directory: Path) -> None:
        for allocation in self._released:  # for nodes that come while no driver is there
            with suppress(StateError):
                write_private(private_directory(directory / RELEASED) / allocation, b"")
        self._started().close()
        self._hub = None

    def _started(self) -> Hub:
        if self._hub is None:
            raise InvalidInput("this executor has not been started, or is closed: call start() first")
        return self._hub


@contextmanager
def rendezvous(context: RunContext, listener: ChannelListener) -> Iterator[None]:
    """While it lasts, a file in the run's directory says where `listener` is, unless a new driver takes over."""
    found = listener.address() | {"generation": context.generation}
    path, address = context.directory / RENDEZVOUS, json.dumps(found).encode()
    write_private(path, address)
    log.info("the hub listens at %s", address.decode())
    try:
        yield
    finally:
        with suppress(OSError):  # gone already
            if path.read_bytes() == address:
                path.unlink()


def local(workers: str = "processes", heartbeat_s: float = 60.0) -> HubExecutor:
    """Runs tasks inside allocations, with nothing but Python on the nodes.

    Each task runs in a worker process of its node's supervisor, which is kept for later tasks of the same size; several
    short tasks travel together. Numeric libraries use as many threads as the task has cores
    (``OMP_NUM_THREADS`` and its like, where they are not set already).

    Parameters
    ----------
    workers
        ``"processes"``: a process for each task that runs. ``"threads"``: the threads of one process for each node,
        for tasks that release the interpreter's lock or share much memory; they share the fate of their process too,
        and no task has a number of library threads of its own; stages with GPUs, or secrets, are refused.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.

    Raises
    ------
    InvalidInput
        When an option is out of range.
    """
    if workers not in ("processes", "threads"):
        raise InvalidInput(f"workers={workers!r}: choose 'processes' or 'threads'")
    return HubExecutor("executors.worker_pool:ProcessPool", {"workers": workers}, heartbeat_s=heartbeat_s)
