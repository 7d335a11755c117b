"""An HTTP/1.1 server: connections in, answers and streams out, in one event loop.

Requests are taken apart by `protocol`, without I/O, and answered in the order in which they came. Most calls are over
within one turn of the event loop: their bytes come, they are carried out, the answer is written. Nothing of a body is
kept before its head has been looked at, since any peer may send one.

Connections stay for as long as their peers want: one that finds its idle connection closed may take that for our end.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
import uuid
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from asa.core.errors import StateError
from asa.web.errors import HTTPError, MethodNotAllowed
from asa.web.protocol import BodyData, EndOfMessage, Headers, Receiving, RequestHead, RequestReader

BODY_S = 60.0
"""How long a body may take to arrive [s]."""
PIPELINED_MOST = 512
"""Requests of one connection that may wait for their answers; with more, nothing is read from it for a while."""
LINGER_S = 2.0
"""How long a peer that was refused before it had sent all may take to read why [s]."""
RETRY_S = 1.0
"""How long the answer to those is delayed, at least, who are to try again later (429, 503) [s]."""
UNAUTHENTICATED_MOST = 256
"""Connections that have not authenticated; with one more, the oldest of them is dropped."""
RECORDS_MOST = 10_000
"""How many records may wait on a stream whose reader does not keep up ..."""
BYTES_MOST = 64 << 20
"""... and how many bytes of them; one more, and the connection is dropped, never a record."""
FILES_MOST = 1 << 20
"""More open files than this are not asked for, even where they may be had."""

_BACKLOG = 4096
_HANDSHAKE_S = 10
_POLL_S = 0.005
_READ_MOST = 256 << 10
_GONE_MS = 60_000
_SLOTS = 64
_TICK_S = 0.02
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_log = logging.getLogger(__name__)

# ---------------------------------------------------------------------- requests and answers


class Request:
    """A request; its `body` is complete when it is to be answered."""

    __slots__ = ("body", "connection", "headers", "method", "persists", "target", "version")

    def __init__(self, connection: Connection, head: RequestHead) -> None:
        self.connection = connection
        self.method, self.target, self.version, self.headers, self.persists = head
        self.body = b""

    @property
    def path(self) -> str:
        """Without the query, and with ``%`` sequences replaced."""
        path = self.target.partition("?")[0] if self.target.startswith("/") else urlsplit(self.target).path
        return unquote(path) if "%" in path else path

    @property
    def query(self) -> dict[str, str]:
        """Of several values of one name, the first."""
        return dict(reversed(parse_qsl(urlsplit(self.target).query, keep_blank_values=True)))


class Durable(asyncio.Event):
    """Set once what was carried out is written. Who says so with `then` is called within the same turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], object]] = []

    def then(self, callback: Callable[[], object]) -> None:
        """Call this once it is set, in the order in which it was asked for."""
        self._callbacks.append(callback)

    def set(self) -> None:
        super().set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Response(NamedTuple):
    """An answer that is there as a whole."""

    status: int
    body: bytes = b""
    content: str = ""
    """Its type; empty where there is no body."""
    headers: Mapping[str, str] = {}


class Deferred(NamedTuple):
    """An answer that waits until something is durable; requests that follow are carried out meanwhile."""

    durable: Durable
    response: Response


class StreamResponse(NamedTuple):
    """A stream is the answer; requests that follow wait for its end."""

    stream: ResponseStream
    headers: Mapping[str, str] = {}


Answer = Response | Deferred | StreamResponse | Coroutine[Any, Any, Response | StreamResponse]
"""While a coroutine runs, requests that follow wait for it."""


class Admission(NamedTuple):
    """That the head of a request was in order: how long its body may be [bytes], and who answers then."""

    most: int
    answer: Callable[[Request], Answer]


def encoded(response: Response, request: Request) -> bytes:
    """An answer as it is sent."""
    own = {"Content-Type": response.content} if response.content else {}
    first = head(response.status, {**own, **response.headers, "Content-Length": str(len(response.body))}, request)
    return first if request.method == "HEAD" else first + response.body


