"""A client's connection to a master or an agent, where these listen, and how clients prove who they are."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from asa.core.errors import InvalidInput
from asa.web.protocol import BodyData, EndOfMessage, Event, Headers, ResponseHead, ResponseReader
from executors.mesos.codec import LARGEST
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.pool_directory import AGENT_NAME, FRAMEWORK, MASTER_NAME, PoolDirectory

_CHUNK = 1 << 18
CONNECT_S = 5.0
"""How long one address may take to answer, TLS included [s]."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens, and how clients prove who they are.

    The first of `hosts` that answers is taken. `context` and `name`, that in the server's certificate, are for TLS;
    None for plain HTTP.
    """

    hosts: tuple[str, ...]
    port: int
    authorization: str | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)
    name: str | None = None


Finder = Callable[[], Endpoint | None]
"""Looks for a server, at each connection anew; None while there is none."""


def of_pool(directory: PoolDirectory, role: str = FRAMEWORK) -> Finder:
    """Finds the master of a pool, of which only its certificate is believed; its `StateError` may come up."""

    def find() -> Endpoint | None:
        address = directory.master()
        if address is None:
            return None
        context = directory.client_context() if address.tls else None
        return Endpoint(address.hosts, address.port, bearer(directory.token(role)), context, MASTER_NAME)

    return find


def of_agent(directory: PoolDirectory, address: str, role: str) -> Finder:
    """Finds an agent of a pool at ``host:port``; as `of_pool` else. Raises `InvalidInput` when that is no address."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None:
        raise InvalidInput(f"expected an agent as host:port, found {address!r}")
    hosts, agent_port = (host,), port

    def find() -> Endpoint | None:
        master = directory.master()
        context = directory.client_context() if master is None or master.tls else None
        return Endpoint(hosts, agent_port, bearer(directory.token(role)), context, AGENT_NAME)

    return find


def bearer(token: str) -> str:
    """The header's value for a token."""
    return f"Bearer {token}"


@dataclass
class HTTPAnswer:
    """A response, as far as it has come."""

    status: int
    headers: Headers
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False


class ClientConnection:
    """One connection: requests go out one behind the other, without waiting for their responses.

    `fileno` makes it known to a selector. Raises `OSError` when no address answers, or its certificate is not the one
    expected.
    """

    def __init__(self, endpoint: Endpoint, timeout: float = CONNECT_S, host: PoolHost = POOL_HOST) -> None:
        self._socket, self._host = _dial(endpoint, timeout, host)
        self._authorization = endpoint.authorization
        self._reader = ResponseReader()
        self._out = bytearray()
        self._deciphered: Callable[[], int] = getattr(self._socket, "pending", int)
        self.answers: deque[HTTPAnswer] = deque()
        """Responses, oldest first; the reader removes them. The last may be incomplete."""

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
        """Parse what has come into `answers`; raises `OSError` when the peer is gone, or sends no HTTP."""
        try:
            while True:
                chunk = self._socket.recv(_CHUNK)
                if not chunk:
                    raise ConnectionResetError("the connection was closed")
                for event in self._reader.receive(chunk):
                    self._take(event)
                if not self._deciphered():  # bytes inside the TLS layer would not wake a selector
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return

    def close(self) -> None:
        """What waits to be sent is dropped."""
        self._socket.close()

    def _take(self, event: Event) -> None:
        match event:
            case ResponseHead(status, headers):
                self.answers.append(HTTPAnswer(status, headers))
            case BodyData(data):
                if len(self.answers[-1].body) + len(data) > LARGEST:
                    raise ConnectionAbortedError(f"a response has more than {LARGEST} bytes")
                self.answers[-1].body += data
            case EndOfMessage():
                self.answers[-1].complete = True
            case _:
                raise ConnectionAbortedError("the server has sent something else than HTTP responses")


def _dial(endpoint: Endpoint, timeout: float, machine: PoolHost) -> tuple[socket.socket, str]:
    """A connected socket that does not block, and the Host header for it."""
    problem = OSError("no host to connect to")
    for host in endpoint.hosts:
        try:
            stream = machine.dial(host, endpoint.port, timeout)
        except OSError as error:
            problem = error
            continue
        try:
            if endpoint.context is not None:
                stream = endpoint.context.wrap_socket(stream, server_hostname=endpoint.name)
            stream.setblocking(False)
        except OSError as error:  # ssl.SSLError is one
            stream.close()
            problem = error
            continue
        return stream, f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
    raise problem
