"""All that imports dask: the scheduler in the driver (`DaskScheduler`), and a dask worker on a node (`serve`).

The client is in the scheduler's own process and event loop: what passes between them is not even copied. A dask worker
is what the pool has a worker process of the `local` executor run, without end: so the process has its session, standard
error, working directory and import path as there. Tasks come from the scheduler; the worker reports to the pool, which
also notices when the process dies during a task.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import dask
from dask.base import annotate
from distributed import Client, Future, Scheduler, SchedulerPlugin, Worker, WorkerPlugin, get_worker

from asa.core.task import TAIL
from asa.log.gpus import visible
from asa.log.output import begun, ended
from asa.security.ca import dask_security
from executors.dask.messages import (
    SOCKET,
    AssignedOrder,
    OrdersReturned,
    RecallOrders,
    SchedulerAddress,
    TaskBegun,
    WorkerHello,
    WorkerPlace,
    WorkerReady,
)
from executors.output import OutputFile
from executors.wire import OrderOutcome, TaskOrder, frame, read
from executors.worker import Caller, Meter

PIECE = 8 << 20
_NEVER_S = 1e9
_RELEASE_S = 0.2


class DaskScheduler:
    """A scheduler that runs, and what it was given.

    Parameters
    ----------
    scheduler, client
        Both started, in the running event loop.
    """

    def __init__(self, scheduler: Scheduler, client: Client) -> None:
        self._scheduler, self._client = scheduler, client
        self._futures: dict[int, Future[Any]] = {}
        self._ended: list[Future[Any]] = []
        self._releasing = False

    @property
    def port(self) -> int:
        """Where it listens for workers."""
        port = urlsplit(str(self._scheduler.listeners[0].contact_address)).port
        assert port is not None, "it listens with TCP"
        return port

    def submit(self, given: Sequence[AssignedOrder]) -> None:
        """Have workers run orders, by one message for all workers; dask never runs one again."""
        for piece in pieces(given):
            keys = [f"{each.order.stage}-{each.order.number}-{each.serial}" for each in piece]
            workers = {key: [each.address] for key, each in zip(keys, piece, strict=True)}
            with annotate(workers=workers.__getitem__):
                futures = self._client.map(
                    run,
                    [each.serial for each in piece],
                    [each.order for each in piece],
                    [each.gpus for each in piece],
                    key=keys,
                    pure=False,
                    retries=0,
                    fifo_timeout="0s",
                )
            self._futures.update(zip((each.order.ticket for each in piece), futures, strict=True))

    def forget(self, tickets: Iterable[int]) -> None:
        """These have ended, or shall not run."""
        self._ended += [future for ticket in tickets if (future := self._futures.pop(ticket, None)) is not None]
        if self._ended and not self._releasing:
            # Later: the message that releases a task would delay the one that brings the next.
            self._releasing = True
            asyncio.get_running_loop().call_later(_RELEASE_S, self._release)

    def _release(self) -> None:
        self._releasing = False
        for future in self._ended:
            release: Callable[[], None] = future.release
            release()
        self._ended.clear()


@asynccontextmanager
async def dask_scheduler(
    certificates: str, host: str, dashboard: str | None, joined: Callable[[str, str], None]
) -> AsyncIterator[DaskScheduler]:
    """A scheduler and its client.

    Parameters
    ----------
    certificates
        Directory of the run's certificates.
    host
        Where to listen for workers; "" for all interfaces.
    dashboard
        Where to serve dask's dashboard (``host:port``), or None.
    joined
        Called with each worker's name and address.
    """

    class Watch(SchedulerPlugin):
        name = "asa"

        def add_worker(self, scheduler: Scheduler, worker: str) -> None:
            joined(str(scheduler.workers[worker].name), worker)

    both: dict[str, Any] = {"protocol": ["tls", "inproc"], "host": [host, ""], "port": [0, 0]}
    # Its HTTP server cannot be left out; without a dashboard it serves nothing, and to this machine only.
    routes: dict[str, Any] = {} if dashboard else {"distributed.scheduler.http.routes": []}
    with dask.config.set(routes):
        scheduler = Scheduler(
            **both,
            security=dask_security(Path(certificates)),
            dashboard=dashboard is not None,
            dashboard_address=dashboard or "127.0.0.1:0",
            allowed_failures=0,
            worker_ttl=_NEVER_S,  # a task may block a worker's event loop; the pool reports dead workers
            idle_timeout=None,
            plugins=[Watch()],
        )
    start_client: Callable[..., Client] = Client
    async with scheduler:
        inner = str(scheduler.listeners[1].contact_address)
        async with start_client(inner, asynchronous=True, set_as_default=False) as client:
            yield DaskScheduler(scheduler, client)


def pieces(given: Sequence[AssignedOrder]) -> Iterable[Sequence[AssignedOrder]]:
    """Parts, of at least one, of a size below which dask does not warn of large graphs."""
    size, start = 0, 0
    for position, each in enumerate(given):
        weight = each.order.size
        if size + weight > PIECE and position > start:
            yield given[start:position]
            size, start = 0, position
        size += weight
    yield given[start:]


_NAME = "asa"
_PATIENCE_S = 60.0
_CONNECT_S = 5.0
_AGAIN_S = 0.2
_LONG_S = 0.1


def serve(name: str, place: WorkerPlace) -> None:
    """Be a dask worker of this name until the scheduler is gone.

    Raises
    ------
    ConnectionError
        When the scheduler cannot be reached, or is gone.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    link = socket.socket(socket.AF_UNIX)
    directory = os.open(place.scratch, os.O_RDONLY | os.O_DIRECTORY)  # its path may be longer than an address holds
    link.connect(f"/proc/self/fd/{directory}/{SOCKET}")
    os.close(directory)
    plugin = _TaskPlugin(link, place)
    plugin.send(WorkerHello(name))
    asyncio.run(_work(name, place, plugin))


