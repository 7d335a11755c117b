"""The master on the network: HTTP requests in, its machine's effects out.

::

    POST /api/v1/scheduler                 framework         schedulers
    POST /api/v1   /api/v1/operator        operator-read     operators who look
                                           operator-write    operators who change
    POST /asa/v1/agent                     agent             our agents
    GET  /state, /slaves, /tasks ...       operator-read     the older API, for command-line clients
    GET  /version, /health                 anybody

All paths may also begin with ``/master`` and end with ``/``. A call is answered once what it has changed is durable.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Never

from aiohttp import hdrs, web

from executors.mesos.agent_protocol import PATH as AGENT_PATH
from executors.mesos.agent_protocol import STREAM_HEADER
from executors.mesos.codec import Message, encode
from executors.mesos.commit import GroupCommit, Parcel
from executors.mesos.effects import Effect, Refused, Send
from executors.mesos.hosts import check_addressed
from executors.mesos.journal import Journal
from executors.mesos.master import legacy, operator
from executors.mesos.master.access import Access, Principal
from executors.mesos.master.clockwork import Clockwork, Machine
from executors.mesos.master.door import Door
from executors.mesos.master.request import (
    JSON,
    OPERATOR_PATHS,
    SCHEDULER_PATH,
    accepts_json,
    answered,
    as_object,
    check_method,
    path_of,
    read_call,
)
from executors.mesos.master.streams import Heartbeats, Stream
from executors.mesos.messages import VERSION, field, message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, WRITER

_HEARTBEAT = message("HEARTBEAT")
_LATER = frozenset({"RESERVE_RESOURCES", "UNRESERVE_RESOURCES", "CREATE_VOLUMES", "DESTROY_VOLUMES"})
_CLOSING_S = 2.0


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
        What a ``Host`` header may say: `hosts.known_names`.
    heartbeat_s
        How often streams of schedulers and operators get a HEARTBEAT [s].
    """

    def __init__(
        self, machine: Machine, journal: Journal, access: Access, names: frozenset[str], heartbeat_s: float
    ) -> None:
        self._machine, self._access, self._names = machine, access, names
        self._streams: dict[str, Stream] = {}
        self._heartbeats = Heartbeats(heartbeat_s)
        self._commit: GroupCommit[Never] = GroupCommit(journal, self._deliver)
        self._clock = Clockwork(machine, self._commit)
        self._door = Door(self._handle)
        self._closing = False

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        self._clock.arm()
        await self._door.listen(sock, context)

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
        try:
            self._commit.flush()
        finally:
            for stream in self._streams.values():
                stream.end()
            await self._door.close(_CLOSING_S)

    def abort(self) -> None:
        """Break all connections, as the death of the process would."""
        self._closing = True
        self._clock.stop()
        self._door.abort()

    # ------------------------------------------------------- requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        found = await answered(request, self._answer(request), "the master")
        return await self._stream(request, found) if isinstance(found, Stream) else found

    async def _answer(self, request: web.BaseRequest) -> web.Response | Stream:
        local = request.get_extra_info("sockname")
        check_addressed(request.headers, self._names, local[0] if local else None)
        path = path_of(request)
        if path in ("/version", "/health"):
            check_method(request, "GET")
            return _json({"version": VERSION}) if path == "/version" else web.Response()
        principal = self._access.authenticate(request.headers, request.remote)
        self._door.admit(request)
        if path == SCHEDULER_PATH:
            return await self._scheduler(request, principal)
        if path == AGENT_PATH:
            return await self._agent(request, principal)
        if path in OPERATOR_PATHS:
            return await self._operator(request, principal)
        return self._legacy(request, path, principal)

    async def _scheduler(self, request: web.BaseRequest, principal: Principal) -> web.Response | Stream:
        call, kind = await self._call(request, principal, FRAMEWORK)
        if kind == "SUBSCRIBE":
            stream = self._open(request, heartbeats=True)
            return self._opened(stream, self._machine.subscribe(call, principal.name, stream.id, self._clock.now()))
        stream_id = request.headers.get(STREAM_HEADER)
        effects = self._machine.call(call, principal.name, stream_id, self._clock.now())
        # An acknowledgement that is lost is as one that never came: the agent sends the update again.
        await self._carry_out(effects, wait=kind != "ACKNOWLEDGE")
        return web.Response(status=200 if kind == "UPDATE_FRAMEWORK" else 202)

    async def _agent(self, request: web.BaseRequest, principal: Principal) -> web.Response | Stream:
        call, kind = await self._call(request, principal, AGENT)
        if kind == "REGISTER":
            stream = self._open(request, heartbeats=False)
            return self._opened(stream, self._machine.register(call, stream.id, self._clock.now()))
        stream_id = request.headers.get(STREAM_HEADER, "")
        if kind != "BATCH" or stream_id not in self._streams:
            raise Refused(400, f"expected REGISTER, or BATCH on an open stream, found {kind[:50]}")
        problem: Exception | None = None
        effects: list[Effect] = []
        items = field(call, "batch.items", list)
        for left, item in zip(range(len(items) - 1, -1, -1), items, strict=True):
            try:
                effects += self._machine.from_agent(stream_id, as_object(item), self._clock.now(), more=left > 0)
            except Exception as error:  # what came with it is not to blame
                problem = error
        await self._carry_out(effects)
        if problem is not None:
            raise problem
        return web.Response(status=202)

    async def _operator(self, request: web.BaseRequest, principal: Principal) -> web.Response | Stream:
        call, kind = await self._call(request, principal, READER)
        accepts_json(request)
        if kind == "SUBSCRIBE":
            stream = self._open(request, heartbeats=True)
            return self._opened(stream, self._machine.watch(stream.id, self._clock.now()))
        if operator.needs_write(call):
            principal.check(WRITER)
            self._check_changeable()
        answer, effects = self._machine.operate(call, principal.name, self._clock.now())
        await self._carry_out(effects)
        if answer is None:
            return web.Response(status=202 if kind in _LATER else 200)
        return _json(answer)

    def _legacy(self, request: web.BaseRequest, path: str, principal: Principal) -> web.Response:
        principal.check(READER)
        check_method(request, "GET")
        found = legacy.get(self._machine.state, path, request.query, self._clock.now())
        if found is None:
            raise Refused(404, f"there is nothing at {path[:100]}")
        return _json(found)

    async def _call(self, request: web.BaseRequest, principal: Principal, role: str) -> tuple[Message, str]:
        """The call in a request, and its type."""
        principal.check(role)
        check_method(request, "POST")
        if role != READER:
            self._check_changeable()
        return await read_call(request, principal.role)

    def _check_changeable(self) -> None:
        if self._closing:
            raise Refused(503, "the master is about to end")
        if self._commit.trouble is not None:
            raise Refused(503, "the master cannot write its journal now: try again later")

    # ------------------------------------------------------- effects

    async def _carry_out(self, effects: Sequence[Effect], *, wait: bool = True) -> None:
        self._clock.arm()
        durable = self._commit.carry_out(effects, lazily=not wait)
        if durable is not None and wait:
            await durable.wait()

    def _deliver(self, parcels: Sequence[Parcel]) -> None:
        for stream_id, record in parcels:
            stream = self._streams.get(stream_id)
            if stream is None:
                continue  # it has ended meanwhile
            if record is None:
                stream.end()
            else:
                stream.put(record)

    # ------------------------------------------------------- streams

    def _open(self, request: web.BaseRequest, *, heartbeats: bool) -> Stream:
        accepts_json(request)
        if STREAM_HEADER in request.headers:
            raise Refused(400, f"expected no {STREAM_HEADER} header when a stream is opened")
        if request.version < (1, 1):
            raise Refused(505, "expected HTTP/1.1: a stream is sent in chunks")
        return Stream(request.transport, beating=heartbeats)

    def _opened(self, stream: Stream, effects: Sequence[Effect]) -> Stream:
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
        return stream

    async def _stream(self, request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
        try:
            response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: JSON, STREAM_HEADER: stream.id})
            response.enable_chunked_encoding()
            await response.prepare(request)
            if stream.beating:
                self._heartbeats.add(stream)
            await stream.serve(response.write)
            await response.write_eof()
            return response
        finally:
            self._ended(stream)

    def _ended(self, stream: Stream) -> None:
        self._heartbeats.discard(stream)
        del self._streams[stream.id]
        if not stream.ended and not self._closing:
            self._clock.arm()
            self._commit.carry_out(self._machine.closed(stream.id, self._clock.now()))


def _json(found: Any) -> web.Response:
    return web.Response(body=encode(found), content_type=JSON)
