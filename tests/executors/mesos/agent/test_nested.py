"""Processes inside of containers of a real agent: `agent.nested`, `agent.pipes` and `agent.attach` together."""

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from executors.mesos.agent import nested
from executors.mesos.agent.shim import birth_of
from executors.mesos.codec import Message, Records, frame
from executors.mesos.messages import identity, message
from executors.mesos.pool_directory import READER, WRITER
from tests.executors.mesos.agent.live_pool import PATIENCE_S, Pool, hang_up, process_of, sandbox_of, until
from tests.executors.mesos.oracle import check

pytestmark = pytest.mark.slow

RECORDS = "application/recordio"


class Container:
    """A task's container, and what may be asked of it."""

    def __init__(self, pool: Pool, script: str = "exec sleep 600") -> None:
        self.pool, self.scheduler = pool, pool.scheduler()
        self.scheduler.launch("t1", script)
        self.status = self.scheduler.update("t1", "TASK_RUNNING")
        self.id = self.status["container_status"]["container_id"]
        self.process = process_of(self.status)

    def inner(self, name: str) -> Message:
        return identity(name) | {"parent": self.id}

    def post(self, call: Message, role: str = WRITER, **more: Any) -> requests.Response:
        check("agent.Call", call)
        url = f"http://127.0.0.1:{self.pool.agent.options.port}/api/v1"
        headers = {"Authorization": f"Bearer {self.pool.directory.token(role)}"} | more.pop("headers", {})
        return requests.post(url, json=call, headers=headers, timeout=PATIENCE_S, **more)

    def session(self, name: str, script: str, **more: Any) -> requests.Response:
        payload = {"container_id": self.inner(name), "command": {"value": script}} | more.pop("payload", {})
        accept = {"Accept": RECORDS, "Message-Accept": "application/json"}
        return self.post(message("LAUNCH_NESTED_CONTAINER_SESSION", **payload), stream=True, headers=accept, **more)

    def ask(self, verb: str, name: str, role: str = WRITER, **more: Any) -> requests.Response:
        return self.post(message(f"{verb}_NESTED_CONTAINER", container_id=self.inner(name), **more), role)

    def give(self, name: str, *pieces: bytes, role: str = WRITER) -> requests.Response:
        """ATTACH_CONTAINER_INPUT as Mesos' command line does it."""
        first = {"type": "CONTAINER_ID", "container_id": self.inner(name)}
        data = [
            {"type": "DATA", "data": {"type": "STDIN", "data": base64.b64encode(piece).decode()}} for piece in pieces
        ]
        beat = {"type": "CONTROL", "control": {"type": "HEARTBEAT", "heartbeat": {"interval": {"nanoseconds": 1}}}}
        asked = [first, *({"type": "PROCESS_IO", "process_io": one} for one in (beat, *data))]
        calls = [message("ATTACH_CONTAINER_INPUT", **one) for one in asked]
        for call in calls:
            check("agent.Call", call)
        url = f"http://127.0.0.1:{self.pool.agent.options.port}/api/v1"
        headers = {"Authorization": f"Bearer {self.pool.directory.token(role)}", "Content-Type": RECORDS}
        headers["Message-Content-Type"] = "application/json"
        return requests.post(url, data=iter([frame(call) for call in calls]), headers=headers, timeout=PATIENCE_S)


def said(response: requests.Response) -> dict[str, bytes]:
    """All that a session says, to its end."""
    assert response.status_code == 200, response.text
    records, found = Records(), {"STDOUT": b"", "STDERR": b""}
    for chunk in response.iter_content(None):
        for item in records.feed(chunk):
            check("agent.ProcessIO", item)
            found[item["data"]["type"]] += base64.b64decode(item["data"]["data"])
    return found


def pid_in(pool: Pool, name: str) -> int:
    path = sandbox_of(pool, "t1") / name
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@pytest.fixture
def container(pool: Pool) -> Iterator[Container]:
    found = Container(pool)
    yield found
    found.scheduler.close()


