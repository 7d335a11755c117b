"""The agent's connection to its master, which it looks for again whenever it breaks (see `agent_protocol`)."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from asa.core.errors import StateError
from executors.mesos.agent.outbox import Outbox
from executors.mesos.agent_protocol import PATH, PING_S, PINGS, STREAM_HEADER
from executors.mesos.codec import BadMessage, Message, Records
from executors.mesos.messages import field
from executors.mesos.pool_directory import AGENT, MASTER_NAME, Address, PoolDirectory

SOONEST_S, LATEST_S = 0.2, 5.0
"""How long to wait before looking for a master again [s]: at first, and after many tries; up to half less by chance."""

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_AGAIN_S = 1.0
_SILENCE_S = (1.0, 3600.0)
_TEXT_MOST = 500


class Node(Protocol):
    """The agent, as the link sees it. `Link.say` takes what it wants said."""

    def connected(self) -> None:
        """A connection is being made: the REGISTER item is wanted now, before anything else."""

    def disconnected(self) -> None:
        """It broke, or could not be made; what was said on it may not have arrived."""

    def heard(self, item: Message) -> None:
        """The master has said something."""


@dataclass(frozen=True)
class _Master:
    """Where one master is reached, and how."""

    url: str
    context: ssl.SSLContext | bool
    token: str

    @asynccontextmanager
    async def post(
        self, session: aiohttp.ClientSession, body: bytes, stream: str | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers["Authorization"] = f"Bearer {self.token}"
        if stream is not None:
            headers[STREAM_HEADER] = stream
        async with session.post(
            self.url + PATH, data=body, headers=headers, ssl=self.context, server_hostname=self._name(),
            allow_redirects=False,
        ) as response:  # fmt: skip
            yield response

    def _name(self) -> str | None:
        return MASTER_NAME if isinstance(self.context, ssl.SSLContext) else None


class Link:
    """Keeps the agent registered.

    Parameters
    ----------
    directory
        Where masters say where they listen.
    node
        The agent.
    patience_s
        How long to look for a master in vain [s].
    """

    def __init__(self, directory: PoolDirectory, node: Node, patience_s: float) -> None:
        self._directory, self._node, self._patience_s = directory, node, patience_s
        self._unsent = Outbox()
        self._bell = asyncio.Event()
        self._connecting = self._sending = False
        self._registered = False
        self._silence_s = PING_S * PINGS
        self._full: asyncio.Future[None] | None = None
        self.problem = "no master has started in this pool yet"
        """Why there is no connection, or why the last one broke."""

    def say(self, item: Message) -> None:
        """Say this to the master; while there is none, nothing."""
        if self._connecting:
            self._unsent.put(item)
            self._bell.set()
            if self._unsent.is_full and self._full is not None and not self._full.done():
                self._full.set_exception(ConnectionAbortedError("the master does not take what it is told"))

    def clear(self) -> None:
        """What was said and not sent yet is not to be said any more."""
        self._unsent.clear()

    async def run(self) -> None:
        """Until no master has been there for as long as there is patience; `problem` then says why."""
        loop = asyncio.get_running_loop()
        served, delay = loop.time(), SOONEST_S
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_SILENCE_S[1])
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            while True:
                if await self._serve(session):
                    served, delay = loop.time(), SOONEST_S
                elif loop.time() - served >= self._patience_s:
                    return
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, LATEST_S)

    async def flush(self, patience_s: float) -> None:
        """Until all that was said has arrived, there is no connection, or `patience_s` [s] are over."""
        deadline = asyncio.get_running_loop().time() + patience_s
        while (self._unsent or self._sending) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)

    # ------------------------------------------------------- one connection

    async def _serve(self, session: aiohttp.ClientSession) -> bool:
        """Find the master and stay with it for as long as that goes well: whether it took us."""
        self._registered = False
        try:
            masters = self._masters()
        except StateError as error:
            self.problem = str(error)
            return False
        if not masters:
            return False
        self._connecting = True
        self._node.connected()
        try:
            register = self._unsent.take()
            for master in masters:
                try:
                    await self._stay(session, master, register)
                except aiohttp.ClientConnectorError as error:
                    self.problem = f"no master at {master.url}: {error}"
        except (aiohttp.ClientError, OSError, TimeoutError, BadMessage, IndexError) as error:
            self.problem = f"the connection to the master broke: {str(error) or type(error).__name__}"
        finally:
            self._connecting = False
            self._unsent.clear()
            self._node.disconnected()
        return self._registered

    def _masters(self) -> list[_Master]:
        """The one master that is expected, by each of its addresses."""
        address = self._directory.master()
        if address is None:
            return []
        context = self._directory.client_context() if address.tls else False
        token = self._directory.token(AGENT)
        return [_Master(_url(address, host), context, token) for host in address.hosts]

    async def _stay(self, session: aiohttp.ClientSession, master: _Master, register: bytes) -> None:
        """Register, and stay until the connection breaks; always raises."""
        async with asyncio.timeout(_ANSWER_S) as patience, master.post(session, register) as response:
            patience.reschedule(None)
            stream = response.headers.get(STREAM_HEADER)
            if response.status != 200 or stream is None:
                raise ConnectionRefusedError(f"{master.url} answers {response.status}: {await _text(response)}")
            sending = asyncio.create_task(self._send(session, master, stream))
            hearing = asyncio.create_task(self._hear(response.content))
            full = self._full = asyncio.get_running_loop().create_future()
            try:
                done, _ = await asyncio.wait((sending, hearing, full), return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()
            finally:
                for each in (sending, hearing, full):
                    each.cancel()
                await asyncio.gather(sending, hearing, full, return_exceptions=True)

    async def _hear(self, content: aiohttp.StreamReader) -> None:
        records, self._silence_s = Records(), PING_S * PINGS
        while True:
            data = await self._next(content)
            if not data:
                raise ConnectionResetError("the master has closed it")
            for item in records.feed(data):
                if item.get("type") == "REGISTERED":
                    self._registered = True
                    self._silence_s = _silence(item)
                self._node.heard(item)

    async def _next(self, content: aiohttp.StreamReader) -> bytes:
        # Stopped and continued, we find the time over although the master has spoken: then what it said is there.
        for patience in (self._silence_s, _AGAIN_S):
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    return await content.readany()
        raise TimeoutError(f"the master was silent for {self._silence_s:g} s")

    async def _send(self, session: aiohttp.ClientSession, master: _Master, stream: str) -> None:
        """One batch after the other: what is said while one is on its way makes up the next."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._unsent:
                batch = self._unsent.batch()
                self._sending = True
                try:
                    async with asyncio.timeout(self._silence_s), master.post(session, batch, stream) as response:
                        if response.status != 202:
                            raise ConnectionAbortedError(f"it answers {response.status}: {await _text(response)}")
                except aiohttp.ClientConnectorError as error:  # while its stream is open: no reason to try elsewhere
                    raise ConnectionAbortedError(str(error)) from error
                finally:
                    self._sending = False


def _url(address: Address, host: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http{'s' if address.tls else ''}://{name}:{address.port}"


def _silence(registered: Message) -> float:
    """After how long without a word the master is gone [s]."""
    ping: float = field(registered, "registered.ping_s", float, PING_S)
    pings: int = field(registered, "registered.pings", int, PINGS)
    least, most = _SILENCE_S
    return min(max(ping * pings, least), most)


async def _text(response: aiohttp.ClientResponse) -> str:
    return (await response.content.read(_TEXT_MOST)).decode(errors="replace").strip()
