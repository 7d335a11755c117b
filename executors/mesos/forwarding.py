"""HTTP requests on their way to somebody else: taken apart, so that nothing is smuggled, and put together anew."""

from __future__ import annotations

import re

import httptools

from asa.web.errors import HTTPError
from asa.web.hosts import check_addressed

_HEAD_MOST = 1 << 16
_REPLACED = frozenset({b"host", b"authorization"})
_LINE = re.compile(rb"[\x20-\x7e\x80-\xff\t]*")


class Requests:
    """Takes requests apart and puts them together again, with other ``Host`` and ``Authorization`` headers.

    Parameters
    ----------
    host, authorization
        What the two headers are to say.
    local
        The address that clients connect to, and may name.
    """

    def __init__(self, host: str, authorization: str, local: str) -> None:
        self._own = f"Host: {host}\r\nAuthorization: {authorization}\r\n".encode()
        self._local = local
        self._parser = httptools.HttpRequestParser(self)
        self._out = bytearray()
        self._refused: HTTPError | None = None
        self._begin()

    def feed(self, data: bytes) -> bytes:
        """What to send on for `data`.

        Raises
        ------
        HTTPError
            When it is no HTTP request, or none that may be forwarded; the connection is of no more use.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise self._refused or HTTPError(400, f"no HTTP request that can be forwarded: {error}") from None
        found = bytes(self._out)
        self._out.clear()
        return found

    def _begin(self) -> None:
        self._url, self._size = b"", 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunked = False

    def _refuse(self, refused: HTTPError) -> None:
        self._refused = refused
        raise refused

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > _HEAD_MOST or not (_LINE.fullmatch(name) and _LINE.fullmatch(value)):
            self._refuse(HTTPError(400, f"expected headers of at most {_HEAD_MOST} bytes"))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._url.startswith(b"/"):
            self._refuse(HTTPError(400, "expected a path: this is no proxy"))
        told = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in self._headers}
        try:
            check_addressed(told, frozenset({"localhost"}), self._local)
        except HTTPError as refused:
            self._refuse(refused)
        self._chunked = told.get("Transfer-Encoding", "").lower().endswith("chunked")
        self._out += b"%b %b HTTP/1.1\r\n" % (self._parser.get_method(), self._url) + self._own
        for name, value in self._headers:
            if name.lower() not in _REPLACED:
                self._out += b"%b: %b\r\n" % (name, value)
        self._out += b"\r\n"

    def on_body(self, body: bytes) -> None:
        self._out += b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body

    def on_message_complete(self) -> None:
        if self._chunked:
            self._out += b"0\r\n\r\n"
