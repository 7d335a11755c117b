"""A connection to a master that does without streams of bytes and tasks: what comes is handed on at once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple

import httptools

from asa.web.server import Headers
from executors.mesos.codec import BadMessage

TEXT_MOST = 500
"""How much of an answer that is no stream is kept [bytes]."""
_HEADERS_MOST = 256
_READ_MOST = 64 << 10


class Answer(NamedTuple):
    """What a master answers; of a stream, the beginning."""

    status: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace").strip()


class Line(asyncio.BufferedProtocol):
    """A connection, for one request at a time.

    Parameters
    ----------
    hear
        Takes what comes of a body that is answered with 200, piece by piece; its `BadMessage` breaks the connection.
        Without it answers are taken as a whole.
    """

    def __init__(self, hear: Callable[[bytes], object] | None = None) -> None:
        self._hear = hear
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = memoryview(bytearray(_READ_MOST))
        self._transport: asyncio.Transport | None = None
        self._fields: dict[str, str] = {}
        self._body, self._heard = bytearray(), bytearray()
        self._over = False  # a stream has ended
        self._answer: asyncio.Future[Answer] | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the exception that the connection was ended by."""

    def post(self, head: str, body: bytes) -> asyncio.Future[Answer]:
        """Send a request; `head` is its first line and headers. Raises `OSError`, at once or later, when it breaks."""
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise ConnectionResetError("the connection is gone")
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
        return self._answer

    def close(self) -> None:
        """End it; nothing more is heard."""
        self._break(ConnectionAbortedError("it was closed"))
        self.broken.exception()  # nobody needs to ask

    def _break(self, error: Exception) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if not self.broken.done():
            self.broken.set_exception(error)

    # ------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc or ConnectionResetError("the master has closed it"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        problem: Exception | None = None
        try:
            self._parser.feed_data(bytes(self._buffer[:nbytes]))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            problem = ConnectionAbortedError(f"what came is no HTTP: {error}")
        try:
            if self._hear is not None and self._heard:  # what came before the end, or before what is wrong, counts
                heard, self._heard = bytes(self._heard), bytearray()
                self._hear(heard)
        except BadMessage as error:
            problem = error
        if problem or self._over:
            self._break(problem or ConnectionResetError("the master has ended it"))

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self._fields, self._body = {}, bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._fields) >= _HEADERS_MOST:
            raise ValueError(f"more than {_HEADERS_MOST} headers")
        self._fields[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_stream:
            self._tell()

    def on_body(self, body: bytes) -> None:
        if self._is_stream:
            self._heard += body
        else:
            self._body += body[: TEXT_MOST - len(self._body)]

    def on_message_complete(self) -> None:
        self._over = self._is_stream
        if self._parser.get_status_code() >= 200:
            self._tell()

    @property
    def _is_stream(self) -> bool:
        return self._hear is not None and self._parser.get_status_code() == 200

    def _tell(self) -> None:
        if self._answer is not None and not self._answer.done():
            answer = Answer(self._parser.get_status_code(), Headers(self._fields), bytes(self._body))
            self._answer.set_result(answer)


async def dial(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    name: str | None,
    hear: Callable[[bytes], object] | None = None,
) -> Line:
    """Connect, over TLS if there is a context; `name` is the one in the master's certificate. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(lambda: Line(hear), host, port, ssl=context, server_hostname=name)
    return line
