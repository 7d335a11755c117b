"""The driver's side of the `dask` executor: between the hub and the nodes, orders go to dask here.

The hub talks to every node as always; a `NodeProxy` stands in the middle of each connection. It passes on what is about
the node itself (hello, welcome, release, signs of life). Orders go through the node's `WorkerAssignment` to dask; the
node's worker pool reports what became of them, and the proxy reports it to the hub in the node's name.

`WorkerAssignment` decides which dask worker of a node runs which order, without I/O. Dask is given the worker of each
task: cores, memory and GPUs are counted here, and a worker of one thread runs one task at a time. Short tasks are given
several at once, so that a worker does not wait for the scheduler in between.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from executors.assignment import AHEAD_S, Batching, NodeSlots
from executors.dask.messages import AssignedOrder, RecallOrders, RetireWorker, SchedulerAddress, WorkerGone
from executors.wire import (
    LARGEST,
    Channel,
    ChannelListener,
    Hello,
    RunOrders,
    TaskOrder,
    TaskOutcome,
    TaskReport,
    Welcome,
)

_OVERDUE_S = 0.25
_STUCK_S = 0.25
_AHEAD_MOST = 1 << 19


@dataclass(eq=False)
class _AssignedWorker:
    """A worker, and the orders that it was given, by serial number."""

    name: str
    address: str
    orders: dict[int, TaskOrder] = field(default_factory=dict)
    gpus: tuple[int, ...] | None = None  # those of its last order that had any: libraries do not let go of them
    first: TaskOrder | None = None  # as large as all that it was given
    moved: float = 0.0  # when it was last given something, told of something, or asked
    slow: bool = False  # what it runs is not as short as was thought
    retired: bool = False


class WorkerAssignment:
    """The workers of one node.

    Parameters
    ----------
    hello
        The node.
    serials
        Numbers for what is given, shared by all nodes.
    """

    def __init__(self, hello: Hello, serials: itertools.count[int]) -> None:
        self._room, self._pace, self._serials = NodeSlots(hello), Batching(), serials
        self._queue: deque[TaskOrder] = deque()
        self._moved = time.monotonic()  # when the queue last began to wait, or was last taken from
        self._seats: dict[str, _AssignedWorker] = {}
        self._at: dict[int, tuple[_AssignedWorker, int]] = {}  # seat and serial number by ticket
        self._gpus = list(range(hello.gpus))
        self._asked: list[RecallOrders | RetireWorker] = []

    def accept(self, orders: Iterable[TaskOrder], now: float) -> list[TaskOutcome]:
        """Run these after those that wait; outcomes of those that the node is too small for."""
        refused = []
        for order in orders:
            if why := self._room.lacks(order):
                at = time.time()
                refused.append(TaskOutcome(order.ticket, at, at, None, f"the task can never run: {why}"))
                continue
            if not self._queue:
                self._moved = now
            self._queue.append(order)
        return refused

    def sit(self, name: str, address: str) -> None:
        """A worker has come."""
        self._seats[name] = _AssignedWorker(name, address)

    def leave(self, name: str) -> list[int]:
        """A worker has ended: what it was given and has not ended waits again; its tickets."""
        seat = self._seats.pop(name, None)
        tickets = [order.ticket for order in seat.orders.values()] if seat else []
        self.back(tickets)
        return tickets

    def end(self, outcome: TaskOutcome, now: float) -> None:
        """An order has ended."""
        if found := self._take(outcome.ticket):
            seat, order = found
            self._pace.learn(order.stage, outcome.ended - outcome.started)
            seat.moved, seat.slow = now, False

    def back(self, tickets: Iterable[int]) -> None:
        """These were not begun where they were given, and wait again before all others."""
        orders = []
        for ticket in tickets:
            if found := self._take(ticket):
                found[0].slow = True
                orders.append(found[1])
        self._queue.extendleft(reversed(orders))

    def assign(self, now: float) -> list[AssignedOrder]:
        """Orders from the queue for the workers that have room, strictly in turn."""
        given: list[AssignedOrder] = []
        while self._queue:
            order = self._queue[0]
            seat = self._idle(order) or self._soon_idle(order)
            if seat is None:
                break
            self._moved = seat.moved = now
            for each in self._group(seat):
                serial = next(self._serials)
                seat.orders[serial] = each
                self._at[each.ticket] = seat, serial
                given.append(AssignedOrder(serial, each, seat.address, seat.gpus or () if each.gpus else ()))
        return given

    def review(self, now: float) -> tuple[list[RecallOrders | RetireWorker], list[int]]:
        """What to tell the workers' crew, and orders that another node may have room for sooner."""
        for seat in self._seats.values():
            if len(seat.orders) > 1 and now - seat.moved > _OVERDUE_S:
                seat.moved = now
                self._asked.append(
                    RecallOrders(seat.name, {serial: order.ticket for serial, order in seat.orders.items()})
                )
        asked, self._asked = self._asked, []
        returned = []
        if self._queue and len(self._seats) >= self._room.cores and now - self._moved > _STUCK_S:
            returned = [order.ticket for order in self._queue]
            self._queue.clear()
        return asked, returned

    def due(self, now: float) -> float | None:
        """In how many seconds [s] to `review` again although nothing happens, or None."""
        due = [seat.moved + _OVERDUE_S for seat in self._seats.values() if len(seat.orders) > 1]
        if self._queue and len(self._seats) >= self._room.cores:
            due.append(self._moved + _STUCK_S)
        return max(0.0, min(due) - now) + 0.001 if due else None

    # -------------------------------------------------------------- choosing

    def _idle(self, order: TaskOrder) -> _AssignedWorker | None:
        """A worker without orders, if the node has room for this one; the room is taken."""
        if not self._room.fits(order):
            return None
        seats = [seat for seat in self._seats.values() if not seat.orders and not seat.retired]
        seat = self._with_gpus(order.gpus, seats) if order.gpus else next(iter(seats), None)
        if seat is not None:
            self._room.take(order)
            seat.first, seat.slow = order, False
        return seat

    def _with_gpus(self, count: int, seats: list[_AssignedWorker]) -> _AssignedWorker | None:
        """A worker whose libraries know so many of the free GPUs, or none yet."""
        for seat in seats:
            if seat.gpus is not None and len(seat.gpus) == count and set(seat.gpus) <= set(self._gpus):
                break
        else:
            fresh = [seat for seat in seats if seat.gpus is None]
            if not fresh:
                if seats and not any(seat.retired for seat in self._seats.values()):
                    seats[0].retired = True
                    self._asked.append(RetireWorker(seats[0].name))
                return None
            seat = fresh[0]
            seat.gpus = tuple(self._gpus[:count])
        self._gpus = [gpu for gpu in self._gpus if gpu not in (seat.gpus or ())]
        return seat

    def _soon_idle(self, order: TaskOrder) -> _AssignedWorker | None:
        """A worker that is about to run out of short orders like this one."""
        most = self._most(order) // 2
        seats = [
            seat
            for seat in self._seats.values()
            if 0 < len(seat.orders) <= most and not seat.slow and _shape(seat.first) == _shape(order)
        ]
        return min(seats, key=lambda seat: len(seat.orders), default=None)

    def _group(self, seat: _AssignedWorker) -> list[TaskOrder]:
        """The next order, and some more like it: a few milliseconds' work, and no more than is fair."""
        first = self._queue.popleft()
        count = self._most(first) - len(seat.orders) - 1
        count = min(count, len(self._queue) // (2 * self._room.cores))
        group = [first]
        while len(group) <= count and _shape(self._queue[0]) == _shape(first):
            group.append(self._queue.popleft())
        return group

    def _most(self, order: TaskOrder) -> int:
        """How many like this one to have on their way to a worker: few milliseconds' work, and few bytes."""
        return min(self._pace.fit(order.stage, AHEAD_S), max(1, _AHEAD_MOST // (order.size + 1)))

    def _take(self, ticket: int) -> tuple[_AssignedWorker, TaskOrder] | None:
        """Take an order from its seat; with the last one, the seat's room is free."""
        seat, serial = self._at.pop(ticket, (None, 0))
        if seat is None:
            return None
        order = seat.orders.pop(serial)
        if not seat.orders and seat.first:
            self._room.free(seat.first)
            if seat.first.gpus:
                self._gpus = sorted([*self._gpus, *(seat.gpus or ())])
        return seat, order


def _shape(order: TaskOrder | None) -> tuple[str, int, int, int] | None:
    return order and (order.stage, order.cores, order.memory, order.gpus)


class Farm(Protocol):
    """What a relay needs of dask."""

    def submit(self, given: Sequence[AssignedOrder]) -> None: ...
    def forget(self, tickets: Iterable[int]) -> None: ...


class ProxyListener:
    """The hub's listener, with a relay in the middle of each connection.

    Parameters
    ----------
    listener
        Where supervisors knock; closed with this.
    adopt
        Takes both channels of a new relay: to the node, and to the hub.
    """

    def __init__(self, listener: ChannelListener, adopt: Callable[[Channel, Channel], None]) -> None:
        self._listener, self._adopt = listener, adopt

    def fileno(self) -> int:
        return self._listener.fileno()

    def address(self) -> dict[str, Any]:
        return self._listener.address()

    def accept(self) -> Channel | None:
        node = self._listener.accept()
        if node is None:
            return None
        ours, hubs = socket.socketpair()
        self._adopt(node, Channel(ours))
        return Channel(hubs)

    def close(self) -> None:
        self._listener.close()


class NodeProxy:
    """One node, in the event loop's thread.

    Parameters
    ----------
    node, hub
        Channels to both sides.
    serials
        Numbers for what is given to workers.
    left
        Told when the connection has ended.
    """

    def __init__(
        self, node: Channel, hub: Channel, serials: itertools.count[int], left: Callable[[NodeProxy], None]
    ) -> None:
        self._node, self._hub, self._serials, self._left = node, hub, serials, left
        self._loop = asyncio.get_running_loop()
        self._bench: WorkerAssignment | None = None
        self._farm: Farm | None = None
        self._announced: tuple[tuple[str, ...], int] | None = None
        self._welcomed = False
        self._given: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._token = secrets.token_hex(4)
        self.prefix = ""
        """What the names of this node's workers begin with, once the node has introduced itself."""
        hub.largest = LARGEST
        for channel in (node, hub):
            self._loop.add_reader(channel.fileno(), self._serve, channel)

    def use(self, farm: Farm, hosts: tuple[str, ...], port: int) -> None:
        """Dask is there, and its scheduler listens here."""
        self._farm, self._announced = farm, (hosts, port)
        self._turn()

    def sit(self, worker: str, address: str) -> None:
        """One of the node's workers has joined the scheduler."""
        if self._bench:
            self._bench.sit(worker, address)
            self._turn()

    def close(self) -> None:
        """Hang up on both sides."""
        if self._timer:
            self._timer.cancel()
        for channel in (self._node, self._hub):
            if channel.fileno() >= 0:
                self._loop.remove_reader(channel.fileno())
                self._loop.remove_writer(channel.fileno())
                channel.close()
        if self._farm:
            self._farm.forget(self._given)
        self._left(self)

    def _serve(self, channel: Channel) -> None:
        """Something can be read, or written."""
        try:
            channel.flush()
            for message in channel.receive():
                (self._from_node if channel is self._node else self._from_hub)(message)
            self._turn()
        except Exception:  # a peer that sends nonsense loses its connection, not the others theirs
            self.close()

    def _from_node(self, message: Any) -> None:
        if isinstance(message, Hello) and self._bench is None:
            self._node.largest = LARGEST
            self._bench, self.prefix = WorkerAssignment(message, self._serials), f"{message.node}-{self._token}"
        if isinstance(message, TaskReport) and self._bench:
            self._bench.back(message.returned)
            for outcome in message.outcomes:
                self._bench.end(outcome, self._loop.time())
            self._forget([*message.returned, *(outcome.ticket for outcome in message.outcomes)])
            self._report(message.outcomes)
        elif isinstance(message, WorkerGone) and self._bench:
            self._forget(self._bench.leave(message.worker))
        else:
            self._hub.send(message)

    def _from_hub(self, message: Any) -> None:
        if isinstance(message, RunOrders) and self._bench:
            self._report(self._bench.accept(message.orders, self._loop.time()))
            return
        self._node.send(message)
        if isinstance(message, Welcome):
            self._welcomed = True

    def _invite(self) -> None:
        """Tell the crew once where to send its workers, as soon as both are there."""
        if self._welcomed and self._announced:
            hosts, port = self._announced
            self._announced = None
            self._tell([SchedulerAddress(hosts, port, self.prefix)])

    def _turn(self) -> None:
        """Do all that can be done now."""
        try:
            self._invite()
            if self._bench and self._farm:
                self._manage(self._bench, self._farm)
            self._watch()
        except OSError:
            self.close()

    def _manage(self, bench: WorkerAssignment, farm: Farm) -> None:
        now = self._loop.time()
        if given := bench.assign(now):
            self._given.update(each.order.ticket for each in given)
            farm.submit(given)
        asked, returned = bench.review(now)
        if asked:
            self._tell(asked)
        if returned:
            self._hub.send(TaskReport([], returned))
        if self._timer:
            self._timer.cancel()
        due = bench.due(now)
        self._timer = None if due is None else self._loop.call_later(due, self._turn)

    def _watch(self) -> None:
        """Wait until more can be written exactly while something is left to write."""
        for channel in (self._node, self._hub):
            if channel.unsent:
                self._loop.add_writer(channel.fileno(), self._serve, channel)
            else:
                self._loop.remove_writer(channel.fileno())

    def _tell(self, messages: list[Any]) -> None:
        """Say something to the crew, in the way that reaches it: as if they were orders."""
        self._node.send(RunOrders(messages))

    def _report(self, outcomes: list[TaskOutcome]) -> None:
        if outcomes:
            self._hub.send(TaskReport(outcomes, []))

    def _forget(self, tickets: Sequence[int]) -> None:
        self._given.difference_update(tickets)
        if self._farm:
            self._farm.forget(tickets)


_CLOSING_S = 5.0


class _Farm(Farm, Protocol):
    port: int


class DaskProxy:
    """One dask scheduler, and a relay for each node. Relays work while dask is still being imported.

    Parameters
    ----------
    certificates
        Directory of the run's certificates.
    host
        Where the scheduler listens; "" for all interfaces.
    hosts
        Where nodes may find it.
    dashboard
        Where to serve dask's dashboard (``host:port``), or None.
    """

    def __init__(self, certificates: str, host: str, hosts: tuple[str, ...], dashboard: str | None) -> None:
        self._certificates, self._host, self._hosts, self._dashboard = certificates, host, hosts, dashboard
        self._relays: dict[NodeProxy, None] = {}
        self._farm: Farm | None = None
        self._port = 0
        self._serials = itertools.count(1)
        self._begun, self._ready = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="asa-dask", daemon=True)
        self._thread.start()
        self._begun.wait()

    def front(self, listener: ChannelListener) -> ProxyListener:
        """The hub's listener, with a relay in the middle of each connection that comes to `listener`."""
        return ProxyListener(listener, self.adopt)

    def adopt(self, node: Channel, hub: Channel) -> None:
        """Put a relay between these two. May be called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._adopt, node, hub)
        except RuntimeError:  # the loop has ended
            node.close()
            hub.close()

    def wait(self) -> None:
        """Return once the scheduler listens; raises what kept it from doing so."""
        self._ready.wait()
        if self._error:
            raise self._error

    def close(self) -> None:
        """End relays and scheduler; returns when they have ended, or after a few seconds."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_CLOSING_S)

    # -------------------------------------------------------- dask's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise  # nobody waits for it any more: it is for people to see
            self._error = error
        finally:
            self._begun.set()
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        try:
            module = await asyncio.to_thread(importlib.import_module, "executors.dask.library")
            with _quiet():
                await self._farm_out(module.farm(self._certificates, self._host, self._dashboard, self._joined))
        finally:
            self._hang_up()

    async def _farm_out(self, farming: AbstractAsyncContextManager[_Farm]) -> None:
        async with farming as farm:
            self._farm, self._port = farm, farm.port
            for relay in list(self._relays):
                relay.use(farm, self._hosts, self._port)
            self._ready.set()
            await self._over.wait()
            self._hang_up()  # before dask tells its workers to end: that is their supervisors' matter

    def _adopt(self, node: Channel, hub: Channel) -> None:
        relay = NodeProxy(node, hub, self._serials, self._left)
        self._relays[relay] = None
        if self._farm:
            relay.use(self._farm, self._hosts, self._port)

    def _joined(self, worker: str, address: str) -> None:
        prefix = str(worker).rpartition(":")[0]
        for relay in self._relays:
            if relay.prefix == prefix:
                relay.sit(worker, address)
                return

    def _left(self, relay: NodeProxy) -> None:
        self._relays.pop(relay, None)

    def _hang_up(self) -> None:
        for relay in list(self._relays):
            relay.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's own log to what is wrong: who comes, goes and dies is among the run's events."""
    whole, scheduler = logging.getLogger("distributed"), logging.getLogger("distributed.scheduler")
    before = whole.level
    whole.setLevel(max(before, logging.ERROR))
    scheduler.addFilter(_is_news)
    try:
        yield
    finally:
        scheduler.removeFilter(_is_news)
        whole.setLevel(before)


def _is_news(record: logging.LogRecord) -> bool:
    return "workers died" not in str(record.msg)
