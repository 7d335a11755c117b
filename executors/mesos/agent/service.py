"""An agent with all it needs: journal, sockets, containers, and a thread of its own to run in."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from asa.security.files import private_directory
from asa.web.hosts import LOOPBACK, address_among, is_loopback, listening_host, own_hosts
from asa.web.loop_thread import LoopThread
from asa.web.server import listening_socket
from executors.cgroup.group import Quotas
from executors.mesos.agent.engine import Engine
from executors.mesos.agent.launcher import Orphans
from executors.mesos.agent.machine import Agent
from executors.mesos.agent.options import Options
from executors.mesos.agent.server import Server
from executors.mesos.agent.workdir import WorkDirectory
from executors.mesos.http_api import TokenAccess, host_names
from executors.mesos.journal import Journal
from executors.mesos.pool_directory import AGENT_NAME, PoolDirectory

NO_MASTER = 75
"""Exit code when no master was there for too long (``EX_TEMPFAIL``)."""

_SPARE_S = 15.0


class AgentService:
    """A node's agent, in this process; a context manager.

    Started again over the same `work` directory it is the same agent: containers that still run go on.

    Parameters
    ----------
    directory
        The pool's.
    options
        Its ``port``, ``tls``, ``endpoint`` and ``directory`` are filled in, ``hostname`` and ``ip`` where missing.
    quotas
        Keeps containers to their share of the node.
    work
        Where journal and sandboxes are, on a disk of this machine; one agent at a time holds it. May be held already.
    tls
        False for plain HTTP, which is for this machine alone.
    authenticate
        False lets every process that can connect do everything, which is for this machine alone.
    host
        The address on which operators are listened to, ``""`` for all; by default all with TLS, and loopback without.
    port
        0 for any.
    patience_s
        How long to look for a master in vain [s] before the agent ends by itself.
    orphan_grace_s
        How long containers go on when the agent has died, should it not be started again [s]; by default, for as long
        as executors may take to come back.
    space
        The name space that `quotas` was made for, to be tidied up then; "" when that is not needed.
    keep
        Whether the work directory stays when the agent is no more.

    Raises
    ------
    InvalidInput
        When it should listen for other machines without TLS or without authentication.
    """

    def __init__(
        self,
        directory: PoolDirectory,
        options: Options,
        quotas: Quotas,
        *,
        work: Path | WorkDirectory,
        tls: bool = True,
        authenticate: bool = True,
        host: str | None = None,
        port: int = 0,
        patience_s: float = math.inf,
        orphan_grace_s: float | None = None,
        space: str = "",
        keep: bool = True,
    ) -> None:
        self._directory, self._options, self._quotas = directory, options, quotas
        self._work = work if isinstance(work, WorkDirectory) else WorkDirectory(work)
        self._tls, self._authenticate, self._patience_s = tls, authenticate, patience_s
        self._host, self._port = listening_host(host, secured=tls and authenticate), port
        grace_s = options.recovery_s if orphan_grace_s is None else orphan_grace_s
        self._orphans = Orphans(grace_s, quotas.name, space, "" if keep else str(self._work.path))
        self._thread = LoopThread[int]("asa-agent")
        self._engine: Engine | None = None
        self._killed: asyncio.Event | None = None

    @property
    def options(self) -> Options:
        """As they are in use, once it has been started."""
        return self._options

    def start(self) -> None:
        """Take over what an earlier agent has left, listen, and look for the master.

        Raises
        ------
        StateError
            When another agent holds the work directory, or it, the certificates or the port cannot be used.
        """
        self._work.hold()
        try:
            self._thread.start(self._serve)
        except BaseException:
            self._let_go()
            raise

    def wait(self, timeout: float | None = None) -> int:
        """Until the agent's work is over: the exit code, 0 or `NO_MASTER`; raises what it died of, if it did.

        Raises
        ------
        TimeoutError
            After `timeout` [s].
        """
        return self._thread.wait(timeout)

    def leave(self, reason: str) -> None:
        """Begin to end: what runs is stopped, the master hears of it; `wait` waits for the end of that."""
        if self._engine is not None:
            self._thread.tell(self._engine.leave, reason, self._options.grace_s + _SPARE_S)

    def close(self) -> None:
        """End everything that runs here, tell the master, and let go of the directory."""
        if self._thread:
            self.leave("the agent was stopped")
            self._thread.join()
            if self._orphans.scratch:
                self._work.remove()
            self._let_go()
            self._thread.wait()

    def kill(self) -> None:
        """End without a word to anybody, as if the process had died; containers go on. For tests."""
        if self._thread:
            if self._killed is not None:
                self._thread.tell(self._killed.set)
            self._let_go()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _let_go(self) -> None:
        self._thread.join()
        self._engine = self._killed = None
        self._work.release()

    # ------------------------------------------------------- its own thread

    async def _serve(self, started: Future[None]) -> int:
        self._killed = asyncio.Event()
        journal = Journal(self._work.path / "agent.db", "what runs here")
        try:
            with self._work.loopback() as loopback, listening_socket(self._host, self._port) as outside:
                self._options = self._completed(loopback, outside)
                agent, engine = self._made(journal)
                context = self._directory.server_context(AGENT_NAME) if self._tls else None
                access = TokenAccess(self._directory, required=self._authenticate)
                server = Server(engine, agent, self._options, access, self._names())
                await engine.open()
                await server.listen(loopback, outside, context)
                self._engine = engine
                started.set_result(None)
                return await self._work_until_ended(engine, server)
        finally:
            journal.close()

    async def _work_until_ended(self, engine: Engine, server: Server) -> int:
        assert self._killed
        linking: asyncio.Future[Any] = asyncio.ensure_future(engine.link.run())
        killed: asyncio.Future[Any] = asyncio.ensure_future(self._killed.wait())
        ends: list[asyncio.Future[Any]] = [killed, engine.ended]
        code = 0
        try:
            await asyncio.wait([linking, *ends], return_when=asyncio.FIRST_COMPLETED)
            if linking.done():
                linking.result()  # what it died of
                code = NO_MASTER
                reason = f"no master for {self._patience_s:g} s: {engine.link.problem}"
                engine.leave(reason, self._options.grace_s + _SPARE_S, told=True)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not killed.done():
                await engine.close()
                await server.close()
                return code
        finally:
            server.abort()
            engine.abandon()
            for task in (linking, killed):
                task.cancel()
            await asyncio.gather(linking, killed, return_exceptions=True)
        return code

    def _completed(self, loopback: socket.socket, outside: socket.socket) -> Options:
        return replace(
            self._options,
            hostname=self._options.hostname or (self._host or own_hosts()[0]),
            port=outside.getsockname()[1],
            ip=self._options.ip or self._address(),
            tls=self._tls,
            endpoint=f"{LOOPBACK}:{loopback.getsockname()[1]}",
            directory=str(private_directory(self._work.path / "sandboxes")),
        )

    def _address(self) -> str | None:
        """Where operators reach it; `hostname` may be an address too."""
        if is_loopback(self._host):
            return LOOPBACK if self._host == "localhost" else self._host
        return address_among((self._host, self._options.hostname, *own_hosts()))

    def _made(self, journal: Journal) -> tuple[Agent, Engine]:
        rows = journal.rows()
        with journal.reading():
            agent = Agent(self._options, time.time(), rows)
        run = private_directory(self._work.path / "run")
        engine = Engine(
            agent, journal, self._directory, self._quotas,
            run=run, lock=self._work.lock, orphans=self._orphans, patience_s=self._patience_s,
        )  # fmt: skip
        return agent, engine

    def _names(self) -> frozenset[str]:
        return host_names((self._options.hostname, *((self._host,) if self._host else ()), *own_hosts()))
