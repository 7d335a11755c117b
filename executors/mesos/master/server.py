"""The master on the network: HTTP requests in, its machine's effects out.

::

    POST /api/v1/scheduler                 framework         schedulers
    POST /api/v1   /api/v1/operator        operator-read     operators who look
                                           operator-write    operators who change
    POST /asa/v1/agent                     agent             our agents
    GET  /state, /slaves, /tasks ...       operator-read     the older API, for command-line clients
    GET  /version, /health                 anybody

All paths may also begin with ``/master`` and end with ``/``. A call is answered once what it has changed is durable;
acknowledgements, and what agents keep and would say again, are answered at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Never

from asa.web.errors import HTTPError
from asa.web.hosts import check_addressed
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
)
from executors.mesos.agent_protocol import PATH as AGENT_PATH
from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.clockwork import Clockwork
from executors.mesos.codec import frame, kind_of
from executors.mesos.commit import GroupCommit, Parcel
from executors.mesos.effects import Effect, Keep, Send
from executors.mesos.http_api import Principal, TokenAccess, accepts_json, body_limit, call_of, check_content, in_json
from executors.mesos.journal import Journal
from executors.mesos.master import legacy, operator
from executors.mesos.master.machine import Master
from executors.mesos.messages import OPERATOR_PATHS, SCHEDULER_PATH, VERSION, field, message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, WRITER
from executors.mesos.verbosity import Voice

_HEARTBEAT = message("HEARTBEAT")
_LATER = frozenset({"RESERVE_RESOURCES", "UNRESERVE_RESOURCES", "CREATE_VOLUMES", "DESTROY_VOLUMES"})
_CLOSING_S, _AGAIN_S = 2.0, 1.0
_log = logging.getLogger(__name__)
_WHO = "the master"


class Server:
    """Serves one machine.

    Parameters
    ----------
    machine
        The master's; nothing else may call it.
    journal
        Where its rows go.
    access
        Who may come in.
    names
        What a ``Host`` header may say: `http_api.host_names`.
    heartbeat_s
        How often streams of schedulers and operators get a HEARTBEAT [s].
    """

    def __init__(
        self, machine: Master, journal: Journal, access: TokenAccess, names: frozenset[str], heartbeat_s: float
    ) -> None:
        self._machine, self._access, self._names = machine, access, names
        self._streams: dict[str, ResponseStream] = {}
        self._heartbeats = Heartbeats(heartbeat_s, frame(_HEARTBEAT))
        self._commit: GroupCommit[Never] = GroupCommit(journal, self._deliver)
        self._clock = Clockwork(self._due, self._wake)
        self._listener = Listener(self._admit, _WHO)
        self._voice = Voice()
        self._closing = False

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        self._clock.arm()
        await self._listener.listen(sock, context)

    async def run(self) -> None:
        """Serve, until cancelled; an exception means that nothing is served any more."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._commit.run())
            group.create_task(self._heartbeats.run())

    async def close(self) -> None:
        """Carry out what has been begun, end all streams, and listen no more; to be called when `run` has ended.

        Raises
        ------
        StateError
            When the journal cannot be written.
        """
        self._closing = True
        self._clock.stop()
        self._voice.calm()
        try:
            self._commit.flush()
        finally:
            for stream in list(self._streams.values()):
                stream.end()
            await self._listener.close(_CLOSING_S)

    def abort(self) -> None:
        """Break all connections, as the death of the process would."""
        self._closing = True
        self._clock.stop()
        self._voice.calm()
        self._listener.abort()

    # ------------------------------------------------------- requests

    def _admit(self, request: Request) -> Admission:
        check_addressed(request.headers, self._names, request.connection.local)
        path = request.path.removeprefix("/master").rstrip("/") or "/"
        if path in ("/version", "/health"):
            check_method(request, "GET")
            return Admission(0, _version if path == "/version" else _health)
        principal = self._access.authenticate(request.headers, request.connection.peer)
        self._listener.authenticated(request.connection)
        if path == SCHEDULER_PATH:
            return self._admitted(request, principal, FRAMEWORK, partial(self._scheduler, principal))
        if path == AGENT_PATH:
            return self._admitted(request, principal, AGENT, self._agent)
        if path in OPERATOR_PATHS:
            return self._admitted(request, principal, READER, partial(self._operator, principal))
        principal.check(READER)
        check_method(request, "GET")
        return Admission(body_limit(READER), partial(self._legacy, path))

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
            return self._opened(stream, self._machine.subscribe(call, principal.name, stream.id, self._clock.now()))
        stream_id = request.headers.get(STREAM_HEADER)
        effects = self._machine.call(call, principal.name, stream_id, self._clock.now())
        response = Response(200 if kind == "UPDATE_FRAMEWORK" else 202)
        # An acknowledgement that is lost is as one that never came: the agent sends the update again.
        return self._carry_out(effects, response, wait=kind != "ACKNOWLEDGE")

    def _agent(self, request: Request) -> Answer:
        self._check_changeable()
        call, kind = call_of(request)
        if kind == "REGISTER":
            stream = self._open(request, heartbeats=False)
            return self._opened(stream, self._machine.register(call, stream.id, self._clock.now()))
        stream_id = request.headers.get(STREAM_HEADER, "")
        if kind != "BATCH" or stream_id not in self._streams:
            raise HTTPError(400, f"expected REGISTER, or BATCH on an open stream, found {kind[:50]}")
        effects, problem = self._machine.from_agent(stream_id, field(call, "batch.items", list), self._clock.now())
        response = Response(202) if problem is None else error_response(problem, request.target, _WHO)
        return self._carry_out(effects, response, wait=any(type(effect) is Keep for effect in effects))

    def _operator(self, principal: Principal, request: Request) -> Answer:
        call, kind = call_of(request)
        accepts_json(request)
        if kind == "SUBSCRIBE":
            stream = self._open(request, heartbeats=True)
            return self._opened(stream, self._machine.watch(stream.id, self._clock.now()))
        if operator.needs_write(call):
            principal.check(WRITER)
            self._check_changeable()
        answer, effects = self._machine.operate(call, principal.name, self._clock.now())
        if kind == "SET_LOGGING_LEVEL":
            self._voice.follow(self._machine.state.verbosity, self._clock.now())
        empty = Response(202 if kind in _LATER else 200)
        return self._carry_out(effects, empty if answer is None else in_json(answer))

    def _legacy(self, path: str, request: Request) -> Response:
        found = legacy.get(self._machine.state, path, request.query, self._clock.now())
        if found is None:
            raise HTTPError(404, f"there is nothing at {path[:100]}")
        return in_json(found)

    def _check_changeable(self) -> None:
        if self._closing:
            raise HTTPError(503, "the master is about to end")
        if self._commit.trouble is not None:
            raise HTTPError(503, "the master cannot write its journal now: try again later")

    # ------------------------------------------------------- effects

    def _carry_out(self, effects: Sequence[Effect], response: Response, *, wait: bool = True) -> Response | Deferred:
        self._clock.arm()
        durable = self._commit.carry_out(effects, lazily=not wait)
        return response if durable is None or not wait else Deferred(durable, response)

    def _deliver(self, parcels: Sequence[Parcel]) -> None:
        chatty = _log.isEnabledFor(logging.DEBUG)
        for stream_id, record in parcels:
            if chatty:
                _log.debug("stream %s is told %s", stream_id, "its end" if record is None else kind_of(record))
            stream = self._streams.get(stream_id)
            if stream is None:
                continue  # it has ended meanwhile
            if record is None:
                stream.end()
            else:
                stream.put(record)

    # ------------------------------------------------------- time

    def _due(self) -> float:
        """While the journal cannot be written, the machine sleeps."""
        return self._machine.due() if self._commit.trouble is None else self._clock.now() + _AGAIN_S

    def _wake(self) -> None:
        self._commit.carry_out(self._machine.wake(self._clock.now()))

    # ------------------------------------------------------- streams

    def _open(self, request: Request, *, heartbeats: bool) -> ResponseStream:
        accepts_json(request)
        if STREAM_HEADER in request.headers:
            raise HTTPError(400, f"expected no {STREAM_HEADER} header when a stream is opened")
        if request.version != "1.1":
            raise HTTPError(505, "expected HTTP/1.1: a stream is sent in chunks")
        return ResponseStream(request.connection, self._ended, beating=heartbeats)

    def _opened(self, stream: ResponseStream, effects: Sequence[Effect]) -> StreamResponse:
        """The machine has taken it: from here on, it is told of the stream's end."""
        self._clock.arm()
        # The first heartbeat comes at once: some clients take in a record only when the next one has begun.
        first = [Send(stream.id, _HEARTBEAT)] if stream.beating else []
        self._streams[stream.id] = stream
        try:
            self._commit.carry_out([*effects, *first])
        except BaseException:
            self._ended(stream)
            raise
        if stream.beating:
            self._heartbeats.add(stream)
        return StreamResponse(stream, {STREAM_HEADER: stream.id})

    def _ended(self, stream: ResponseStream) -> None:
        self._heartbeats.discard(stream)
        del self._streams[stream.id]
        if not stream.ended and not self._closing:
            self._clock.arm()
            self._commit.carry_out(self._machine.closed(stream.id, self._clock.now()))


def _version(request: Request) -> Response:
    return in_json({"version": VERSION})


def _health(request: Request) -> Response:
    return Response(200)
