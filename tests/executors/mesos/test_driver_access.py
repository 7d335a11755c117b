"""Whom a driver believes, and whom it tells its secrets."""

from __future__ import annotations

import ssl
from pathlib import Path

from aiohttp import web

from executors.mesos.driver import SchedulerDriver
from executors.mesos.pool_directory import FRAMEWORK, MASTER_NAME, Address, PoolDirectory
from tests.executors.mesos.driven import INFO, Recorder, Start, status
from tests.executors.mesos.scripted import Scripted, until


def test_a_redirect_away_from_tls_is_not_followed(master: Scripted, start: Start) -> None:
    master.entry = lambda: web.Response(status=307, headers={"Location": "https://localhost:1/"})
    driver, scheduler = start(master)
    driver.join()
    assert "between HTTP and HTTPS" in scheduler.heard("error")[1]


def test_names_and_secrets(master: Scripted, start: Start) -> None:
    for options, expected in (
        ({"token": "abc"}, "Bearer abc"),
        ({"principal": "me", "secret": "abc"}, "Basic bWU6YWJj"),
        ({}, None),
    ):
        driver, scheduler = start(master, **options)
        scheduler.heard("registered")
        driver.stop()
        driver.join()
        assert [head.get("Authorization") for head in master.heads] == [expected] * 2
        assert "abc" not in repr(driver._client._find())
        master.heads.clear()


def test_a_pool_is_found_by_its_directory_and_spoken_to_by_tls(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    driver, scheduler = start(directory)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(Address(("127.0.0.1",), master.port, True, 1, "m1"))
        scheduler.heard("registered")
        assert master.heads[0]["Authorization"] == f"Bearer {directory.token(FRAMEWORK)}"
        master.say(*(status("t1", n, data="x" * 100_000) for n in range(20)))
        scheduler.heard("statusUpdate", 20)
        driver.sendFrameworkMessage({"value": "e"}, {"value": "S1"}, "x" * 3_000_000)
        until(lambda: len(master.calls) == 21)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(Address(("127.0.0.1",), master.port, True, 1, "m2"))
        scheduler.heard("reregistered")
        driver.stop()
        driver.join()
        assert master.kinds() == ["TEARDOWN"]


def test_somebody_else_with_the_masters_address_is_not_believed(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    stranger = PoolDirectory.create(tmp_path / "other", "p")
    with (
        Scripted(context=stranger.server_context(MASTER_NAME)) as false,
        Scripted(context=directory.server_context(MASTER_NAME)) as true,
    ):
        directory.publish(Address(("127.0.0.1",), false.port, True, 1, "m1"))
        _, scheduler = start(directory)
        directory.publish(Address(("127.0.0.1",), true.port, True, 1, "m2"))
        scheduler.heard("registered")
        assert false.subscriptions == []


def test_secrets_that_others_can_read_are_not_sent(tmp_path: Path, start: Start) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    directory.token_file(FRAMEWORK).chmod(0o644)
    with Scripted(context=directory.server_context(MASTER_NAME)) as master:
        directory.publish(Address(("127.0.0.1",), master.port, True, 1, "m1"))
        driver, scheduler = start(directory)
        driver.join()
        assert "chmod 600" in scheduler.heard("error")[1] and master.subscriptions == []


def test_plain_http_is_not_taken_for_tls(tmp_path: Path, master: Scripted) -> None:
    context = ssl.create_default_context()
    assert context.check_hostname
    driver = SchedulerDriver(Recorder(), INFO, f"https://{master.address}")
    driver.start()
    driver.abort()
    driver.join()
    assert master.subscriptions == []
