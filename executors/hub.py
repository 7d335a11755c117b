"""Between the words of the port (tasks, events) and those of the wire (orders, outcomes).

Which commands of launchers run on which nodes, and whose remote shells wait for them. No I/O: the hub sends.

The driver's side: one thread that listens, knows the nodes of each allocation, and keeps them busy.

The executor that `local` and `dask` configure: a run's hub, its nodes' program, and how they find the driver.

The `local` executor: tasks in processes, or threads, of the allocation's own nodes. Needs nothing installed."""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.ports import Post, RunContext
from asa.core.task import Task
from asa.security.files import private_directory, write_private
from executors.assignment import AssignedNode, Assignment, Batching
from executors.wire import (
    CERTIFICATES,
    LARGEST,
    RENDEZVOUS,
    Alive,
    Channel,
    ChannelListener,
    CommandEnded,
    CommandRefused,
    Hello,
    Leaving,
    ReleaseNode,
    RemoteCommand,
    RunOrders,
    StartCommand,
    StopCommand,
    TaskOrder,
    TaskOutcome,
    TaskReport,
    TlsListener,
    UnixListener,
    Welcome,
)


def task_order(task: Task, ticket: int, spanning: bool) -> TaskOrder:
    """A task as it travels; unless `spanning`, all it needs is on one node, whatever it says of nodes."""
    nodes = (task.resources.nodes or 1) if spanning else 1
    each = task.resources.on_each(nodes)
    return TaskOrder(
        ticket,
        task.stage,
        task.index,
        task.function,
        task.arguments,
        task.inputs,
        each.cores,
        each.memory or 0,
        each.gpus,
        nodes,
        task.launch,
    )


def task_event(task_order: TaskOrder, outcome: TaskOutcome, allocation: str, node: str) -> Event:
    """What became of an order, as an event at the time [s since the epoch] that its node says."""
    stage, index, value = task_order.stage, task_order.number, outcome.value
    if value is None:
        return TaskFailed(
            outcome.ended, stage, index, allocation, node, outcome.started,
            outcome.error, outcome.traceback, outcome.stderr, outcome.infrastructure,
        )  # fmt: skip
    data, path = (value, None) if isinstance(value, bytes) else (None, value)
    return TaskDone(outcome.ended, stage, index, allocation, node, outcome.started, data, path)


def lost_event(task_order: TaskOrder, allocation: str, node: str, reason: str, now: float) -> TaskFailed:
    """An order went with its node, which is not its fault."""
    error = f"node {node} was lost: {reason}"
    return TaskFailed(now, task_order.stage, task_order.number, allocation, node, now, error, infrastructure=True)


Peer = TypeVar("Peer")


@dataclass(frozen=True, slots=True)
class _RunningCommand(Generic[Peer]):
    asker: Peer
    host: Peer
    ticket: int


