"""The agent on the network: HTTP requests in, its machine's effects out.

::

    POST /api/v1/executor              executors, on loopback
    POST /api/v1   /api/v1/operator    operators

It listens twice. One socket is on loopback, for executors: it takes the connections of our own user's processes, none
of which sends a token, and so serves nothing that operators may do. The other is for operators: over TLS, with a token.
A call is answered once what it has changed is durable.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from pathlib import Path

from asa.web.errors import HTTPError
from asa.web.hosts import check_addressed
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
from executors.mesos import peer
from executors.mesos.agent import operator, sandbox
from executors.mesos.agent.engine import Engine
from executors.mesos.agent.machine import Agent
from executors.mesos.agent.options import Options
from executors.mesos.codec import Message
from executors.mesos.http_api import (
    EXECUTOR,
    Principal,
    TokenAccess,
    accepts_json,
    body_limit,
    call_of,
    check_content,
    in_json,
)
from executors.mesos.messages import EXECUTOR_PATH, OPERATOR_PATHS, base64_of, field, message
from executors.mesos.pool_directory import READER, WRITER

_CLOSING_S = 2.0
_WHO = "the agent"


class Loopback(Listener):
    """Listens for our own user's processes on this machine; others find the connection broken."""

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        assert connection.transport
        try:
            if peer.is_ours(*peer.ends(connection.transport.get_extra_info("socket"))):
                return self.authenticated(connection)
        except OSError:  # it has gone already
            pass
        return connection.abort()


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
        What a ``Host`` header may say: `http_api.host_names`.
    """

    def __init__(
        self, engine: Engine, agent: Agent, options: Options, access: TokenAccess, names: frozenset[str]
    ) -> None:
        self._engine, self._agent, self._options = engine, agent, options
        self._access, self._names = access, names
        self._loopback, self._listener = Loopback(self._from_executor, _WHO), Listener(self._from_operator, _WHO)
        self._root = Path(options.directory)

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
            raise HTTPError(403, f"only executors are served here: operators come to port {self._options.port}")
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
        stream = ResponseStream(request.connection, self._engine.closed, beating=False)
        self._engine.subscribe(call, stream)
        return StreamResponse(stream)

    def _operator(self, principal: Principal, request: Request) -> Answer:
        call, kind = call_of(request)
        if operator.needs_write(call):
            principal.check(WRITER)
        return self._operated(request, call, kind)

    async def _operated(self, request: Request, call: Message, kind: str) -> Response:
        if kind in ("LIST_FILES", "READ_FILE"):
            answer: Message | None = await asyncio.to_thread(self._files, call, kind)
        else:
            answer = await self._engine.operate(call)
        if answer is None:
            return Response(200)
        accepts_json(request)
        return in_json(answer)

    def _files(self, call: Message, kind: str) -> Message:
        if kind == "LIST_FILES":
            return message(kind, file_infos=sandbox.entries(self._root, field(call, "list_files.path", str)))
        asked = field(call, "read_file", dict)
        offset, length = field(asked, "offset", int), field(asked, "length", int, sandbox.PIECE_MOST)
        if offset < 0 or length < 0:
            raise HTTPError(400, "expected 'offset' and 'length' not to be negative")
        piece = sandbox.read(self._root, field(asked, "path", str), offset, length)
        return message(kind, size=piece.size, data=base64_of(piece.data))

