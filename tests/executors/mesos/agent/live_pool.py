"""A master and an agent in this process, a framework on our driver, and an executor over HTTP, for tests."""

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
from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import field, identity, message, value_of
from executors.mesos.pool_directory import WRITER, PoolDirectory
from executors.mesos.resources import scalars, to_json

PATIENCE_S = 30.0
OFFERED = scalars(cpus=2, mem=512)
SPACE = f"test-agent-{os.getpid()}"
"""The name space of quotas."""


class Scheduler:
    """A framework on our driver, which keeps what it hears until the test asks for it."""

    def __init__(self, directory: PoolDirectory) -> None:
        info: Message = {"user": getpass.getuser(), "name": "test", "roles": ["test"], "checkpoint": True}
        info |= {"failover_timeout": 3600.0, "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}]}
        self.heard: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue()
        self.passed: list[tuple[str, tuple[Any, ...]]] = []
        self.driver = SchedulerDriver(self, info, directory)
        self.driver.start()
        self.id: str = self.next("registered")[0]["value"]

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda driver, *arguments: self.heard.put((name, arguments))

    def next(self, kind: str, matching: Callable[..., bool] = lambda *arguments: True) -> tuple[Any, ...]:
        """The arguments of the next callback of a kind; others are kept for later."""
        for found in self.passed:
            if found[0] == kind and matching(*found[1]):
                self.passed.remove(found)
                return found[1]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.heard.get(timeout=max(0.01, deadline - time.monotonic()))
            if found[0] == kind and matching(*found[1]):
                return found[1]
            self.passed.append(found)

    def offer(self) -> Message:
        """The next offer, of which there is one at a time."""
        (found,) = self.next("resourceOffers")[0]
        return dict(found)

    def launch(self, id: str, script: str, offer: Message | None = None, **more: Any) -> Message:
        """Launch a command task on the next offer; that offer."""
        return self.launch_all({id: script}, offer, **more)

    def launch_all(self, scripts: dict[str, str], offer: Message | None = None, **more: Any) -> Message:
        offer = offer or self.offer()
        tasks = [
            {
                "name": id,
                "task_id": identity(id),
                "agent_id": offer["agent_id"],
                "resources": to_json(scalars(cpus=0.5)),
            }
            | ({"command": {"value": script}} if script else {})
            | more
            for id, script in scripts.items()
        ]
        self.driver.launchTasks([offer["id"]], tasks, {"refuse_seconds": 0})
        return offer

    def launch_custom(self, id: str = "t1", executor: str = "e1") -> None:
        """Launch a task of an executor that the test speaks for."""
        info = {"executor_id": identity(executor), "framework_id": identity(self.id)}
        self.launch(id, "", executor=info | {"command": {"value": "env; sleep 1000"}})

    def update(self, id: str, state: str | None = None) -> Message:
        """The next update of a task, or the one with this state; the driver acknowledges it."""
        while True:
            (status,) = self.next("statusUpdate", lambda status: value_of(status, "task_id") == id)
            if state in (None, status["state"]):
                return dict(status)

    def kill(self, id: str) -> None:
        self.driver.killTask(identity(id))
        self.update(id, "TASK_KILLED")

    def close(self) -> None:
        self.driver.stop()
        self.driver.join()


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

    def scheduler(self) -> Scheduler:
        self.schedulers.append(Scheduler(self.directory))
        return self.schedulers[-1]

    def restart_agent(self) -> None:
        """The agent dies, and is started again over its directory."""
        self.agent.kill()
        self.agent = self.new_agent()
        self.agent.start()

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
        connection = self.response.raw.connection
        if connection is not None and connection.sock is not None:  # merely to close it would wait for what comes next
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE_S)


def sandbox_has(pool: Pool, text: str) -> bool:
    with suppress(ValueError, FileNotFoundError):
        return text in (sandbox_of(pool, "e1") / "stdout").read_text()
    return False
