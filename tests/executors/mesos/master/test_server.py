"""The master on the network: calls of schedulers, operators and agents, and their answers."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import asa.web.server
from asa.web.errors import HTTPError
from executors.mesos import http_api
from executors.mesos.codec import LARGEST, BadMessage, Message
from executors.mesos.effects import Close, KeepRow, Send
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, WRITER, PoolDirectory
from tests.executors.mesos.master.served import (
    DEADLINE_S,
    REGISTER,
    SUBSCRIBE,
    Ground,
    seen,
    serve,
    until,
)


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
        ground.machine.answers |= {"call": HTTPError(status, "no"), "subscribe": HTTPError(status, "no")}
        assert await ground.post("/api/v1/scheduler", message("REVIVE")) == (status, "no")
        assert await ground.post("/api/v1/scheduler", SUBSCRIBE) == (status, "no")
        assert not ground.server.streams
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
        assert not ground.server.streams
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
        async with ground.client.get(ground.url("/nothing/here"), headers=ground.headers(READER)) as response:
            assert response.status == 404
        async with ground.client.head(ground.url("/version")) as response:
            assert (response.status, await response.read()) == (200, b"")

    serve(scenario, tmp_path)


def test_bodies_have_a_limit_that_goes_with_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "_BODIES", {READER: 1000})

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
    monkeypatch.setattr(asa.web.server, "BODY_S", 0.05)

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
        (connection,) = ground.server.listener.connections
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


def test_a_batch_is_taken_item_by_item_and_a_bad_one_harms_no_other(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream("/asa/v1/agent", REGISTER, AGENT) as response:
            stream = response.headers["Mesos-Stream-Id"]
            items = [{"type": kind} for kind in ("PONG", "BAD", "UPDATE")]
            ground.machine.answers |= {
                "BAD": BadMessage("expected 'status'"),
                "UPDATE": [KeepRow("tasks", "t1", {"n": 1}), Send(stream, message("ACKNOWLEDGE"))],
            }
            answer = await ground.post("/asa/v1/agent", message("BATCH", items=items), AGENT, Mesos_Stream_Id=stream)
            assert answer == (400, "expected 'status'")
            assert [asked[-1] for asked in ground.machine.asked[1:]] == ["PONG", "BAD", "UPDATE"]
            assert ground.journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
            await seen(response, "ACKNOWLEDGE")
            answer = await ground.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
            assert answer == (202, "")
        await until(lambda: ("closed", stream) in ground.machine.asked)
        answer = await ground.post("/asa/v1/agent", message("BATCH", items=[]), AGENT, Mesos_Stream_Id=stream)
        assert answer[0] == 400

    serve(scenario, tmp_path)


@pytest.mark.parametrize(("path", "call"), [("/api/v1/scheduler", SUBSCRIBE), ("/asa/v1/agent", REGISTER)])
def test_who_cannot_read_chunks_gets_no_stream(path: str, call: Message, tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        body = json.dumps(call)
        token = ground.pool.token(AGENT if "agent" in path else FRAMEWORK)
        head = f"POST {path} HTTP/1.0\nHost: n0\nAuthorization: Bearer {token}\nContent-Type: application/json\n"
        reader, writer = await ground.raw(f"{head}Content-Length: {len(body)}\n\n{body}")
        answer = await asyncio.wait_for(reader.read(), DEADLINE_S)
        assert b" 505 " in answer.splitlines()[0] and b"expected HTTP/1.1" in answer
        assert ground.machine.opened == []
        writer.close()

    serve(scenario, tmp_path)


def test_what_streams_are_told_can_be_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "executors.mesos.master.server")

    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            stream = response.headers["Mesos-Stream-Id"]
            ground.machine.answers["call"] = [Send(stream, message("RESCIND")), Close(stream)]
            await ground.post("/api/v1/scheduler", message("REVIVE"), Mesos_Stream_Id=stream)
            await response.read()
            said = [record.getMessage() for record in caplog.records if stream in record.getMessage()]
            assert said[-2:] == [f"stream {stream} is sent RESCIND", f"stream {stream} is sent its end"]

    serve(scenario, tmp_path)


def test_small_segments_leave_at_once(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        _, writer = await ground.raw("GET /version HTTP/1.1\nHost: n0\n\n")
        await until(lambda: bool(ground.server.listener.connections))
        own = next(iter(ground.server.listener.connections)).transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()

    serve(scenario, tmp_path)
