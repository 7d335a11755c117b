"""The master on the network: streams."""

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path

import pytest

from asa.web import server as streams
from executors.mesos.codec import Message, Records, frame
from executors.mesos.effects import Close, Send
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER
from tests.executors.mesos.master.served import (
    DEADLINE_S,
    HEARTBEAT,
    REGISTER,
    SUBSCRIBE,
    SUBSCRIBED,
    Ground,
    chunks,
    seen,
    serve,
    until,
)


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
        await until(lambda: not ground.server.streams)
        assert ("closed", ground.machine.opened[0]) not in ground.machine.asked

    serve(scenario, tmp_path)


def test_an_error_is_the_first_record_then_the_stream_ends(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        error = message("ERROR", message="Framework has been removed")
        ground.machine.answers["subscribe"] = [Send("", error), Close("")]
        assert await ground.post("/api/v1/scheduler", SUBSCRIBE) == (200, frame(error).decode())
        await until(lambda: not ground.server.streams)
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
        assert not ground.server.streams

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
            ground.server.deliver([(ground.machine.opened[2], frame({"type": "PING"}))])
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
        assert not ground.server.streams
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
