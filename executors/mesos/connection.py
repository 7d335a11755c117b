"""An HTTP connection to a master or an agent: once open it never blocks, and requests go out one behind the other."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

from executors.mesos.codec import LARGEST
from executors.mesos.endpoint import CONNECT_S, Endpoint

_CHUNK = 1 << 18
_HEADERS_MOST = 256


@dataclass
class Answer:
    """A response, as far as it has come."""

    status: int = 0
    """0 until the headers are complete."""
    headers: dict[str, str] = field(default_factory=dict)
    """By name in small letters."""
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False


class Connection:
    """One connection; `fileno` makes it known to a selector.

    Raises
    ------
    OSError
        When no address answers, or its certificate is not the one that was expected.
    """

    def __init__(self, endpoint: Endpoint, timeout: float = CONNECT_S) -> None:
        self._socket, self._host = _dial(endpoint, timeout)
        self._authorization = endpoint.authorization
        self._parser = httptools.HttpResponseParser(self)
        self._out = bytearray()
        self._deciphered: Callable[[], int] = getattr(self._socket, "pending", int)
        self.answers: deque[Answer] = deque()
        """What has come, oldest first; whoever reads it takes it away. The last may be incomplete."""

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._out)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        """Queue a request; `flush` sends it."""
        common = {"Host": self._host, "Content-Type": "application/json", "Accept": "application/json"}
        if self._authorization:
            common["Authorization"] = self._authorization
        lines = "".join(f"{name}: {value}\r\n" for name, value in (common | headers).items())
        self._out += f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    def flush(self) -> None:
        """Send what the socket takes; raises `OSError` when the peer is gone."""
        while self._out:
            try:
                sent = self._socket.send(self._out[:_CHUNK])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            del self._out[:sent]

    def receive(self) -> None:
        """Take what is there apart into `answers`.

        Raises
        ------
        OSError
            When the peer is gone, or what it sends is no HTTP.
        """
        try:
            while True:
                chunk = self._socket.recv(_CHUNK)
                if not chunk:
                    raise ConnectionResetError("the connection was closed")
                self._parser.feed_data(chunk)
                if not self._deciphered():  # bytes inside the TLS layer would not wake a selector
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ConnectionAbortedError(f"what came is no HTTP response: {error}") from error

    def close(self) -> None:
        """Close it; what waits to be sent is dropped."""
        self._socket.close()

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self.answers.append(Answer())

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.answers[-1].headers
        if len(headers) >= _HEADERS_MOST:
            raise ValueError(f"more than {_HEADERS_MOST} headers")
        headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answers[-1].status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        answer = self.answers[-1]
        if len(answer.body) + len(body) > LARGEST:
            raise ValueError(f"more than {LARGEST} bytes in a response")
        answer.body += body

    def on_message_complete(self) -> None:
        self.answers[-1].complete = True


def _dial(endpoint: Endpoint, timeout: float) -> tuple[socket.socket, str]:
    """A connected socket that does not block, and the Host header for it."""
    problem = OSError("no host to connect to")
    for host in endpoint.hosts:
        try:
            stream = socket.create_connection((host, endpoint.port), timeout)
        except OSError as error:
            problem = error
            continue
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.context is not None:
                stream = endpoint.context.wrap_socket(stream, server_hostname=endpoint.name)
            stream.setblocking(False)
        except OSError as error:  # ssl.SSLError is one
            stream.close()
            problem = error
            continue
        return stream, f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
    raise problem
