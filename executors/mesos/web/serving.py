"""Connections of HTTP/1.1: requests are taken apart by httptools, and answered in the order in which they came.

Most calls are over within one turn of the event loop: their bytes come, they are carried out, the answer is written.
Nothing of a body is kept before its head has been looked at, since anybody may send one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import httptools

from executors.mesos.commit import Durable
from executors.mesos.effects import Refused
from executors.mesos.web import limits
from executors.mesos.web.http import Admission, Answer, Headers, Later, Opened, Request, Response, encoded, head

HEAD_MOST = 64 << 10
"""Longest request line and headers [bytes]; one chunk more may have been read before that is seen."""
WAITING_MOST = 512
"""Requests of one connection that may wait for their answers; with more, nothing is read from it for a while."""
LINGER_S = 2.0
"""How long a peer that was refused before it had sent all may take to read why [s]."""

_HOP = ("connection", "upgrade", "http2-settings")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Keeper(Protocol):
    """Whose connections they are."""

    buffer: memoryview
    """What bytes are read into, whosever they are: one read is over before the next begins."""

    def opened(self, connection: Connection) -> None:
        """There is a new one."""

    def closed(self, connection: Connection) -> None:
        """It is gone."""

    def admit(self, request: Request) -> Admission:
        """Look at the head of a request; what this raises is answered as what answering raises."""

    def refused(self, request: Request, error: Exception) -> Response | Coroutine[Any, Any, Response]:
        """What to answer where an exception was raised."""


class _Exchange:
    """A request, whether it may come in, and its answer once that is there."""

    __slots__ = ("admitted", "durable", "opened", "request", "response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.admitted: Admission | Exception = Refused(400, "expected an HTTP request")
        self.response: Response | None = None
        self.durable: Durable | None = None
        self.opened: Opened | None = None

    @property
    def ready(self) -> Response | None:
        """The answer, unless something is still to be waited for."""
        return self.response if self.durable is None or self.durable.is_set() else None


class Connection(asyncio.BufferedProtocol):
    """One connection, of somebody who may be anybody."""

    __slots__ = (
        "_awaited", "_coming", "_draining", "_fields", "_head", "_job", "_keeper", "_parser", "_pieces", "_sending",
        "_size", "_stuffed", "_target", "_timer", "_waiting", "local", "peer", "transport",
    )  # fmt: skip

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.transport: asyncio.Transport | None = None
        """None once it is gone."""
        self.peer = self.local = ""
        """Addresses, without ports."""
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._fields = b"", dict[str, str]()
        self._head = -1  # so much of a head has come; negative outside of one
        self._coming: _Exchange | None = None  # its head is there, its body not yet
        self._pieces: list[bytes] = []
        self._size = 0
        self._sending: list[_Exchange] = []  # begun, and not answered to the end
        self._waiting: list[_Exchange] = []  # not begun
        self._awaited: Durable | None = None
        self._job: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._draining = self._stuffed = False

    # ------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer, self.local = ((transport.get_extra_info(end) or [""])[0] for end in ("peername", "sockname"))
        self._keeper.opened(self)

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
        self._keeper.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._keeper.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._draining:
            self._receive(bytes(self._keeper.buffer[:nbytes]))

    def _receive(self, data: bytes) -> None:
        before = self._head
        try:
            self._feed(data)
        except httptools.HttpParserError:
            return self._break_off()
        if self._coming is not None:
            self._wait_for_body(self._coming)
        elif self._head == before >= 0:  # nothing but a piece of a line of a head
            self._head += len(data)
            if self._head > HEAD_MOST:
                return self._break_off()
        self._send()
        return None

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

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self._target, self._fields, self._head = b"", {}, 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._measure(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._fields[key] = f"{self._fields[key]}, {text}" if key in self._fields else text
        self._measure(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        parser, target, fields = self._parser, self._target.decode("latin-1"), Headers(self._fields)
        request = Request(self, parser.get_method().decode(), target, parser.get_http_version(), fields)
        request.lasts = parser.should_keep_alive()
        self._target, self._fields = b"", {}
        self._coming = exchange = _Exchange(request)
        self._size, self._head = 0, -1
        try:
            exchange.admitted = admitted = self._keeper.admit(request)
            length = fields.get("content-length", "")
            if length.isdigit() and int(length) > admitted.most:
                raise limits.too_long(admitted.most)
        except Exception as error:
            exchange.admitted = error

    def on_body(self, body: bytes) -> None:
        exchange = self._coming
        if exchange is None or not isinstance(exchange.admitted, Admission):
            return
        self._pieces.append(body)
        self._size += len(body)
        if self._size > exchange.admitted.most:
            self._pieces.clear()
            exchange.admitted = limits.too_long(exchange.admitted.most)

    def on_message_complete(self) -> None:
        exchange, self._coming = self._coming, None
        if exchange is None:
            return
        exchange.request.body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._take(exchange)

    # ------------------------------------------------------- requests

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:  # we never do: to be read as if nobody had asked for it
            method, version = self._parser.get_method().decode(), self._parser.get_http_version()
            if method == "CONNECT":
                raise httptools.HttpParserError("no proxy") from None
            lines = [f"{method} {self._target.decode('latin-1')} HTTP/{version}"]
            lines += [f"{name}: {text}" for name, text in self._fields.items() if name not in _HOP]
            self._parser = httptools.HttpRequestParser(self)
            self._feed("\r\n".join([*lines, "\r\n"]).encode("latin-1") + data[upgrade.args[0] :])

    def _measure(self, size: int) -> None:
        self._head += size + 1
        if self._head > HEAD_MOST:
            raise ValueError(f"a head of more than {HEAD_MOST} bytes")

    def _wait_for_body(self, exchange: _Exchange) -> None:
        if not isinstance(exchange.admitted, Admission):
            return self._refuse_now(exchange)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(limits.BODY_S, self._too_late)
            if exchange.request.headers.get("expect", "").lower() == "100-continue" and not self._sending:
                self.write(_CONTINUE)
        return None

    def _too_late(self) -> None:
        self._timer = None
        if (exchange := self._coming) is not None:
            exchange.admitted = Refused(408, f"expected the whole body within {limits.BODY_S:g} s")
            self._refuse_now(exchange)

    def _refuse_now(self, exchange: _Exchange) -> None:
        """Answer although the body is still to come; it is not wanted any more, and nothing behind it."""
        self._draining, self._coming = True, None
        self._pieces.clear()
        exchange.request.lasts = False
        self._take(exchange)
        self._send()

    def _break_off(self) -> None:
        """What came is no request."""
        self._refuse_now(self._coming or _Exchange(Request(self, "", "", "1.1", Headers({}))))

    def _take(self, exchange: _Exchange) -> None:
        if self._waiting or self._occupied:
            self._waiting.append(exchange)
        else:
            self._begin(exchange)
        self._pace()

    @property
    def _opened(self) -> Opened | None:
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
            found = self._keeper.refused(exchange.request, error)
        if isinstance(found, Response):
            exchange.response = found
        elif isinstance(found, Later):
            exchange.durable, exchange.response = found
            if found.durable is not self._awaited:
                self._awaited = found.durable
                found.durable.then(self._send)
        elif isinstance(found, Opened):
            exchange.opened = found
        else:
            self._job = asyncio.get_running_loop().create_task(self._finish(exchange, found))
        exchange.request.body = b""

    async def _finish(self, exchange: _Exchange, answering: Coroutine[Any, Any, Response | Opened]) -> None:
        try:
            answer = await answering
            exchange.response, exchange.opened = (None, answer) if isinstance(answer, Opened) else (answer, None)
        except Exception as error:
            found = self._keeper.refused(exchange.request, error)
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
                if not exchange.request.lasts:
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
        """Begin the stream, if its turn has come."""
        if self._sending and (opened := self._sending[0].opened) is not None and not opened.stream.begun:
            headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **opened.headers}
            request = self._sending[0].request
            self.write(head(200, headers, request))
            request.headers = Headers({})  # there may be thousands of streams, and none needs them any more
            opened.stream.begin()

    def stream_ended(self) -> None:
        exchange = self._sending.pop(0)
        if not exchange.request.lasts:
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
        if not self._draining:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def _pace(self) -> None:
        """Read no more while too much waits for its answer, or answers for their reader."""
        if self.transport is None:
            return
        if len(self._waiting) + len(self._sending) > WAITING_MOST or (self._stuffed and self._opened is None):
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
            (self._waiting or self._sending)[-1].request.lasts = False

    def abort(self) -> None:
        """Break it."""
        if self.transport is not None:
            self.transport.abort()
