"""The receiving half of an HTTP/1.1 connection, as a state machine without I/O: bytes go in, events come out.

A connection receives one message after another (RFC 9112, section 2.1), requests on a server, responses on a client: a
request line or status line and a header section, which are its *head*, then a message body. httptools finds where these
begin and end; `TRANSITIONS` says what may follow what. A server answers the events, and calls `discard` where nothing
more is to be read from this peer.

References
----------
RFC 9112, *HTTP/1.1*: sections 2 (messages), 3 (request line), 4 (status line), 5 (field lines), 6 (message body),
9 (connections).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

import httptools

HEAD_MOST = 64 << 10
"""Longest start line and header section [bytes]; one chunk more may have been read before that is seen."""

_CONNECTION_FIELDS = ("connection", "upgrade", "http2-settings")


class Receiving(Enum):
    """What a connection receives."""

    IDLE = "nothing: the next message may begin, or the peer may close"
    HEAD = "a start line and field lines"
    BODY = "a message body, which may be empty"
    DISCARDING = "what is not read any more: the peer is being refused, or what it sent is malformed"


class Happening(Enum):
    """What moves a connection from one state to the next."""

    MESSAGE_BEGINS = 1
    HEAD_COMPLETE = 2
    MESSAGE_COMPLETE = 3
    MALFORMED = 4
    REFUSED = 5


TRANSITIONS: dict[tuple[Receiving, Happening], Receiving] = {
    (Receiving.IDLE, Happening.MESSAGE_BEGINS): Receiving.HEAD,
    (Receiving.HEAD, Happening.HEAD_COMPLETE): Receiving.BODY,
    (Receiving.BODY, Happening.MESSAGE_COMPLETE): Receiving.IDLE,
    # An upgrade is not accepted: the same head is read once more, without asking for it. So end interim responses.
    (Receiving.HEAD, Happening.MESSAGE_BEGINS): Receiving.HEAD,
    (Receiving.HEAD, Happening.MESSAGE_COMPLETE): Receiving.HEAD,
    **{(state, Happening.MALFORMED): Receiving.DISCARDING for state in Receiving},
    **{(state, Happening.REFUSED): Receiving.DISCARDING for state in Receiving},
}


class Headers(Mapping[str, str]):
    """Header fields by name, in whatever case; fields of one name are joined by commas (RFC 9110, section 5.2)."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def get(self, name: str, default: Any = None) -> Any:
        return self._fields.get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class RequestHead(NamedTuple):
    """Request line and header section are there; a body follows, and then `EndOfMessage`."""

    method: str
    target: str
    version: str
    headers: Headers
    persists: bool
    """Whether the connection persists after the response (RFC 9112, section 9.3)."""


class ResponseHead(NamedTuple):
    """Status line and header section are there; a body follows, and then `EndOfMessage`."""

    status: int
    headers: Headers


class BodyData(NamedTuple):
    """A piece of the message body, with what chunks add to it taken away."""

    data: bytes


class EndOfMessage(NamedTuple):
    """The message is complete."""


class MalformedMessage(NamedTuple):
    """What came is no such message, or its head is longer than `HEAD_MOST`; nothing comes behind it."""


Event = RequestHead | ResponseHead | BodyData | EndOfMessage | MalformedMessage


class MessageReader:
    """Takes what a peer sends apart into events, however its bytes arrive; the parser knows the start line."""

    __slots__ = ("_events", "_fields", "_head_size", "_parser", "state")
    _parser: Any

    def __init__(self) -> None:
        self.state = Receiving.IDLE
        self._fields = dict[str, str]()
        self._head_size = 0
        self._events: list[Event] = []

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes complete."""
        if self.state is Receiving.DISCARDING:
            return []
        state, size = self.state, self._head_size
        try:
            self._feed(data)
            if self.state is state is Receiving.HEAD and self._head_size == size:  # a piece of a line, and no more
                self._measure(len(data))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._move(Happening.MALFORMED)
            self._events.append(MalformedMessage())
        events, self._events = self._events, []
        return events

    def discard(self) -> None:
        """Nothing more is to be read from this peer."""
        self._move(Happening.REFUSED)

    def _move(self, happening: Happening) -> None:
        self.state = TRANSITIONS[self.state, happening]

    def _feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def _measure(self, size: int) -> None:
        self._head_size += size + 1
        if self._head_size > HEAD_MOST:
            raise httptools.HttpParserError(f"a head of more than {HEAD_MOST} bytes")

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self._move(Happening.MESSAGE_BEGINS)
        self._fields, self._head_size = {}, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._fields[key] = f"{self._fields[key]}, {text}" if key in self._fields else text
        self._measure(len(name) + len(value))

    def on_body(self, body: bytes) -> None:
        self._events.append(BodyData(body))

    def on_message_complete(self) -> None:
        if self.state is Receiving.BODY:
            self._events.append(EndOfMessage())
        self._move(Happening.MESSAGE_COMPLETE)


class RequestReader(MessageReader):
    """What a server receives.

    >>> reader = RequestReader()
    >>> [type(event).__name__ for event in reader.receive(b"GET / HTTP/1.1\\r\\nHost: n1\\r\\n\\r\\n")]
    ['RequestHead', 'EndOfMessage']
    >>> reader.state
    <Receiving.IDLE: 'nothing: the next message may begin, or the peer may close'>
    """

    __slots__ = ("_target",)

    def __init__(self) -> None:
        super().__init__()
        self._parser, self._target = httptools.HttpRequestParser(self), b""

    def _feed(self, data: bytes) -> None:
        try:
            super()._feed(data)
        except httptools.HttpParserUpgrade as upgrade:
            method, version = self._parser.get_method().decode(), self._parser.get_http_version()
            if method == "CONNECT":
                raise httptools.HttpParserError("no proxy") from None
            lines = [f"{method} {self._target.decode('latin-1')} HTTP/{version}"]
            lines += [f"{name}: {text}" for name, text in self._fields.items() if name not in _CONNECTION_FIELDS]
            self._parser = httptools.HttpRequestParser(self)
            self._feed("\r\n".join([*lines, "\r\n"]).encode("latin-1") + data[upgrade.args[0] :])

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._target = b""

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._measure(len(url))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            return
        self._move(Happening.HEAD_COMPLETE)
        target, fields = self._target.decode("latin-1"), Headers(self._fields)
        method, version = parser.get_method().decode(), parser.get_http_version()
        self._events.append(RequestHead(method, target, version, fields, parser.should_keep_alive()))
        self._target, self._fields = b"", {}


class ResponseReader(MessageReader):
    """What a client receives; interim responses (RFC 9110, section 15.2) are passed over.

    >>> answer = b"HTTP/1.1 100 Continue\\r\\n\\r\\nHTTP/1.1 202 Accepted\\r\\nContent-Length: 0\\r\\n\\r\\n"
    >>> head, end = ResponseReader().receive(answer)
    >>> head.status, dict(head.headers), end
    (202, {'content-length': '0'}, EndOfMessage())
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._parser = httptools.HttpResponseParser(self)

    # ------------------------------------------------------- called by httptools

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) < 200:
            return  # the head of the final response is still to come
        self._move(Happening.HEAD_COMPLETE)
        self._events.append(ResponseHead(status, Headers(self._fields)))
        self._fields = {}
