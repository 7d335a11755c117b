"""The master on the network: who may do what."""

import asyncio
import base64
from pathlib import Path

import pytest

from asa.web import hosts, server
from executors.mesos.codec import Message, frame
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, ROLES, WRITER
from tests.executors.mesos.master.served import (
    DEADLINE_S,
    REGISTER,
    SUBSCRIBE,
    Ground,
    seen,
    serve,
    until,
)

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
                    await until(lambda: not ground.server.streams)
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
        assert [asked[:2] for asked in ground.machine.asked] == [("call", "REVIVE"), ("operate", "TEARDOWN")]
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
        statuses = [(await ground.post("/api/v1", {}, None))[0] for _ in range(hosts.FAILURES_MOST + 5)]
        assert statuses[: hosts.FAILURES_MOST] == [401] * hosts.FAILURES_MOST
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
    monkeypatch.setattr(server, "UNAUTHENTICATED_MOST", 3)

    async def scenario(ground: Ground) -> None:
        async with ground.stream() as known:
            guests = [await ground.raw("GET /version HTTP/1.1\nHost: n0\n") for _ in range(4)]
            assert await asyncio.wait_for(guests[0][0].read(), DEADLINE_S) == b""
            guests[3][1].write(b"\r\n")
            assert b" 200 " in await asyncio.wait_for(guests[3][0].readline(), DEADLINE_S)
            ground.server.deliver([(ground.machine.opened[0], frame({"type": "X"}))])
            await seen(known, "X")
            for _, writer in guests:
                writer.close()

    serve(scenario, tmp_path)
