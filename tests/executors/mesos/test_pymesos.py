"""Unmodified pymesos against our master and agent, through the tunnel; each program in a process of its own."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.compat import HttpParser
from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, WRITER, PoolDirectory
from executors.mesos.tunnel import Tunnel
from tests.executors.mesos import live
from tests.executors.mesos.scripted import until

pytestmark = [
    pytest.mark.mesos,
    pytest.mark.skipif(importlib.util.find_spec("pymesos") is None, reason="pymesos is not installed"),
]

PROGRAMS = Path(__file__).parent / "programs"
EXECUTOR = live.python(PROGRAMS / "pymesos_executor.py")
DEADLINE_S = 90.0


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDirectory]:
    with live.pool(tmp_path, agents=2) as directory:
        yield directory


def program(name: str, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-P", str(PROGRAMS / f"{name}.py"), *arguments]
    environ = os.environ | {"PYTHONPATH": str(live.ROOT)}
    return subprocess.Popen(
        words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def seen(process: subprocess.Popen[str], stdin: str = "") -> Any:
    """What it prints last; its standard error is shown when that is nothing."""
    try:
        out, err = process.communicate(stdin, timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0 and out, err[-4000:]
    return json.loads(out.splitlines()[-1])


def test_its_scheduler_and_its_executor(pool: PoolDirectory) -> None:
    with Tunnel(pool) as tunnel, Operator(pool, READER) as operator:
        found = seen(program("pymesos_scheduler", tunnel.address, EXECUTOR, "20"), json.dumps(live.USER))
        assert found["registered"] == 1 and found["version"] == "1.11.0" and found["offers"] >= 2
        assert found["states"] == {f"t{n}": ["TASK_RUNNING", "TASK_FINISHED"] for n in range(1, 21)}
        assert found["messages"] == [["sleeper", "olleh"]]
        until(lambda: not operator.get_frameworks(), "TEARDOWN")
        state = operator.get_state()
        (completed,) = state["get_frameworks"]["completed_frameworks"]
        assert completed["framework_info"]["id"]["value"] == found["framework"]
        until(lambda: not operator.call("GET_EXECUTORS")["executors"], "the end of the executors")


def test_our_framework_runs_on_it(pool: PoolDirectory) -> None:
    with Tunnel(pool) as tunnel:
        found = seen(program("pymesos_framework", tunnel.address), json.dumps(live.USER))
    assert found == [["trio", "started", ""], ["trio", "finished", ""]]


class Launcher:
    """Runs one task of pymesos's executor on our own driver, when told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.states: list[str] = []

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        if self.states or not self.go.wait(60):
            return driver.declineOffer([offer["id"] for offer in offers])
        task = live.command("t1", offers[0], "")
        executor = {"executor_id": {"value": "sleeper"}, "name": "sleeper", "command": {"value": EXECUTOR}}
        task = {name: value for name, value in task.items() if name != "command"} | {"executor": executor}
        self.states.append("launched")
        return driver.launchTasks(offers[0]["id"], [task | {"data": "MC4z"}])

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        self.states.append(status["state"])


def test_its_operators_and_its_executor_on_our_driver(pool: PoolDirectory) -> None:
    launcher = Launcher()
    driver = SchedulerDriver(launcher, live.FRAMEWORK, pool)
    with Operator(pool, READER) as operator:
        infos = [agent["agent_info"] for agent in operator.get_agents()]
    with Tunnel(pool, WRITER) as tunnel, Tunnel(pool, READER, f"127.0.0.1:{infos[0]['port']}") as to_agent:
        process = program("pymesos_operator", tunnel.address, to_agent.address)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            driver.start()
            launcher.go.set()
            found = seen(process)
        finally:
            process.kill()
            driver.stop()
            driver.join()
    assert launcher.states == ["launched", "TASK_RUNNING", "TASK_FINISHED"]
    for name in ("metrics", "agents", "frameworks", "executors", "tasks", "roles", "state", "flags"):
        assert found[name]["type"] == f"GET_{name.upper()}" and found[name][f"get_{name}"]
    assert found["health"]["get_health"] == {"healthy": True} == found["agent health"]["get_health"]
    assert found["version"]["get_version"]["version_info"]["version"] == "1.11.0"
    assert found["quota"]["type"] == "GET_QUOTA"
    assert {agent["agent_info"]["id"]["value"] for agent in found["agents"]["get_agents"]["agents"]} == {
        info["id"]["value"] for info in infos
    }
    assert found["added"] == ["t1"] and found["joined"] == ["test"]
    assert found["updated"] == ["TASK_RUNNING", "TASK_FINISHED"]
    assert "get_tasks" in found["agent state"]["get_state"] and found["containers"]["type"] == "GET_CONTAINERS"


