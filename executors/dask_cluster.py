"""The thread in which dask and the relays live."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Protocol

from executors.dask_relay import Farm, Front, Relay
from executors.transport import Listener
from executors.wire import Channel

_CLOSING_S = 5.0


class _Farm(Farm, Protocol):
    port: int


class Cluster:
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
        self._relays: dict[Relay, None] = {}
        self._farm: Farm | None = None
        self._port = 0
        self._serials = itertools.count(1)
        self._begun, self._ready = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="asa-dask", daemon=True)
        self._thread.start()
        self._begun.wait()

    def front(self, listener: Listener) -> Front:
        """The hub's listener, with a relay in the middle of each connection that comes to `listener`."""
        return Front(listener, self.adopt)

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
            module = await asyncio.to_thread(importlib.import_module, "executors.dask_scheduler")
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
        relay = Relay(node, hub, self._serials, self._left)
        self._relays[relay] = None
        if self._farm:
            relay.use(self._farm, self._hosts, self._port)

    def _joined(self, worker: str, address: str) -> None:
        prefix = str(worker).rpartition(":")[0]
        for relay in self._relays:
            if relay.prefix == prefix:
                relay.sit(worker, address)
                return

    def _left(self, relay: Relay) -> None:
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
