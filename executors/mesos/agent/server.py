"""The agent on the network: HTTP requests in, its machine's effects out.

::

    POST /api/v1/executor                      executors, on loopback
    POST /api/v1   /api/v1/operator            operators
    GET  /state  /monitor/statistics           operators
    GET  /metrics/snapshot                     operators
    GET  /files/browse  /files/read            operators
    GET  /version  /health                     anybody

Paths may also begin with ``/slave(1)`` and end with ``/``. There are two doors. One is on loopback, for executors: it
takes the connections of our own user's processes, none of which sends a token, and so serves nothing that operators
may do. The other is for operators: over TLS, with a token. A call is answered once what it has changed is durable.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web

from executors.mesos import peer
from executors.mesos.agent import legacy, operator, sandbox
from executors.mesos.agent.engine import Engine
from executors.mesos.agent.machine import Agent
from executors.mesos.agent.options import Options
from executors.mesos.codec import Message, encode
from executors.mesos.effects import Refused
from executors.mesos.hosts import check_addressed
from executors.mesos.master.access import Access, Principal
from executors.mesos.master.door import Door
from executors.mesos.master.limits import EXECUTOR
from executors.mesos.master.request import JSON, OPERATOR_PATHS, accepts_json, answered, check_method, read_call
from executors.mesos.master.streams import Stream
from executors.mesos.messages import VERSION, base64_of, field, message
from executors.mesos.pool_directory import READER, WRITER

EXECUTOR_PATH = "/api/v1/executor"

_CLOSING_S = 2.0


class Loopback(Door):
    """A door for our own user's processes on this machine; others find the connection broken."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        connection: socket.socket = transport.get_extra_info("socket")
        try:
            if peer.is_ours(*peer.ends(connection)):
                return
        except OSError:  # it has gone already
            pass
        transport.abort()


class Server:
    """Serves one agent.

    Parameters
    ----------
    engine
        Runs the machine.
    agent
        The machine, to be read only.
    options
        What it was started with.
    access
        Which operators may come in.
    names
        What a ``Host`` header may say: `hosts.known_names`.
    """

    def __init__(self, engine: Engine, agent: Agent, options: Options, access: Access, names: frozenset[str]) -> None:
        self._engine, self._agent, self._options = engine, agent, options
        self._access, self._names = access, names
        self._loopback, self._door = Loopback(self._from_executor), Door(self._from_operator)
        self._root = Path(options.directory)

    async def listen(self, loopback: socket.socket, outside: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections: of executors on `loopback`, of operators on `outside`, over TLS if there is a context."""
        await self._loopback.listen(loopback, None)
        await self._door.listen(outside, context)

    async def close(self) -> None:
        """Listen no more; requests that are being answered have a moment to end."""
        await asyncio.gather(self._loopback.close(_CLOSING_S), self._door.close(_CLOSING_S))

    def abort(self) -> None:
        """Break all connections, as the death of the process would."""
        self._loopback.abort()
        self._door.abort()

    # ------------------------------------------------------- requests

    async def _from_executor(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._handle(request, self._loopback)

    async def _from_operator(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._handle(request, self._door)

    async def _handle(self, request: web.BaseRequest, door: Door) -> web.StreamResponse:
        found = await answered(request, self._answer(request, door), "the agent")
        return await self._stream(request, found) if isinstance(found, Stream) else found

    async def _answer(self, request: web.BaseRequest, door: Door) -> web.Response | Stream:
        local = request.get_extra_info("sockname")
        check_addressed(request.headers, self._names, local[0] if local else None)
        path = request.path.removeprefix("/slave(1)").rstrip("/") or "/"
        if path in ("/version", "/health"):
            check_method(request, "GET")
            return _json({"version": VERSION}) if path == "/version" else web.Response()
        if door is self._loopback:
            door.admit(request)  # the connection was looked at when it was made
            if path != EXECUTOR_PATH:
                raise Refused(403, f"only executors are served here: operators come to port {self._options.port}")
            return await self._executor(request)
        principal = self._access.authenticate(request.headers, request.remote)
        door.admit(request)
        principal.check(READER)
        if path in OPERATOR_PATHS:
            return await self._operator(request, principal)
        check_method(request, "GET")
        return _json(await self._legacy(path.removesuffix(".json"), request.query))

    async def _executor(self, request: web.BaseRequest) -> web.Response | Stream:
        check_method(request, "POST")
        call, kind = await read_call(request, EXECUTOR)
        if kind != "SUBSCRIBE":
            await self._engine.call(call)
            return web.Response(status=202)
        accepts_json(request)
        if request.version < (1, 1):
            raise Refused(505, "expected HTTP/1.1: a stream is sent in chunks")
        stream = Stream(request.transport, beating=False)
        self._engine.subscribe(call, stream)
        return stream

    async def _operator(self, request: web.BaseRequest, principal: Principal) -> web.Response:
        check_method(request, "POST")
        call, kind = await read_call(request, principal.role)
        if operator.needs_write(call):
            principal.check(WRITER)
        if kind in ("LIST_FILES", "READ_FILE"):
            answer: Message | None = await asyncio.to_thread(self._files, call, kind)
        else:
            answer = await self._engine.operate(call)
        if answer is None:
            return web.Response()
        accepts_json(request)
        return _json(answer)

    def _files(self, call: Message, kind: str) -> Message:
        if kind == "LIST_FILES":
            return message(kind, file_infos=sandbox.entries(self._root, field(call, "list_files.path", str)))
        asked = field(call, "read_file", dict)
        offset, length = field(asked, "offset", int), field(asked, "length", int, sandbox.PIECE_MOST)
        if offset < 0 or length < 0:
            raise Refused(400, "expected 'offset' and 'length' not to be negative")
        piece = sandbox.read(self._root, field(asked, "path", str), offset, length)
        return message(kind, size=piece.size, data=base64_of(piece.data))

    async def _legacy(self, path: str, query: Mapping[str, str]) -> Any:
        if path == "/state":
            return legacy.state(self._agent.state, self._options)
        if path in ("/monitor/statistics", "/containers"):
            answer = await self._engine.operate(message("GET_CONTAINERS"))
            return legacy.statistics(answer or {})
        if path == "/metrics/snapshot":
            answer = await self._engine.operate(message("GET_METRICS"))
            return legacy.metrics(answer or {})
        if path in ("/files/browse", "/files/read"):
            return await asyncio.to_thread(getattr(legacy, path.rpartition("/")[2]), self._root, query)
        raise Refused(404, f"there is nothing at {path[:100]}")

    # ------------------------------------------------------- streams

    async def _stream(self, request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
        try:
            response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: JSON})
            response.enable_chunked_encoding()
            await response.prepare(request)
            await stream.serve(response.write)
            await response.write_eof()
            return response
        finally:
            self._engine.closed(stream)


def _json(found: Any) -> web.Response:
    return web.Response(body=encode(found), content_type=JSON)
