"""The master on the network: HTTP requests in, its machine's effects out.

::

    POST /api/v1/scheduler                 framework         schedulers
    POST /api/v1   /api/v1/operator        operator-read     operators who look
                                           operator-write    operators who change
    POST /asa/v1/agent                     agent             our agents
    GET  /version, /health                 without a token

All paths may also begin with ``/master`` and end with ``/``. A call is answered once what it has changed is durable;
acknowledgements, and what agents keep and would say again, are answered at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Never, Self

from asa.core.errors import StateError
from asa.log.rundir import DriverLock
from asa.web.errors import HTTPError
from asa.web.hosts import check_addressed, is_loopback, listening_host, own_hosts
from asa.web.loop_thread import LoopThread
from asa.web.server import (
    Admission,
    Answer,
    Deferred,
    Heartbeats,
    Listener,
    Request,
    Response,
    ResponseStream,
    StreamResponse,
    check_method,
    error_response,
    raise_file_limit,
)
from executors.mesos.agent_protocol import PATH as AGENT_PATH
from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.clockwork import Clockwork
from executors.mesos.codec import frame, kind_of
from executors.mesos.commit import GroupCommit, StreamRecord
from executors.mesos.effects import Effect, KeepRow, Send
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.http_api import (
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
from executors.mesos.master import operator
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions, MasterState
from executors.mesos.messages import OPERATOR_PATHS, SCHEDULER_PATH, VERSION, field, message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, MASTER_NAME, READER, WRITER, MasterAddress, PoolDirectory

_HEARTBEAT = message("HEARTBEAT")
CLOSING_S, _AGAIN_S = 2.0, 1.0
_log = logging.getLogger(__name__)
_WHO = "the master"


class MasterServer:
    """Serves one machine, which nothing else may call. A ``Host`` header may have one of `names`."""

    def __init__(
        self,
        machine: Master,
        journal: Journal,
        access: TokenAccess,
        names: frozenset[str],
        heartbeat_s: float,
        node: PoolHost = POOL_HOST,
    ) -> None:
        self._machine, self._access, self._names, self._node = machine, access, names, node
        self.streams: dict[str, ResponseStream] = {}
        self._heartbeats = Heartbeats(heartbeat_s, frame(_HEARTBEAT))
        self.commit: GroupCommit[Never] = GroupCommit(journal, self.deliver)
        self.clock = Clockwork(self._due, self._wake, node.time)
        self.listener = Listener(self._admit, _WHO)
        self._closing = False

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        self.clock.arm()
        await self.listener.listen(sock, context)

    async def run(self) -> None:
        """Serve, until cancelled; an exception means that nothing is served any more."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.commit.run())
            group.create_task(self._heartbeats.run())

    async def close(self) -> None:
        """Carry out what has been begun, end all streams, and listen no more; to be called when `run` has ended.

        Raises `StateError` when the journal cannot be written.
        """
        self._closing = True
        self.clock.stop()
        try:
            self.commit.flush()
        finally:
            for stream in list(self.streams.values()):
                stream.end()
            await self.listener.close(CLOSING_S)

    def abort(self) -> None:
        """Break all connections, as the death of the process would."""
        self._closing = True
        self.clock.stop()
        self.listener.abort()

    # ------------------------------------------------------- requests

    def _admit(self, request: Request) -> Admission:
        check_addressed(request.headers, self._names, request.connection.local)
        path = request.path.removeprefix("/master").rstrip("/") or "/"
        if path in ("/version", "/health"):
            check_method(request, "GET")
            return Admission(0, _version if path == "/version" else _health)
        principal = self._access.authenticate(request.headers, request.connection.peer)
        self.listener.authenticated(request.connection)
        if path == SCHEDULER_PATH:
            return self._admitted(request, principal, FRAMEWORK, partial(self._scheduler, principal))
        if path == AGENT_PATH:
            return self._admitted(request, principal, AGENT, self._agent)
        if path in OPERATOR_PATHS:
            return self._admitted(request, principal, READER, partial(self._operator, principal))
        raise HTTPError(404, f"there is nothing at {path[:100]}")

    def _admitted(
        self, request: Request, principal: Principal, role: str, answer: Callable[[Request], Answer]
    ) -> Admission:
        """That a call may come in."""
        principal.check(role)
        check_method(request, "POST")
        check_content(request)
        return Admission(body_limit(principal.role), answer)

    def _scheduler(self, principal: Principal, request: Request) -> Answer:
        self._check_changeable()
        call, kind = call_of(request)
        if kind == "SUBSCRIBE":
            stream = self._open(request, heartbeats=True)
            return self._opened(stream, self._machine.subscribe(call, principal.name, stream.id, self.clock.now()))
        stream_id = request.headers.get(STREAM_HEADER)
        effects = self._machine.call(call, principal.name, stream_id, self.clock.now())
        response = Response(200 if kind == "UPDATE_FRAMEWORK" else 202)
        # An acknowledgement that is lost is as one that never came: the agent sends the update again.
        return self._carry_out(effects, response, wait=kind != "ACKNOWLEDGE")

    def _agent(self, request: Request) -> Answer:
        self._check_changeable()
        call, kind = call_of(request)
        if kind == "REGISTER":
            stream = self._open(request, heartbeats=False)
            return self._opened(stream, self._machine.register(call, stream.id, self.clock.now()))
        stream_id = request.headers.get(STREAM_HEADER, "")
        if kind != "BATCH" or stream_id not in self.streams:
            raise HTTPError(400, f"expected REGISTER, or BATCH on an open stream, found {kind[:50]}")
        effects, problem = self._machine.from_agent(stream_id, field(call, "batch.items", list), self.clock.now())
        response = Response(202) if problem is None else error_response(problem, request.target, _WHO)
        return self._carry_out(effects, response, wait=any(type(effect) is KeepRow for effect in effects))

    def _operator(self, principal: Principal, request: Request) -> Answer:
        call, kind = call_of(request)
        accepts_json(request)
        if kind == "SUBSCRIBE":
            stream = self._open(request, heartbeats=True)
            return self._opened(stream, self._machine.watch(stream.id, self.clock.now()))
        if operator.needs_write(call):
            principal.check(WRITER)
            self._check_changeable()
        answer, effects = self._machine.operate(call, self.clock.now())
        return self._carry_out(effects, Response(200) if answer is None else in_json(answer))

    def _check_changeable(self) -> None:
        if self._closing:
            raise HTTPError(503, "the master is about to end")
        if self.commit.trouble is not None:
            raise HTTPError(503, "the master cannot write its journal now: try again later")

    # ------------------------------------------------------- effects

    def _carry_out(self, effects: Sequence[Effect], response: Response, *, wait: bool = True) -> Response | Deferred:
        self.clock.arm()
        durable = self.commit.carry_out(effects, lazily=not wait)
        return response if durable is None or not wait else Deferred(durable, response)

    def deliver(self, parcels: Sequence[StreamRecord]) -> None:
        chatty = _log.isEnabledFor(logging.DEBUG)
        for stream_id, record in parcels:
            if chatty:
                _log.debug("stream %s is sent %s", stream_id, "its end" if record is None else kind_of(record))
            stream = self.streams.get(stream_id)
            if stream is None:
                continue  # it has ended meanwhile
            if record is None:
                stream.end()
            else:
                stream.put(record)

    # ------------------------------------------------------- time

    def _due(self) -> float:
        """While the journal cannot be written, the machine sleeps."""
        return self._machine.due() if self.commit.trouble is None else self.clock.now() + _AGAIN_S

    def _wake(self) -> None:
        self.commit.carry_out(self._machine.wake(self.clock.now()))

    # ------------------------------------------------------- streams

    def _open(self, request: Request, *, heartbeats: bool) -> ResponseStream:
        accepts_json(request)
        if STREAM_HEADER in request.headers:
            raise HTTPError(400, f"expected no {STREAM_HEADER} header when a stream is opened")
        if request.version != "1.1":
            raise HTTPError(505, "expected HTTP/1.1: a stream is sent in chunks")
        return ResponseStream(request.connection, self._ended, beating=heartbeats, id=self._node.new_id())

    def _opened(self, stream: ResponseStream, effects: Sequence[Effect]) -> StreamResponse:
        """The machine has taken it: from here on, it is notified of the stream's end."""
        self.clock.arm()
        # The first heartbeat comes at once: some clients take in a record only when the next one has begun.
        first = [Send(stream.id, _HEARTBEAT)] if stream.beating else []
        self.streams[stream.id] = stream
        try:
            self.commit.carry_out([*effects, *first])
        except BaseException:
            self._ended(stream)
            raise
        if stream.beating:
            self._heartbeats.add(stream)
        return StreamResponse(stream, {STREAM_HEADER: stream.id})

    def _ended(self, stream: ResponseStream) -> None:
        self._heartbeats.discard(stream)
        del self.streams[stream.id]
        if not stream.ended and not self._closing:
            self.clock.arm()
            self.commit.carry_out(self._machine.closed(stream.id, self.clock.now()))


