import base64
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import asa.web.server
from asa.core.errors import StateError
from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.service import AgentService
from executors.mesos.agent.state import AgentOptions
from executors.mesos.codec import Message, encode
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, READER, WRITER, PoolDirectory
from executors.mesos.resources import scalars

PATIENCE_S = 30.0
JSON = {"Content-Type": "application/json"}


class Agent:
    """An agent without a master, and requests to it."""

    def __init__(self, path: Path) -> None:
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.work = path / "work"
        options = AgentOptions("n1", 0, scalars(cpus=2, mem=512), "", "", attributes=[_text("rack", "r1")])
        self.service = AgentService(self.directory, options, Unlimited(), work=self.work, tls=False)
        self.service.start()
        self.session = requests.Session()
        self.session.trust_env = False
        self.sandboxes = self.work / "sandboxes"

    @property
    def outside(self) -> str:
        return f"http://127.0.0.1:{self.service.options.port}"

    @property
    def loopback(self) -> str:
        return f"http://{self.service.options.endpoint}"

    def token(self, role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.directory.token(role)}"}

    def get(self, path: str, role: str | None = READER, door: str | None = None, **more: Any) -> requests.Response:
        headers = self.token(role) if role else {}
        return self.session.get((door or self.outside) + path, headers=headers, timeout=PATIENCE_S, **more)

    def post(self, path: str, call: Message, role: str | None = READER, door: str | None = None) -> requests.Response:
        headers = JSON | (self.token(role) if role else {})
        return self.session.post((door or self.outside) + path, encode(call), headers=headers, timeout=PATIENCE_S)


def _text(name: str, value: str) -> Message:
    return {"name": name, "type": "TEXT", "text": {"value": value}}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asa.web.server, "RETRY_S", 1e-3)  # who fails too often is answered late
        agent = Agent(tmp_path_factory.mktemp("agent"))
        yield agent
        agent.session.close()
        agent.service.close()


GETS = ["/", "/state", "/files/read?path=x"]
READS = [f"GET_{what}" for what in ("HEALTH", "VERSION", "FLAGS", "STATE", "AGENT", "METRICS", "CONTAINERS", "TASKS")]
CHANGES: list[Message] = [
    message("KILL_CONTAINER", container_id={"value": "c"}),
    message("ASA_UPDATE_LIMITS", container_id={"value": "c"}, limits={"cpus": {"value": 1}}, lease_seconds=1),
]
PATHS = ["/api/v1", "/api/v1/operator", "/api/v1/"]


@pytest.mark.parametrize("path", GETS)
def test_no_get_without_a_readers_token(agent: Agent, path: str) -> None:
    assert agent.get(path, None).status_code in (401, 429)
    assert agent.session.get(agent.outside + path, headers={"Authorization": "Bearer x"}).status_code in (401, 429)
    assert agent.session.get(agent.outside + path, auth=("me", "x")).status_code in (401, 429)
    for role in (FRAMEWORK, AGENT):
        assert agent.get(path, role).status_code == 403
    for role in (READER, WRITER):
        answer = agent.get(path, role)
        assert answer.status_code == 404 and "calls of operators go to /api/v1" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_no_call_without_a_token_that_suffices(agent: Agent, path: str) -> None:
    for call in [*map(message, READS), *CHANGES, message("LIST_FILES", path=""), message("NONSENSE")]:
        assert agent.post(path, call, None).status_code in (401, 429)
        for role in (FRAMEWORK, AGENT):
            assert agent.post(path, call, role).status_code == 403
    for kind in READS:
        assert agent.post(path, message(kind), READER).json()["type"] == kind
    for call in CHANGES:
        assert agent.post(path, call, READER).status_code == 403
        assert agent.post(path, call, WRITER).status_code == 404, "there is no such container"
    assert agent.post(path, message("NONSENSE"), WRITER).status_code == 501


def test_executors_are_not_let_in_from_outside(agent: Agent) -> None:
    for role in (None, FRAMEWORK, AGENT, READER, WRITER):
        answer = agent.post("/api/v1/executor", message("SUBSCRIBE"), role)
        assert answer.status_code in (401, 403, 404, 405, 429)


def test_on_loopback_our_own_processes_are_executors_without_a_token(agent: Agent) -> None:
    ids = {"framework_id": {"value": "F"}, "executor_id": {"value": "e"}}
    for call in (message("SUBSCRIBE") | ids, message("UPDATE", status={}) | ids, message("NONSENSE"), {"type": 5}):
        answer = agent.post("/api/v1/executor", call, None, agent.loopback)
        assert answer.status_code == 400, "it is not known"
    assert agent.get("/api/v1/executor", None, agent.loopback).status_code == 405


