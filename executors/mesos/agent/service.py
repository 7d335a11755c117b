"""An agent with all it needs: journal, sockets, containers, HTTP, and a thread of its own to run in.

::

    POST /api/v1/executor              executors, on loopback
    POST /api/v1   /api/v1/operator    operators

It listens twice. One socket is on loopback, for executors: it takes the connections of our own user's processes, none
of which sends a token, and so serves nothing that operators may do. The other is for operators: over TLS, with a token.
A call is answered once what it has changed is durable.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from asa.security.files import private_directory
from asa.web.errors import HTTPError
from asa.web.hosts import LOOPBACK, address_among, check_addressed, is_loopback, listening_host, own_hosts
from asa.web.loop_thread import LoopThread
from asa.web.server import (
    Admission,
    Answer,
    Connection,
    Deferred,
    Listener,
    Request,
    Response,
    ResponseStream,
    StreamResponse,
    check_method,
)
from executors.cgroup.group import Quotas
from executors.mesos.agent.api import needs_write
from executors.mesos.agent.containers import AGENT_HOST, AgentHost, OrphanPolicy
from executors.mesos.agent.engine import AgentEngine
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.shim import ForkedShim
from executors.mesos.agent.state import AgentOptions
from executors.mesos.agent.storage import WorkDirectory
from executors.mesos.codec import Message
from executors.mesos.http_api import (
    EXECUTOR,
    Principal,
    TokenAccess,
    accepts_json,
    body_limit,
    call_of,
    check_content,
    host_names,
    in_json,
)
from executors.mesos.journal import Journal
from executors.mesos.messages import EXECUTOR_PATH, OPERATOR_PATHS
from executors.mesos.pool_directory import AGENT_NAME, READER, WRITER, PoolDirectory

_CLOSING_S = 2.0
_WHO = "the agent"


class LoopbackListener(Listener):
    """Listens for our own user's processes on this machine; others find the connection broken."""

    def __init__(self, admit: Callable[[Request], Admission], who: str, node: AgentHost) -> None:
        super().__init__(admit, who)
        self._node = node

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        assert connection.transport
        try:
            if self._node.is_ours(connection.transport.get_extra_info("socket")):
                return self.authenticated(connection)
        except OSError:  # it has gone already
            pass
        return connection.abort()