def head(status: int, headers: Mapping[str, str], request: Request) -> bytes:
    """The first lines of an answer."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {text}" for name, text in headers.items())]
    lines.append(f"Date: {_date(int(time.time()))}")
    if not request.persists:
        lines.append("Connection: close")
    elif request.version == "1.0":
        lines.append("Connection: keep-alive")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def _too_long(most: int) -> HTTPError:
    return HTTPError(413, f"expected a body of at most {most} bytes")


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def check_method(request: Request, method: str) -> None:
    """Raises `MethodNotAllowed` when it is another; HEAD is as good as GET."""
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise MethodNotAllowed(request.method, method)


def error_response(error: Exception, target: str, who: str) -> Response:
    """What is answered where this was raised.

    Parameters
    ----------
    target
        Of the request.
    who
        Whose fault it is when it is not the client's: "the master".
    """
    if not isinstance(error, HTTPError):
        _log.error("a request to %.100r could not be answered", target, exc_info=error)
        error = HTTPError(500, f"{who} failed to answer this; its log says why")
    _log.info("%.80r is answered with %d: %s", target, error.status, error.reason)
    headers = {"Cache-Control": "no-store"}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="asa", Bearer realm="asa"'
    elif isinstance(error, MethodNotAllowed):
        headers["Allow"] = "POST" if error.allowed == "POST" else "GET, HEAD"
    return Response(error.status, error.reason.encode(errors="replace"), "text/plain; charset=utf-8", headers)


async def _delayed(response: Response) -> Response:
    await asyncio.sleep(RETRY_S + asyncio.get_running_loop().time() % RETRY_S)
    return response


# ---------------------------------------------------------------------- streams


class ResponseStream:
    """One response without end.

    Parameters
    ----------
    carrier
        Its connection.
    over
        Called once: when all is written and the response has ended, or the connection is gone.
    beating
        Whether it gets heartbeats.
    id
        By which its peer names it; a new one if "".
    """

    __slots__ = ("_bytes", "_carrier", "_held", "_over", "_records", "beating", "begun", "ended", "id", "slot")

    def __init__(
        self, carrier: Connection, over: Callable[[ResponseStream], object], *, beating: bool, id: str = ""
    ) -> None:
        self.id = id or str(uuid.uuid4())
        self.beating = beating
        self.begun = False
        """Whether its turn on the connection has come."""
        self.ended = False
        """Whether we have ended it; else its end means that the peer is gone."""
        self.slot = 0
        self._carrier: Connection | None = carrier
        self._over = over
        self._held = True  # nothing is to be written now
        self._records: deque[bytes] | None = None  # an empty one would take more memory than all the rest
        self._bytes = 0

    @property
    def waiting(self) -> int:
        return self._bytes

    def begin(self) -> None:
        """The head of the response is written."""
        self.begun = True
        self.go_on()

    def put(self, record: bytes) -> None:
        """Write a record, in a chunk by itself, behind those before it; drops the connection when too much waits."""
        if self.ended or self._carrier is None:
            return
        if not self._held:
            self._carrier.write(_chunk(record))
            return
        if self._records is None:
            self._records = deque()
        self._records.append(record)
        self._bytes += len(record)
        if len(self._records) > RECORDS_MOST or self._bytes > BYTES_MOST:
            self.drop()

    def beat(self, heartbeat: bytes) -> None:
        """Put a heartbeat, unless something waits to be written: that it does says as much."""
        if not self._records:
            self.put(heartbeat)

    def end(self) -> None:
        """End the response after what was put before."""
        self.ended = True
        if not self._held:
            self.go_on()

    def drop(self) -> None:
        """Break the connection."""
        if self._carrier is not None:
            self._carrier.abort()
        self._carrier, self._records, self._bytes = None, None, 0

    def hold(self) -> None:
        """The peer does not keep up: keep here what is put."""
        self._held = True

    def go_on(self) -> None:
        """Write what was kept, until `hold` is called again."""
        self._held = False
        while self._records and self._carrier is not None and not self._held:
            record = self._records.popleft()
            self._bytes -= len(record)
            self._carrier.write(_chunk(record))
        if self._held:
            return
        self._records = None
        if self.ended and self._carrier is not None:
            self._carrier.write(_LAST_CHUNK)
            self._carrier.stream_ended()
            self.lost()

    def lost(self) -> None:
        """There is no connection any more."""
        self._carrier, self._records, self._held = None, None, True
        self._over(self)


def _chunk(record: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(record), record)


class Heartbeats:
    """Beats each stream at its own moment of the interval, all with one timer.

    Parameters
    ----------
    interval_s
        How often each stream gets a heartbeat [s].
    record
        The heartbeat.
    """

    def __init__(self, interval_s: float, record: bytes) -> None:
        self._record = record
        count = max(1, min(_SLOTS, int(interval_s / _TICK_S)))
        self._tick_s = interval_s / count
        self._slots: list[set[ResponseStream]] = [set() for _ in range(count)]
        self._next = 0

    def add(self, stream: ResponseStream) -> None:
        """Give the stream heartbeats, evenly between those of others."""
        self._next = (self._next + 1) % len(self._slots)
        stream.slot = self._next
        self._slots[stream.slot].add(stream)

    def discard(self, stream: ResponseStream) -> None:
        """No more heartbeats for it."""
        self._slots[stream.slot].discard(stream)

    async def run(self) -> None:
        """Beat, until cancelled."""
        clock = asyncio.get_running_loop().time
        at = clock()
        while True:
            for slot in self._slots:
                at = max(at + self._tick_s, clock() - self._tick_s)  # who was stopped does not catch up
                await asyncio.sleep(max(0.0, at - clock()))
                for stream in list(slot):
                    stream.beat(self._record)


# ---------------------------------------------------------------------- connections


class _Exchange:
    """A request, whether it may come in, and its answer once that is there."""

    __slots__ = ("admitted", "durable", "opened", "request", "response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.admitted: Admission | Exception = HTTPError(400, "expected an HTTP request")
        self.response: Response | None = None
        self.durable: Durable | None = None
        self.opened: StreamResponse | None = None

    @property
    def ready(self) -> Response | None:
        """The answer, unless something is still to be waited for."""
        return self.response if self.durable is None or self.durable.is_set() else None


class Connection(asyncio.BufferedProtocol):
    """One connection, of a peer that may be anyone."""

    __slots__ = (
        "_awaited", "_coming", "_job", "_listener", "_pieces", "_reader", "_sending", "_size", "_stuffed", "_timer",
        "_waiting", "local", "peer", "transport",
    )  # fmt: skip

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.transport: asyncio.Transport | None = None
        """None once it is gone."""
        self.peer = self.local = ""
        """Addresses, without ports."""
        self._reader = RequestReader()
        self._coming: _Exchange | None = None  # its head is there, its body not yet
        self._pieces: list[bytes] = []
        self._size = 0
        self._sending: list[_Exchange] = []  # begun, and not answered to the end
        self._waiting: list[_Exchange] = []  # not begun
        self._awaited: Durable | None = None
        self._job: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stuffed = False

    # ------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer, self.local = ((transport.get_extra_info(end) or [""])[0] for end in ("peername", "sockname"))
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        for pending in (self._job, self._timer):
            if pending is not None:
                pending.cancel()
        self._waiting.clear()
        opened = self._opened
        self._sending.clear()
        if opened is not None:
            opened.stream.lost()
        self._listener.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._reader.state is not Receiving.DISCARDING:
            self._receive(bytes(self._listener.buffer[:nbytes]))

    def pause_writing(self) -> None:
        self._stuffed = True
        if self._opened is not None:
            self._opened.stream.hold()
        self._pace()

    def resume_writing(self) -> None:
        self._stuffed = False
        if self._opened is not None and self._opened.stream.begun:
            self._opened.stream.go_on()
        self._pace()

    # ------------------------------------------------------- requests

    def _receive(self, data: bytes) -> None:
        for event in self._reader.receive(data):
            if isinstance(event, RequestHead):
                self._admit(event)
            elif isinstance(event, BodyData):
                self._add(event.data)
            elif isinstance(event, EndOfMessage):
                self._complete()
            else:
                return self._refuse_malformed()
        if self._coming is not None:
            self._wait_for_body(self._coming)
        self._send()
        return None

    def _admit(self, head: RequestHead) -> None:
        self._coming = exchange = _Exchange(Request(self, head))
        self._size = 0
        try:
            exchange.admitted = admitted = self._listener.admit(exchange.request)
            length = head.headers.get("content-length", "")
            if length.isdigit() and int(length) > admitted.most:
                raise _too_long(admitted.most)
        except Exception as error:
            exchange.admitted = error

    def _add(self, body: bytes) -> None:
        exchange = self._coming
        if exchange is None or not isinstance(exchange.admitted, Admission):
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._size > exchange.admitted.most:
            self._pieces.clear()
            exchange.admitted = _too_long(exchange.admitted.most)

    def _complete(self) -> None:
        exchange, self._coming = self._coming, None
        if exchange is None:
            return
        exchange.request.body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._take(exchange)

    def _wait_for_body(self, exchange: _Exchange) -> None:
        if not isinstance(exchange.admitted, Admission):
            return self._refuse_now(exchange)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BODY_S, self._too_late)
            if exchange.request.headers.get("expect", "").lower() == "100-continue" and not self._sending:
                self.write(_CONTINUE)
        return None

    def _too_late(self) -> None:
        self._timer = None
        if (exchange := self._coming) is not None:
            exchange.admitted = HTTPError(408, f"expected the whole body within {BODY_S:g} s")
            self._refuse_now(exchange)

    def _refuse_now(self, exchange: _Exchange) -> None:
        """Answer although the body is still to come; it is not wanted any more, and nothing behind it."""
        self._reader.discard()
        self._coming = None
        self._pieces.clear()
        exchange.request.persists = False
        self._take(exchange)
        self._send()

    def _refuse_malformed(self) -> None:
        self._refuse_now(self._coming or _Exchange(Request(self, RequestHead("", "", "1.1", Headers({}), False))))

    def _take(self, exchange: _Exchange) -> None:
        if self._waiting or self._occupied:
            self._waiting.append(exchange)
        else:
            self._begin(exchange)
        self._pace()

    @property
    def _opened(self) -> StreamResponse | None:
        """The stream that is open, or is to be; nothing comes behind it."""
        return self._sending[-1].opened if self._sending else None

    @property
    def _occupied(self) -> bool:
        return self._job is not None or self._opened is not None

    def _begin(self, exchange: _Exchange) -> None:
        self._sending.append(exchange)
        try:
            if not isinstance(exchange.admitted, Admission):
                raise exchange.admitted
            found: Answer = exchange.admitted.answer(exchange.request)
        except Exception as error:
            found = self._listener.refused(exchange.request, error)
        if isinstance(found, Response):
            exchange.response = found
        elif isinstance(found, Deferred):
            exchange.durable, exchange.response = found
            if found.durable is not self._awaited:
                self._awaited = found.durable
                found.durable.then(self._send)
        elif isinstance(found, StreamResponse):
            exchange.opened = found
        else:
            self._job = asyncio.get_running_loop().create_task(self._finish(exchange, found))
        exchange.request.body = b""

    async def _finish(self, exchange: _Exchange, answering: Coroutine[Any, Any, Response | StreamResponse]) -> None:
        try:
            answer = await answering
            if isinstance(answer, StreamResponse):
                exchange.opened = answer
            else:
                exchange.response = answer
        except Exception as error:
            found = self._listener.refused(exchange.request, error)
            exchange.response = await found if isinstance(found, Coroutine) else found
        self._job = None
        self._send()

    # ------------------------------------------------------- answers

    def _send(self) -> None:
        """Write the answers that are there, as far as none before them is missing, and begin what waits for them."""
        while self.transport is not None:
            parts = []
            while self._sending and (response := self._sending[0].ready) is not None:
                exchange = self._sending.pop(0)
                parts.append(encoded(response, exchange.request))
                if not exchange.request.persists:
                    self.write(b"".join(parts))
                    return self._hang_up()
            if parts:
                self.write(b"".join(parts))
            self._open()
            if not self._waiting or self._occupied:
                break
            self._begin(self._waiting.pop(0))
        self._pace()
        return None

    def _open(self) -> None:
        if self._sending and (opened := self._sending[0].opened) is not None and not opened.stream.begun:
            headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **opened.headers}
            request = self._sending[0].request
            self.write(head(200, headers, request))
            request.headers = Headers({})  # there may be thousands of streams, and none needs them any more
            opened.stream.begin()

    def stream_ended(self) -> None:
        exchange = self._sending.pop(0)
        if not exchange.request.persists:
            self._hang_up()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._send)

    def write(self, data: bytes) -> None:
        """Send this behind what was written before."""
        if self.transport is not None:
            self.transport.write(data)

    def _hang_up(self) -> None:
        """Close, once all is written. A peer that still sends would not be able to read its answer otherwise."""
        if self.transport is None:
            return
        self._waiting.clear()
        if self._reader.state is not Receiving.DISCARDING:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def _pace(self) -> None:
        """Read no more while too much waits for its answer, or answers for their reader."""
        if self.transport is None:
            return
        if len(self._waiting) + len(self._sending) > PIPELINED_MOST or (self._stuffed and self._opened is None):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # ------------------------------------------------------- ends

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered."""
        return not self._sending and not self._waiting

    def close(self) -> None:
        """Close it now, or once what was asked so far is answered."""
        if self.transport is None:
            return
        if self.idle:
            self.transport.close()
        else:
            (self._waiting or self._sending)[-1].request.persists = False

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


