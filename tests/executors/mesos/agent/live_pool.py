"""A master and an agent in this process, and a framework that talks to them over HTTP, for tests."""

import getpass
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from executors.cgroup.group import Quotas
from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.service import AgentService
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.state import AgentOptions
from executors.mesos.codec import Message, Records, encode
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import field, identity, message
from executors.mesos.pool_directory import FRAMEWORK, WRITER, PoolDirectory
from executors.mesos.resources import scalars

PATIENCE_S = 30.0
OFFERED = scalars(cpus=2, mem=512)
SPACE = f"test-agent-{os.getpid()}"
"""The name space of quotas."""


def hang_up(response: requests.Response) -> None:
    """End a stream; merely to close it would wait for what comes next."""
    connection = response.raw.connection
    if connection is not None and connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


class Scheduler:
    """A framework that talks to a master, one call at a time, and hears what it says in a thread."""

    def __init__(self, directory: PoolDirectory, id: str | None = None) -> None:
        address = directory.master()
        assert address is not None
        self.url = f"http://127.0.0.1:{address.port}/api/v1/scheduler"
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {directory.token(FRAMEWORK)}"}
        info: Message = {"user": getpass.getuser(), "name": "test", "roles": ["test"], "checkpoint": True}
        info |= {"failover_timeout": 3600.0, "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}]}
        call = message("SUBSCRIBE", framework_info=info if id is None else info | {"id": identity(id)})
        body = encode(call if id is None else call | {"framework_id": identity(id)})
        self.response = requests.post(self.url, body, headers=self.headers, stream=True, timeout=PATIENCE_S)
        assert self.response.status_code == 200, self.response.text
        self.headers["Mesos-Stream-Id"] = self.response.headers["Mesos-Stream-Id"]
        self.events: queue.Queue[Message] = queue.Queue()
        self.passed: list[Message] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        self.id = field(self.next("SUBSCRIBED"), "subscribed.framework_id.value", str)
        self.session = requests.Session()

    def _read(self) -> None:
        records = Records()
        with suppress(requests.RequestException):  # closed below
            for chunk in self.response.iter_content(None):
                for event in records.feed(chunk):
                    self.events.put(event)

    def next(self, kind: str, matching: Callable[[Message], bool] = lambda event: True) -> Message:
        """The next event of a kind; others are kept for later."""
        for event in self.passed:
            if event["type"] == kind and matching(event):
                self.passed.remove(event)
                return event
        deadline = time.monotonic() + PATIENCE_S
        while True:
            event = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            if event["type"] == kind and matching(event):
                return event
            self.passed.append(event)

    def call(self, kind: str, **payload: Any) -> None:
        body = encode(message(kind, **payload) | {"framework_id": identity(self.id)})
        answer = self.session.post(self.url, body, headers=self.headers, timeout=PATIENCE_S)
        assert answer.status_code == 202, answer.text

    def launch(self, id: str, script: str, offer: Message | None = None, **more: Any) -> Message:
        """Launch a command task on the next offer; that offer."""
        offer = offer or self.next("OFFERS")["offers"]["offers"][0]
        task: Message = {
            "name": id,
            "task_id": identity(id),
            "agent_id": offer["agent_id"],
            "command": {"value": script},
            "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}}],
        }
        operation = {"type": "LAUNCH", "launch": {"task_infos": [task | more]}}
        self.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation], filters={"refuse_seconds": 0})
        return offer

    def update(self, id: str, state: str | None = None) -> Message:
        """The next update of a task, or the one that tells of `state`; acknowledged, like those before it."""
        while True:
            event = self.next("UPDATE", lambda event: event["update"]["status"]["task_id"]["value"] == id)
            status: Message = event["update"]["status"]
            if "uuid" in status:
                self.call("ACKNOWLEDGE", agent_id=status["agent_id"], task_id=status["task_id"], uuid=status["uuid"])
            if state in (None, status["state"]):
                return status

    def close(self) -> None:
        if self.thread.is_alive():
            self.call("TEARDOWN")
        hang_up(self.response)
        self.thread.join(PATIENCE_S)
        self.session.close()


