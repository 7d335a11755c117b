"""The agent's connection to its master, which is made again whenever it breaks (see `agent_protocol`)."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import httptools

from asa.core.errors import StateError
from asa.web.protocol import Headers
from executors.mesos.agent_protocol import PATH, PING_S, PINGS, STREAM_HEADER
from executors.mesos.codec import BadMessage, Message, Records, encode
from executors.mesos.messages import field
from executors.mesos.pool_directory import AGENT, MASTER_NAME, PoolDirectory

_log = logging.getLogger(__name__)

TEXT_MOST = 500
"""How much of an answer that is no stream is kept [bytes]."""
_HEADERS_MOST = 256
_READ_MOST = 64 << 10


class MasterAnswer(NamedTuple):
    """What a master answers; of a stream, the beginning."""

    status: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace").strip()


class MasterConnection(asyncio.BufferedProtocol):
    """A connection, for one request at a time.

    Parameters
    ----------
    hear
        Takes what comes of a body that is answered with 200, piece by piece; its `BadMessage` breaks the connection.
        Without it answers are taken as a whole.
    """

    def __init__(self, hear: Callable[[bytes], object] | None = None) -> None:
        self._received = hear
        self._parser = httptools.HttpResponseParser(self)
        self._buffer = memoryview(bytearray(_READ_MOST))
        self._transport: asyncio.Transport | None = None
        self._fields: dict[str, str] = {}
        self._body, self._unread = bytearray(), bytearray()
        self._over = False  # a stream has ended
        self._answer: asyncio.Future[MasterAnswer] | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the exception that the connection was ended by."""

    def post(self, head: str, body: bytes) -> asyncio.Future[MasterAnswer]:
        """Send a request; `head` is its first line and headers. Raises `OSError`, at once or later, when it breaks."""
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise ConnectionResetError("the connection is gone")
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)
        return self._answer

    def close(self) -> None:
        """End it; nothing more is received."""
        self._break(ConnectionAbortedError("it was closed"))
        self.broken.exception()  # nobody needs to ask

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
        self._break(exc or ConnectionResetError("the master has closed it"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        problem: Exception | None = None
        try:
            self._parser.feed_data(bytes(self._buffer[:nbytes]))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            problem = ConnectionAbortedError(f"what came is no HTTP: {error}")
        try:
            if self._received is not None and self._unread:  # what came before the end, or before what is wrong, counts
                unread, self._unread = bytes(self._unread), bytearray()
                self._received(unread)
        except BadMessage as error:
            problem = error
        if problem or self._over:
            self._break(problem or ConnectionResetError("the master has ended it"))

    # ------------------------------------------------------- called by httptools

    def on_message_begin(self) -> None:
        self._fields, self._body = {}, bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._fields) >= _HEADERS_MOST:
            raise ValueError(f"more than {_HEADERS_MOST} headers")
        self._fields[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_stream:
            self._answered()

    def on_body(self, body: bytes) -> None:
        if self._is_stream:
            self._unread += body
        else:
            self._body += body[: TEXT_MOST - len(self._body)]

    def on_message_complete(self) -> None:
        self._over = self._is_stream
        if self._parser.get_status_code() >= 200:
            self._answered()

    @property
    def _is_stream(self) -> bool:
        return self._received is not None and self._parser.get_status_code() == 200

    def _answered(self) -> None:
        if self._answer is not None and not self._answer.done():
            answer = MasterAnswer(self._parser.get_status_code(), Headers(self._fields), bytes(self._body))
            self._answer.set_result(answer)


async def connect_to_master(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    name: str | None,
    hear: Callable[[bytes], object] | None = None,
) -> MasterConnection:
    """Connect, over TLS if there is a context; `name` is the one in the master's certificate. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    _, line = await loop.create_connection(
        lambda: MasterConnection(hear), host, port, ssl=context, server_hostname=name
    )
    return line


BATCH_MOST, BATCH_BYTES = 1000, 4 << 20
"""A batch has at most so many items, and, but for its last one, so many bytes: far less than the master takes."""
UNSENT_MOST, UNSENT_BYTES = 20_000, 256 << 20
"""With more items, or more bytes, the master is taken for one that does not listen."""


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
        """Whether more has piled up than a master that listens would let."""
        return len(self._items) > UNSENT_MOST or self._size > UNSENT_BYTES

    def put(self, item: Message) -> None:
        """Add an item."""
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
        """Drop all items."""
        self._items.clear()
        self._size = 0


SOONEST_S, LATEST_S = 0.2, 5.0
"""How long to wait before looking for a master again [s]: at first, and after many tries; up to half less by chance."""

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_AGAIN_S = 1.0
_LOOK_S = 5.0
_SILENCE_S = (1.0, 3600.0)


class LinkListener(Protocol):
    """The agent, as the link sees it. It sends with `MasterLink.send`."""

    def connected(self) -> None:
        """A connection is being made: the REGISTER item is wanted now, before anything else."""

    def disconnected(self) -> None:
        """It broke, or could not be made; what was sent on it may not have arrived."""

    def received(self, item: Message) -> None:
        """The master has sent something."""


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
        """Host and port, as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http{'s' if self.context else ''}://{self.address}"

    def head(self, stream: str | None = None) -> str:
        """What a request begins with."""
        own = "" if stream is None else f"{STREAM_HEADER}: {stream}\r\n"
        return (
            f"POST {PATH} HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nAuthorization: Bearer {self.token}\r\n{own}"
        )

    async def dial(self, hear: Callable[[bytes], object] | None = None) -> MasterConnection:
        """A connection to it; raises `_Unreachable`."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await connect_to_master(
                    self.host, self.port, self.context, MASTER_NAME if self.context else None, hear
                )
        except (OSError, TimeoutError) as error:
            raise _Unreachable(f"no master at {self.url}: {str(error) or type(error).__name__}") from error


class MasterLink:
    """Keeps the agent registered.

    Parameters
    ----------
    directory
        Where masters say where they listen.
    listener
        The agent.
    patience_s
        How long to try without a master [s].
    """

    def __init__(self, directory: PoolDirectory, listener: LinkListener, patience_s: float) -> None:
        self._directory, self._listener, self._patience_s = directory, listener, patience_s
        self._unsent = Outbox()
        self._bell = asyncio.Event()
        self._connecting = self._sending = False
        self._registered = False
        self._records = Records()
        self._silence_s = PING_S * PINGS
        self._received_at = 0.0
        self._full: asyncio.Future[None] | None = None
        self.problem = "no master has started in this pool yet"
        """Why there is no connection, or why the last one broke."""

    def send(self, item: Message) -> None:
        """Send this to the master; without a connection it is dropped."""
        if self._connecting:
            self._unsent.put(item)
            self._bell.set()
            if self._unsent.is_full and self._full is not None and not self._full.done():
                self._full.set_exception(ConnectionAbortedError("the master does not take what is sent"))

    def clear(self) -> None:
        """Drop what was not sent yet."""
        self._unsent.clear()

    async def run(self) -> None:
        """Until there was no master for `patience_s`; `problem` then says why."""
        loop = asyncio.get_running_loop()
        served, delay = loop.time(), SOONEST_S
        while True:
            if await self._serve():
                served, delay = loop.time(), SOONEST_S
            elif loop.time() - served >= self._patience_s:
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, LATEST_S)

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
        self._listener.connected()
        try:
            register = self._unsent.take()
            for master in masters:
                try:
                    await self._stay(master, register)
                except _Unreachable as error:
                    self.problem = str(error)
        except (OSError, TimeoutError, BadMessage, IndexError) as error:
            self.problem = f"the connection to the master broke: {str(error) or type(error).__name__}"
            _log.info("%s", self.problem)
        finally:
            self._connecting = False
            self._unsent.clear()
            self._listener.disconnected()
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
        line = await master.dial(self._received)
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await line.post(master.head(), register)
            stream = answer.headers.get(STREAM_HEADER)
            if answer.status != 200 or stream is None:
                raise ConnectionRefusedError(f"{master.url} answers {answer.status}: {answer.text}")
            await self._stay_on(line, master, stream)
        finally:
            line.close()

    async def _stay_on(self, line: MasterConnection, master: _Master, stream: str) -> None:
        sending = asyncio.create_task(self._send(master, stream))
        watching = asyncio.create_task(self._watch())
        full = self._full = asyncio.get_running_loop().create_future()
        try:
            done, _ = await asyncio.wait((sending, watching, line.broken, full), return_when=asyncio.FIRST_COMPLETED)
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
                self._silence_s = _silence(item)
            self._listener.received(item)

    async def _watch(self) -> None:
        """Give up a silent master; always raises."""
        clock = asyncio.get_running_loop().time
        while True:
            while (left := self._received_at + self._silence_s - clock()) > 0:
                await asyncio.sleep(min(left, _LOOK_S))
            # A process that was stopped and continued finds the time over; what the master has sent meanwhile is there.
            before = self._received_at
            await asyncio.sleep(_AGAIN_S)
            if self._received_at == before:
                raise TimeoutError(f"the master was silent for {self._silence_s:g} s")

    async def _send(self, master: _Master, stream: str) -> None:
        """One batch after the other: what is added while one is on its way makes up the next."""
        head, line = master.head(stream), None
        try:
            while True:
                await self._bell.wait()
                self._bell.clear()
                while self._unsent:
                    batch = self._unsent.batch()
                    self._sending = True
                    async with asyncio.timeout(self._silence_s):
                        line = line or await self._dialled(master)
                        answer = await line.post(head, batch)
                    self._sending = False
                    if answer.status != 202:
                        raise ConnectionAbortedError(f"it answers {answer.status}: {answer.text}")
        finally:
            self._sending = False
            if line is not None:
                line.close()

    async def _dialled(self, master: _Master) -> MasterConnection:
        try:
            return await master.dial()
        except _Unreachable as error:  # while its stream is open: no reason to try elsewhere
            raise ConnectionAbortedError(str(error)) from error


def _silence(registered: Message) -> float:
    """After how long without a word the master is gone [s]."""
    ping: float = field(registered, "registered.ping_s", float, PING_S)
    pings: int = field(registered, "registered.pings", int, PINGS)
    least, most = _SILENCE_S
    return min(max(ping * pings, least), most)