def test_on_loopback_operators_are_not_served(agent: Agent) -> None:
    for role in (None, READER, WRITER):
        for path in GETS:
            assert agent.get(path, role, agent.loopback).status_code == 403
        for path in PATHS:
            for call in [*map(message, READS), *CHANGES, message("LIST_FILES", path=""), message("NONSENSE")]:
                answer = agent.post(path, call, role, agent.loopback)
                assert answer.status_code == 403 and f"port {agent.service.options.port}" in answer.text


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_on_loopback_others_find_the_connection_broken(agent: Agent) -> None:
    port = agent.service.options.endpoint.rpartition(":")[2]
    script = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(b'GET /api/v1/executor HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(100))"
    )
    command = ["/usr/bin/env", "python3", "-c", script, port]
    interpreter = [os.path.realpath(sys.executable), "-I", "-S", "-c", script, port]
    assert b"HTTP/1.1 405" in subprocess.run(interpreter, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    other = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, user=65534, group=65534, cwd="/")
    if b"No such file" in other.stderr or b"Permission denied" in other.stderr:
        pytest.skip("another user has no Python here")
    assert other.stdout in (b"", b"b''\n") and b"HTTP" not in other.stdout


def test_web_pages_are_not_served(agent: Agent) -> None:
    for door in (agent.outside, agent.loopback):
        answer = agent.session.get(f"{door}/state", headers={"Origin": "http://evil.example"} | agent.token(WRITER))
        assert answer.status_code == 403
        answer = agent.session.get(f"{door}/state", headers={"Host": "evil.example"} | agent.token(WRITER))
        assert answer.status_code == 421


def test_requests_are_taken_as_mesos_takes_them(agent: Agent) -> None:
    url, token = f"{agent.outside}/api/v1", agent.token(READER)
    assert agent.session.get(url, headers=token).status_code == 405
    assert agent.session.post(url, b"{}", headers=token).status_code == 400, "no content type"
    assert agent.session.post(url, b"x", headers=token | {"Content-Type": "application/x-protobuf"}).status_code == 415
    assert agent.session.post(url, b"{", headers=token | JSON).status_code == 400
    assert agent.session.post(url, b"{}", headers=token | JSON).status_code == 400
    body = encode(message("GET_AGENT"))
    assert agent.session.post(url, body, headers=token | JSON | {"Accept": "text/html"}).status_code == 406


def test_sandboxes_are_shown_and_nothing_else(agent: Agent, tmp_path: Path) -> None:
    place = agent.sandboxes / "s1"
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "stdout").write_bytes(b"0123456789")
    (tmp_path / "secret").write_text("s3cret")
    (place / "file").symlink_to(tmp_path / "secret")
    (place / "dir").symlink_to(tmp_path)
    os.mkfifo(place / "pipe")

    def read(path: str, offset: int = 0, **more: int) -> requests.Response:
        return agent.post("/api/v1", message("READ_FILE", path=path, offset=offset, **more))

    for path, offset, more, text in (
        ("s1/stdout", 4, {}, b"456789"), ("s1/stdout", 2, {"length": 3}, b"234"), (f"{place}/stdout", 10, {}, b"")
    ):  # fmt: skip
        assert read(path, offset, **more).json()["read_file"] == {"size": 10, "data": base64.b64encode(text).decode()}
    infos = agent.post("/api/v1", message("LIST_FILES", path=str(place))).json()["list_files"]["file_infos"]
    assert {Path(item["path"]).name for item in infos} == {"stdout", "file", "dir", "pipe"}
    assert next(item["size"] for item in infos if item["path"] == f"{place}/stdout") == 10
    for path in (
        "s1/file", "s1/dir/secret", "../agent.db", "s1/../../agent.db", "s1/pipe", "s1", str(tmp_path / "secret"),
        "s1/nothing", "s1/stdout/x", "s1/a\0b",
    ):  # fmt: skip
        answer = read(path)
        assert answer.status_code in (400, 403, 404), path
        assert "s3cret" not in answer.text
    assert agent.post("/api/v1", message("LIST_FILES", path="s1/dir")).status_code in (403, 404)
    for more in ({"offset": -1}, {"offset": 0, "length": -1}):
        answer = read("s1/stdout", **more)
        assert answer.status_code == 400 and "'offset' and 'length' not to be negative" in answer.text


def test_an_idle_connection_stays_open(agent: Agent) -> None:
    """Executors keep one for their calls, and take its end for the agent's."""
    port = int(agent.service.options.endpoint.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(0.5)
        for _ in range(2):
            connection.sendall(b"GET /api/v1/executor HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 405")
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_an_executor_that_cannot_read_chunks_gets_no_stream(agent: Agent) -> None:
    body = encode(message("SUBSCRIBE"))
    head = "POST /api/v1/executor HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(agent.service.options.endpoint.rpartition(":")[2]))) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b" 505 " in answer.splitlines()[0] and b"expected HTTP/1.1" in answer


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    (tmp_path / "work").mkdir(mode=0o755)
    options = AgentOptions("n1", 0, scalars(), "", "")
    service = AgentService(directory, options, Unlimited(), work=tmp_path / "work", tls=False)
    with pytest.raises(StateError, match="open to other users"):
        service.start()
