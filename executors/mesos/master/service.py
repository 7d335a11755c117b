"""A master with all it needs: journal, sockets, and a thread of its own to run in."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import ssl
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Self

from asa.core.errors import StateError
from asa.log.rundir import DriverLock
from asa.web.hosts import is_loopback, listening_host, own_hosts
from asa.web.loop_thread import LoopThread
from asa.web.server import listening_socket, raise_file_limit
from executors.mesos.effects import Keep
from executors.mesos.http_api import TokenAccess, host_names
from executors.mesos.journal import Journal
from executors.mesos.master.idleness import until_idle
from executors.mesos.master.machine import Master
from executors.mesos.master.server import Server
from executors.mesos.master.state import Options
from executors.mesos.pool_directory import MASTER_NAME, Address, PoolDirectory

_DEFAULTS = Options()
_IDENTITY = "identity"
"""Table of the journal in which the master's own id is."""


class MasterService:
    """A pool's master, in this process; a context manager.

    Started again over the same directory, it is the same master: its id, frameworks, agents and tasks are as they were.

    Parameters
    ----------
    directory
        The pool's; one master at a time holds it.
    options
        Its ``hostname`` and ``port`` are filled in.
    tls
        False for plain HTTP, which is for this machine alone.
    authenticate
        False lets every process that can connect do everything, which is for this machine alone.
    host
        The address to listen on, ``""`` for all; by default all with TLS, and loopback without.
    port
        0 for any.
    idle_s
        After how long without a subscribed framework and a registered agent it ends by itself [s]; `wait` returns then.

    Raises
    ------
    InvalidInput
        When it should listen for other machines without TLS or without authentication.
    """

    def __init__(
        self,
        directory: PoolDirectory,
        options: Options = _DEFAULTS,
        *,
        tls: bool = True,
        authenticate: bool = True,
        host: str | None = None,
        port: int = 0,
        idle_s: float = math.inf,
    ) -> None:
        self._directory, self._options, self._tls, self._authenticate = directory, options, tls, authenticate
        self._host, self._port = listening_host(host, secured=tls and authenticate), port
        self._idle_s = idle_s
        self._lock = DriverLock(directory.path / "master.lock")
        self._thread = LoopThread[None]("asa-master")
        self._stopped: asyncio.Future[bool] | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens, or did last; raises `StateError` when it never was started."""
        if self._address is None:
            raise StateError("the master listens nowhere yet: start it first")
        return self._address

    def start(self) -> None:
        """Read the journal, listen, and say where in the pool's directory.

        Raises
        ------
        StateError
            When another master holds the directory, or the journal, the certificates or the port cannot be used.
        """
        self._hold()
        raise_file_limit()
        try:
            self._thread.start(self._serve)
        except BaseException:
            self._end(kill=True)
            raise

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; raises what it died of, if it did.

        Raises
        ------
        TimeoutError
            After `timeout` [s].
        """
        self._thread.wait(timeout)

    def close(self) -> None:
        """Finish what has been begun, end all streams, and let go of the directory.

        Raises
        ------
        StateError
            When the journal could not be written at the end.
        """
        if self._thread:
            self._end(kill=False)
            self._directory.withdraw(self.address)
            self._thread.wait()

    def kill(self) -> None:
        """End without a word to anybody, as if the process had died; for tests."""
        if self._thread:
            self._end(kill=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self) -> None:
        holder = self._lock.holder()
        if holder is not None:
            raise StateError(
                f"the pool in {self._directory.path} has a master already, process {holder.pid} on {holder.host}: use "
                "that one, or stop it first"
            )
        self._lock.__enter__()

    def _end(self, *, kill: bool) -> None:
        self._thread.tell(self._hear, kill)
        self._thread.join()
        self._stopped = None
        self._lock.__exit__(None, None, None)

    # ------------------------------------------------------- its own thread

    def _hear(self, kill: bool) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(kill)

    async def _serve(self, started: Future[None]) -> None:
        self._stopped = stopped = asyncio.get_running_loop().create_future()
        journal = Journal(self._directory.path / "master.db", "the frameworks, tasks and agents of before")
        try:
            with listening_socket(self._host, self._port) as sock:
                server, context, machine = self._made(journal, sock.getsockname()[1])
                await server.listen(sock, context)
                self._directory.publish(self.address)
                running = asyncio.create_task(server.run())
                if self._idle_s < math.inf:
                    idling = asyncio.create_task(self._end_when_idle(machine))
                    stopped.add_done_callback(lambda _: idling.cancel())
                started.set_result(None)
                await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
                if running.done() or stopped.result():
                    server.abort()
                running.cancel()
                await asyncio.wait([running])
                if not running.cancelled():
                    running.result()  # what it died of
                if not stopped.result():
                    await server.close()
        finally:
            journal.close()

    async def _end_when_idle(self, machine: Master) -> None:
        await until_idle(machine.state, self._idle_s)
        self._hear(kill=False)

    def _made(self, journal: Journal, port: int) -> tuple[Server, ssl.SSLContext | None, Master]:
        context = self._directory.server_context(MASTER_NAME) if self._tls else None
        alone = is_loopback(self._host)
        hosts = (self._host,) if self._host else own_hosts()
        options = replace(self._options, hostname=hosts[0], port=port)
        access = TokenAccess(self._directory, required=self._authenticate)
        names = host_names(hosts if alone else (*hosts, *own_hosts()))
        machine = _recovered(journal, options)
        server = Server(machine, journal, access, names, options.heartbeat_s)
        self._address = Address(hosts, port, self._tls, os.getpid(), secrets.token_hex(16))
        return server, context, machine


def _recovered(journal: Journal, options: Options) -> Master:
    """The machine as the journal knows it."""
    rows = journal.rows()
    identities = [keep.row["value"] for keep in rows if keep.table == _IDENTITY and keep.row]
    if not identities:
        identities = [str(uuid.uuid4())]
        journal.keep([Keep(_IDENTITY, "master", {"value": identities[0]})])
    with journal.reading():
        return Master(identities[0], options, time.time(), [keep for keep in rows if keep.table != _IDENTITY])
