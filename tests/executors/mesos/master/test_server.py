import asyncio
import base64
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from asa.core.errors import StateError
from executors.mesos import commit
from executors.mesos.codec import LARGEST, BadMessage, Message, Records, frame
from executors.mesos.effects import Close, Effect, Keep, Refused, Send
from executors.mesos.hosts import known_names
from executors.mesos.journal import Entry, Journal
from executors.mesos.master import door, limits, request, server, streams
from executors.mesos.master.access import Access
from executors.mesos.master.door import listening_socket
from executors.mesos.master.server import Server
from executors.mesos.master.state import Options, State
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, ROLES, WRITER, PoolDirectory

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
    state: State = field(default_factory=lambda: State("M1", Options(), 0.0))

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

    def from_agent(self, stream: str, item: Message, now: float, *, more: bool = False) -> list[Effect]:
        self.asked.append(("from_agent", item["type"]))
        return self._say(item["type"])

    def watch(self, stream: str, now: float) -> list[Effect]:
        self.asked.append(("watch",))
        return self._open(stream, "watch", message("SUBSCRIBED", heartbeat_interval_seconds=15.0))

    def operate(self, call: Message, principal: str | None, now: float) -> tuple[Message | None, list[Effect]]:
        self.asked.append(("operate", call["type"], principal))
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
    server: Server
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
    served = Server(machine, journal, Access(pool, required=required), known_names(["n0"]), heartbeat_s)
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


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "PATIENCE_S", 0.01)
    monkeypatch.setattr(server, "_CLOSING_S", 0.5)
    monkeypatch.setattr(commit, "RETRY_S", 0.01)


# ------------------------------------------------------- who may do what

ENDPOINTS = [
    ("POST", "/api/v1/scheduler", SUBSCRIBE, {FRAMEWORK}),
    ("POST", "/api/v1/scheduler", message("REVIVE"), {FRAMEWORK}),
    ("POST", "/master/api/v1/scheduler", message("REVIVE"), {FRAMEWORK}),
    ("POST", "/asa/v1/agent", REGISTER, {AGENT}),
    ("POST", "/api/v1", message("GET_HEALTH"), {READER, WRITER}),
    ("POST", "/api/v1/", message("GET_STATE"), {READER, WRITER}),
    ("POST", "/api/v1/operator", message("SUBSCRIBE"), {READER, WRITER}),
    ("POST", "/api/v1/operator", message("TEARDOWN", framework_id={"value": "F1"}), {WRITER}),
    ("POST", "/api/v1", message("UPDATE_QUOTA"), {WRITER}),
    ("POST", "/api/v1", message("MARK_AGENT_GONE"), {WRITER}),
    ("POST", "/api/v1", message("NOT_KNOWN"), {WRITER}),
    ("GET", "/state", None, {READER, WRITER}),
    ("GET", "/master/state.json", None, {READER, WRITER}),
    ("GET", "/slaves", None, {READER, WRITER}),
    ("GET", "/tasks?limit=-1", None, {READER, WRITER}),
    ("GET", "/metrics/snapshot", None, {READER, WRITER}),
    ("GET", "/master/frameworks/", None, {READER, WRITER}),
    ("GET", "/flags", None, {READER, WRITER}),
]


def test_every_endpoint_with_no_wrong_too_small_and_right_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FAILURES", 10_000)

    async def scenario(ground: Ground) -> None:
        async def ask(method: str, path: str, call: Message | None, authorization: str | None) -> int:
            headers = {"Content-Type": "application/json"}
            if authorization is not None:
                headers["Authorization"] = authorization
            async with ground.client.request(method, ground.url(path), json=call, headers=headers) as response:
                assert (response.status == 401) == ("WWW-Authenticate" in response.headers)
                return response.status

        wrong = ["Bearer " + "0" * 64, "Bearer ", "Basic bWU6d3Jvbmc=", "Basic %%%", "Digest x", "x" * 5000]
        for method, path, call, allowed in ENDPOINTS:
            for authorization in [None, *wrong]:
                assert await ask(method, path, call, authorization) == 401, (path, authorization)
            assert ground.machine.asked == []
            for role in ROLES:
                token = ground.pool.token(role)
                basic = base64.b64encode(f"me:{token}".encode()).decode()
                for authorization in (f"Bearer {token}", f"Basic {basic}"):
                    status = await ask(method, path, call, authorization)
                    assert (status in (200, 202)) == (role in allowed), (path, call, role, status)
                    assert role in allowed or (status == 403 and ground.machine.asked == [])
                    await until(lambda: not ground.server._streams)
                    ground.machine.asked.clear()

    serve(scenario, tmp_path)


