"""The driver's side: one thread that listens, knows the nodes of each allocation, and keeps them busy."""

from __future__ import annotations

import itertools
import math
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from asa.core.event import Event, NodeJoined, NodeLost
from asa.core.ports import Post
from asa.core.task import Task
from executors.deal import Node, Share
from executors.errands import Errands
from executors.pace import Pace
from executors.translate import event, lost, order
from executors.transport import Listener
from executors.wire import LARGEST, Alive, Ask, Channel, Hello, Leaving, Order, Release, Report, Run, Stopped, Welcome

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
    node: Node | None = None
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
        self, listener: Listener, welcome: Welcome, post: Post, heartbeat_s: float = 60.0, spanning: bool = True
    ) -> None:
        self._listener, self._welcome, self._post = listener, welcome, post
        self._heartbeat, self._spanning = heartbeat_s, spanning
        self._tickets = itertools.count(1)
        self._inbox: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[_Peer, None] = {}
        self._checked = time.monotonic()
        self._nodes: dict[Node, _Peer] = {}
        self._errands = Errands(self._send)
        self._shares: dict[str, Share] = {}
        self._released: set[str] = set()
        self._busy: set[str] = set()  # allocations in which something may be dealt
        self._events: list[Event] = []
        self._pace = Pace()
        self._closing: float | None = None
        self._thread = threading.Thread(target=self._run, name="asa-hub", daemon=True)
        self._thread.start()

    # ------------------------------------------------------- from any thread

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order."""
        orders = [order(task, next(self._tickets), self._spanning) for task in tasks]
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

    def _launch(self, orders: list[Order], allocation: str) -> None:
        if allocation not in self._released:
            self._shares.setdefault(allocation, Share()).queue.extend(orders)
            self._busy.add(allocation)

    def _release(self, allocation: str) -> None:
        self._released.add(allocation)
        for node in (self._shares.pop(allocation, None) or Share()).nodes:
            self._send(self._nodes.pop(node), Release())

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
                self._send(peer, Release())

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
        elif isinstance(message, Report) and node is not None:
            peer.worked = time.monotonic()
            if (share := self._shares.get(peer.allocation)) is not None:
                self._report(share, peer.allocation, node, message)
        elif isinstance(message, Ask) and node is None:
            self._start(peer, message)
        elif isinstance(message, Stopped) and node is not None:
            self._errands.stopped(message)
        elif isinstance(message, Leaving):
            peer.reason = message.reason
        elif not isinstance(message, Alive | Report):
            raise ValueError(f"{type(message).__name__} was not expected")

    def _join(self, peer: _Peer, hello: Hello) -> None:
        peer.channel.largest, peer.allocation, peer.patience = LARGEST, hello.allocation, self._heartbeat
        if hello.allocation in self._released:
            self._send(peer, Release())
            return
        share = self._shares.setdefault(hello.allocation, Share())
        for other in [other for other in share.nodes if (other.name, other.hello.pid) == (hello.node, hello.pid)]:
            self._drop(self._nodes[other])  # it has connected anew; its old connection just does not know yet
        peer.node, peer.worked = Node(hello), time.monotonic()
        share.nodes.append(peer.node)
        self._nodes[peer.node] = peer
        self._events.append(NodeJoined(time.time(), hello.allocation, hello.node, hello.cores))
        self._busy.add(hello.allocation)
        self._send(peer, self._welcome)

    def _start(self, peer: _Peer, ask: Ask) -> None:
        """The remote shell of an order's launcher asks for one of the order's nodes."""
        peer.patience = math.inf  # it has nothing more to say
        hosts = (share.host(ask.ticket, ask.host) for share in self._shares.values())
        node = next(filter(None, hosts), None)
        self._errands.start(peer, None if node is None else self._nodes[node], ask)

    def _report(self, share: Share, allocation: str, node: Node, report: Report) -> None:
        for outcome in report.outcomes:
            if share.is_hurt(outcome.ticket):
                outcome = outcome._replace(infrastructure=True)
            finished = share.finish(node, outcome.ticket)
            if finished is not None:
                self._errands.end(finished.ticket, "the task has ended")
                self._pace.learn(finished.stage, outcome.ended - outcome.started)
                self._events.append(event(finished, outcome, allocation, node.name))
        for stage in share.take_back(node, report.returned):
            self._pace.learn(stage, _LONG_S)
        self._busy.add(allocation)

    def _deal(self, allocation: str) -> None:
        if (share := self._shares.get(allocation)) is not None:
            for node, orders in share.deal(self._pace, self._is_ready).items():
                self._nodes[node].worked = time.monotonic()
                self._send(self._nodes[node], Run(orders))

    def _is_ready(self, node: Node) -> bool:
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
            self._events.append(lost(gone, peer.allocation, node.name, peer.reason, now))
        self._events.append(NodeLost(now, peer.allocation, node.name, peer.reason))
