"""A dask worker: what the crew has a worker process of the `local` executor run, for ever.

So the process has its session, standard error, working directory and import path as there. Tasks come from the
scheduler; what becomes of them is told to the crew, which hears of it also when the process dies in the middle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import dask
from distributed import Worker, WorkerPlugin, get_worker

from asa.security.ca import dask_security
from executors.call import Caller
from executors.dask_wire import SOCKET, Begun, Emptied, Full, Here, Place, Ready, Recall, Returned, Scheduler
from executors.wire import Order, Outcome, frame, read
from executors.worker import tail

_NAME = "asa"
_KEPT_MOST = 1 << 20
_PATIENCE_S = 60.0
_CONNECT_S = 5.0
_AGAIN_S = 0.2
_LONG_S = 0.1


def serve(name: str, place: Place) -> None:
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
    hand = _Hand(link, place)
    hand.send(Here(name))
    asyncio.run(_work(name, place, hand))


async def _work(name: str, place: Place, hand: _Hand) -> None:
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
        plugins=(hand,),
    )
    async with worker:
        hand.send(Ready())
        finished: Callable[[], Awaitable[None]] = worker.finished  # it is not typed
        await finished()
    raise ConnectionError("the dask scheduler is gone")


def _reach(scheduler: Scheduler) -> str:
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


def run(serial: int, order: Order, gpus: tuple[int, ...]) -> None:
    """The task, as dask knows it. What comes of it goes another way, so that nothing stays in dask's memory."""
    cast(_Hand, get_worker().plugins[_NAME]).run(serial, order, gpus)


class _Hand(WorkerPlugin):
    """Runs orders in a worker's only thread, and says so to the crew."""

    name = _NAME

    def __init__(self, link: socket.socket, place: Place) -> None:
        self._link, self._place, self._caller = link, place, Caller(place.values)
        self._lock = threading.Lock()
        self._begun, self._barred = 0, set[int]()  # the last serial number that began, and those handed back
        self._beginning, self._running, self._since = threading.Lock(), 0, 0.0
        self._emptied = threading.Event()
        threading.Thread(target=self._listen, name="asa-hand", daemon=True).start()

    def send(self, message: object) -> None:
        data = frame(message)
        with self._lock:
            self._link.sendall(data)

    def run(self, serial: int, order: Order, gpus: tuple[int, ...]) -> None:
        """Run an order, unless it was recalled. Others may be under way here, if they wait for tasks of their own."""
        with self._beginning:
            if not self._running:
                self._shorten()
            size = os.fstat(2).st_size
            if not self._begin(serial, Begun(order.ticket, time.time(), size)):
                return
            self._running += 1
        self._prepare(order, gpus)
        outcome: Outcome = self._caller.run(order)
        sys.stdout.flush()
        sys.stderr.flush()
        if outcome.value is None:
            outcome = outcome._replace(stderr=tail(2, size))
        self.send(outcome)
        with self._beginning:
            self._running -= 1

    def _shorten(self) -> None:
        if os.fstat(2).st_size > _KEPT_MOST:
            self._emptied.clear()
            self.send(Full())
            self._emptied.wait()

    def _begin(self, serial: int, begun: Begun) -> bool:
        """Say that an order begins; False when it must not, because it was handed back."""
        data = frame(begun)
        with self._lock:
            if serial in self._barred:
                self._barred.remove(serial)
                return False
            self._begun, self._since = max(self._begun, serial), time.monotonic()
            self._link.sendall(data)
            return True

    def _prepare(self, order: Order, gpus: tuple[int, ...]) -> None:
        """The environment of a task: for the programs it starts, and libraries that it is the first to load."""
        os.environ.update(dict.fromkeys(self._place.threads, str(order.threads)))
        if self._place.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self._place.gpus[gpu] for gpu in gpus)

    def _listen(self) -> None:
        with self._link.makefile("rb") as stream:
            while (message := read(stream)) is not None:
                self._hear(message)
        os._exit(1)  # the crew is gone

    def _hear(self, message: Any) -> None:
        if isinstance(message, Emptied):
            self._emptied.set()
        elif isinstance(message, Recall):
            with self._lock:
                if self._running and time.monotonic() - self._since > _LONG_S:  # else the orders are still on their way
                    left = {serial: ticket for serial, ticket in message.tickets.items() if serial > self._begun}
                    self._barred |= left.keys()
                    self._link.sendall(frame(Returned(list(left.values()))))
