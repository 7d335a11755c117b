"""A master in this process: it starts, ends, ends by itself when it is idle, and comes back."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from asa.core.errors import InvalidInput, StateError
from asa.web import server as web
from executors.mesos.codec import Message, Records
from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService, until_idle
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState
from executors.mesos.messages import message
from executors.mesos.pool_directory import FRAMEWORK, READER, PoolDirectory
from executors.mesos.resources import NONE
from tests.executors.mesos import live
from tests.waiting import until

# ---------------------------------------------------------------------- service


DEADLINE_S = 20.0
FRAMEWORK_INFO = {"user": "u", "name": "f", "failover_timeout": 3600.0}


@pytest.fixture
def pool(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "p")


@pytest.fixture
def plain(pool: PoolDirectory) -> Iterator[MasterService]:
    with MasterService(pool, tls=False) as service:
        yield service


def ask(service: MasterService, pool: PoolDirectory, kind: str, **more: Any) -> requests.Response:
    return requests.post(
        f"http://127.0.0.1:{service.address.port}/api/v1",
        json={"type": kind},
        headers={"Authorization": f"Bearer {pool.token(READER)}", "Connection": "close"},
        timeout=DEADLINE_S,
        **more,
    )


class Subscriber:
    """A scheduler that only listens."""

    def __init__(self, service: MasterService, pool: PoolDirectory, info: Message) -> None:
        call = message("SUBSCRIBE", framework_info=info)
        if "id" in info:
            call["framework_id"] = info["id"]
        self.response = requests.post(
            f"http://127.0.0.1:{service.address.port}/api/v1/scheduler",
            json=call,
            headers={"Authorization": f"Bearer {pool.token(FRAMEWORK)}"},
            stream=True,
            timeout=DEADLINE_S,
        )
        assert self.response.status_code == 200, self.response.text
        self._records = (
            record
            for records in [Records()]
            for chunk in self.response.iter_content(None)
            for record in records.feed(chunk)
        )

    def first(self) -> Message:
        return next(self._records)


def test_before_it_was_started_it_listens_nowhere(pool: PoolDirectory) -> None:
    with pytest.raises(StateError, match="listens nowhere yet: start it first"):
        MasterService(pool, tls=False).address  # noqa: B018


def test_it_says_where_it_listens_and_withdraws_that(pool: PoolDirectory) -> None:
    with MasterService(pool, tls=False) as service:
        assert pool.master() == service.address
        assert (service.address.pid, service.address.tls, service.address.hosts) == (os.getpid(), False, ("127.0.0.1",))
        assert ask(service, pool, "GET_HEALTH").json() == message("GET_HEALTH", healthy=True)
        info = ask(service, pool, "GET_MASTER").json()["get_master"]["master_info"]
        assert (info["hostname"], info["port"]) == ("127.0.0.1", service.address.port)
    assert pool.master() is None
    assert not any(thread.name == "asa-master" for thread in threading.enumerate())


def test_tls_is_the_default_and_only_our_authority_is_believed(pool: PoolDirectory, tmp_path: Path) -> None:
    with MasterService(pool) as service:
        assert service.address.tls and service.address.hosts[0] == socket.gethostname()
        request = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        other = PoolDirectory.create(tmp_path / "other", "o")
        with (
            knock(service) as stream,
            pool.client_context().wrap_socket(stream, server_hostname="asa-driver") as tls,
        ):
            tls.sendall(request)
            assert tls.recv(12) == b"HTTP/1.1 200"
        with knock(service) as stream, pytest.raises(OSError, match="certificate verify failed"):
            other.client_context().wrap_socket(stream, server_hostname="asa-driver")
        with knock(service) as stream:
            stream.sendall(request)
            assert b"HTTP" not in stream.recv(1000)


def knock(service: MasterService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.address.port), DEADLINE_S)


@pytest.mark.parametrize("options", [{"tls": False}, {"authenticate": False}, {"tls": False, "authenticate": False}])
def test_without_tls_or_authentication_it_is_for_this_machine_alone(
    options: dict[str, bool], pool: PoolDirectory
) -> None:
    for host in ("", "0.0.0.0", "10.0.0.1"):
        with pytest.raises(InvalidInput, match="loopback only"):
            MasterService(pool, host=host, **options)
    with MasterService(pool, **options) as service:
        assert service.address.hosts == ("127.0.0.1",)


def test_one_master_holds_a_directory(pool: PoolDirectory, plain: MasterService) -> None:
    with pytest.raises(StateError, match=f"has a master already, process {os.getpid()} on .*: use that one"):
        MasterService(pool, tls=False).start()
    assert ask(plain, pool, "GET_HEALTH").ok
    plain.close()
    with MasterService(pool, tls=False) as second:
        assert ask(second, pool, "GET_HEALTH").ok


@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_same_master_comes_back(how: str, pool: PoolDirectory) -> None:
    with MasterService(pool, tls=False) as service:
        first = Subscriber(service, pool, FRAMEWORK_INFO).first()["subscribed"]
        address = service.address
        getattr(service, how)()
    assert pool.master() == (None if how == "close" else address)
    with MasterService(pool, tls=False) as again:
        assert again.address.id != address.id
        known = ask(again, pool, "GET_FRAMEWORKS").json()["get_frameworks"]["frameworks"]
        assert [each["framework_info"]["id"] for each in known] == [first["framework_id"]]
        second = Subscriber(again, pool, FRAMEWORK_INFO | {"id": first["framework_id"]}).first()["subscribed"]
        assert second["framework_id"] == first["framework_id"]
        assert second["master_info"]["id"] == first["master_info"]["id"]


def test_a_port_that_is_taken(pool: PoolDirectory, plain: MasterService, tmp_path: Path) -> None:
    other = PoolDirectory.create(tmp_path / "other", "o")
    service = MasterService(other, tls=False, port=plain.address.port)
    with pytest.raises(StateError, match=f"cannot listen on 127.0.0.1, port {plain.address.port}"):
        service.start()
    MasterService(other, tls=False).__enter__().close()  # the lock was let go of


def test_damage_is_reported_and_nothing_is_left_behind(pool: PoolDirectory) -> None:
    MasterService(pool, tls=False).__enter__().close()
    with sqlite3.connect(pool.path / "master.db") as connection:
        connection.execute("UPDATE kept SET row = '[]'")
    connection.close()
    with pytest.raises(StateError, match=r"master\.db is damaged .* move it away"):
        MasterService(pool, tls=False).start()
    (pool.path / "master.db").unlink()
    MasterService(pool, tls=False).__enter__().close()
    (pool.path / "tls" / "driver.pem").unlink()
    with pytest.raises(StateError, match=r"driver\.pem"):
        MasterService(pool).start()


def test_what_it_died_of_is_raised(pool: PoolDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    service = MasterService(pool, tls=False)
    with monkeypatch.context() as patch:

        async def fail(self: object) -> None:
            raise ZeroDivisionError("oops")

        patch.setattr("asa.web.server.Heartbeats.run", fail)
        service.start()
        with pytest.raises(ExceptionGroup) as died:
            service.wait()
    assert repr(died.value.exceptions) == "(ZeroDivisionError('oops'),)"
    with pytest.raises(ExceptionGroup):
        service.close()
    MasterService(pool, tls=False).__enter__().close()


def test_as_many_files_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import resource; from asa.web.server import raise_file_limit\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "print(raise_file_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    told, soft, hard = map(int, subprocess.check_output([sys.executable, "-c", program]).split())
    assert told == soft == (web.FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, web.FILES_MOST))


# ---------------------------------------------------------------------- idleness


PATIENCE_S = 20.0


def subscribed_framework(stream: str | None) -> FrameworkRecord:
    return FrameworkRecord("F", {}, frozenset(), 0.0, stream=stream)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["framework", "agent"])
def test_a_master_does_not_end_while_a_framework_or_an_agent_is_there(who: str) -> None:
    async def story() -> None:
        state = MasterState("M", MasterOptions(), 0.0)
        if who == "framework":
            state.frameworks["F"] = subscribed_framework("s1")
        else:
            state.agents["S"] = AgentRecord("S", {}, NONE, 0.0)
        idle = asyncio.create_task(until_idle(state, 0.05))
        done, _ = await asyncio.wait([idle], timeout=0.5)
        assert not done
        if who == "framework":
            state.frameworks["F"].stream = None  # known, but gone
        else:
            del state.agents["S"]
        await asyncio.wait_for(idle, PATIENCE_S)

    asyncio.run(story())


@pytest.mark.slow
def test_a_master_does_not_end_while_agents_come_and_go() -> None:
    async def story() -> None:
        state = MasterState("M", MasterOptions(), 0.0)
        idle = asyncio.create_task(until_idle(state, 2.0))
        loop = asyncio.get_running_loop()
        end = loop.time() + 3.0
        while loop.time() < end:
            state.arrivals += 1
            done, _ = await asyncio.wait([idle], timeout=0.2)
            assert not done
        await asyncio.wait_for(idle, PATIENCE_S)

    asyncio.run(story())


@pytest.mark.slow
def test_a_service_ends_and_lets_the_next_one_in(tmp_path: Path) -> None:
    pool = PoolDirectory.create(tmp_path / "pool", "p")
    with MasterService(pool, idle_s=0.2) as service:
        service.wait(PATIENCE_S)
    assert pool.master() is None
    with MasterService(pool, idle_s=1.0) as service:
        driver = SchedulerDriver(object(), live.FRAMEWORK, pool)  # type: ignore[arg-type]
        driver.start()
        until(lambda: driver.connected, "the framework")
        driver.stop()
        driver.join()
        service.wait(PATIENCE_S)