class RemoteCommands(Generic[Peer]):
    """The commands that run.

    Parameters
    ----------
    send
        Sends a peer a message; nothing when it is gone.
    """

    def __init__(self, send: Callable[[Peer, object], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._running: dict[int, _RunningCommand[Peer]] = {}

    def start(self, asker: Peer, host: Peer | None, ask: RemoteCommand) -> None:
        """Have a node run a command; without a `host`, refuse it."""
        if host is None:
            self._send(asker, CommandRefused("it is not, or not any more, one of the task's nodes"))
            return
        number = next(self._numbers)
        self._running[number] = _RunningCommand(asker, host, ask.ticket)
        self._send(host, StartCommand(number, ask.command, ask.environment))

    def stopped(self, message: CommandEnded) -> None:
        """A command has ended, as its node says."""
        if (errand := self._running.pop(message.number, None)) is not None:
            self._send(errand.asker, message)

    def end(self, ticket: int, reason: str) -> None:
        """End the commands of an order."""
        self._end({number: errand for number, errand in self._running.items() if errand.ticket == ticket}, reason)

    def leave(self, peer: Peer, reason: str) -> None:
        """End the commands that a peer asked for, and forget those that it ran, for it is gone."""
        lost = {number: errand for number, errand in self._running.items() if peer in (errand.asker, errand.host)}
        self._end(lost, reason)

    def _end(self, errands: dict[int, _RunningCommand[Peer]], reason: str) -> None:
        for number, errand in errands.items():
            del self._running[number]
            self._send(errand.host, StopCommand(number))
            self._send(errand.asker, CommandRefused(reason))


_HELLO_S = 10.0
_GUESTS_MOST = 256
_UNSENT_MOST = 1 << 20
_CLOSING_S = 2.0
_LONG_S = 0.05


@dataclass(eq=False)
class _Peer:
    """A connection; without a `node` until it has introduced itself."""

    channel: Channel
    heard: float
    patience: float = _HELLO_S
    """How long it may be silent [s]."""
    worked: float = math.inf
    """When it was last given something to do, or told what came of it."""
    allocation: str = ""
    node: AssignedNode | None = None
    reason: str = "the connection was lost"


class Hub:
    """Supervisors connect to it; it gives them orders and posts what becomes of them.

    Parameters
    ----------
    listener
        Where supervisors knock; the hub closes it.
    welcome
        What to tell a new supervisor.
    post
        Where events go, in batches.
    heartbeat_s
        A supervisor that was silent for so long [s] is lost; they report four times as often.
    spanning
        Whether tasks may span nodes; without, an allocation is one machine, whatever its tasks say of nodes.
    """

    def __init__(
        self, listener: ChannelListener, welcome: Welcome, post: Post, heartbeat_s: float = 60.0, spanning: bool = True
    ) -> None:
        self._listener, self._welcome, self._post = listener, welcome, post
        self._heartbeat, self._spanning = heartbeat_s, spanning
        self._tickets = itertools.count(1)
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[_Peer, None] = {}
        self._checked = time.monotonic()
        self._nodes: dict[AssignedNode, _Peer] = {}
        self._errands = RemoteCommands(self._send)
        self._shares: dict[str, Assignment] = {}
        self._released: set[str] = set()
        self._busy: set[str] = set()  # allocations in which something may be dealt
        self._events: list[Event] = []
        self._pace = Batching()
        self._closing: float | None = None
        self._thread = threading.Thread(target=self._run, name="asa-hub", daemon=True)
        self._thread.start()

    # ------------------------------------------------------- from any thread

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order."""
        orders = [task_order(task, next(self._tickets), self._spanning) for task in tasks]
        self._tell(partial(self._launch, orders, allocation))

    def release(self, allocation: str) -> None:
        """End the allocation's supervisors, those that connect later included; forget its tasks."""
        self._tell(partial(self._release, allocation))

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._tell(partial(self._dismiss, time.monotonic() - idle_s))

    def close(self) -> None:
        """Stop listening, and return once released supervisors have heard of it, or a few seconds later."""
        if self._bell >= 0:
            self._tell(self._close)
            self._thread.join(2 * _CLOSING_S)
            os.close(self._bell)
            self._bell = -1

    def _tell(self, call: Callable[[], None]) -> None:
        self._inbox.append(call)
        os.eventfd_write(self._bell, 1)

    # ------------------------------------------------------- the hub's thread

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        while not self._finished():
            ready = self._selector.select(self._timeout())
            for key, mask in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._bell:
                    os.eventfd_read(self._bell)
                elif key.data in self._peers:  # it may have been dropped since
                    self._serve(key.data, mask)
            while self._inbox:
                self._inbox.popleft()()
            self._expire(time.monotonic())
            for allocation in self._busy:
                self._deal(allocation)
            self._busy.clear()
            if self._events:
                events, self._events = self._events, []
                self._post(events)
        for peer in list(self._peers):
            self._drop(peer)
        self._selector.close()

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        awaited = any(peer.allocation in self._released for peer in self._peers)
        return not awaited or time.monotonic() >= self._closing

    def _timeout(self) -> float | None:
        if self._closing is not None:
            return max(0.0, self._closing - time.monotonic())
        return self._patience() if self._peers else None

    def _patience(self) -> float:
        return min(_HELLO_S, self._heartbeat / 2)

    def _launch(self, orders: list[TaskOrder], allocation: str) -> None:
        if allocation not in self._released:
            self._shares.setdefault(allocation, Assignment()).queue.extend(orders)
            self._busy.add(allocation)

    def _release(self, allocation: str) -> None:
        self._released.add(allocation)
        for node in (self._shares.pop(allocation, None) or Assignment()).nodes:
            self._send(self._nodes.pop(node), ReleaseNode())

    def _close(self) -> None:
        self._closing = time.monotonic() + _CLOSING_S
        self._selector.unregister(self._listener)
        self._listener.close()

    def _dismiss(self, since: float) -> None:
        for node, peer in list(self._nodes.items()):
            share = self._shares[peer.allocation]
            if peer.worked <= since and share.is_idle(node):
                share.leave(node)
                del self._nodes[node]
                self._events.append(NodeLost(time.time(), peer.allocation, node.name, "it is lent to others"))
                self._send(peer, ReleaseNode())

    def _accept(self) -> None:
        while (channel := self._listener.accept()) is not None:
            guests = [peer for peer in self._peers if peer.node is None and peer.patience < math.inf]
            if len(guests) >= _GUESTS_MOST:
                # our own nodes introduce themselves at once: who has been silent longest is none
                self._drop(guests[0])
            peer = _Peer(channel, time.monotonic())
            self._peers[peer] = None
            self._selector.register(channel, selectors.EVENT_READ, peer)

    def _serve(self, peer: _Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                peer.channel.flush()
                peer.channel.watch(self._selector)
                self._busy.add(peer.allocation)
            if mask & selectors.EVENT_READ:
                messages = peer.channel.receive()
                if peer.allocation:
                    peer.heard = time.monotonic()
                for message in messages:
                    self._hear(peer, message)
        except Exception as error:  # what a peer sends must not end the hub, whatever it is
            if not isinstance(error, OSError):
                peer.reason = f"it sent what makes no sense: {error!r}"
            self._drop(peer)

    def _hear(self, peer: _Peer, message: Any) -> None:
        node = peer.node
        if isinstance(message, Hello) and node is None:
            self._join(peer, message)
        elif isinstance(message, TaskReport) and node is not None:
            peer.worked = time.monotonic()
            if (share := self._shares.get(peer.allocation)) is not None:
                self._report(share, peer.allocation, node, message)
        elif isinstance(message, RemoteCommand) and node is None:
            self._start(peer, message)
        elif isinstance(message, CommandEnded) and node is not None:
            self._errands.stopped(message)
        elif isinstance(message, Leaving):
            peer.reason = message.reason
        elif not isinstance(message, Alive | TaskReport):
            raise ValueError(f"{type(message).__name__} was not expected")

    def _join(self, peer: _Peer, hello: Hello) -> None:
        peer.channel.largest, peer.allocation, peer.patience = LARGEST, hello.allocation, self._heartbeat
        if hello.allocation in self._released:
            self._send(peer, ReleaseNode())
            return
        share = self._shares.setdefault(hello.allocation, Assignment())
        for other in [other for other in share.nodes if (other.name, other.hello.pid) == (hello.node, hello.pid)]:
            self._drop(self._nodes[other])  # it has connected anew; its old connection just does not know yet
        peer.node, peer.worked = AssignedNode(hello), time.monotonic()
        share.nodes.append(peer.node)
        self._nodes[peer.node] = peer
        self._events.append(NodeJoined(time.time(), hello.allocation, hello.node, hello.cores))
        self._busy.add(hello.allocation)
        self._send(peer, self._welcome)

    def _start(self, peer: _Peer, ask: RemoteCommand) -> None:
        """The remote shell of an order's launcher asks for one of the order's nodes."""
        peer.patience = math.inf  # it has nothing more to say
        hosts = (share.host(ask.ticket, ask.host) for share in self._shares.values())
        node = next(filter(None, hosts), None)
        self._errands.start(peer, None if node is None else self._nodes[node], ask)

    def _report(self, share: Assignment, allocation: str, node: AssignedNode, report: TaskReport) -> None:
        for outcome in report.outcomes:
            if share.is_hurt(outcome.ticket):
                outcome = outcome._replace(infrastructure=True)
            finished = share.finish(node, outcome.ticket)
            if finished is not None:
                self._errands.end(finished.ticket, "the task has ended")
                self._pace.learn(finished.stage, outcome.ended - outcome.started)
                self._events.append(task_event(finished, outcome, allocation, node.name))
        for stage in share.take_back(node, report.returned):
            self._pace.learn(stage, _LONG_S)
        self._busy.add(allocation)

    def _deal(self, allocation: str) -> None:
        if (share := self._shares.get(allocation)) is not None:
            for node, orders in share.assign(self._pace, self._is_ready).items():
                self._nodes[node].worked = time.monotonic()
                self._send(self._nodes[node], RunOrders(orders))

    def _is_ready(self, node: AssignedNode) -> bool:
        return self._nodes[node].channel.unsent < _UNSENT_MOST

    def _send(self, peer: _Peer, message: object) -> None:
        if peer not in self._peers:
            return
        with suppress(OSError):  # its end is read next
            peer.channel.send(message)
        peer.channel.watch(self._selector)

    def _expire(self, now: float) -> None:
        """Drop who has been silent for too long. All that was there has been read: it does not matter if we slept."""
        if now - self._checked < self._patience():
            return
        self._checked = now
        for peer in list(self._peers):
            if now - peer.heard > peer.patience:
                peer.reason = f"it has been silent for {now - peer.heard:.0f} s"
                self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.channel)
        del self._peers[peer]
        peer.channel.close()
        self._errands.leave(peer, f"the node was lost: {peer.reason}")
        node, share = peer.node, self._shares.get(peer.allocation)
        if node is None or share is None or self._nodes.pop(node, None) is None or self._closing is not None:
            return
        now = time.time()
        # Told one by one, since other nodes of the allocation may go on.
        for gone in share.leave(node):
            self._errands.end(gone.ticket, "the task's first node was lost")
            self._events.append(lost_event(gone, peer.allocation, node.name, peer.reason, now))
        self._events.append(NodeLost(now, peer.allocation, node.name, peer.reason))


VALUES = "values"
"""Directory of results that are too long to travel, in the run's directory."""


def node_resources(allocation: Allocation, context: RunContext) -> dict[str, int]:
    """What each node of an allocation holds: cores and, where they were asked for, memory [bytes] and GPUs."""
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


class Between(Protocol):
    """What may stand between the hub and the nodes of a run."""

    def front(self, listener: ChannelListener) -> ChannelListener:
        """What the hub is to listen at, where all that comes to `listener` passes through here."""

    def wait(self) -> None:
        """Return once it works; raises what keeps it from that."""

    def close(self) -> None: ...


class HubExecutor:
    """Runs tasks under supervisors: listens for those of a run, and says where in the run's directory.

    Parameters
    ----------
    crew, options
        What supervisors start, as ``module:Class``, and what they pass on to it; see `executors.supervisor.Crew`.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.
    between
        Makes what stands between the hub and the nodes, from the run's context and where the driver listens; by default
        nothing does.

    Raises
    ------
    InvalidInput
        When `heartbeat_s` is out of range.
    """

    def __init__(
        self,
        crew: str,
        options: Mapping[str, Any] | None = None,
        *,
        heartbeat_s: float = 60.0,
        between: Callable[[RunContext, ChannelListener], Between] | None = None,
    ) -> None:
        if not heartbeat_s > 0:
            raise InvalidInput(f"heartbeat_s={heartbeat_s!r} must be a positive number of seconds")
        self._crew, self._options, self._heartbeat, self._between = crew, dict(options or {}), heartbeat_s, between
        self._hub: Hub | None = None
        self._opened = ExitStack()

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The supervisor's command line, for each node of an allocation."""
        options = {"directory": context.directory, "allocation": allocation.key, "grace": context.orphan_grace_s}
        return node_program("executors.supervisor", options | node_resources(allocation, context))

    def start(self, context: RunContext, post: Post) -> None:
        """Listen, and say where.

        Raises
        ------
        StateError
            When the run's directory cannot be used.
        """
        values = private_directory(private_directory(context.directory) / VALUES)
        alive_s = self._heartbeat / 4
        welcome = Welcome(self._crew, self._options, str(values), context.workdir, context.sys_path, alive_s)
        listener = listen(context)
        try:
            between = self._between(context, listener) if self._between else None
            if between:
                self._opened.callback(between.close)
            front = between.front(listener) if between else listener
            self._hub = Hub(front, welcome, post, self._heartbeat, spanning=not context.local)
            self._opened.callback(self._hang_up)
            self._opened.enter_context(rendezvous(context, listener))
            if between:
                between.wait()  # meanwhile nodes come, load what they need, too, and are given tasks
        except BaseException:
            self.close()
            raise

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._started().launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._started().release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._started().dismiss_idle(idle_s)

    def close(self) -> None:
        """Stop listening. Supervisors that are not released wait for a new driver."""
        self._opened.close()

    def _hang_up(self) -> None:
        self._started().close()
        self._hub = None

    def _started(self) -> Hub:
        if self._hub is None:
            raise InvalidInput("this executor has not been started, or is closed: call start() first")
        return self._hub


@contextmanager
def rendezvous(context: RunContext, listener: ChannelListener) -> Iterator[None]:
    """While it lasts, a file in the run's directory says where `listener` is, unless a new driver takes over."""
    path, address = context.directory / RENDEZVOUS, json.dumps(listener.address()).encode()
    write_private(path, address)
    try:
        yield
    finally:
        with suppress(OSError):  # gone already
            if path.read_bytes() == address:
                path.unlink()


def listen(context: RunContext) -> ChannelListener:
    """Listen for supervisors: on a Unix socket where all nodes are this machine, else with mutual TLS.

    Raises
    ------
    StateError
        When the run's directory cannot be used.
    """
    if not context.local:
        return TlsListener(certificates(context))
    try:
        for stale in context.directory.glob("hub-*.sock"):  # of drivers that died
            stale.unlink(missing_ok=True)
        return UnixListener(context.directory, f"hub-{secrets.token_hex(8)}.sock")
    except OSError as error:
        raise StateError(
            f"cannot make a socket in {context.directory}: {error.strerror or error}. Set ASA_STATE_DIR to a directory "
            "on a file system that has sockets"
        ) from error


def certificates(context: RunContext) -> Path:
    """The directory of the run's certificates, which are made if they are not there."""
    directory = context.directory / CERTIFICATES
    if not (directory / "node.pem").exists():  # written last: a driver may have died while it made them
        from asa.security.ca import create

        create(directory, context.run)
    return directory


def local(workers: str = "processes", heartbeat_s: float = 60.0) -> HubExecutor:
    """Runs tasks inside allocations, with nothing but Python on the nodes.

    Each task runs in a worker process of its node's supervisor, which is kept for later tasks of the same size; several
    short tasks travel together. Numeric libraries are told to use as many threads as the task has cores
    (``OMP_NUM_THREADS`` and its like, where they are not set already).

    Parameters
    ----------
    workers
        ``"processes"``: a process for each task that runs. ``"threads"``: the threads of one process for each node,
        for tasks that release the interpreter's lock or share much memory; they share the fate of their process too,
        and no task has GPUs, or a number of library threads, of its own.
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