async def _work(name: str, place: WorkerPlace, plugin: _TaskPlugin) -> None:
    address = f"tls://{_reach(place.scheduler)}:{place.scheduler.port}"
    # Its HTTP server cannot be left out, but need not serve anything. Results never stay here: no memory to manage.
    dask.config.set({"distributed.worker.http.routes": []})
    worker = Worker(
        address,
        nthreads=1,
        name=name,
        security=dask_security(Path(place.certificates)),
        local_directory=place.scratch,
        memory_limit=0,
        death_timeout=_PATIENCE_S,
        dashboard_address="127.0.0.1:0",
        plugins=(plugin,),
    )
    async with worker:
        plugin.send(WorkerReady())
        finished: Callable[[], Awaitable[None]] = worker.finished  # it is not typed
        await finished()
    raise ConnectionError("the dask scheduler is gone")


def _reach(scheduler: SchedulerAddress) -> str:
    """The first of the scheduler's hosts that answers from here."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        failures = []
        for host in scheduler.hosts:
            try:
                socket.create_connection((host, scheduler.port), _CONNECT_S).close()
            except OSError as error:
                failures.append(f"{host}: {error}")
            else:
                return host
        if time.monotonic() >= deadline:
            raise ConnectionError(f"no dask scheduler at port {scheduler.port}: " + "; ".join(failures))
        time.sleep(_AGAIN_S)


def run(serial: int, order: TaskOrder, gpus: tuple[int, ...]) -> None:
    """The task, as dask knows it. Its outcome goes through the pool, so that nothing stays in dask's memory."""
    cast(_TaskPlugin, get_worker().plugins[_NAME]).run(serial, order, gpus)


class _TaskPlugin(WorkerPlugin):
    """Runs orders in a worker's only thread, and reports them to the pool."""

    name = _NAME

    def __init__(self, link: socket.socket, place: WorkerPlace) -> None:
        self._link, self._place, self._caller = link, place, Caller(place.values, meter=Meter())
        self._environ = dict(os.environ)  # the node's, before any task
        self._lock = threading.Lock()
        self._begun, self._barred = 0, set[int]()  # the last serial number that began, and those returned
        self._beginning, self._running, self._since = threading.Lock(), 0, 0.0
        self._output = OutputFile.own(place.output_limit)
        threading.Thread(target=self._listen, name="asa-plugin", daemon=True).start()

    def send(self, message: object) -> None:
        data = frame(message)
        with self._lock:
            self._link.sendall(data)

    def run(self, serial: int, order: TaskOrder, gpus: tuple[int, ...]) -> None:
        """Run an order, unless it was recalled. Others may be under way here, if they wait for tasks of their own."""
        with self._beginning:
            begin, size = time.time(), self._output.size
            if not self._begin(serial, TaskBegun(order.ticket, begin, size)):
                return
            self._running += 1
            self._output.note(begun(begin, size, order.number, 1, order.stage))
        self._prepare(order, gpus)
        outcome: OrderOutcome = self._caller.run(order)
        sys.stdout.flush()
        sys.stderr.flush()
        if outcome.value is None:
            outcome = outcome._replace(stderr=self._output.tail(size, TAIL))
        if (end := self._output.size) > size:
            length = self._output.bound(size, end, slack=False) - size
            how = "failed" if outcome.value is None else "returned"
            self._output.note(ended(outcome.started, size, length, order.number, how, order.stage))
        self.send(outcome)
        with self._beginning:
            self._running -= 1

    def _begin(self, serial: int, begun: TaskBegun) -> bool:
        """Report that an order begins; False when it must not, because it was returned."""
        data = frame(begun)
        with self._lock:
            if serial in self._barred:
                self._barred.remove(serial)
                return False
            self._begun, self._since = max(self._begun, serial), time.monotonic()
            self._link.sendall(data)
            return True

    def _prepare(self, order: TaskOrder, gpus: tuple[int, ...]) -> None:
        """The environment of a task: for the programs it starts, and libraries that it is the first to load."""
        os.environ.update(dict.fromkeys(self._place.threads, str(order.threads)))
        if self._place.gpus:
            os.environ.update(visible([self._place.gpus[gpu] for gpu in gpus], self._environ))

    def _listen(self) -> None:
        with self._link.makefile("rb") as stream:
            while (message := read(stream)) is not None:
                self._receive(message)
        os._exit(1)  # the pool is gone

    def _receive(self, message: Any) -> None:
        if isinstance(message, RecallOrders):
            with self._lock:
                if self._running and time.monotonic() - self._since > _LONG_S:  # else the orders are still on their way
                    left = {serial: ticket for serial, ticket in message.tickets.items() if serial > self._begun}
                    self._barred |= left.keys()
                    self._link.sendall(frame(OrdersReturned(list(left.values()))))