def _version(request: Request) -> Response:
    return in_json({"version": VERSION})


def _health(request: Request) -> Response:
    return Response(200)


# ---------------------------------------------------------------------- the service: journal, socket, thread


_DEFAULTS = MasterOptions()
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
        options: MasterOptions = _DEFAULTS,
        *,
        tls: bool = True,
        authenticate: bool = True,
        host: str | None = None,
        port: int = 0,
        idle_s: float = math.inf,
        node: PoolHost = POOL_HOST,
    ) -> None:
        self._node = node
        self._directory, self._options, self._tls, self._authenticate = directory, options, tls, authenticate
        self._host, self._port = listening_host(host, secured=tls and authenticate), port
        self._idle_s = idle_s
        self._lock = DriverLock(directory.path / "master.lock")
        self._thread = LoopThread[None]("asa-master")
        self._stopped: asyncio.Future[bool] | None = None
        self._address: MasterAddress | None = None
        self.state: MasterState | None = None
        """What it knows, once it was started; to be read only, and in its loop."""

    @property
    def address(self) -> MasterAddress:
        """Where it listens, or did last; raises `StateError` when it never was started."""
        if self._address is None:
            raise StateError("the master listens nowhere yet: start it first")
        return self._address

    def start(self) -> None:
        """Read the journal, listen, and say where in the pool's directory.

        Raises `StateError` when another master holds the directory, or the journal, the certificates or the port cannot
        be used.
        """
        self._hold()
        raise_file_limit()
        try:
            self._thread.start(self.serve)
        except BaseException:
            self._end(kill=True)
            raise

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; raises what it died of, if it did, and `TimeoutError` after `timeout` [s]."""
        self._thread.wait(timeout)

    def close(self) -> None:
        """Finish what has been begun, end all streams, and let go of the directory.

        Raises `StateError` when the journal could not be written at the end.
        """
        if self._thread:
            self._end(kill=False)
            self._directory.withdraw(self.address)
            self._thread.wait()

    def kill(self) -> None:
        """Break all connections, as if the process had died; for tests."""
        if self._thread:
            self._end(kill=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
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
        self._thread.tell(self.stop, kill)
        self._thread.join()
        self._stopped = None
        self._lock.__exit__(None, None, None)

    # ------------------------------------------------------- its own thread

    def stop(self, kill: bool = False) -> None:
        """Have `serve` return; to be called in its loop."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(kill)

    async def serve(self, started: Future[None]) -> None:
        """What `start` runs in a thread, for who has a loop and holds the directory; `started` once it listens."""
        self._stopped = stopped = asyncio.get_running_loop().create_future()
        journal = self._node.journal(self._directory.path / "master.db", "the frameworks, tasks and agents of before")
        try:
            with self._node.listening_socket(self._host, self._port) as sock:
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
        self.stop()

    def _made(self, journal: Journal, port: int) -> tuple[MasterServer, ssl.SSLContext | None, Master]:
        context = self._directory.server_context(MASTER_NAME) if self._tls else None
        alone = is_loopback(self._host)
        hosts = (self._host,) if self._host else own_hosts()
        options = replace(self._options, hostname=hosts[0], port=port, authenticated=self._authenticate)
        access = TokenAccess(self._directory, required=self._authenticate, clock=self._node.monotonic)
        names = host_names(hosts if alone else (*hosts, *own_hosts()))
        machine = _recovered(journal, options, self._node)
        self.state = machine.state
        server = MasterServer(machine, journal, access, names, options.heartbeat_s, self._node)
        self._address = MasterAddress(hosts, port, self._tls, self._node.pid, self._node.random_bytes(16).hex())
        return server, context, machine


