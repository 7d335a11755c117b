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

from asa.web.protocol import BodyData, EndOfMessage, ResponseHead, ResponseReader


class HttpParser:
    """Takes one response apart, with the methods that pymesos calls; of a request it makes nothing.

    Examples
    --------
    >>> parser = HttpParser()
    >>> data = b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nab\\r\\n"
    >>> parser.execute(data, len(data)) == len(data), parser.get_status_code(), parser.recv_body()
    (True, 200, b'ab')
    """

    def __init__(self) -> None:
        self._reader = ResponseReader()
        self._head: ResponseHead | None = None
        self._body = bytearray()
        self._complete = self._bad = False

    def execute(self, data: bytes, length: int) -> int:
        """Take `length` bytes; how many of them were understood, which is fewer only when they are no HTTP."""
        for event in self._reader.receive(bytes(data[:length])):
            match event:
                case ResponseHead():
                    self._head = event
                case BodyData(body):
                    self._body += body
                case EndOfMessage():
                    self._complete = True
                case _:
                    self._bad = True
        return 0 if self._bad else length

    def is_headers_complete(self) -> bool:
        return self._head is not None

    def is_partial_body(self) -> bool:
        return bool(self._body)

    def is_message_complete(self) -> bool:
        return self._complete

    def is_chunked(self) -> bool:
        return self.get_headers().get("TRANSFER-ENCODING", "").lower().endswith("chunked")

    def recv_body(self) -> bytes:
        """What has come of the body since the last call."""
        found = bytes(self._body)
        self._body.clear()
        return found

    def get_status_code(self) -> int:
        """The status; 0 before it has come."""
        return self._head.status if self._head else 0

    def get_headers(self) -> dict[str, str]:
        """All headers, by name in capitals."""
        return {name.upper(): value for name, value in self._head.headers.items()} if self._head else {}

    def get_errno(self) -> int:
        """0 when all was well."""
        return int(self._bad)


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
