"""Requests and answers of HTTP, as the handlers of master and agent see them; `serving` puts them on connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from executors.mesos.commit import Durable
from executors.mesos.web.streams import Stream

if TYPE_CHECKING:
    from executors.mesos.web.serving import Connection


class Headers(Mapping[str, str]):
    """Header fields by name, in whatever case; fields of one name are joined by commas."""

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


class Request:
    """A request; its `body` is complete when it is to be answered."""

    __slots__ = ("body", "connection", "headers", "lasts", "method", "target", "version")

    def __init__(self, connection: Connection, method: str, target: str, version: str, headers: Headers) -> None:
        self.connection, self.method, self.target, self.version = connection, method, target, version
        self.headers = headers
        self.body = b""
        self.lasts = True
        """Whether the connection does, after the answer."""

    @property
    def path(self) -> str:
        """Without the query, and with ``%`` sequences replaced."""
        path = self.target.partition("?")[0] if self.target.startswith("/") else urlsplit(self.target).path
        return unquote(path) if "%" in path else path

    @property
    def query(self) -> dict[str, str]:
        """Of several values of one name, the first."""
        return dict(reversed(parse_qsl(urlsplit(self.target).query, keep_blank_values=True)))


class Response(NamedTuple):
    """An answer that is there as a whole."""

    status: int
    body: bytes = b""
    content: str = ""
    """Its type; empty where there is no body."""
    headers: Mapping[str, str] = {}


class Later(NamedTuple):
    """An answer that waits until something is durable; requests that follow are carried out meanwhile."""

    durable: Durable
    response: Response


class Opened(NamedTuple):
    """A stream is the answer; requests that follow wait for its end."""

    stream: Stream
    headers: Mapping[str, str] = {}


Answer = Response | Later | Opened | Coroutine[Any, Any, Response | Opened]
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
    if not request.lasts:
        lines.append("Connection: close")
    elif request.version == "1.0":
        lines.append("Connection: keep-alive")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
