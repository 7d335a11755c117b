"""The agent's connection to its master, which is made again whenever it breaks (see `agent_protocol`)."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from asa.core.errors import StateError
from asa.web.protocol import BodyData, Event, Headers, MalformedMessage, ResponseHead, ResponseReader
from executors.mesos.agent_protocol import PATH, PING_S, PINGS, STREAM_HEADER
from executors.mesos.codec import BadMessage, Message, Records, encode
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.messages import field
from executors.mesos.pool_directory import AGENT, MASTER_NAME, PoolDirectory

TEXT_MOST = 500
"""How much of an answer that is no stream is kept [bytes]."""
BATCH_MOST, BATCH_BYTES = 1000, 4 << 20
"""A batch has at most so many items, and, but for its last one, so many bytes: far less than the master takes."""
UNSENT_MOST, UNSENT_BYTES = 20_000, 256 << 20
"""With more items, or more bytes, the master is taken for one that does not read."""
SOONEST_S, LATEST_S = 0.2, 5.0
"""How long to wait before looking for a master again [s]: at first, and after many tries; up to half less by chance."""
SILENCE_S = (1.0, 3600.0)
"""Bounds of the time after which a silent master is given up, whatever it asks for [s]."""
AGAIN_S = 1.0
"""How long the master has once more when that time is over [s]."""

_READ_MOST = 64 << 10
_CONNECT_S, _ANSWER_S, _LOOK_S = 5.0, 30.0, 5.0

_log = logging.getLogger(__name__)


class MasterAnswer(NamedTuple):
    """What a master answers; of a stream, the head."""

    status: int
    headers: Headers
    text: str


class MasterConnection(asyncio.BufferedProtocol):
    """A connection, for one request at a time.

    Parameters
    ----------
    received
        Takes the body of a response with status 200, piece by piece; its `BadMessage` breaks the connection.
        Without it each answer is taken as a whole.
    """

    def __init__(self, received: Callable[[bytes], object] | None = None) -> None:
        self._received = received
        self._reader = ResponseReader()
        self._buffer = memoryview(bytearray(_READ_MOST))
        self._transport: asyncio.Transport | None = None
        self._head = ResponseHead(0, Headers({}))
        self._body = b""
        self._answer: asyncio.Future[MasterAnswer] | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the exception that the connection was ended by."""

    def post(self, head: str, body: bytes) -> asyncio.Future[MasterAnswer]:
        """Send a request; `head` is its first line and headers. Raises `OSError`, at once or later, when it breaks."""
        if self._transport is None:
            raise ConnectionResetError("the connection is gone")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
        return self._answer

    def close(self) -> None:
        """End it; nothing more is received."""
        self._break(ConnectionAbortedError("it was closed"))
        self.broken.exception()  # or asyncio would log that it was never retrieved

    def _break(self, error: Exception) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if not self.broken.done():
            self.broken.set_exception(error)

    # ------------------------------------------------------- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None  # once it is lost asyncio must not end it again
        self._break(exc or ConnectionResetError("the master has closed it"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for event in self._reader.receive(bytes(self._buffer[:nbytes])):
                self._take(event)
        except (OSError, BadMessage) as error:
            self._break(error)

    def _take(self, event: Event) -> None:
        stream = self._received if self._head.status == 200 else None
        if isinstance(event, ResponseHead):
            self._head, self._body = event, b""
            if self._received is not None and event.status == 200:
                self._answered()
        elif isinstance(event, BodyData):
            if stream is not None:
                stream(event.data)
            else:
                self._body += event.data[: TEXT_MOST - len(self._body)]
        elif isinstance(event, MalformedMessage):
            raise ConnectionAbortedError("the master has sent something else than HTTP responses")
        elif stream is not None:
            raise ConnectionResetError("the master has ended it")
        else:
            self._answered()

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            text = self._body.decode(errors="replace").strip()
            self._answer.set_result(MasterAnswer(self._head.status, self._head.headers, text))


async def connect_to_master(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    name: str | None,
    received: Callable[[bytes], object] | None = None,
) -> MasterConnection:
    """Connect, over TLS if there is a context; `name` is the one in the master's certificate. Raises `OSError`."""
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: MasterConnection(received), host, port, ssl=context, server_hostname=name
    )
    return connection


class Outbox:
    """Items to be sent, in order, each encoded once.

    >>> outbox = Outbox()
    >>> outbox.put({"type": "PONG"})
    >>> outbox.put({"type": "PONG"})
    >>> outbox.batch(), bool(outbox)
    (b'{"type":"BATCH","batch":{"items":[{"type":"PONG"},{"type":"PONG"}]}}', False)
    """

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def is_full(self) -> bool:
        return len(self._items) > UNSENT_MOST or self._size > UNSENT_BYTES

    def put(self, item: Message) -> None:
        body = encode(item)
        self._items.append(body)
        self._size += len(body)

    def take(self) -> bytes:
        """The oldest item, alone; raises `IndexError` when there is none."""
        item = self._items.popleft()
        self._size -= len(item)
        return item

    def batch(self) -> bytes:
        """A BATCH of the oldest items; raises `IndexError` when there is none."""
        items = [self.take()]
        size = len(items[0])
        while self._items and len(items) < BATCH_MOST and size < BATCH_BYTES:
            items.append(self.take())
            size += len(items[-1])
        return b'{"type":"BATCH","batch":{"items":[%b]}}' % b",".join(items)

    def clear(self) -> None:
        self._items.clear()
        self._size = 0


class _Unreachable(OSError):
    """No connection could be made."""


@dataclass(frozen=True)
class _Master:
    """Where one master is reached, and how."""

    host: str
    port: int
    context: ssl.SSLContext | None
    token: str

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self.context else ''}://{self.address}"

    def head(self, stream: str | None = None) -> str:
        """Request line and header section, but for the length of the body."""
        own = "" if stream is None else f"{STREAM_HEADER}: {stream}\r\n"
        return (
            f"POST {PATH} HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nAuthorization: Bearer {self.token}\r\n{own}"
        )

    async def connect(self, received: Callable[[bytes], object] | None = None) -> MasterConnection:
        """Raises `_Unreachable`."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                name = MASTER_NAME if self.context else None
                return await connect_to_master(self.host, self.port, self.context, name, received)
        except (OSError, TimeoutError) as error:
            raise _Unreachable(f"no master at {self.url}: {str(error) or type(error).__name__}") from error


class MasterLink:
    """Keeps the agent registered.

    Parameters
    ----------
    directory
        Where masters publish their addresses.
    connected
        Called when a connection is about to be made: the REGISTER item is to be sent then, before anything else.
    disconnected
        Called when it broke, or could not be made; what was sent on it may not have arrived.
    received
        Called with each item that the master sends.
    patience_s
        How long to try without a master [s].
    over
        A file that says, when there is no master, that none is to be looked for.
    """

    def __init__(
        self,
        directory: PoolDirectory,
        *,
        connected: Callable[[], object],
        disconnected: Callable[[], object],
        received: Callable[[Message], object],
        patience_s: float,
        over: Path | None = None,
        node: PoolHost = POOL_HOST,
    ) -> None:
        self._node = node
        self._directory, self._patience_s, self._over = directory, patience_s, over
        self._connected, self._disconnected, self._take = connected, disconnected, received
        self._unsent = Outbox()
        self._bell = asyncio.Event()
        self._connecting = self._sending = False
        self._registered = self._sent_away = False
        self._records = Records()
        self._silence_s = PING_S * PINGS
        self._received_at = 0.0
        self._full: asyncio.Future[None] | None = None
        self.problem = "no master has started in this pool yet"
        """Why there is no connection, or why the last one broke."""
        self.released = False
        """Whether `over` was there."""
        self.orphaned = False
        """Whether the master has sent it away since its run had no driver for too long."""

    def send(self, item: Message) -> None:
        """Send this to the master; without a connection it is dropped."""
        if self._connecting:
            self._unsent.put(item)
            self._bell.set()
            if self._unsent.is_full and self._full is not None and not self._full.done():
                self._full.set_exception(ConnectionAbortedError("the master does not take what is sent"))

    def clear(self) -> None:
        """Drop all that is not sent yet."""
        self._unsent.clear()

    async def run(self) -> None:
        """Stay connected until there was no master for `patience_s`; `problem` then says why.

        It never returns once the master has sent this agent away.
        """
        loop = asyncio.get_running_loop()
        served, delay = loop.time(), SOONEST_S
        while True:
            if await self._serve():
                served, delay = loop.time(), SOONEST_S
            elif loop.time() - served >= self._patience_s:
                return
            if self._is_over():
                self.released = True
                return
            if self._sent_away:
                await loop.create_future()  # there is nothing more to say to one another
            await asyncio.sleep(delay * self._node.uniform(0.5, 1.0))
            delay = min(2 * delay, LATEST_S)

    def _is_over(self) -> bool:
        """Whether no master will be started for us any more."""
        try:
            return self._over is not None and self._over.name in os.listdir(self._over.parent)
        except OSError:
            return False

    async def flush(self, patience_s: float) -> None:
        """Until everything has arrived, there is no connection, or `patience_s` [s] are over."""
        deadline = asyncio.get_running_loop().time() + patience_s
        while (self._unsent or self._sending) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)

    # ------------------------------------------------------- one connection

    async def _serve(self) -> bool:
        """Find the master and stay with it for as long as that goes well: whether it took us."""
        self._registered = False
        try:
            masters = self._masters()
        except StateError as error:
            self.problem = str(error)
            return False
        if not masters:
            return False
        _log.info("connecting to the master at %s", masters[0].url)
        self._connecting = True
        self._connected()
        try:
            register = self._unsent.take()
            for master in masters:
                try:
                    await self._stay(master, register)
                except _Unreachable as error:
                    self.problem = str(error)
        except (OSError, TimeoutError, BadMessage, IndexError) as error:
            before = self.problem
            self.problem = f"the connection to the master broke: {str(error) or type(error).__name__}"
            refused = isinstance(error, ConnectionRefusedError) and self.problem != before
            _log.log(logging.WARNING if refused else logging.INFO, "%s", self.problem)
        finally:
            self._connecting = False
            self._unsent.clear()
            self._disconnected()
        return self._registered

    def _masters(self) -> list[_Master]:
        """The one master that is expected, by each of its addresses."""
        address = self._directory.master()
        if address is None:
            return []
        context = self._directory.client_context() if address.tls else None
        token = self._directory.token(AGENT)
        return [_Master(host, address.port, context, token) for host in address.hosts]

    async def _stay(self, master: _Master, register: bytes) -> None:
        """Register, and stay until the connection breaks; always raises."""
        self._records, self._silence_s = Records(), PING_S * PINGS
        self._received_at = asyncio.get_running_loop().time()
        connection = await master.connect(self._received)
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await connection.post(master.head(), register)
            stream = answer.headers.get(STREAM_HEADER)
            if answer.status != 200 or stream is None:
                raise ConnectionRefusedError(f"{master.url} answers {answer.status}: {answer.text}")
            await self._stay_on(connection, master, stream)
        finally:
            connection.close()

    async def _stay_on(self, connection: MasterConnection, master: _Master, stream: str) -> None:
        sending = asyncio.create_task(self._send(master, stream))
        watching = asyncio.create_task(self._watch())
        full = self._full = asyncio.get_running_loop().create_future()
        try:
            ends = (sending, watching, connection.broken, full)
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for each in (sending, watching, full):
                each.cancel()
            await asyncio.gather(sending, watching, full, return_exceptions=True)

    def _received(self, data: bytes) -> None:
        self._received_at = asyncio.get_running_loop().time()
        for item in self._records.feed(data):
            if item.get("type") == "REGISTERED":
                self._registered = True
                ping: float = field(item, "registered.ping_s", float, PING_S)
                pings: int = field(item, "registered.pings", int, PINGS)
                self._silence_s = min(max(ping * pings, SILENCE_S[0]), SILENCE_S[1])
            if item.get("type") == "SHUTDOWN":
                self._sent_away, self.orphaned = True, field(item, "shutdown.orphaned", bool, False)
            self._take(item)

    async def _watch(self) -> None:
        """Give up a silent master; always raises."""
        clock = asyncio.get_running_loop().time
        while True:
            while (left := self._received_at + self._silence_s - clock()) > 0:
                await asyncio.sleep(min(left, _LOOK_S))
            # A process that was stopped and continued finds the time over; what the master has sent meanwhile is there.
            before = self._received_at
            await asyncio.sleep(AGAIN_S)
            if self._received_at == before:
                raise TimeoutError(f"the master was silent for {self._silence_s:g} s")

    async def _send(self, master: _Master, stream: str) -> None:
        """One batch after the other: what is added while one is on its way makes up the next."""
        head, connection = master.head(stream), None
        try:
            while True:
                await self._bell.wait()
                self._bell.clear()
                while self._unsent:
                    batch = self._unsent.batch()
                    self._sending = True
                    async with asyncio.timeout(self._silence_s):
                        connection = connection or await master.connect()
                        answer = await connection.post(head, batch)
                    self._sending = False
                    if answer.status != 202:
                        raise ConnectionAbortedError(f"it answers {answer.status}: {answer.text}")
        except _Unreachable as error:  # while its stream is open: no reason to try its other addresses
            raise ConnectionAbortedError(str(error)) from error
        finally:
            self._sending = False
            if connection is not None:
                connection.close()