def test_the_masters_death_costs_no_task(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    master = MasterService(directory)
    master.start()
    try:
        with live.agent(directory, tmp_path / "work"), Tunnel(directory) as tunnel:
            process = program("pymesos_scheduler", tunnel.address, EXECUTOR, "9")
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(live.USER) + "\n")
                process.stdin.close()
                process.stdin = None
                with Operator(directory, READER) as operator:
                    until(lambda: operator.call("GET_TASKS")["tasks"], "a task")
                master.kill()
                master.start()
                found = seen(process)
            finally:
                process.kill()
    finally:
        master.close()
    assert found["registered"] == 1 and found["reregistered"]
    ended = {task for task, states in found["states"].items() if states[-1] == "TASK_FINISHED"}
    assert ended == {f"t{n}" for n in range(1, 10)}


# ------------------------------------------------------- compat


def answer(code: str, *path: Path) -> str:
    """What a fresh interpreter prints."""
    program = f"import sys; sys.path[:0] = {[str(part) for part in path]!r}\n" + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


HIDE = """
import importlib.abc, importlib.util
original = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "http_parser" else original(name, *rest)
"""
ENABLE = "from executors.mesos.compat import enable_pymesos\n"


def test_nothing_is_registered_before_it_is_asked_for() -> None:
    code = "import executors.mesos.compat, sys; print('http_parser' in sys.modules)"
    assert answer(code) == "False"


def test_the_stand_in_is_registered_when_the_real_one_is_absent() -> None:
    code = (
        HIDE + ENABLE + "print(enable_pymesos(), enable_pymesos())\n"
        "from http_parser.http import HttpParser\nimport http_parser\n"
        "print(HttpParser.__module__, http_parser.http.HttpParser is HttpParser)"
    )
    assert answer(code).split() == ["True", "True", "executors.mesos.compat", "True"]


@pytest.mark.parametrize("imported", [False, True])
def test_the_real_one_is_left_alone(tmp_path: Path, imported: bool) -> None:
    real = tmp_path / "http_parser"
    real.mkdir()
    (real / "__init__.py").write_text("")
    (real / "http.py").write_text("class HttpParser: pass")
    code = ("import http_parser\n" if imported else "") + ENABLE + "print(enable_pymesos(), enable_pymesos())\n"
    assert answer(code + "import http_parser.http; print(http_parser.http.__file__)", tmp_path).split() == [
        "False",
        "False",
        str(real / "http.py"),
    ]


@pytest.mark.mesos
def test_pymesos_can_be_imported() -> None:
    pytest.importorskip("addict", reason="pymesos is not installed")
    code = ENABLE + "enable_pymesos()\nimport pymesos; print(pymesos.MesosSchedulerDriver.__name__)"
    assert answer(code) == "MesosSchedulerDriver"


# ------------------------------------------------------- parser


RESPONSE = b"HTTP/1.1 200 OK\r\nMesos-Stream-Id: s1\r\nX: 1\r\nX: 2\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*bodies: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


def fed(parser: HttpParser, data: bytes, cuts: list[int]) -> bytes:
    """All of the body, when `data` comes in pieces."""
    body, edges = b"", sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        assert parser.execute(data[begin:end], end - begin) == end - begin
        if parser.is_partial_body():
            body += parser.recv_body()
        assert not parser.is_partial_body() and parser.recv_body() == b""
    return body


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.lists(st.integers(0, 1000)), st.booleans())
def test_a_response_however_its_bytes_arrive(bodies: list[bytes], cuts: list[int], whole: bool) -> None:
    parser = HttpParser()
    data = RESPONSE + chunked(*bodies) + (b"0\r\n\r\n" if whole else b"")
    assert fed(parser, data, cuts) == b"".join(bodies)
    assert parser.is_headers_complete() and parser.is_chunked() and parser.get_status_code() == 200
    assert parser.get_headers() == {"MESOS-STREAM-ID": "s1", "X": "1, 2", "TRANSFER-ENCODING": "chunked"}
    assert parser.is_message_complete() == whole and parser.get_errno() == 0


def test_only_as_many_bytes_as_one_says() -> None:
    parser = HttpParser()
    assert parser.execute(RESPONSE + b"nonsense", len(RESPONSE)) == len(RESPONSE) and parser.get_errno() == 0


def test_what_is_no_http_is_not_understood() -> None:
    parser = HttpParser()
    assert parser.execute(b"\x16\x03\x01nonsense\r\n\r\n", 15) == 0
    assert parser.get_errno() != 0 and parser.execute(RESPONSE, len(RESPONSE)) == 0


def test_before_anything_has_come() -> None:
    parser = HttpParser()
    assert not parser.is_headers_complete() and not parser.is_message_complete() and not parser.is_chunked()
    assert parser.get_headers() == {} and parser.get_errno() == 0 and parser.get_status_code() == 0