class AgentServer:
    """Serves one agent.

    Parameters
    ----------
    access
        Whose calls are answered.
    names
        What a ``Host`` header may say: `http_api.host_names`.
    """

    def __init__(
        self,
        engine: AgentEngine,
        options: AgentOptions,
        access: TokenAccess,
        names: frozenset[str],
        node: AgentHost = AGENT_HOST,
    ) -> None:
        self._engine, self._options, self._node = engine, options, node
        self._access, self._names = access, names
        self._loopback = LoopbackListener(self._from_executor, _WHO, node)
        self._listener = Listener(self._from_operator, _WHO)

    async def listen(self, loopback: socket.socket, outside: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections: of executors on `loopback`, of operators on `outside`, over TLS if there is a context."""
        await self._loopback.listen(loopback, None)
        await self._listener.listen(outside, context)

    async def close(self) -> None:
        """Listen no more; requests that are being answered have a moment to end."""
        await asyncio.gather(self._loopback.close(_CLOSING_S), self._listener.close(_CLOSING_S))

    def abort(self) -> None:
        """Break all connections, as the death of the process would."""
        self._loopback.abort()
        self._listener.abort()

    # ------------------------------------------------------- requests

    def _from_executor(self, request: Request) -> Admission:
        if self._path(request) != EXECUTOR_PATH:
            raise HTTPError(403, f"only executors are served here: operators connect to port {self._options.port}")
        check_method(request, "POST")
        check_content(request)
        return Admission(body_limit(EXECUTOR), self._executor)

    def _from_operator(self, request: Request) -> Admission:
        path = self._path(request)
        principal = self._access.authenticate(request.headers, request.connection.peer)
        self._listener.authenticated(request.connection)
        principal.check(READER)
        if path not in OPERATOR_PATHS:
            raise HTTPError(404, f"there is nothing at {path[:100]}: calls of operators go to {OPERATOR_PATHS[0]}")
        check_method(request, "POST")
        check_content(request)
        return Admission(body_limit(principal.role), partial(self._operator, principal))

    def _path(self, request: Request) -> str:
        check_addressed(request.headers, self._names, request.connection.local)
        return request.path.rstrip("/") or "/"

    def _executor(self, request: Request) -> Answer:
        call, kind = call_of(request)
        if kind != "SUBSCRIBE":
            durable = self._engine.call(call)
            return Response(202) if durable is None else Deferred(durable, Response(202))
        accepts_json(request)
        if request.version != "1.1":
            raise HTTPError(505, "expected HTTP/1.1: a stream is sent in chunks")
        stream = ResponseStream(request.connection, self._engine.closed, beating=False, id=self._node.new_id())
        self._engine.subscribe(call, stream)
        return StreamResponse(stream)

    def _operator(self, principal: Principal, request: Request) -> Answer:
        call, _ = call_of(request)  # the body is there until this returns
        if needs_write(call):
            principal.check(WRITER)
        accepts_json(request)
        return self._operated(call)

    async def _operated(self, call: Message) -> Response:
        return in_json(await self._engine.operate(call))


NO_MASTER = 75
"""Exit code when no master, or no driver of its run, was there for too long (``EX_TEMPFAIL``)."""

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
    patience_s
        How long to look for a master in vain [s] before the agent ends by itself.
    orphan_grace_s
        How long containers go on when the agent has died, should it not be started again [s]; by default, for as long
        as executors may take to come back.
    space
        The name space that `quotas` was made for, to be tidied up then; "" when that is not needed.
    keep
        Whether the work directory stays when the agent is no more.
    released
        A file that says, when there is no master, that none is to be looked for.

    Raises
    ------
    InvalidInput
        When it should listen for other machines without TLS or without authentication.
    """

    def __init__(
        self,
        directory: PoolDirectory,
        options: AgentOptions,
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
        released: Path | None = None,
        shim: ForkedShim | None = None,
        node: AgentHost = AGENT_HOST,
    ) -> None:
        self._node = node
        self._directory, self._options, self._quotas = directory, options, quotas
        self._work = work if isinstance(work, WorkDirectory) else WorkDirectory(work)
        self._tls, self._authenticate, self._patience_s = tls, authenticate, patience_s
        self._released = released
        self._host, self._port = listening_host(host, secured=tls and authenticate), port
        grace_s = options.recovery_s if orphan_grace_s is None else orphan_grace_s
        self._orphans = OrphanPolicy(grace_s, quotas.name, space, "" if keep else str(self._work.path), shim)
        self._thread = LoopThread[int]("asa-agent")
        self._engine: AgentEngine | None = None
        self._killed: asyncio.Event | None = None

    @property
    def options(self) -> AgentOptions:
        """As they are in use, once it has been started."""
        return self._options

    def start(self) -> None:
        """Take over what an earlier agent has left, listen, and look for the master.

        Raises `StateError` when another agent holds the work directory, or it, the certificates or the port cannot be
        used.
        """
        self._work.hold()
        try:
            self._thread.start(self.serve)
        except BaseException:
            self._let_go()
            raise

    def wait(self, timeout: float | None = None) -> int:
        """Until the agent's work is over: the exit code, 0 or `NO_MASTER`; raises what it died of, and `TimeoutError`
        after `timeout` [s].
        """
        return self._thread.wait(timeout)

    def leave(self, reason: str) -> None:
        """Begin to end: what runs is stopped, and the master is informed; `wait` waits for the end of that."""
        self._thread.tell(self.end, reason)

    def end(self, reason: str) -> None:
        """As `leave`; to be called in the loop of `serve`."""
        if self._engine is not None:
            self._engine.leave(reason, self._options.grace_s + _SPARE_S)

    def close(self) -> None:
        """End everything that runs here, unregister, and unlock the directory."""
        if self._thread:
            self.leave("the agent was stopped")
            self._thread.join()
            if self._orphans.scratch:
                self._work.remove()
            self._let_go()
            self._thread.wait()

    def kill(self) -> None:
        """End at once, as if the process had died; containers go on. For tests."""
        if self._thread:
            if self._killed is not None:
                self._thread.tell(self._killed.set)
            self._let_go()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _let_go(self) -> None:
        self._thread.join()
        self._engine = self._killed = None
        self._work.release()

    # ------------------------------------------------------- its own thread

    async def serve(self, started: Future[None]) -> int:
        """What `start` runs in a thread, for who has a loop and holds the work directory; `started` once it listens."""
        self._killed = asyncio.Event()
        journal = self._node.journal(self._work.path / "agent.db", "what runs here", outlasts=not self._orphans.scratch)
        try:
            here = self._node
            with self._work.loopback(here) as loopback, here.listening_socket(self._host, self._port) as outside:
                self._options = self._completed(loopback, outside)
                engine = self._made(journal)
                context = self._directory.server_context(AGENT_NAME) if self._tls else None
                access = TokenAccess(self._directory, required=self._authenticate, clock=here.monotonic)
                server = AgentServer(engine, self._options, access, self._names(), here)
                await engine.open()
                await server.listen(loopback, outside, context)
                self._engine = engine
                started.set_result(None)
                return await self._work_until_ended(engine, server)
        finally:
            journal.close()

    async def _work_until_ended(self, engine: AgentEngine, server: AgentServer) -> int:
        assert self._killed
        linking: asyncio.Future[Any] = asyncio.ensure_future(engine.link.run())
        killed: asyncio.Future[Any] = asyncio.ensure_future(self._killed.wait())
        ends: list[asyncio.Future[Any]] = [killed, engine.ended]
        code = 0
        try:
            await asyncio.wait([linking, *ends], return_when=asyncio.FIRST_COMPLETED)
            if linking.done():
                linking.result()  # what it died of
                code = 0 if engine.link.released else NO_MASTER
                reason = f"no master for {self._patience_s:g} s: {engine.link.problem}"
                reason = "its allocation was released" if engine.link.released else reason
                engine.leave(reason, self._options.grace_s + _SPARE_S, notified=True)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not killed.done():
                await engine.close()
                await server.close()
                return NO_MASTER if engine.link.orphaned else code
        finally:
            server.abort()
            engine.abandon()
            for task in (linking, killed):
                task.cancel()
            await asyncio.gather(linking, killed, return_exceptions=True)
        return code

    def _completed(self, loopback: socket.socket, outside: socket.socket) -> AgentOptions:
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

    def _made(self, journal: Journal) -> AgentEngine:
        rows = journal.rows()
        with journal.reading():
            agent = NodeAgent(self._options, self._node.time(), rows, fresh=partial(self._node.random_bytes, 16))
        run = private_directory(self._work.path / "run")
        return AgentEngine(
            agent, journal, self._directory, self._quotas,
            run=run, lock=self._work.lock, orphans=self._orphans, patience_s=self._patience_s, over=self._released,
            node=self._node,
        )  # fmt: skip

    def _names(self) -> frozenset[str]:
        return host_names((self._options.hostname, *((self._host,) if self._host else ()), *own_hosts()))