def _recovered(journal: Journal, options: MasterOptions, node: PoolHost) -> Master:
    """The machine as the journal knows it."""
    rows = journal.rows()
    identities = [keep.row["value"] for keep in rows if keep.table == _IDENTITY and keep.row]
    if not identities:
        identities = [node.new_id()]
        journal.keep([KeepRow(_IDENTITY, "master", {"value": identities[0]})])
    with journal.reading():
        return Master(identities[0], options, node.time(), [keep for keep in rows if keep.table != _IDENTITY])


# ---------------------------------------------------------------------- the end of a master that was started on demand


_LOOKS, _SOONEST_S, _LATEST_S = 10, 0.02, 5.0


async def until_idle(state: MasterState, idle_s: float) -> None:
    """Returns once no framework was subscribed and no agent registered for so long [s]."""
    loop = asyncio.get_running_loop()
    since, before = loop.time(), state.arrivals  # some leave again between two looks
    while loop.time() - since < idle_s:
        await asyncio.sleep(min(max(idle_s / _LOOKS, _SOONEST_S), _LATEST_S))
        if state.arrivals != before or is_needed(state):
            since, before = loop.time(), state.arrivals


def is_needed(state: MasterState) -> bool:
    """Whether a framework is subscribed, or an agent registered."""
    return bool(state.agents) or any(framework.stream is not None for framework in state.frameworks.values())