def test_a_look_around(container: Container) -> None:
    response = container.session("s", "pwd; echo $MESOS_SANDBOX; ls; echo no >&2; exit 3")
    assert response.headers["Content-Type"] == RECORDS
    assert response.headers["Message-Content-Type"] == "application/json"
    found = said(response)
    sandbox = str(sandbox_of(container.pool, "t1"))
    assert found["STDOUT"].decode().split() == [sandbox, sandbox, "containers", "stderr", "stdout"]
    assert found["STDERR"] == b"no\n"
    answer = container.ask("WAIT", "s", READER).json()
    assert answer == {"type": "WAIT_NESTED_CONTAINER", "wait_nested_container": {"exit_status": 3 << 8}}
    check("agent.Response", answer)
    call = message("WAIT_CONTAINER", container_id=container.inner("s"))  # the newer name
    assert container.post(call).json() == {"type": "WAIT_CONTAINER", "wait_container": {"exit_status": 3 << 8}}
    assert container.session("s", "true").status_code == 409
    assert container.ask("REMOVE", "s").status_code == 200
    assert not (Path(sandbox) / "containers" / "s").exists()
    assert container.ask("WAIT", "s").status_code == 404


def test_much_output_comes_whole(container: Container) -> None:
    found = said(container.session("s", "head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2"))
    assert {kind: len(data) for kind, data in found.items()} == {"STDOUT": 3_000_000, "STDERR": 100_000}


def test_arguments_without_a_shell(container: Container) -> None:
    command = {"shell": False, "value": "/bin/echo", "arguments": ["echo", "a b", "$HOME"]}
    assert said(container.session("s", "", payload={"command": command}))["STDOUT"] == b"a b $HOME\n"


def test_input_until_its_end(container: Container) -> None:
    response = container.session("s", "tr a-z A-Z; echo over")
    text = b"word " * 100_000
    given = container.give("s", text, b"last", b"")
    assert given.status_code == 200, given.text
    assert said(response)["STDOUT"] == text.upper() + b"LASTover\n"
    assert container.give("nobody", b"").status_code == 404


def test_it_ends_with_its_client(container: Container) -> None:
    response = container.session("s", "echo $$ > s.pid; exec sleep 600")
    pid = pid_in(container.pool, "s.pid")
    hang_up(response)
    until(lambda: birth_of(pid) is None)
    assert container.ask("WAIT", "s").json()["wait_nested_container"] == {"exit_status": 9}
    assert birth_of(container.process[0]) == container.process[1], "the container goes on"


@pytest.mark.parametrize("how", ["task", "agent", "crash"])
def test_it_ends_with_what_is_around_it(pool: Pool, how: str) -> None:
    container = Container(pool)
    response = container.session("s", "echo $$ > s.pid; exec sleep 600")
    _other = container.session("t", "sleep 600 & echo $! > t.pid; wait")
    pids = [pid_in(pool, name) for name in ("s.pid", "t.pid")]
    if how == "task":
        container.scheduler.call("KILL", task_id=identity("t1"))
        assert said(response) == {"STDOUT": b"", "STDERR": b""}
    elif how == "agent":
        pool.agent.close()
    else:
        pool.agent.kill()
        pool.agent = pool.new_agent()
        pool.agent.start()
    until(lambda: all(birth_of(pid) is None for pid in pids))
    container.scheduler.close()


def test_it_can_be_killed_and_sent_signals(container: Container) -> None:
    response = container.session("s", "trap 'echo caught; exit 7' USR1; echo $$ > s.pid; while :; do sleep 0.01; done")
    pid_in(container.pool, "s.pid")
    assert container.ask("REMOVE", "s").status_code == 409
    assert container.ask("KILL", "s", signal=10).status_code == 200
    assert said(response)["STDOUT"] == b"caught\n"
    response = container.session("u", "exec sleep 600")
    assert container.ask("KILL", "u", signal=999).status_code == 400
    assert container.ask("KILL", "u").status_code == 200
    assert said(response)["STDOUT"] == b""
    assert container.ask("KILL", "nobody").status_code == 501