# ---------------------------------------------------------------------- the listening socket


def _forget(waiter: asyncio.Future[None]) -> None:
    """A handshake that fails is nothing to report."""
    waiter.cancelled() or waiter.exception()


class _Tls(SSLProtocol):
    """asyncio's TLS with a buffer for one record, where it has 256 KiB: there are thousands of connections.

    A connection that was closed does not wait for the peer to close it, too (RFC 8446, section 6.1): one that a client
    keeps for its next request would last for as long as we wait.
    """

    max_size = 16 << 10

    def _do_shutdown(self) -> None:
        super()._do_shutdown()  # type: ignore[misc]
        if self._transport is not None:
            self._on_shutdown_complete(None)  # type: ignore[attr-defined]


class Listener:
    """Connections, and of which of them it is not known yet whose they are: those are guests.

    Parameters
    ----------
    admit
        Looks at the head of a request; see `Admission`.
    who
        Whose fault it is when a request cannot be answered: "the master".
    """

    def __init__(self, admit: Callable[[Request], Admission], who: str) -> None:
        self.admit, self._who = admit, who
        self.buffer = memoryview(bytearray(_READ_MOST))
        self.connections: set[Connection] = set()
        """Those that are open."""
        self._unauthenticated: dict[Connection, None] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        factory = partial(Connection, self) if context is None else partial(self._secured, context)
        self._listening = await asyncio.get_running_loop().create_server(factory, sock=sock, backlog=_BACKLOG)

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        if len(self._unauthenticated) >= UNAUTHENTICATED_MOST:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.abort()
        self._unauthenticated[connection] = None

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._unauthenticated.pop(connection, None)

    def refused(self, request: Request, error: Exception) -> Response | Coroutine[Any, Any, Response]:
        """What to answer where an exception was raised; 429 and 503 later, since some clients retry at once."""
        response = error_response(error, request.target, self._who)
        return _delayed(response) if response.status in (429, 503) else response

    def _secured(self, context: ssl.SSLContext) -> _Tls:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        waiter.add_done_callback(_forget)
        return _Tls(loop, Connection(self), context, waiter, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S)

    def authenticated(self, connection: Connection) -> None:
        """Keep it, however many connect that have not authenticated."""
        self._unauthenticated.pop(connection, None)

    async def close(self, grace_s: float) -> None:
        """Listen no more; what is being answered has so long to end [s]."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.close()
        deadline = asyncio.get_running_loop().time() + grace_s
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL_S)
        self.abort()

    def abort(self) -> None:
        """Listen no more, and break all connections."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.abort()


def listening_socket(host: str, port: int) -> socket.socket:
    """A TCP socket on one address of this machine or, for ``""``, on all.

    Peers that vanish without a word are found out within about a minute: accepted connections inherit the options.

    Raises
    ------
    StateError
        When it cannot be had.
    """
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
    except OSError as error:
        raise StateError(f"cannot listen on {host or 'all addresses'}, port {port}: {error}; choose others") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio forgets it where a socket's protocol is 0
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
    return sock


def raise_file_limit() -> int:
    """Let this process have as many open files as it may; how many that is.

    Each stream is one, and the usual limit of 1,024 is a small pool's.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, FILES_MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
