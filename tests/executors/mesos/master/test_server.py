"""The master on the network: calls and their answers, access, streams, what is durable before it is sent."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
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
from asa.web import hosts
from asa.web import server as streams
from asa.web.errors import HTTPError
from asa.web.server import listening_socket
from executors.mesos import commit, http_api
from executors.mesos.codec import LARGEST, BadMessage, Message, Records, frame
from executors.mesos.effects import Close, Effect, KeepRow, Send
from executors.mesos.http_api import TokenAccess, host_names
from executors.mesos.journal import Entry, Journal
from executors.mesos.master import server
from executors.mesos.master.server import MasterServer
from executors.mesos.master.state import MasterOptions, MasterState
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, ROLES, WRITER, PoolDirectory

# ---------------------------------------------------------------------- served


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
class Bench:
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
async def bench(directory: Path, *, required: bool = True, heartbeat_s: float = 1000.0) -> AsyncIterator[Bench]:
    pool = PoolDirectory.create(directory / "pool", "p")
    journal, machine = Journal(pool.path / "master.db"), Machine()
    served = MasterServer(machine, journal, TokenAccess(pool, required=required), host_names(["n0"]), heartbeat_s)
    sock = listening_socket("127.0.0.1", 0)
    await served.listen(sock, None)
    running = asyncio.create_task(served.run())
    client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(DEADLINE_S))
    try:
        yield Bench(machine, served, journal, sock.getsockname()[1], pool, client)
    finally:
        await client.close()
        running.cancel()
        await asyncio.wait([running])
        await served.close()
        journal.close()


def serve(scenario: Callable[[Bench], Awaitable[None]], directory: Path, **options: Any) -> None:
    """Run a scenario against a server; `options` are those of `bench`."""

    async def run() -> None:
        async with bench(directory, **options) as found:
            await scenario(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "RETRY_S", 0.01)
        patch.setattr(server, "CLOSING_S", 0.5)
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


# ---------------------------------------------------------------------- server


def test_calls_are_checked_as_mesos_does(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        path, call = "/api/v1/scheduler", json.dumps(message("REVIVE"))
        bearer = {"Authorization": f"Bearer {bench.pool.token(FRAMEWORK)}"}

        async def ask(method: str, body: str | None, **headers: str) -> tuple[int, str]:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            async with bench.client.request(
                method, bench.url(path), data=body, headers=bearer | given, skip_auto_headers=["Content-Type"]
            ) as response:
                return response.status, await response.text()

        assert (await ask("GET", None))[0] == 405
        assert (await ask("PUT", call))[0] == 405
        assert await ask("POST", call) == (400, "Expecting 'Content-Type' to be present")
        for content in ("application/x-protobuf", "text/plain"):
            assert (await ask("POST", call, Content_Type=content))[0] == 415
        assert (await ask("POST", call, Content_Type="application/json", Content_Encoding="gzip"))[0] == 415
        half, keyed = '{"type":"REVIVE","x":["\\ud83d\\ud83d"]}', '{"type":"REVIVE","\\uDE00":1}'
        deep = '{"type":"REVIVE","x":' + "[" * 200 + "]" * 200 + "}"
        for body in ("", "{", "[]", "null", "7", "{}", '{"type":7}', '{"type":NaN}', "[" * 100_000, deep, half, keyed):
            assert (await ask("POST", body, Content_Type="application/json"))[0] == 400, body[:10]
        assert await ask("POST", call, Content_Type="application/json; charset=utf-8") == (202, "")
        subscribe = json.dumps(SUBSCRIBE)
        assert (await ask("POST", subscribe, Content_Type="application/json", Accept="application/x-protobuf"))[
            0
        ] == 406
        assert (await ask("POST", subscribe, Content_Type="application/json", Mesos_Stream_Id="x"))[0] == 400
        assert [asked[0] for asked in bench.machine.asked] == ["call"]

    serve(scenario, tmp_path)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 501])
def test_what_the_machine_refuses(status: int, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.answers |= {"call": HTTPError(status, "no"), "subscribe": HTTPError(status, "no")}
        assert await bench.post("/api/v1/scheduler", message("REVIVE")) == (status, "no")
        assert await bench.post("/api/v1/scheduler", SUBSCRIBE) == (status, "no")
        assert not bench.server.streams
        assert ("closed", bench.machine.opened[0]) not in bench.machine.asked

    serve(scenario, tmp_path)


def test_a_fault_of_the_machine_is_answered_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.answers |= {"call": ZeroDivisionError("oops"), "wake": ZeroDivisionError("again")}
        status, text = await bench.post("/api/v1/scheduler", message("REVIVE"))
        assert status == 500 and "oops" not in text
        bench.machine.next = 0.0
        bench.machine.answers.pop("call")
        assert (await bench.post("/api/v1/scheduler", message("REVIVE")))[0] == 202
        await until(lambda: bench.machine.woken > 0)
        assert (await bench.post("/api/v1/scheduler", message("REVIVE")))[0] == 202
        bench.machine.answers["call"] = BadMessage("expected 'kill'")
        assert await bench.post("/api/v1/scheduler", message("KILL")) == (400, "expected 'kill'")

    serve(scenario, tmp_path)
    assert "oops" in caplog.text and "again" in caplog.text
    token = PoolDirectory(tmp_path / "pool").token(FRAMEWORK)
    assert token not in caplog.text


def test_what_cannot_be_written_as_json_opens_no_stream(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.answers["subscribe"] = [Send("", {"type": float("nan")})]
        assert (await bench.post("/api/v1/scheduler", SUBSCRIBE))[0] == 500
        assert not bench.server.streams
        assert ("closed", bench.machine.opened[0]) in bench.machine.asked

    serve(scenario, tmp_path)


def test_update_framework_is_answered_with_200(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.post("/api/v1/scheduler", message("UPDATE_FRAMEWORK"), Mesos_Stream_Id="s") == (200, "")
        assert bench.machine.asked == [("call", "UPDATE_FRAMEWORK", None, "s")]

    serve(scenario, tmp_path)


def test_what_operators_get(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        status, text = await bench.post("/api/v1/operator", message("GET_HEALTH"), READER)
        assert (status, json.loads(text)) == (200, message("GET_HEALTH", healthy=True))
        assert await bench.post("/api/v1", message("UPDATE_QUOTA"), WRITER) == (200, "")
        async with bench.client.get(bench.url("/nothing/here"), headers=bench.headers(READER)) as response:
            assert response.status == 404
        async with bench.client.head(bench.url("/version")) as response:
            assert (response.status, await response.read()) == (200, b"")

    serve(scenario, tmp_path)


def test_bodies_have_a_limit_that_goes_with_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "BODIES", {READER: 1000})

    async def scenario(bench: Bench) -> None:
        large = json.dumps(message("GET_HEALTH") | {"more": "x" * 5000}).encode()
        assert (await bench.post("/api/v1", large, READER))[0] == 413
        assert (await bench.post("/api/v1", large, WRITER))[0] == 200
        reader, writer = await bench.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {bench.pool.token(FRAMEWORK)}\n"
            f"Content-Type: application/json\nContent-Length: {LARGEST + 1}\n\n"
        )
        assert b" 413 " in await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b" " * 100

        async with bench.client.post(bench.url("/api/v1"), data=endless(), headers=bench.headers(READER)) as response:
            assert response.status == 413

    serve(scenario, tmp_path)


def test_a_large_accept_is_taken(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        call = message("ACCEPT", padding="x" * (8 << 20))
        assert (await bench.post("/api/v1/scheduler", call))[0] == 202

    serve(scenario, tmp_path)


def test_a_batch_is_taken_item_by_item_and_a_bad_one_harms_no_other(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.stream("/asa/v1/agent", REGISTER, AGENT) as response:
            stream = response.headers["Mesos-Stream-Id"]
            items = [{"type": kind} for kind in ("PONG", "BAD", "UPDATE")]
            bench.machine.answers |= {
                "BAD": BadMessage("expected 'status'"),
                "UPDATE": [KeepRow("tasks", "t1", {"n": 1}), Send(stream, message("ACKNOWLEDGE"))],
            }
            answer = await bench.post("/asa/v1/agent", message("BATCH", items=items), AGENT, Mesos_Stream_Id=stream)
            assert answer == (400, "expected 'status'")
            assert [asked[-1] for asked in bench.machine.asked[1:]] == ["PONG", "BAD", "UPDATE"]
            assert bench.journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
            await seen(response, "ACKNOWLEDGE")
            answer = await bench.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
            assert answer == (202, "")
        await until(lambda: ("closed", stream) in bench.machine.asked)
        answer = await bench.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
        assert answer[0] == 400

    serve(scenario, tmp_path)


@pytest.mark.parametrize(("path", "call"), [("/api/v1/scheduler", SUBSCRIBE), ("/asa/v1/agent", REGISTER)])
def test_who_cannot_read_chunks_gets_no_stream(path: str, call: Message, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        body = json.dumps(call)
        token = bench.pool.token(AGENT if "agent" in path else FRAMEWORK)
        head = f"POST {path} HTTP/1.0\nHost: n0\nAuthorization: Bearer {token}\nContent-Type: application/json\n"
        reader, writer = await bench.raw(f"{head}Content-Length: {len(body)}\n\n{body}")
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        assert b" 505 " in answer.splitlines()[0] and b"expected HTTP/1.1" in answer
        assert bench.machine.opened == []
        writer.close()

    serve(scenario, tmp_path)


def test_what_streams_are_sent_can_be_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "executors.mesos.master.server")

    async def scenario(bench: Bench) -> None:
        async with bench.stream() as response:
            stream = response.headers["Mesos-Stream-Id"]
            bench.machine.answers["call"] = [Send(stream, message("RESCIND")), Close(stream)]
            await bench.post("/api/v1/scheduler", message("REVIVE"), Mesos_Stream_Id=stream)
            await response.read()
            said = [record.getMessage() for record in caplog.records if stream in record.getMessage()]
            assert said[-2:] == [f"stream {stream} is sent RESCIND", f"stream {stream} is sent its end"]

    serve(scenario, tmp_path)


def test_small_segments_leave_at_once(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        _, writer = await bench.raw("GET /version HTTP/1.1\nHost: n0\n\n")
        await until(lambda: bool(bench.server.listener.connections))
        own = next(iter(bench.server.listener.connections)).transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()

    serve(scenario, tmp_path)


# ---------------------------------------------------------------------- server access


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
]


def test_every_endpoint_with_no_wrong_too_small_and_right_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "FAILURES_MOST", 10_000)

    async def scenario(bench: Bench) -> None:
        async def ask(method: str, path: str, call: Message | None, authorization: str | None) -> int:
            headers = {"Content-Type": "application/json"}
            if authorization is not None:
                headers["Authorization"] = authorization
            async with bench.client.request(method, bench.url(path), json=call, headers=headers) as response:
                assert (response.status == 401) == ("WWW-Authenticate" in response.headers)
                return response.status

        wrong = ["Bearer " + "0" * 64, "Bearer ", "Basic bWU6d3Jvbmc=", "Basic %%%", "Digest x", "x" * 5000]
        for method, path, call, allowed in ENDPOINTS:
            for authorization in [None, *wrong]:
                assert await ask(method, path, call, authorization) == 401, (path, authorization)
            assert bench.machine.asked == []
            for role in ROLES:
                token = bench.pool.token(role)
                basic = base64.b64encode(f"me:{token}".encode()).decode()
                for authorization in (f"Bearer {token}", f"Basic {basic}"):
                    status = await ask(method, path, call, authorization)
                    assert (status in (200, 202)) == (role in allowed), (path, call, role, status)
                    assert role in allowed or (status == 403 and bench.machine.asked == [])
                    await until(lambda: not bench.server.streams)
                    bench.machine.asked.clear()

    serve(scenario, tmp_path)


def test_version_and_health_need_no_token(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        for path in ("/version", "/master/version", "/version/"):
            async with bench.client.get(bench.url(path)) as response:
                assert (await response.json())["version"].replace(".", "").isdigit()
        async with bench.client.get(bench.url("/health")) as response:
            assert response.status == 200
        async with bench.client.post(bench.url("/version")) as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")

    serve(scenario, tmp_path)


def test_without_authentication_everything_is_let_in(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.post("/api/v1/scheduler", message("REVIVE"), None, Authorization="Basic Tm9uZTpOb25l") == (
            202,
            "",
        )
        assert (await bench.post("/api/v1", message("TEARDOWN"), None))[0] == 200
        assert [asked[:2] for asked in bench.machine.asked] == [("call", "REVIVE"), ("operate", "TEARDOWN")]
        assert (await bench.post("/api/v1", message("TEARDOWN"), None, Origin="http://evil.example"))[0] == 403
        assert (await bench.post("/api/v1", message("TEARDOWN"), None, Host="evil.example"))[0] == 421

    serve(scenario, tmp_path, required=False)


def test_the_name_of_basic_is_the_principal(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        basic = base64.b64encode(f"me:{bench.pool.token(FRAMEWORK)}".encode()).decode()
        await bench.post("/api/v1/scheduler", message("REVIVE"), None, Authorization=f"Basic {basic}")
        await bench.post("/api/v1/scheduler", message("REVIVE"))
        assert [asked[2] for asked in bench.machine.asked] == ["me", None]

    serve(scenario, tmp_path)


def test_web_pages_and_other_names_are_turned_away(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        call = message("GET_HEALTH")
        for host in ("n0", "N0:5050", "localhost:1", "127.0.0.1", "127.0.0.2:80", "[::1]:7", "asa-driver"):
            assert (await bench.post("/api/v1", call, READER, Host=host))[0] == 200, host
        for host in ("evil.example", "n0.evil.example", "10.1.2.3", "127.0.0.1.evil.example", "[::2]", ":"):
            assert (await bench.post("/api/v1", call, READER, Host=host))[0] == 421, host
        assert (await bench.post("/api/v1", call, READER, Origin="null"))[0] == 403
        reader, writer = await bench.raw("GET /version HTTP/1.0\n\n")
        assert b" 400 " in await reader.readline()
        writer.close()

    serve(scenario, tmp_path)


def test_the_oldest_guest_makes_room_and_who_is_known_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNAUTHENTICATED_MOST", 3)

    async def scenario(bench: Bench) -> None:
        async with bench.stream() as known:
            guests = [await bench.raw("GET /version HTTP/1.1\nHost: n0\n") for _ in range(4)]
            assert await asyncio.wait_for(guests[0][0].read(), DEADLINE_S) == b""
            guests[3][1].write(b"\r\n")
            assert b" 200 " in await asyncio.wait_for(guests[3][0].readline(), DEADLINE_S)
            bench.server.deliver([(bench.machine.opened[0], frame({"type": "X"}))])
            await seen(known, "X")
            for _, writer in guests:
                writer.close()

    serve(scenario, tmp_path)


# ---------------------------------------------------------------------- server streams


def test_a_stream_is_chunked_one_record_a_chunk(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        body = json.dumps(SUBSCRIBE)
        reader, writer = await bench.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {bench.pool.token(FRAMEWORK)}\n"
            "Content-Type: application/json\nAccept: application/json\nConnection: close\nAccept-Encoding: gzip\n"
            f"Content-Length: {len(body)}\n\n{body}"
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        assert head[0] == "HTTP/1.1 200 OK"
        assert headers["transfer-encoding"] == "chunked"
        assert headers["content-type"] == "application/json"
        assert headers["mesos-stream-id"] == bench.machine.opened[0]
        assert 0 < len(headers["mesos-stream-id"]) <= 128
        assert "content-encoding" not in headers
        assert await chunks(reader, 2) == [frame(SUBSCRIBED), frame(HEARTBEAT)]
        many = [message("RESCIND", offer_id={"value": f"O{k}"}) for k in range(100)]
        bench.machine.answers["call"] = [Send(bench.machine.opened[0], each) for each in many]
        await bench.post("/api/v1/scheduler", message("REVIVE"))
        assert await chunks(reader, 100) == [frame(each) for each in many]
        bench.machine.answers["call"] = [Send(bench.machine.opened[0], SUBSCRIBED), Close(bench.machine.opened[0])]
        await bench.post("/api/v1/scheduler", message("REVIVE"))
        assert await chunks(reader, 2) == [frame(SUBSCRIBED), b""]
        writer.close()
        await until(lambda: not bench.server.streams)
        assert ("closed", bench.machine.opened[0]) not in bench.machine.asked

    serve(scenario, tmp_path)


def test_an_error_is_the_first_record_then_the_stream_ends(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        error = message("ERROR", message="Framework has been removed")
        bench.machine.answers["subscribe"] = [Send("", error), Close("")]
        assert await bench.post("/api/v1/scheduler", SUBSCRIBE) == (200, frame(error).decode())
        await until(lambda: not bench.server.streams)
        assert [asked[0] for asked in bench.machine.asked] == ["subscribe"]

    serve(scenario, tmp_path)


@pytest.mark.parametrize(
    ("path", "call", "role"),
    [
        ("/api/v1/scheduler", SUBSCRIBE, FRAMEWORK),
        ("/asa/v1/agent", REGISTER, AGENT),
        ("/api/v1", {"type": "SUBSCRIBE"}, READER),
    ],
)
def test_the_machine_learns_that_a_peer_has_gone(path: str, call: Message, role: str, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.stream(path, call, role) as response:
            assert response.headers["Mesos-Stream-Id"] == bench.machine.opened[0]
            response.close()
        await until(lambda: ("closed", bench.machine.opened[0]) in bench.machine.asked)
        assert not bench.server.streams

    serve(scenario, tmp_path)


def test_heartbeats_go_to_schedulers_and_operators(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        async with (
            bench.stream() as framework,
            bench.stream("/api/v1", {"type": "SUBSCRIBE"}, READER) as operator,
            bench.stream("/asa/v1/agent", REGISTER, AGENT) as agent,
        ):
            for response in (framework, operator):
                records, count = Records(), 0
                async with asyncio.timeout(DEADLINE_S):
                    while count < 5:
                        found = records.feed(await response.content.readany())
                        count += sum(record["type"] == "HEARTBEAT" for record in found)
            bench.server.deliver([(bench.machine.opened[2], frame({"type": "PING"}))])
            assert [record["type"] for record in await seen(agent, "PING")] == ["REGISTERED", "PING"]

    serve(scenario, tmp_path, heartbeat_s=0.05)


def test_a_reader_that_does_not_keep_up_loses_its_connection_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BYTES_MOST", 1 << 20)

    async def scenario(bench: Bench) -> None:
        body = json.dumps(SUBSCRIBE)
        reader, writer = await bench.raw(
            f"POST /api/v1/scheduler HTTP/1.1\nHost: n0\nAuthorization: Bearer {bench.pool.token(FRAMEWORK)}\n"
            f"Content-Type: application/json\nContent-Length: {len(body)}\n\n{body}"
        )
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: len(bench.machine.opened) == 1)
        stream = bench.machine.opened[0]
        for k in range(400):
            padded = message("MESSAGE", number=k, data="x" * 100_000)
            bench.machine.answers["call"] = [Send(stream, padded)]
            await bench.post("/api/v1/scheduler", message("REVIVE"))
            if ("closed", stream) in bench.machine.asked:
                break
        await until(lambda: ("closed", stream) in bench.machine.asked)
        assert not bench.server.streams
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
    async def scenario(bench: Bench) -> None:
        bench.machine.answers["call"] = [Send("gone", HEARTBEAT), Close("gone")]
        assert (await bench.post("/api/v1/scheduler", message("REVIVE")))[0] == 202

    serve(scenario, tmp_path)


def test_the_end_of_the_master_ends_streams(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.stream() as response:
            await seen(response, "HEARTBEAT")
            closing = asyncio.create_task(bench.server.close())
            assert await asyncio.wait_for(response.content.read(), DEADLINE_S) == b""
            await closing
        assert [asked[0] for asked in bench.machine.asked] == ["subscribe"]

    serve(scenario, tmp_path)


# ---------------------------------------------------------------------- server commit


def test_nothing_is_sent_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.stream() as response:
            await seen(response, "HEARTBEAT")
            order: list[str] = []
            write, deliver = bench.journal.write, bench.server.commit.deliver

            def writing(entries: Sequence[Entry]) -> None:
                write(entries)
                order.append("kept")

            def delivering(parcels: Sequence[commit.StreamRecord]) -> None:
                order.append("sent")
                deliver(parcels)

            monkeypatch.setattr(bench.journal, "write", writing)
            monkeypatch.setattr(bench.server.commit, "deliver", delivering)
            row = {"n": 1}
            effects: list[Effect] = [Send(bench.machine.opened[0], SUBSCRIBED), KeepRow("tasks", "t1", row)]
            bench.machine.answers["call"] = effects
            assert (await bench.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            order.append("answered")
            assert order == ["kept", "sent", "answered"]
            assert bench.journal.rows() == [KeepRow("tasks", "t1", row)]

    serve(scenario, tmp_path)


@pytest.mark.parametrize("quick", [True, False])
def test_a_full_disk_holds_calls_until_there_is_room(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.stream() as response:
            await seen(response, "HEARTBEAT")
            write, full, tried = bench.journal.write, True, 0

            def writing(entries: Sequence[Entry]) -> None:
                nonlocal tried
                tried += 1
                if full:
                    raise StateError("the disk is full")
                write(entries)

            monkeypatch.setattr(bench.journal, "quick", quick)
            monkeypatch.setattr(bench.journal, "write", writing)
            stream = bench.machine.opened[0]
            bench.machine.answers["call"] = [KeepRow("tasks", "t1", {"n": 1}), Send(stream, message("RESCIND"))]
            held = asyncio.create_task(bench.post("/api/v1/scheduler", message("ACCEPT")))
            await until(lambda: tried > 3)
            asked = len(bench.machine.asked)
            assert (await bench.post("/api/v1/scheduler", message("ACCEPT")))[0] == 503
            assert (await bench.post("/api/v1", message("TEARDOWN"), WRITER))[0] == 503
            async with bench.client.get(bench.url("/health")) as answer:
                assert answer.status == 200
            bench.machine.next = 0.0
            bench.server.clock.arm()
            before = tried
            await until(lambda: tried > before + 3)
            assert len(bench.machine.asked) == asked and bench.machine.woken == 0
            assert not held.done()
            full = False
            assert (await held)[0] == 202
            await seen(response, "RESCIND")
            assert bench.journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
            assert (await bench.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            await until(lambda: bench.machine.woken > 0)

    serve(scenario, tmp_path)
    assert caplog.text.count("cannot be written") == 1


def test_the_machine_is_woken_when_it_wants(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        stream: list[str] = []
        async with bench.stream() as response:
            await seen(response, "HEARTBEAT")
            stream += bench.machine.opened
            bench.machine.answers["wake"] = [Send(stream[0], message("RESCIND"))]
            bench.machine.next = bench.server.clock.now() + 0.02
            await bench.post("/api/v1/scheduler", message("DECLINE"))
            await seen(response, "RESCIND")
            assert bench.machine.woken == 1

    serve(scenario, tmp_path)