def test_without_a_session_its_output_is_kept(container: Container) -> None:
    payload = {"container_id": container.inner("s"), "command": {"value": "echo kept"}}
    assert container.post(message("LAUNCH_NESTED_CONTAINER", **payload)).status_code == 200
    assert container.ask("WAIT", "s").json()["wait_nested_container"] == {"exit_status": 0}
    assert (sandbox_of(container.pool, "t1") / "containers" / "s" / "stdout").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ({"container_id": identity("s")}, 400),
        ({"container_id": identity("s") | {"parent": identity("nobody")}}, 404),
        ({"command": {"value": ""}}, 400),
        ({"command": {"value": "true", "uris": [{"value": "/etc/hosts"}]}}, 400),
        ({"command": {"value": "/no/such/program", "shell": False}}, 200),
        ({"container": {"type": "MESOS", "tty_info": {}}}, 501),
        ({"container": {"type": "DOCKER"}}, 400),
    ],
)
def test_what_cannot_be_started(container: Container, payload: Message, status: int) -> None:
    response = container.session("s", "true", payload=payload)
    assert response.status_code == status
    if status == 200:
        assert b"/no/such/program" in said(response)["STDERR"]


def test_the_output_of_a_task_is_in_files_and_cannot_be_attached_to(container: Container) -> None:
    response = container.post(message("ATTACH_CONTAINER_OUTPUT", container_id=container.id))
    assert (response.status_code, response.text) == (500, "I/O switchboard server was disabled for this container")


def test_to_look_is_not_enough(container: Container) -> None:
    assert container.session("s", "true", role=READER).status_code == 403
    assert container.give("s", b"", role=READER).status_code == 403
    for verb in ("KILL", "REMOVE"):
        assert container.ask(verb, "s", READER).status_code == 403


def test_it_shares_the_limits_around_it(limited: Pool) -> None:
    container = Container(limited)
    groups = said(container.session("s", "cat /proc/self/cgroup"))["STDOUT"]
    assert groups == Path(f"/proc/{container.process[0]}/cgroup").read_bytes()
    container.scheduler.close()


def test_waiting_for_a_container(container: Container) -> None:
    answers: list[Message] = []
    call = message("WAIT_CONTAINER", container_id=container.id)

    def wait() -> None:
        answers.append(container.post(call, READER).json())

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    assert not answers
    container.scheduler.call("KILL", task_id=identity("t1"))
    waiting.join(PATIENCE_S)
    assert answers == [{"type": "WAIT_CONTAINER", "wait_container": {"exit_status": 15}}]
    assert container.post(call, READER).json() == answers[0]


def test_only_so_many_run_and_are_remembered(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "LIVING_MOST", 1)
    monkeypatch.setattr(nested, "_ENDED_MOST", 1)
    with container.session("s1", "echo > s1; exec sleep 600"):
        until(lambda: (sandbox_of(container.pool, "t1") / "s1").exists())
        response = container.session("s2", "true")
        assert response.status_code == 409 and "1 nested containers run here already" in response.text
        assert container.ask("KILL", "s1").status_code == 200
        until(lambda: container.ask("WAIT", "s1", READER).status_code == 200)
    said(container.session("s2", "true"))
    until(lambda: container.ask("WAIT", "s2", READER).status_code == 200)
    assert container.ask("WAIT", "s1", READER).status_code == 404


def test_why_one_cannot_be_started_is_told(container: Container) -> None:
    variables = [{"name": "A", "value": "x" * (1 << 18)}]
    payload = {"command": {"value": "true", "environment": {"variables": variables}}}
    response = container.session("s", "true", payload=payload)
    assert response.status_code == 500 and "Argument list too long" in response.text
