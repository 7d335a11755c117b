"""Lets pymesos be imported where the package `http_parser`, which it needs, cannot be built: Python >= 3.11.

::

    pip install --no-deps pymesos==0.3.15 addict six kazoo

    from executors.mesos.compat import enable_pymesos
    enable_pymesos()
    import pymesos
"""

from __future__ import annotations

import importlib.util
import sys
import types

import httptools

_OK, _BAD = 0, 1


class HttpParser:
    """Takes one HTTP message apart, a response or a request, with the methods that pymesos asks for.

    Parameters
    ----------
    kind
        0 for a request, 1 for a response, 2 for what the first bytes say.

    Examples
    --------
    >>> parser = HttpParser()
    >>> data = b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nab\\r\\n"
    >>> parser.execute(data, len(data)) == len(data), parser.get_status_code(), parser.recv_body()
    (True, 200, b'ab')
    """

    def __init__(self, kind: int = 2) -> None:
        self._kind = kind
        self._parser: httptools.HttpResponseParser | httptools.HttpRequestParser | None = None
        self._start = b""
        self._headers: dict[str, str] = {}
        self._url = ""
        self._body = bytearray()
        self._headed, self._complete, self._bad = False, False, False

    def execute(self, data: bytes, length: int) -> int:
        """Take `length` bytes; how many of them were understood, which is fewer only when they are no HTTP."""
        if self._bad:
            return 0
        piece = bytes(data[:length])
        if self._parser is None:
            self._start += piece
            if self._kind == 2 and len(self._start) < len(b"HTTP/") and b"HTTP/".startswith(self._start):
                return length
            piece, self._parser = self._start, self._made()
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._complete = True
        except httptools.HttpParserError:
            self._bad = True
            return 0
        return length

    def _made(self) -> httptools.HttpResponseParser | httptools.HttpRequestParser:
        response = self._kind == 1 or (self._kind == 2 and self._start.startswith(b"HTTP/"))
        return httptools.HttpResponseParser(self) if response else httptools.HttpRequestParser(self)

    def is_headers_complete(self) -> bool:
        """Whether all headers have come."""
        return self._headed

    def is_partial_body(self) -> bool:
        """Whether there is some of the body that `recv_body` has not returned yet."""
        return bool(self._body)

    def is_message_complete(self) -> bool:
        """Whether the message has come to its end."""
        return self._complete

    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self._headers.get("TRANSFER-ENCODING", "").lower().endswith("chunked")

    def recv_body(self) -> bytes:
        """What has come of the body since the last call."""
        found = bytes(self._body)
        self._body.clear()
        return found

    def get_status_code(self) -> int:
        """The status of a response; 0 for a request."""
        found = self._parser
        return found.get_status_code() if isinstance(found, httptools.HttpResponseParser) else 0

    def get_headers(self) -> dict[str, str]:
        """All headers, by name in capitals."""
        return dict(self._headers)

    def get_method(self) -> str:
        """The method of a request; an empty text for a response."""
        found = self._parser
        return found.get_method().decode() if isinstance(found, httptools.HttpRequestParser) else ""

    def get_url(self) -> str:
        """The target of a request; an empty text for a response."""
        return self._url

    def get_errno(self) -> int:
        """0 when all was well."""
        return _BAD if self._bad else _OK

    # ------------------------------------------------------- called by httptools

    def on_url(self, url: bytes) -> None:
        self._url += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").upper(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._complete = True


def enable_pymesos() -> bool:
    """Register a stand-in for `http_parser`, for this process, unless the real one is installed.

    Returns
    -------
    bool
        Whether the stand-in is in use. Nothing happens when this is called again.
    """
    present = sys.modules.get(_NAME)
    if present is not None:
        return getattr(present, _MARK, False)
    if importlib.util.find_spec(_NAME) is not None:
        return False

    package, http = types.ModuleType(_NAME, "A stand-in"), types.ModuleType(f"{_NAME}.http", "A stand-in")
    package.__path__ = []  # a package without files
    vars(http)["HttpParser"] = HttpParser
    vars(package).update({"http": http, _MARK: True})
    sys.modules |= {_NAME: package, f"{_NAME}.http": http}
    return True


_NAME, _MARK = "http_parser", "asa_stand_in"
