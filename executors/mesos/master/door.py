"""The listening socket as HTTP: how long connections stay, and how many that have not said who they are."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

GUESTS_MOST = 256
"""Connections that have not authenticated; with one more, the oldest of them is dropped."""

_BACKLOG = 4096
_FOREVER_S = 10 * 365 * 86400.0  # a client that finds its idle connection closed may take that for the master's end
_HANDSHAKE_S = 10
_LINGER_S = 2.0
_GONE_MS = 60_000


def _look(waiter: asyncio.Future[None]) -> None:
    """A handshake that fails is nothing to report."""
    waiter.cancelled() or waiter.exception()


class _Tls(SSLProtocol):
    """asyncio's TLS with a buffer for one record, where it has 256 KiB: there are thousands of connections."""

    max_size = 16 << 10


class Door(web.Server):
    """A server that knows its guests: connections of which none has been admitted yet.

    Parameters
    ----------
    handler
        Answers a request; it is cancelled when the peer has gone.
    """

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=_FOREVER_S,
            lingering_time=_LINGER_S,
            access_log=None,
            auto_decompress=False,
            logger=logging.Logger("aiohttp", logging.CRITICAL + 1),  # else strangers could fill the log
        )
        self._guests: dict[object, asyncio.Transport] = {}
        self._listening: asyncio.Server | None = None

    async def listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept connections, over TLS if there is a context."""
        factory = self if context is None else partial(self._secured, context)
        self._listening = await asyncio.get_running_loop().create_server(factory, sock=sock, backlog=_BACKLOG)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._guests) >= GUESTS_MOST:
            self._guests.pop(next(iter(self._guests))).abort()
        self._guests[handler] = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._guests.pop(handler, None)
        super().connection_lost(handler, exc)

    def _secured(self, context: ssl.SSLContext) -> _Tls:
        waiter = self._loop.create_future()
        waiter.add_done_callback(_look)
        return _Tls(self._loop, self(), context, waiter, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S)

    def admit(self, request: web.BaseRequest) -> None:
        """Whose request this is has said who it is: its connection may stay."""
        self._guests.pop(request.protocol, None)

    async def close(self, grace_s: float) -> None:
        """Listen no more; handlers have so long to end [s]."""
        if self._listening is not None:
            self._listening.close()
        self.pre_shutdown()
        await self.shutdown(grace_s)

    def abort(self) -> None:
        """Listen no more, and break all connections."""
        if self._listening is not None:
            self._listening.close()
        for transport in list(self._connections.values()):
            transport.abort()


def listening_socket(host: str, port: int) -> socket.socket:
    """A TCP socket on one address of this machine or, for ``""``, on all; raises `OSError` when it cannot be had.

    Peers that vanish without a word are found out within about a minute: accepted connections inherit the options.
    """
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_MS)
    return sock
