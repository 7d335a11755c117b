"""A master and agents in this process, for tests that want the real ones."""

from __future__ import annotations

import base64
import getpass
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.service import AgentService
from executors.mesos.agent.state import AgentOptions
from executors.mesos.codec import Message
from executors.mesos.master.machine import Master
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from executors.mesos.resources import scalars
from tests.executors.mesos.oracle import check
from tests.executors.mesos.scripted import until

ROOT = Path(__file__).parents[3]
USER = getpass.getuser()
FRAMEWORK = {"user": USER, "name": "test", "roles": ["test"], "capabilities": [{"type": "MULTI_ROLE"}]}


def agent(directory: PoolDirectory, work: Path, **options: Any) -> AgentService:
    """An agent of 4 cores that is not started yet."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    given = {
        "hostname": "127.0.0.1",
        "port": 0,
        "resources": scalars(cpus=4, mem=1024),
        "directory": "",
        "endpoint": "",
    }
    whole = AgentOptions(**given | {"environment": environment} | options)  # type: ignore[arg-type]
    return AgentService(directory, whole, Unlimited(), work=work)


@contextmanager
def pool(path: Path, agents: int = 1, **options: Any) -> Iterator[PoolDirectory]:
    """A pool with a master and agents that run; what drivers and executors call must be what the API knows."""
    directory = PoolDirectory.create(path / "pool", "test")
    with ExitStack() as stack:
        stack.enter_context(checked(Master, "scheduler.Call"))
        stack.enter_context(checked(NodeAgent, "executor.Call"))
        stack.enter_context(MasterService(directory, MasterOptions(user=USER, **options)))
        for n in range(agents):
            attribute = {"name": "allocation", "type": "TEXT", "text": {"value": f"job-{n}"}}
            stack.enter_context(agent(directory, path / f"work{n}", attributes=[attribute]))
        with Operator(directory, READER) as operator:
            until(lambda: len(operator.get_agents()) == agents, "agents")
        yield directory


@contextmanager
def checked(machine: type, kind: str) -> Iterator[None]:
    """Look at all calls that machines of this class are given; fail in the end, here, rather than where they are."""
    wrong: list[str] = []

    def look(method: Any) -> Any:
        def looked(self: Any, call: Message, *rest: Any) -> Any:
            try:
                check(kind, call)
            except AssertionError as error:
                wrong.append(str(error))
            return method(self, call, *rest)

        return looked

    with ExitStack() as stack:
        for name in ("subscribe", "call"):
            stack.enter_context(mock.patch.object(machine, name, look(getattr(machine, name))))
        yield
    assert not wrong, wrong[:3]


def command(task: str, offer: dict[str, Any], text: str, cpus: float = 1.0) -> dict[str, Any]:
    """A TaskInfo that runs a shell command."""
    return {
        "name": task,
        "task_id": {"value": task},
        "agent_id": offer["agent_id"],
        "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": cpus}}],
        "command": {"value": text},
    }


def python(path: Path) -> str:
    """The shell command that runs a Python program."""
    return f"exec {sys.executable} {path}"


def data(text: str) -> str:
    """A text as messages carry it."""
    return base64.b64encode(text.encode()).decode()
