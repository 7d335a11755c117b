"""A way to the master for programs of the same user that know neither TLS nor tokens, such as pymesos.

It listens on loopback, where on a login node every user can connect: only connections of the same user are taken.
Requests are parsed, so that nothing is smuggled past it, and sent on with two headers replaced: ``Host``, and
``Authorization`` with the pool's token. What web pages make a browser send is refused, since the browser is ours too.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from asa.web.errors import HTTPError
from asa.web.hosts import LOOPBACK, check_addressed
from asa.web.protocol import BodyData, EndOfMessage, RequestHead, RequestReader
from executors.mesos import peer
from executors.mesos.client import CONNECT_S, Endpoint, of_agent, of_pool
from executors.mesos.pool_directory import FRAMEWORK, PoolDirectory

_REPLACED = frozenset({"host", "authorization"})


class ForwardedRequests:
    """Takes requests apart and puts them together again, with other ``Host`` and ``Authorization`` headers.

    `local` is the address that clients connect to, and may name.
    """

    def __init__(self, host: str, authorization: str, local: str) -> None:
        self._own = f"Host: {host}\r\nAuthorization: {authorization}\r\n"
        self._local = local
        self._reader = RequestReader()
        self._chunked = False

    def feed(self, data: bytes) -> bytes:
        """What to send on for `data`.

        Raises `HTTPError` when it is no HTTP request, or none that may be forwarded; the connection is of no more use.
        """
        found = bytearray()
        for event in self._reader.receive(data):
            match event:
                case RequestHead():
                    found += self._head(event).encode("latin-1")
                case BodyData(body):
                    found += b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body
                case EndOfMessage():
                    found += b"0\r\n\r\n" if self._chunked else b""
                case _:
                    raise HTTPError(400, "no HTTP request that can be forwarded")
        return bytes(found)

    def _head(self, head: RequestHead) -> str:
        if not head.target.startswith("/"):
            raise HTTPError(400, "expected a path: this is no proxy")
        check_addressed(head.headers, frozenset({"localhost"}), self._local)
        self._chunked = head.headers.get("Transfer-Encoding", "").lower().endswith("chunked")
        rest = "".join(f"{name}: {value}\r\n" for name, value in head.headers.items() if name not in _REPLACED)
        return f"{head.method} {head.target} HTTP/1.1\r\n{self._own}{rest}\r\n"


_CHUNK = 1 << 16
HOLD_S, _LINGER_S = 1.0, 1.0


class Tunnel:
    """Listens on ``127.0.0.1`` until it is closed; use it as a context manager.

    Parameters
    ----------
    directory
        The pool. Its master is looked for at each connection, so it may move.
    role
        Whose token is sent: `FRAMEWORK` for schedulers, `READER` or `WRITER` of `pool_directory` for operators.
    agent
        Where an agent listens for operators, as ``host:port``, to come out there; None for the master.
    """

    def __init__(self, directory: PoolDirectory, role: str = FRAMEWORK, agent: str | None = None) -> None:
        self._find = of_pool(directory, role) if agent is None else of_agent(directory, agent, role)
        self._socket = socket.create_server((LOOPBACK, 0), backlog=128)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="asa-tunnel", daemon=True)
        self._open = set[asyncio.Task[None]]()
        self._ended = asyncio.Event()
        self.address = f"{LOOPBACK}:{self._socket.getsockname()[1]}"
        """What to give a client for a master: ``host:port``."""
        self._thread.start()

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    # ------------------------------------------------------- the tunnel's thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, sock=self._socket)
        await self._ended.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # either side is gone: so is the other
        except asyncio.CancelledError:
            if not self._ended.is_set():
                raise
        finally:
            self._open.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local, remote = peer.ends(writer.get_extra_info("socket"))
        if not peer.is_ours(local, remote):
            return await _answer(reader, writer, 403, "this tunnel belongs to another user")
        try:
            endpoint = self._find()
        except Exception as error:  # the pool's directory is damaged, or gone
            return await _refuse_later(reader, writer, str(error))
        if endpoint is None:
            return await _refuse_later(reader, writer, "the pool has no master yet")
        try:
            up, down = await _connect(endpoint)
        except OSError as error:
            return await _refuse_later(reader, writer, f"the master cannot be reached: {error}")
        try:
            await _until_one_ends(self._requests(reader, writer, down, endpoint, local[0]), _copy(up, writer))
        finally:
            down.close()
        return None

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        master: asyncio.StreamWriter,
        endpoint: Endpoint,
        local: str,
    ) -> None:
        requests = ForwardedRequests(f"{endpoint.hosts[0]}:{endpoint.port}", endpoint.authorization or "", local)
        while data := await reader.read(_CHUNK):
            try:
                master.write(requests.feed(data))
            except HTTPError as refused:
                return await _answer(reader, writer, refused.status, refused.reason)
            await master.drain()
        return None


async def _connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    problem: OSError = ConnectionError("it has no address")
    for host in endpoint.hosts:
        try:
            name = endpoint.name if endpoint.context is not None else None
            opening = asyncio.open_connection(host, endpoint.port, ssl=endpoint.context, server_hostname=name)
            return await asyncio.wait_for(opening, CONNECT_S)
        except OSError as error:  # TimeoutError is one
            problem = error
    raise problem


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()


async def _until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Both at once, until one of them ends: then the other is of no use."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reason: str) -> None:
    """Say that there is no master, but not at once: pymesos would ask again without a pause."""
    await asyncio.sleep(HOLD_S)
    await _answer(reader, writer, 503, reason)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    """Answer, and end the connection."""
    text = reason.encode()
    head = f"HTTP/1.1 {status} HTTPError\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + text)
    writer.write_eof()
    with suppress(TimeoutError):  # what is not read when the connection is closed would break off the answer too
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(_CHUNK):
                pass