def test_version_and_health_are_for_anybody(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        for path in ("/version", "/master/version", "/version/"):
            async with ground.client.get(ground.url(path)) as response:
                assert (await response.json())["version"].replace(".", "").isdigit()
        async with ground.client.get(ground.url("/health")) as response:
            assert response.status == 200
        async with ground.client.post(ground.url("/version")) as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")

    serve(scenario, tmp_path)


def test_without_authentication_everything_is_let_in(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        assert await ground.post("/api/v1/scheduler", message("REVIVE"), None, Authorization="Basic Tm9uZTpOb25l") == (
            202,
            "",
        )
        assert (await ground.post("/api/v1", message("TEARDOWN"), None))[0] == 200
        assert [asked[2] for asked in ground.machine.asked] == [None, None]
        assert (await ground.post("/api/v1", message("TEARDOWN"), None, Origin="http://evil.example"))[0] == 403
        assert (await ground.post("/api/v1", message("TEARDOWN"), None, Host="evil.example"))[0] == 421

    serve(scenario, tmp_path, required=False)


def test_the_name_of_basic_is_the_principal(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        basic = base64.b64encode(f"me:{ground.pool.token(FRAMEWORK)}".encode()).decode()
        await ground.post("/api/v1/scheduler", message("REVIVE"), None, Authorization=f"Basic {basic}")
        await ground.post("/api/v1/scheduler", message("REVIVE"))
        assert [asked[2] for asked in ground.machine.asked] == ["me", None]

    serve(scenario, tmp_path)


def test_failures_are_slowed_down_and_the_right_token_is_not(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        statuses = [(await ground.post("/api/v1", {}, None))[0] for _ in range(limits.FAILURES + 5)]
        assert statuses[: limits.FAILURES] == [401] * limits.FAILURES
        assert statuses[-1] == 429
        assert (await ground.post("/api/v1", message("GET_HEALTH"), READER))[0] == 200

    serve(scenario, tmp_path)


def test_web_pages_and_other_names_are_turned_away(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        call = message("GET_HEALTH")
        for host in ("n0", "N0:5050", "localhost:1", "127.0.0.1", "127.0.0.2:80", "[::1]:7", "asa-driver"):
            assert (await ground.post("/api/v1", call, READER, Host=host))[0] == 200, host
        for host in ("evil.example", "n0.evil.example", "10.1.2.3", "127.0.0.1.evil.example", "[::2]", ":"):
            assert (await ground.post("/api/v1", call, READER, Host=host))[0] == 421, host
        assert (await ground.post("/api/v1", call, READER, Origin="null"))[0] == 403
        reader, writer = await ground.raw("GET /version HTTP/1.0\n\n")
        assert b" 400 " in await reader.readline()
        writer.close()

    serve(scenario, tmp_path)


def test_the_oldest_guest_makes_room_and_who_is_known_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "GUESTS_MOST", 3)

    async def scenario(ground: Ground) -> None:
        async with ground.stream() as known:
            guests = [await ground.raw("GET /version HTTP/1.1\nHost: n0\n") for _ in range(4)]
            assert await asyncio.wait_for(guests[0][0].read(), DEADLINE_S) == b""
            guests[3][1].write(b"\r\n")
            assert b" 200 " in await asyncio.wait_for(guests[3][0].readline(), DEADLINE_S)
            ground.server._deliver([(ground.machine.opened[0], frame({"type": "X"}))])
            await seen(known, "X")
            for _, writer in guests:
                writer.close()

    serve(scenario, tmp_path)


async def seen(response: aiohttp.ClientResponse, kind: str) -> list[Message]:
    """Reads records until there is one of this type; all of them."""
    records, found = Records(), []
    async with asyncio.timeout(DEADLINE_S):
        while not any(record["type"] == kind for record in found):
            found += records.feed(await response.content.readany())
    return found


# ------------------------------------------------------- HTTP as Mesos has it


def test_calls_are_checked_as_mesos_does(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        path, call = "/api/v1/scheduler", json.dumps(message("REVIVE"))
        bearer = {"Authorization": f"Bearer {ground.pool.token(FRAMEWORK)}"}

        async def ask(method: str, body: str | None, **headers: str) -> tuple[int, str]:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            async with ground.client.request(
                method, ground.url(path), data=body, headers=bearer | given, skip_auto_headers=["Content-Type"]
            ) as response:
                return response.status, await response.text()

        assert (await ask("GET", None))[0] == 405
        assert (await ask("PUT", call))[0] == 405
        assert await ask("POST", call) == (400, "Expecting 'Content-Type' to be present")
        for content in ("application/x-protobuf", "text/plain"):
            assert (await ask("POST", call, Content_Type=content))[0] == 415
        assert (await ask("POST", call, Content_Type="application/json", Content_Encoding="gzip"))[0] == 415
        deep = '{"type":"REVIVE","x":' + "[" * 200 + "]" * 200 + "}"
        for body in ("", "{", "[]", "null", "7", "{}", '{"type":7}', '{"type":NaN}', "[" * 100_000, deep):
            assert (await ask("POST", body, Content_Type="application/json"))[0] == 400, body[:10]
        assert await ask("POST", call, Content_Type="application/json; charset=utf-8") == (202, "")
        subscribe = json.dumps(SUBSCRIBE)
        assert (await ask("POST", subscribe, Content_Type="application/json", Accept="application/x-protobuf"))[
            0
        ] == 406
        assert (await ask("POST", subscribe, Content_Type="application/json", Mesos_Stream_Id="x"))[0] == 400
        assert [asked[0] for asked in ground.machine.asked] == ["call"]

    serve(scenario, tmp_path)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 501])
def test_what_the_machine_refuses(status: int, tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        ground.machine.answers |= {"call": Refused(status, "no"), "subscribe": Refused(status, "no")}
        assert await ground.post("/api/v1/scheduler", message("REVIVE")) == (status, "no")
        assert await ground.post("/api/v1/scheduler", SUBSCRIBE) == (status, "no")
        assert not ground.server._streams
        assert ("closed", ground.machine.opened[0]) not in ground.machine.asked

    serve(scenario, tmp_path)


def test_a_fault_of_the_machine_is_answered_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ground: Ground) -> None:
        ground.machine.answers |= {"call": ZeroDivisionError("oops"), "wake": ZeroDivisionError("again")}
        status, text = await ground.post("/api/v1/scheduler", message("REVIVE"))
        assert status == 500 and "oops" not in text
        ground.machine.next = 0.0
        ground.machine.answers.pop("call")
        assert (await ground.post("/api/v1/scheduler", message("REVIVE")))[0] == 202
        await until(lambda: ground.machine.woken > 0)
        assert (await ground.post("/api/v1/scheduler", message("REVIVE")))[0] == 202
        ground.machine.answers["call"] = BadMessage("expected 'kill'")
        assert await ground.post("/api/v1/scheduler", message("KILL")) == (400, "expected 'kill'")

    serve(scenario, tmp_path)
    assert "oops" in caplog.text and "again" in caplog.text
    token = PoolDirectory(tmp_path / "pool").token(FRAMEWORK)
    assert token not in caplog.text


def test_what_cannot_be_written_as_json_opens_no_stream(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        ground.machine.answers["subscribe"] = [Send("", {"type": float("nan")})]
        assert (await ground.post("/api/v1/scheduler", SUBSCRIBE))[0] == 500
        assert not ground.server._streams
        assert ("closed", ground.machine.opened[0]) in ground.machine.asked

    serve(scenario, tmp_path)


def test_update_framework_is_answered_with_200(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        assert await ground.post("/api/v1/scheduler", message("UPDATE_FRAMEWORK"), Mesos_Stream_Id="s") == (200, "")
        assert ground.machine.asked == [("call", "UPDATE_FRAMEWORK", None, "s")]

    serve(scenario, tmp_path)


def test_what_operators_get(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        status, text = await ground.post("/api/v1/operator", message("GET_HEALTH"), READER)
        assert (status, json.loads(text)) == (200, message("GET_HEALTH", healthy=True))
        assert await ground.post("/api/v1", message("UPDATE_WEIGHTS"), WRITER) == (200, "")
        assert await ground.post("/api/v1", message("RESERVE_RESOURCES"), WRITER) == (202, "")
        async with ground.client.get(ground.url("/nothing/here"), headers=ground.headers(READER)) as response:
            assert response.status == 404
        async with ground.client.head(ground.url("/state"), headers=ground.headers(READER)) as response:
            assert (response.status, await response.read()) == (200, b"")

    serve(scenario, tmp_path)


def test_bodies_have_a_limit_that_goes_with_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_BODIES", {READER: 1000})

    async def scenario(ground: Ground) -> None:
        large = json.dumps(message("GET_HEALTH") | {"more": "x" * 5000}).encode()
        assert (await ground.post("/api/v1", large, READER))[0] == 413
        assert (await ground.post("/api/v1", large, WRITER))[0] == 200
        reader, writer = await ground.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {ground.pool.token(FRAMEWORK)}\n"
            f"Content-Type: application/json\nContent-Length: {LARGEST + 1}\n\n"
        )
        assert b" 413 " in await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b" " * 100

        async with ground.client.post(
            ground.url("/api/v1"), data=endless(), headers=ground.headers(READER)
        ) as response:
            assert response.status == 413

    serve(scenario, tmp_path)


def test_a_large_accept_is_taken(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        call = message("ACCEPT", padding="x" * (8 << 20))
        assert (await ground.post("/api/v1/scheduler", call))[0] == 202

    serve(scenario, tmp_path)


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 0.05)

    async def scenario(ground: Ground) -> None:
        reader, writer = await ground.raw(
            f"POST /api/v1 HTTP/1.1\nHost: n0\nAuthorization: Bearer {ground.pool.token(READER)}\n"
            'Content-Type: application/json\nContent-Length: 20\n\n{"type"'
        )
        assert b" 408 " in await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()

    serve(scenario, tmp_path)


def test_an_idle_connection_is_kept_and_calls_may_follow_one_another_at_once(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        body = json.dumps(message("REVIVE"))
        one = (
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {ground.pool.token(FRAMEWORK)}\n"
            f"Content-Type: application/json\nContent-Length: {len(body)}\n\n{body}"
        )
        reader, writer = await ground.raw(one * 50)
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(50):
                assert b" 202 " in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
        (connection,) = ground.server._door.connections
        assert connection.idle and connection._timer is None, "nothing will ever close it"
        writer.close()

    serve(scenario, tmp_path)


def test_garbage_is_no_request_and_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ground: Ground) -> None:
        for text in ("\0\1\2\n\n", "GET\n\n", "POST /api/v1 HTTP/1.1\nContent-Length: -1\n\n", "x" * 100_000 + "\n\n"):
            reader, writer = await ground.raw(text)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
            assert answer == b"" or b" 400 " in answer.splitlines()[0]
            writer.close()
        assert (await ground.post("/api/v1", message("GET_HEALTH"), READER))[0] == 200

    serve(scenario, tmp_path)
    assert caplog.text == ""


# ------------------------------------------------------- streams


def test_a_stream_is_chunked_one_record_a_chunk(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        body = json.dumps(SUBSCRIBE)
        reader, writer = await ground.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {ground.pool.token(FRAMEWORK)}\n"
            "Content-Type: application/json\nAccept: application/json\nConnection: close\nAccept-Encoding: gzip\n"
            f"Content-Length: {len(body)}\n\n{body}"
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        assert head[0] == "HTTP/1.1 200 OK"
        assert headers["transfer-encoding"] == "chunked"
        assert headers["content-type"] == "application/json"
        assert headers["mesos-stream-id"] == ground.machine.opened[0]
        assert 0 < len(headers["mesos-stream-id"]) <= 128
        assert "content-encoding" not in headers
        assert await chunks(reader, 2) == [frame(SUBSCRIBED), frame(HEARTBEAT)]
        many = [message("RESCIND", offer_id={"value": f"O{k}"}) for k in range(100)]
        ground.machine.answers["call"] = [Send(ground.machine.opened[0], each) for each in many]
        await ground.post("/api/v1/scheduler", message("REVIVE"))
        assert await chunks(reader, 100) == [frame(each) for each in many]
        ground.machine.answers["call"] = [Send(ground.machine.opened[0], SUBSCRIBED), Close(ground.machine.opened[0])]
        await ground.post("/api/v1/scheduler", message("REVIVE"))
        assert await chunks(reader, 2) == [frame(SUBSCRIBED), b""]
        writer.close()
        await until(lambda: not ground.server._streams)
        assert ("closed", ground.machine.opened[0]) not in ground.machine.asked

    serve(scenario, tmp_path)


def test_an_error_is_the_first_record_then_the_stream_ends(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        error = message("ERROR", message="Framework has been removed")
        ground.machine.answers["subscribe"] = [Send("", error), Close("")]
        assert await ground.post("/api/v1/scheduler", SUBSCRIBE) == (200, frame(error).decode())
        await until(lambda: not ground.server._streams)
        assert [asked[0] for asked in ground.machine.asked] == ["subscribe"]

    serve(scenario, tmp_path)


@pytest.mark.parametrize(
    ("path", "call", "role"),
    [
        ("/api/v1/scheduler", SUBSCRIBE, FRAMEWORK),
        ("/asa/v1/agent", REGISTER, AGENT),
        ("/api/v1", {"type": "SUBSCRIBE"}, READER),
    ],
)
def test_the_machine_is_told_when_a_peer_has_gone(path: str, call: Message, role: str, tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream(path, call, role) as response:
            assert response.headers["Mesos-Stream-Id"] == ground.machine.opened[0]
            response.close()
        await until(lambda: ("closed", ground.machine.opened[0]) in ground.machine.asked)
        assert not ground.server._streams

    serve(scenario, tmp_path)


def test_heartbeats_go_to_schedulers_and_operators(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        async with (
            ground.stream() as framework,
            ground.stream("/api/v1", {"type": "SUBSCRIBE"}, READER) as operator,
            ground.stream("/asa/v1/agent", REGISTER, AGENT) as agent,
        ):
            for response in (framework, operator):
                records, count = Records(), 0
                async with asyncio.timeout(DEADLINE_S):
                    while count < 5:
                        found = records.feed(await response.content.readany())
                        count += sum(record["type"] == "HEARTBEAT" for record in found)
            ground.server._deliver([(ground.machine.opened[2], frame({"type": "PING"}))])
            assert [record["type"] for record in await seen(agent, "PING")] == ["REGISTERED", "PING"]

    serve(scenario, tmp_path, heartbeat_s=0.05)


def test_a_reader_that_does_not_keep_up_loses_its_connection_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BYTES_MOST", 1 << 20)

    async def scenario(ground: Ground) -> None:
        body = json.dumps(SUBSCRIBE)
        reader, writer = await ground.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {ground.pool.token(FRAMEWORK)}\n"
            f"Content-Type: application/json\nContent-Length: {len(body)}\n\n{body}"
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: len(ground.machine.opened) == 1)
        stream = ground.machine.opened[0]
        for k in range(400):
            padded = message("MESSAGE", number=k, data="x" * 100_000)
            ground.machine.answers["call"] = [Send(stream, padded)]
            await ground.post("/api/v1/scheduler", message("REVIVE"))
            if ("closed", stream) in ground.machine.asked:
                break
        await until(lambda: ("closed", stream) in ground.machine.asked)
        assert not ground.server._streams
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        came = b""
        with suppress(ConnectionResetError):
            while part := await asyncio.wait_for(reader.read(1 << 20), DEADLINE_S):
                came += part
        numbers = [int(found) for found in re.findall(rb'"number":(\d+)', came)]
        assert numbers == list(range(len(numbers))) and len(numbers) < 400
        writer.close()

    serve(scenario, tmp_path)


def test_streams_that_are_gone_are_no_error(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        ground.machine.answers["call"] = [Send("gone", HEARTBEAT), Close("gone")]
        assert (await ground.post("/api/v1/scheduler", message("REVIVE")))[0] == 202

    serve(scenario, tmp_path)


def test_the_end_of_the_master_ends_streams(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            closing = asyncio.create_task(ground.server.close())
            assert await asyncio.wait_for(response.content.read(), DEADLINE_S) == b""
            await closing
        assert [asked[0] for asked in ground.machine.asked] == ["subscribe"]

    serve(scenario, tmp_path)


# ------------------------------------------------------- agents


def test_a_batch_is_taken_item_by_item_and_a_bad_one_harms_no_other(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream("/asa/v1/agent", REGISTER, AGENT) as response:
            stream = response.headers["Mesos-Stream-Id"]
            items = [{"type": kind} for kind in ("PONG", "BAD", "UPDATE")]
            ground.machine.answers |= {
                "BAD": BadMessage("expected 'status'"),
                "UPDATE": [Keep("tasks", "t1", {"n": 1}), Send(stream, message("ACKNOWLEDGE"))],
            }
            answer = await ground.post("/asa/v1/agent", message("BATCH", items=items), AGENT, Mesos_Stream_Id=stream)
            assert answer == (400, "expected 'status'")
            assert [asked[-1] for asked in ground.machine.asked[1:]] == ["PONG", "BAD", "UPDATE"]
            assert ground.journal.rows() == [Keep("tasks", "t1", {"n": 1})]
            await seen(response, "ACKNOWLEDGE")
            answer = await ground.post("/asa/v1/agent", message("BATCH", items=[7]), AGENT, Mesos_Stream_Id=stream)
            assert answer[0] == 400
            answer = await ground.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
            assert answer == (202, "")
        await until(lambda: ("closed", stream) in ground.machine.asked)
        answer = await ground.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
        assert answer[0] == 400

    serve(scenario, tmp_path)


# ------------------------------------------------------- durability


def test_nothing_is_told_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            order: list[str] = []
            write, deliver = ground.journal.write, ground.server._commit._deliver

            def writing(entries: Sequence[Entry]) -> None:
                write(entries)
                order.append("kept")

            def delivering(parcels: Sequence[commit.Parcel]) -> None:
                order.append("sent")
                deliver(parcels)

            monkeypatch.setattr(ground.journal, "write", writing)
            monkeypatch.setattr(ground.server._commit, "_deliver", delivering)
            row = {"n": 1}
            effects: list[Effect] = [Send(ground.machine.opened[0], SUBSCRIBED), Keep("tasks", "t1", row)]
            ground.machine.answers["call"] = effects
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            order.append("answered")
            assert order == ["kept", "sent", "answered"]
            assert ground.journal.rows() == [Keep("tasks", "t1", row)]

    serve(scenario, tmp_path)


@pytest.mark.parametrize("quick", [True, False])
def test_a_full_disk_holds_calls_until_there_is_room(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            write, full, tried = ground.journal.write, True, 0

            def writing(entries: Sequence[Entry]) -> None:
                nonlocal tried
                tried += 1
                if full:
                    raise StateError("the disk is full")
                write(entries)

            monkeypatch.setattr(ground.journal, "quick", quick)
            monkeypatch.setattr(ground.journal, "write", writing)
            stream = ground.machine.opened[0]
            ground.machine.answers["call"] = [Keep("tasks", "t1", {"n": 1}), Send(stream, message("RESCIND"))]
            held = asyncio.create_task(ground.post("/api/v1/scheduler", message("ACCEPT")))
            await until(lambda: tried > 3)
            asked = len(ground.machine.asked)
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 503
            assert (await ground.post("/api/v1", message("TEARDOWN"), WRITER))[0] == 503
            async with ground.client.get(ground.url("/state"), headers=ground.headers(READER)) as answer:
                assert answer.status == 200
            ground.machine.next = 0.0
            ground.server._clock.arm()
            before = tried
            await until(lambda: tried > before + 3)
            assert len(ground.machine.asked) == asked and ground.machine.woken == 0
            assert not held.done()
            full = False
            assert (await held)[0] == 202
            await seen(response, "RESCIND")
            assert ground.journal.rows() == [Keep("tasks", "t1", {"n": 1})]
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            await until(lambda: ground.machine.woken > 0)

    serve(scenario, tmp_path)
    assert caplog.text.count("cannot be written") == 1


def test_calls_of_one_moment_share_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(ground: Ground) -> None:
        write, sizes = ground.journal.write, []

        def writing(entries: Sequence[Entry]) -> None:
            sizes.append(len(entries))
            write(entries)

        monkeypatch.setattr(ground.journal, "write", writing)
        carried = [ground.server._commit.carry_out([Keep("tasks", f"t{k}", {"n": k})]) for k in range(20)]
        assert all(durable is carried[0] for durable in carried)
        assert carried[0] is not None
        await carried[0].wait()
        assert sizes == [20]

    serve(scenario, tmp_path)


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with ground(tmp_path) as found:
            found.server._commit.carry_out([Keep("tasks", "t1", {"n": 1})])

    asyncio.run(run())
    journal = Journal(tmp_path / "pool" / "master.db")
    assert journal.rows() == [Keep("tasks", "t1", {"n": 1})]
    journal.close()


def test_the_machine_is_woken_when_it_wants(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        stream: list[str] = []
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            stream += ground.machine.opened
            ground.machine.answers["wake"] = [Send(stream[0], message("RESCIND"))]
            ground.machine.next = ground.server._clock.now() + 0.02
            await ground.post("/api/v1/scheduler", message("DECLINE"))
            await seen(response, "RESCIND")
            assert ground.machine.woken == 1

    serve(scenario, tmp_path)


def test_small_segments_leave_at_once(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        _, writer = await ground.raw("GET /version HTTP/1.1\nHost: n0\n\n")
        await until(lambda: bool(ground.server._door.connections))
        own = next(iter(ground.server._door.connections)).transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()

    serve(scenario, tmp_path)
