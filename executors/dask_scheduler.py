"""Dask's side of the driver: a scheduler for the run's workers, and a client that gives it tasks.

The client is in the scheduler's own process and event loop: what passes between them is not even copied. Importing
this module imports dask.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from dask.base import annotate
from distributed import Client, Future, Scheduler, SchedulerPlugin

from asa.security.ca import dask_security
from executors.dask_bench import Given, order_size

_PIECE = 8 << 20
_NEVER_S = 1e9
_RELEASE_S = 0.2


class Farm:
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

    def submit(self, given: Sequence[Given]) -> None:
        """Have workers run orders, with one message however many workers there are; dask never runs one again."""
        for piece in _pieces(given):
            keys = [f"{each.order.stage}-{each.order.number}-{each.serial}" for each in piece]
            workers = {key: [each.address] for key, each in zip(keys, piece, strict=True)}
            with annotate(workers=workers.__getitem__):
                futures = self._client.map(
                    _run(),
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
        """These have ended, or are not to run any more."""
        self._ended += [future for ticket in tickets if (future := self._futures.pop(ticket, None)) is not None]
        if self._ended and not self._releasing:
            # Not at once: the message that clears up behind a task would hold up the one that brings the next.
            self._releasing = True
            asyncio.get_running_loop().call_later(_RELEASE_S, self._release)

    def _release(self) -> None:
        self._releasing = False
        for future in self._ended:
            release: Callable[[], None] = future.release
            release()
        self._ended.clear()


@asynccontextmanager
async def farm(
    certificates: str, host: str, dashboard: str | None, joined: Callable[[str, str], None]
) -> AsyncIterator[Farm]:
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
        Told each worker's name and address.
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
            worker_ttl=_NEVER_S,  # a task may keep a worker's event loop waiting; who is dead is told by its crew
            idle_timeout=None,
            plugins=[Watch()],
        )
    start_client: Callable[..., Client] = Client
    async with scheduler:
        inner = str(scheduler.listeners[1].contact_address)
        async with start_client(inner, asynchronous=True, set_as_default=False) as client:
            yield Farm(scheduler, client)


def _run() -> Callable[..., None]:
    """What workers run; imported late, because it is a worker's matter."""
    from executors.dask_worker import run

    return run


def _pieces(given: Sequence[Given]) -> Iterable[Sequence[Given]]:
    """Parts, of at least one, of a size below which dask does not warn of large graphs."""
    size, start = 0, 0
    for position, each in enumerate(given):
        weight = order_size(each.order)
        if size + weight > _PIECE and position > start:
            yield given[start:position]
            size, start = 0, position
        size += weight
    yield given[start:]
