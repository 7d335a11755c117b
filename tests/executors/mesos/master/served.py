"""A master's server around a machine that does what it is told, and a client, for tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import asa.web.server
from asa.web.server import listening_socket
from executors.mesos import commit
from executors.mesos.codec import Message, Records
from executors.mesos.effects import Close, Effect, Send
from executors.mesos.http_api import TokenAccess, host_names
from executors.mesos.journal import Journal
from executors.mesos.master import server
from executors.mesos.master.server import MasterServer
from executors.mesos.master.state import MasterOptions, MasterState
from executors.mesos.messages import message
from executors.mesos.pool_directory import FRAMEWORK, PoolDirectory

SUBSCRIBE = message("SUBSCRIBE", framework_info={"user": "u", "name": "f"})
SUBSCRIBED = message("SUBSCRIBED", framework_id={"value": "F1"})
HEARTBEAT = message("HEARTBEAT")
REGISTER = message("REGISTER", agent_info={"hostname": "n1"})
DEADLINE_S = 20.0


@dataclass
class Machine:
    """Writes down what it is asked, and does what it is told."""

    answers: dict[str, list[Effect] | Exception] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    woken: int = 0
    next: float = float("inf")
    state: MasterState = field(default_factory=lambda: MasterState("M1", MasterOptions(), 0.0))

    def _say(self, name: str) -> list[Effect]:
        answer = self.answers.get(name, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _open(self, stream: str, name: str, first: Message) -> list[Effect]:
        self.opened.append(stream)
        answer = self._say(name) or [Send(stream, first)]
        return [effect._replace(stream=stream) if isinstance(effect, Send | Close) else effect for effect in answer]

    def subscribe(self, call: Message, principal: str | None, stream: str, now: float) -> list[Effect]:
        self.asked.append(("subscribe", call, principal))
        return self._open(stream, "subscribe", SUBSCRIBED)

    def call(self, call: Message, principal: str | None, stream: str | None, now: float) -> list[Effect]:
        self.asked.append(("call", call["type"], principal, stream))
        return self._say("call")

    def register(self, item: Message, stream: str, now: float) -> list[Effect]:
        self.asked.append(("register", item))
        return self._open(stream, "register", message("REGISTERED", agent_id={"value": "S1"}))

    def from_agent(self, stream: str, said: Sequence[Message], now: float) -> tuple[list[Effect], Exception | None]:
        self.asked += [("from_agent", item["type"]) for item in said]
        answers = [self.answers.get(item["type"], []) for item in said]
        effects = [effect for answer in answers if isinstance(answer, list) for effect in answer]
        return effects, next((answer for answer in answers if isinstance(answer, Exception)), None)

    def watch(self, stream: str, now: float) -> list[Effect]:
        self.asked.append(("watch",))
        return self._open(stream, "watch", message("SUBSCRIBED", heartbeat_interval_seconds=15.0))

    def operate(self, call: Message, now: float) -> tuple[Message | None, list[Effect]]:
        self.asked.append(("operate", call["type"]))
        answer = message("GET_HEALTH", healthy=True) if call["type"].startswith("GET") else None
        return answer, self._say("operate")

    def closed(self, stream: str, now: float) -> list[Effect]:
        self.asked.append(("closed", stream))
        return []

    def wake(self, now: float) -> list[Effect]:
        self.woken += 1
        self.next = float("inf")
        return self._say("wake")

    def due(self) -> float:
        return self.next


@dataclass
class Ground:
    """A server, its machine, and a client."""

    machine: Machine
    server: MasterServer
    journal: Journal
    port: int
    pool: PoolDirectory
    client: aiohttp.ClientSession

    def headers(self, role: str | None = FRAMEWORK, **more: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if role is not None:
            headers["Authorization"] = f"Bearer {self.pool.token(role)}"
        return headers | {name.replace("_", "-"): value for name, value in more.items()}

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def post(self, path: str, call: Any, role: str | None = FRAMEWORK, **more: str) -> tuple[int, str]:
        body = call if isinstance(call, bytes) else json.dumps(call)
        async with self.client.post(self.url(path), data=body, headers=self.headers(role, **more)) as response:
            return response.status, await response.text()

    async def raw(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write(text.replace("\n", "\r\n").encode("latin-1"))
        return reader, writer

    @asynccontextmanager
    async def stream(
        self, path: str = "/api/v1/scheduler", call: Message = SUBSCRIBE, role: str = FRAMEWORK
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self.client.post(self.url(path), json=call, headers=self.headers(role)) as response:
            yield response


@asynccontextmanager
async def ground(directory: Path, *, required: bool = True, heartbeat_s: float = 1000.0) -> AsyncIterator[Ground]:
    pool = PoolDirectory.create(directory / "pool", "p")
    journal, machine = Journal(pool.path / "master.db"), Machine()
    served = MasterServer(machine, journal, TokenAccess(pool, required=required), host_names(["n0"]), heartbeat_s)
    sock = listening_socket("127.0.0.1", 0)
    await served.listen(sock, None)
    running = asyncio.create_task(served.run())
    client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(DEADLINE_S))
    try:
        yield Ground(machine, served, journal, sock.getsockname()[1], pool, client)
    finally:
        await client.close()
        running.cancel()
        await asyncio.wait([running])
        await served.close()
        journal.close()


def serve(scenario: Callable[[Ground], Awaitable[None]], directory: Path, **options: Any) -> None:
    """Run a scenario against a server; `options` are those of `ground`."""

    async def run() -> None:
        async with ground(directory, **options) as found:
            await scenario(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asa.web.server, "RETRY_S", 0.01)
        patch.setattr(server, "_CLOSING_S", 0.5)
        patch.setattr(commit, "RETRY_S", 0.01)
        asyncio.run(asyncio.wait_for(run(), 3 * DEADLINE_S))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def chunks(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    """The next chunks of a chunked response, each by itself."""
    found = []
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(count):
            size = int(await reader.readline(), 16)
            found.append((await reader.readexactly(size + 2))[:-2])
    return found


async def seen(response: aiohttp.ClientResponse, kind: str) -> list[Message]:
    """Reads records until there is one of this type; all of them."""
    records, found = Records(), []
    async with asyncio.timeout(DEADLINE_S):
        while not any(record["type"] == kind for record in found):
            found += records.feed(await response.content.readany())
    return found
