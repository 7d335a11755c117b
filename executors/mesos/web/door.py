"""The listening socket: who comes, and how many may stay that have not said who they are.

Connections stay for as long as their peers want: one that finds its idle connection closed may take that for our end.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from asa.core.errors import StateError
from executors.mesos.web.http import Admission, Request, Response
from executors.mesos.web.request import refusal
from executors.mesos.web.serving import Connection

GUESTS_MOST = 256
"""Connections that have not authenticated; with one more, the oldest of them is dropped."""

_BACKLOG = 4096
_HANDSHAKE_S = 10
_LOOK_S = 0.005
_READ_MOST = 256 << 10
_GONE_MS = 60_000


def _look(waiter: asyncio.Future[None]) -> None:
    """A handshake that fails is nothing to report."""
    waiter.cancelled() or waiter.exception()


class _Tls(SSLProtocol):
    """asyncio's TLS with a buffer for one record, where it has 256 KiB: there are thousands of connections."""

    max_size = 16 << 10


class Door:
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
        self._guests: dict[Connection, None] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        factory = partial(Connection, self) if context is None else partial(self._secured, context)
        self._listening = await asyncio.get_running_loop().create_server(factory, sock=sock, backlog=_BACKLOG)

    def opened(self, connection: Connection) -> None:
        """There is a new one."""
        self.connections.add(connection)
        if len(self._guests) >= GUESTS_MOST:
            oldest = next(iter(self._guests))
            del self._guests[oldest]
            oldest.abort()
        self._guests[connection] = None

    def closed(self, connection: Connection) -> None:
        """It is gone."""
        self.connections.discard(connection)
        self._guests.pop(connection, None)

    def refused(self, request: Request, error: Exception) -> Response | Coroutine[Any, Any, Response]:
        """What to answer where an exception was raised."""
        return refusal(error, request.target, self._who)

    def _secured(self, context: ssl.SSLContext) -> _Tls:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        waiter.add_done_callback(_look)
        return _Tls(loop, Connection(self), context, waiter, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S)

    def know(self, connection: Connection) -> None:
        """It has said whose it is: it may stay."""
        self._guests.pop(connection, None)

    async def close(self, grace_s: float) -> None:
        """Listen no more; what is being answered has so long to end [s]."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.close()
        deadline = asyncio.get_running_loop().time() + grace_s
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)
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
