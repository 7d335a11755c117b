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
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Protocol

from executors.assignment import AHEAD_S, Batching, NodeSlots
from executors.dask.messages import AssignedOrder, RecallOrders, RetireWorker, SchedulerAddress, WorkerGone
from executors.wire import (
    LARGEST,
    Channel,
    ChannelListener,
    Hello,
    OrderOutcome,
    RunOrders,
    TaskOrder,
    TaskReport,
    Welcome,
)

log = logging.getLogger(__name__)

_OVERDUE_S = 0.25
STUCK_S = 0.25
_AHEAD_MOST = 1 << 19


@dataclass(eq=False)
class _AssignedWorker:
    """A worker, and the orders that it was given, by serial number."""

    name: str
    address: str
    orders: dict[int, TaskOrder] = field(default_factory=dict)
    gpus: tuple[int, ...] | None = None  # of all its orders: libraries stay with those, or none, that they first found
    first: TaskOrder | None = None  # as large as all that it was given
    moved: float = 0.0  # when it was last given something, reported something, or was asked
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
        self._slots, self._batching, self._serials = NodeSlots(hello), Batching(), serials
        self._queue: deque[TaskOrder] = deque()
        self._moved = time.monotonic()  # when the queue last began to wait, or was last taken from
        self._workers: dict[str, _AssignedWorker] = {}
        self._at: dict[int, tuple[_AssignedWorker, int]] = {}  # worker and serial number by ticket
        self._gpus = list(range(hello.gpus))
        self._asked: list[RecallOrders | RetireWorker] = []

    def accept(self, orders: Iterable[TaskOrder], now: float) -> list[OrderOutcome]:
        """Run these after those that wait; outcomes of those that the node is too small for."""
        refused = []
        for order in orders:
            if why := self._slots.lacks(order):
                at = time.time()
                refused.append(OrderOutcome(order.ticket, at, at, None, f"the task can never run: {why}"))
                continue
            if not self._queue:
                self._moved = now
            self._queue.append(order)
        return refused

    def add_worker(self, name: str, address: str) -> None:
        self._workers[name] = _AssignedWorker(name, address)

    def remove_worker(self, name: str) -> list[int]:
        """A worker has ended: what it was given and has not ended waits again; its tickets."""
        worker = self._workers.pop(name, None)
        tickets = [order.ticket for order in worker.orders.values()] if worker else []
        self.back(tickets)
        return tickets

    def finish(self, outcome: OrderOutcome, now: float) -> None:
        if found := self._take(outcome.ticket):
            worker, order = found
            self._batching.learn(order.stage, outcome.ended - outcome.started)
            worker.moved, worker.slow = now, False

    def back(self, tickets: Iterable[int]) -> None:
        """These were returned, and wait again before all others."""
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
            worker = self._idle(order) or self._soon_idle(order)
            if worker is None:
                break
            self._moved = worker.moved = now
            for each in self._group(worker):
                serial = next(self._serials)
                worker.orders[serial] = each
                self._at[each.ticket] = worker, serial
                given.append(AssignedOrder(serial, each, worker.address, worker.gpus or ()))
        return given

    def review(self, now: float) -> tuple[list[RecallOrders | RetireWorker], list[int]]:
        """Messages for the worker pool, and orders that another node may have room for sooner."""
        for worker in self._workers.values():
            if len(worker.orders) > 1 and now - worker.moved > _OVERDUE_S:
                worker.moved = now
                self._asked.append(
                    RecallOrders(worker.name, {serial: order.ticket for serial, order in worker.orders.items()})
                )
        asked, self._asked = self._asked, []
        returned = []
        if self._queue and len(self._workers) >= self._slots.cores and now - self._moved > STUCK_S:
            returned = [order.ticket for order in self._queue]
            self._queue.clear()
        return asked, returned

    def due(self, now: float) -> float | None:
        """In how many seconds [s] to `review` again although nothing happens, or None."""
        due = [worker.moved + _OVERDUE_S for worker in self._workers.values() if len(worker.orders) > 1]
        if self._queue and len(self._workers) >= self._slots.cores:
            due.append(self._moved + STUCK_S)
        return max(0.0, min(due) - now) + 0.001 if due else None

    # -------------------------------------------------------------- choosing

    def _idle(self, order: TaskOrder) -> _AssignedWorker | None:
        """A worker without orders, if the node has room for this one; the room is taken."""
        if not self._slots.fits(order):
            return None
        workers = [worker for worker in self._workers.values() if not worker.orders and not worker.retired]
        worker = self._with_gpus(order.gpus, workers) if self._slots.gpus else next(iter(workers), None)
        if worker is not None:
            self._slots.take(order)
            worker.first, worker.slow = order, False
        return worker

    def _with_gpus(self, count: int, workers: list[_AssignedWorker]) -> _AssignedWorker | None:
        """A worker whose orders all had so many GPUs, which are free, or that has had no order yet."""
        for worker in workers:
            if worker.gpus is not None and len(worker.gpus) == count and set(worker.gpus) <= set(self._gpus):
                break
        else:
            fresh = [worker for worker in workers if worker.gpus is None]
            if not fresh:
                if workers and not any(worker.retired for worker in self._workers.values()):
                    workers[0].retired = True
                    self._asked.append(RetireWorker(workers[0].name))
                return None
            worker = fresh[0]
            worker.gpus = tuple(self._gpus[:count])
        self._gpus = [gpu for gpu in self._gpus if gpu not in (worker.gpus or ())]
        return worker

    def _soon_idle(self, order: TaskOrder) -> _AssignedWorker | None:
        """A worker that is about to run out of short orders like this one."""
        most = self._most(order) // 2
        workers = [
            worker
            for worker in self._workers.values()
            if 0 < len(worker.orders) <= most and not worker.slow and _shape(worker.first) == _shape(order)
        ]
        return min(workers, key=lambda worker: len(worker.orders), default=None)

    def _group(self, worker: _AssignedWorker) -> list[TaskOrder]:
        """The next order, and some more like it: a few milliseconds' work, and no more than is fair."""
        first = self._queue.popleft()
        count = self._most(first) - len(worker.orders) - 1
        count = min(count, len(self._queue) // (2 * self._slots.cores))
        group = [first]
        while len(group) <= count and _shape(self._queue[0]) == _shape(first):
            group.append(self._queue.popleft())
        return group

    def _most(self, order: TaskOrder) -> int:
        """How many like this one to have on their way to a worker: few milliseconds' work, and few bytes."""
        return min(self._batching.fit(order.stage, AHEAD_S), max(1, _AHEAD_MOST // (order.size + 1)))

    def _take(self, ticket: int) -> tuple[_AssignedWorker, TaskOrder] | None:
        """Take an order from its worker; with the last one, the worker's room is free."""
        worker, serial = self._at.pop(ticket, (None, 0))
        if worker is None:
            return None
        order = worker.orders.pop(serial)
        if not worker.orders and worker.first:
            self._slots.free(worker.first)
            if worker.first.gpus:
                self._gpus = sorted([*self._gpus, *(worker.gpus or ())])
        return worker, order


def _shape(order: TaskOrder | None) -> tuple[str, int, int, int] | None:
    return order and (order.stage, order.cores, order.memory, order.gpus)


class Scheduler(Protocol):
    """What proxies need of dask's scheduler."""

    def submit(self, given: Sequence[AssignedOrder]) -> None: ...
    def forget(self, tickets: Iterable[int]) -> None: ...


class ProxyListener:
    """The hub's listener, with a proxy in the middle of each connection.

    Parameters
    ----------
    listener
        Where supervisors connect; closed with this.
    adopt
        Takes both channels of a new proxy: to the node, and to the hub.
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
        Called when the connection has ended.
    """

    def __init__(
        self, node: Channel, hub: Channel, serials: itertools.count[int], left: Callable[[NodeProxy], None]
    ) -> None:
        self.node, self._hub, self._serials, self._left = node, hub, serials, left
        self._loop = asyncio.get_running_loop()
        self._assignment: WorkerAssignment | None = None
        self._scheduler: Scheduler | None = None
        self._announced: tuple[tuple[str, ...], int] | None = None
        self._welcomed = False
        self._given: set[int] = set()
        self.timer: asyncio.TimerHandle | None = None
        self._token = secrets.token_hex(4)
        self.prefix = ""
        """What the names of this node's workers begin with, once the node has introduced itself."""
        hub.largest = LARGEST
        for channel in (node, hub):
            self._loop.add_reader(channel.fileno(), self._serve, channel)

    def use(self, scheduler: Scheduler, hosts: tuple[str, ...], port: int) -> None:
        """Dask is there, and its scheduler listens here."""
        self._scheduler, self._announced = scheduler, (hosts, port)
        self._turn()

    def add_worker(self, worker: str, address: str) -> None:
        """One of the node's workers has joined the scheduler."""
        if self._assignment:
            self._assignment.add_worker(worker, address)
            self._turn()

    def close(self) -> None:
        """Hang up on both sides."""
        if self.timer:
            self.timer.cancel()
        for channel in (self.node, self._hub):
            if channel.fileno() >= 0:
                self._loop.remove_reader(channel.fileno())
                self._loop.remove_writer(channel.fileno())
                channel.close()
        if self._scheduler:
            self._scheduler.forget(self._given)
        self._left(self)

    def _serve(self, channel: Channel) -> None:
        """Something can be read, or written."""
        try:
            channel.flush()
            for message in channel.receive():
                (self._from_node if channel is self.node else self._from_hub)(message)
            self._turn()
        except Exception as error:  # only the peer that sent it loses its connection
            log.info("the connection of %s to %s ends: %r", self.prefix or "a node", channel.peer, error)
            self.close()

    def _from_node(self, message: Any) -> None:
        if isinstance(message, Hello) and self._assignment is None:
            self.node.largest = LARGEST
            log.info("proxy for node %s, process %d", message.node, message.pid)
            self._assignment, self.prefix = WorkerAssignment(message, self._serials), f"{message.node}-{self._token}"
        if isinstance(message, TaskReport) and self._assignment:
            self._assignment.back(message.returned)
            for outcome in message.outcomes:
                self._assignment.finish(outcome, self._loop.time())
            self._forget([*message.returned, *(outcome.ticket for outcome in message.outcomes)])
            self._report(message.outcomes)
        elif isinstance(message, WorkerGone) and self._assignment:
            self._forget(self._assignment.remove_worker(message.worker))
        else:
            self._hub.send(message)

    def _from_hub(self, message: Any) -> None:
        if isinstance(message, RunOrders) and self._assignment:
            self._report(self._assignment.accept(message.orders, self._loop.time()))
            return
        self.node.send(message)
        if isinstance(message, Welcome):
            self._welcomed = True

    def _invite(self) -> None:
        """Give the pool the scheduler's address once, as soon as both are there."""
        if self._welcomed and self._announced:
            hosts, port = self._announced
            self._announced = None
            self._tell([SchedulerAddress(hosts, port, self.prefix)])

    def _turn(self) -> None:
        """Do all that can be done now."""
        try:
            self._invite()
            if self._assignment and self._scheduler:
                self._manage(self._assignment, self._scheduler)
            self._watch()
        except OSError:
            self.close()

    def _manage(self, assignment: WorkerAssignment, scheduler: Scheduler) -> None:
        now = self._loop.time()
        if given := assignment.assign(now):
            self._given.update(each.order.ticket for each in given)
            scheduler.submit(given)
        asked, returned = assignment.review(now)
        if asked:
            self._tell(asked)
        if returned:
            self._hub.send(TaskReport([], returned))
        if self.timer:
            self.timer.cancel()
        due = assignment.due(now)
        self.timer = None if due is None else self._loop.call_later(due, self._turn)

    def _watch(self) -> None:
        """Wait until more can be written exactly while something is left to write."""
        for channel in (self.node, self._hub):
            if channel.unsent:
                self._loop.add_writer(channel.fileno(), self._serve, channel)
            else:
                self._loop.remove_writer(channel.fileno())

    def _tell(self, messages: list[Any]) -> None:
        """Send messages to the worker pool, in the place of orders."""
        self.node.send(RunOrders(messages))

    def _report(self, outcomes: list[OrderOutcome]) -> None:
        if outcomes:
            self._hub.send(TaskReport(outcomes, []))

    def _forget(self, tickets: Sequence[int]) -> None:
        self._given.difference_update(tickets)
        if self._scheduler:
            self._scheduler.forget(tickets)


_CLOSING_S = 5.0


class _Farm(Scheduler, Protocol):
    port: int


class DaskProxy:
    """One dask scheduler, and a proxy for each node. Proxies work while dask is still being imported.

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
        self._proxies: dict[NodeProxy, None] = {}
        self._scheduler: Scheduler | None = None
        self._port = 0
        self._serials = itertools.count(1)
        self._begun, self._ready = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="asa-dask", daemon=True)
        self._thread.start()
        self._begun.wait()

    def front(self, listener: ChannelListener) -> ProxyListener:
        """The hub's listener, with a proxy in the middle of each connection to `listener`."""
        return ProxyListener(listener, self.adopt)

    def adopt(self, node: Channel, hub: Channel) -> None:
        """Put a proxy between these two. May be called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._adopt, node, hub)
        except RuntimeError:  # the loop has ended
            node.close()
            hub.close()

    def wait(self) -> None:
        self._ready.wait()
        if self._error:
            raise self._error

    def close(self) -> None:
        """End proxies and scheduler; returns when they have ended, or after a few seconds."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_CLOSING_S)

    # -------------------------------------------------------- dask's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.is_set():
                raise  # nothing waits for it: the traceback is printed
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
                await self._use(module.dask_scheduler(self._certificates, self._host, self._dashboard, self._joined))
        finally:
            self._close_proxies()

    async def _use(self, farming: AbstractAsyncContextManager[_Farm]) -> None:
        async with farming as scheduler:
            self._scheduler, self._port = scheduler, scheduler.port
            for proxy in list(self._proxies):
                proxy.use(scheduler, self._hosts, self._port)
            self._ready.set()
            await self._over.wait()
            self._close_proxies()  # before dask ends its workers, which is for their supervisors to do

    def _adopt(self, node: Channel, hub: Channel) -> None:
        proxy = NodeProxy(node, hub, self._serials, self._left)
        self._proxies[proxy] = None
        if self._scheduler:
            proxy.use(self._scheduler, self._hosts, self._port)

    def _joined(self, worker: str, address: str) -> None:
        prefix = str(worker).rpartition(":")[0]
        for proxy in self._proxies:
            if proxy.prefix == prefix:
                proxy.add_worker(worker, address)
                return

    def _left(self, proxy: NodeProxy) -> None:
        self._proxies.pop(proxy, None)

    def _close_proxies(self) -> None:
        for proxy in list(self._proxies):
            proxy.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's own log to errors: workers that join, leave and die are among the run's events."""
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