class Pool:
    """A master and an agent."""

    def __init__(self, path: Path, quotas: Callable[[], Quotas] = Unlimited) -> None:
        self.path, self.quotas = path, quotas
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.master = self.new_master()
        self.agent = self.new_agent()
        self.schedulers: list[Scheduler] = []

    def new_master(self) -> MasterService:
        options = MasterOptions(ping_s=0.5, pings=20)
        return MasterService(self.directory, options, tls=False, host="127.0.0.1")

    def new_agent(self) -> AgentService:
        options = AgentOptions("127.0.0.1", 0, OFFERED, "", "", environment={"PATH": os.environ["PATH"]}, grace_s=1.0)
        work = self.path / "work"
        return AgentService(self.directory, options, self.quotas(), work=work, tls=False, orphan_grace_s=20.0)

    def scheduler(self, id: str | None = None) -> Scheduler:
        self.schedulers.append(Scheduler(self.directory, id))
        return self.schedulers[-1]

    def operator(self, kind: str, role: str = WRITER, **payload: Any) -> requests.Response:
        return requests.post(
            f"http://127.0.0.1:{self.agent.options.port}/api/v1",
            encode(message(kind, **payload)),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.directory.token(role)}"},
            timeout=PATIENCE_S,
        )

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.close()
        self.agent.close()
        self.master.kill()


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


def process_of(status: Message) -> tuple[int, int]:
    pid = field(status, "container_status.executor_pid", int)
    birth = birth_of(pid)
    assert birth is not None
    return pid, birth


def sandbox_of(pool: Pool, id: str) -> Path:
    (found,) = (pool.path / "work" / "sandboxes").glob(f"slaves/*/frameworks/*/executors/{id}/runs/*")
    return found


class Executor:
    """A custom executor as the agent sees it: its process sleeps, the test speaks for it."""

    def __init__(self, pool: Pool, scheduler: Scheduler, id: str = "e1") -> None:
        self.url = f"http://{pool.agent.options.endpoint}/api/v1/executor"
        self.ids = {"framework_id": identity(scheduler.id), "executor_id": identity(id)}
        self.events: queue.Queue[Message] = queue.Queue()

    def subscribe(self) -> None:
        body = encode(message("SUBSCRIBE", unacknowledged_tasks=[], unacknowledged_updates=[]) | self.ids)
        headers = {"Content-Type": "application/json"}
        self.response = requests.post(self.url, body, headers=headers, stream=True, timeout=PATIENCE_S)
        assert self.response.status_code == 200, self.response.text
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        records = Records()
        with suppress(requests.RequestException):  # closed below
            for chunk in self.response.iter_content(None):
                for event in records.feed(chunk):
                    self.events.put(event)

    def next(self, kind: str) -> Message:
        while (event := self.events.get(timeout=PATIENCE_S))["type"] != kind:
            pass
        return event

    def call(self, kind: str, **payload: Any) -> requests.Response:
        body = encode(message(kind, **payload) | self.ids)
        return requests.post(self.url, body, headers={"Content-Type": "application/json"}, timeout=PATIENCE_S)

    def close(self) -> None:
        hang_up(self.response)
        self.thread.join(PATIENCE_S)


def launch_custom(scheduler: Scheduler) -> None:
    offer = scheduler.next("OFFERS")["offers"]["offers"][0]
    cpus = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}}]
    executor = {
        "executor_id": identity("e1"),
        "framework_id": identity(scheduler.id),
        "command": {"value": "env; sleep 1000"},
    }
    task = {
        "name": "t1",
        "task_id": identity("t1"),
        "agent_id": offer["agent_id"],
        "executor": executor,
        "resources": cpus,
    }
    operation = {"type": "LAUNCH", "launch": {"task_infos": [task]}}
    scheduler.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation])


def sandbox_has(pool: Pool, text: str) -> bool:
    with suppress(ValueError, FileNotFoundError):
        return text in (sandbox_of(pool, "e1") / "stdout").read_text()
    return False
