"""The command that runs a master, by hand and on demand."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from asa.core.errors import StateError
from executors.mesos import master_command
from executors.mesos.codec import Message, Records
from executors.mesos.master_command import MasterCommand
from executors.mesos.messages import message
from executors.mesos.pool_directory import FRAMEWORK, MASTER_NAME, READER, ROLES, MasterAddress, PoolDirectory
from tests.waiting import until

# ---------------------------------------------------------------------- master command


DEADLINE_S = 30.0


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "asa", "master", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )


def address(process: subprocess.Popen[str], pool: PoolDirectory, but: int = 0) -> MasterAddress:
    """Where it listens; an address that the process `but` has left behind is not it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if (found := pool.master()) is not None and found.pid != but:
            return found
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_a_signal_ends_it(number: signal.Signals, tmp_path: Path) -> None:
    pool = PoolDirectory(tmp_path / "pool")
    process = start("--directory", str(pool.path), "--plain-http", "--offer-timeout", "60", "--json", "-")
    found = address(process, pool)
    response = requests.get(f"http://127.0.0.1:{found.port}/version", timeout=DEADLINE_S)
    assert response.ok and found.pid == process.pid
    command, environment = (Path(f"/proc/{process.pid}/{name}").read_text() for name in ("cmdline", "environ"))
    process.send_signal(number)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert json.loads(output)["port"] == found.port
    assert f"at http://127.0.0.1:{found.port}" in errors
    assert pool.master() is None
    for role in ROLES:
        assert pool.token(role) not in command + environment + output + errors


def test_an_idle_master_ends_by_itself(tmp_path: Path) -> None:
    pool = PoolDirectory(tmp_path / "pool")
    process = start("--directory", str(pool.path), "--idle", "0.2")
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert "for 0.2 s it had neither a framework nor an agent" in output + errors
    assert pool.master() is None


def test_a_second_master_names_the_first(tmp_path: Path) -> None:
    pool = PoolDirectory(tmp_path / "pool")
    first = start("--directory", str(pool.path))
    try:
        assert address(first, pool).tls
        second = start("--directory", str(pool.path))
        _, errors = second.communicate(timeout=DEADLINE_S)
        assert second.returncode == 1
        assert f"has a master already, process {first.pid}" in errors
    finally:
        first.kill()
        first.communicate()


def test_kill_9_undoes_nothing_that_was_answered(tmp_path: Path) -> None:
    pool = PoolDirectory(tmp_path / "pool")
    told: list[Message] = []
    for _ in range(3):
        process = start("--directory", str(pool.path), "--plain-http")
        try:
            url = f"http://127.0.0.1:{address(process, pool, but=told[-1]['pid'] if told else 0).port}/api/v1"
            reader, framework = ({"Authorization": f"Bearer {pool.token(role)}"} for role in (READER, FRAMEWORK))
            asked = requests.post(url, json={"type": "GET_FRAMEWORKS"}, headers=reader, timeout=DEADLINE_S).json()
            known = [item["framework_info"]["id"] for item in asked["get_frameworks"].get("frameworks", [])]
            assert known == [item["subscribed"]["framework_id"] for item in told]
            info = {"user": getpass.getuser(), "name": "f", "failover_timeout": 3600.0}
            call = message("SUBSCRIBE", framework_info=info)
            stream = requests.post(f"{url}/scheduler", json=call, headers=framework, stream=True, timeout=DEADLINE_S)
            records = Records()
            told.append(next(record for part in stream.iter_content(None) for record in records.feed(part)))
            told[-1]["pid"] = process.pid
        finally:
            process.kill()
            process.communicate()
    assert len({item["subscribed"]["master_info"]["id"] for item in told}) == 1


def test_without_authentication_it_says_so(tmp_path: Path) -> None:
    pool = PoolDirectory(tmp_path / "pool")
    process = start("--directory", str(pool.path), "--plain-http", "--no-authentication")
    found = address(process, pool)
    assert requests.post(f"http://127.0.0.1:{found.port}/api/v1", json={"type": "GET_HEALTH"}, timeout=DEADLINE_S).ok
    assert process.stderr is not None
    said = process.stderr.readline() + process.stderr.readline()  # after the address is known
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert "WITHOUT AUTHENTICATION" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--plain-http", "--host", "0.0.0.0"], "loopback only"),
        (["--port", "70000"], "expected a port from 0 to 65535"),
        (["--offer-timeout", "-1"], "above 0"),
        (["--offer-timeout", "nan"], "above 0"),
        (["--idle", "0"], "above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], expected: str, tmp_path: Path) -> None:
    process = start("--directory", str(tmp_path / "pool"), *arguments)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode != 0 and expected in errors


@pytest.mark.parametrize("port", [0, 65535])
def test_a_port_may_be_chosen(port: int, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    MasterCommand().configure(parser)
    assert parser.parse_args(["--directory", str(tmp_path), "--port", str(port)]).port == port


# ---------------------------------------------------------------------- on demand


def test_a_master_whose_log_cannot_be_written_is_not_started(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    log = directory.path / master_command.LOG
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"cannot write {log}"):
        master_command.start_master(directory, local=True)
    assert directory.master() is None and not (tmp_path / "elsewhere").exists()


def test_a_master_prints_messages_of_the_level_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASA_LOG_LEVEL", "info")
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    log = directory.path / master_command.LOG
    master_command.start_master(directory, local=True)
    until(lambda: directory.master() is not None)
    address = directory.master()
    assert address is not None
    ca = str(directory.path / "tls" / "ca.pem")
    url = f"https://{MASTER_NAME}:{address.port}/api/v1"
    monkeypatch.setattr(socket, "getaddrinfo", partial(_at_loopback, socket.getaddrinfo))
    assert requests.post(url, b"{}", verify=ca, timeout=30).status_code == 401
    os.kill(address.pid, signal.SIGTERM)
    until(lambda: "the master has ended" in log.read_text())
    assert " INFO    asa.web.server: '/api/v1' is answered with 401" in log.read_text()


def _at_loopback(resolve: Callable[..., Any], host: str, *rest: Any, **more: Any) -> Any:
    return resolve("127.0.0.1", *rest, **more)
