from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import StateError
from executors.cgroup import probe
from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.state import (
    AgentOptions,
    ContainerSpec,
    Effect,
    ExitAgent,
    HoldMemory,
    LimitCpu,
    RemoveContainer,
    SignalContainer,
    StartContainer,
    StopContainer,
    ToMaster,
    WeighCpu,
)
from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Close, KeepRow, Send
from executors.mesos.messages import base64_of, identity, message, value_of
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.agent.contained import Place, Victims
from tests.executors.mesos.agent.live_pool import SPACE, Pool
from tests.executors.mesos.oracle import check

OPTIONS = AgentOptions(
    "n1", 5051, scalars(cpus=8, mem=1024), "/sandboxes", "127.0.0.1:5051", environment={"PATH": "/bin"}, user="me"
)


class Node:
    """An agent's machine with a journal and containers that are nothing but entries in dictionaries."""

    def __init__(self, options: AgentOptions = OPTIONS) -> None:
        self.options, self.now = options, 1000.0
        self.journal: dict[tuple[str, str], Message] = {}
        self.running: dict[str, ContainerSpec] = {}
        self.stops: list[StopContainer] = []
        self.limits: list[LimitCpu] = []
        self.weights: list[WeighCpu] = []
        self.told: list[HoldMemory | SignalContainer] = []
        self.ups: list[Message] = []
        self.sent: dict[str, list[Message]] = {}
        self.code: int | None = None
        self._pids = itertools.count(100)
        self._uuids = itertools.count(1)
        self.agent = NodeAgent(options, self.now, fresh=self._fresh)

    def _fresh(self) -> bytes:
        return next(self._uuids).to_bytes(16, "big")

    def do(self, effects: list[Effect]) -> list[Effect]:
        """Carry out effects as a server does: first what is to be durable."""
        for effect in effects:
            if isinstance(effect, KeepRow):
                if effect.row is None:
                    self.journal.pop((effect.table, effect.key), None)
                else:
                    self.journal[effect.table, effect.key] = decode(encode(effect.row))
        for effect in effects:
            match effect:
                case ToMaster(item):
                    self.ups.append(decode(encode(item)))
                case Send(stream, item):
                    said = decode(encode(item))
                    check("executor.Event", said)
                    self.sent[stream].append(said)
                case Close(stream):
                    self.sent.setdefault(stream, []).append({"type": "CLOSED"})
                case StartContainer(container):
                    assert container.id not in self.running
                    self.running[container.id] = container
                case StopContainer():
                    self.stops.append(effect)
                case LimitCpu():
                    self.limits.append(effect)
                case WeighCpu():
                    self.weights.append(effect)
                case HoldMemory() | SignalContainer():
                    self.told.append(effect)
                case RemoveContainer(container_id):
                    self.running.pop(container_id, None)
                case ExitAgent(code):
                    assert self.code is None
                    self.code = code
        return effects

    def restart(self, options: AgentOptions | None = None) -> None:
        """The agent dies, and another one is started on its journal; containers go on."""
        rows = [KeepRow(table, key, row) for (table, key), row in self.journal.items()]
        self.sent.clear()
        self.agent = NodeAgent(options or self.options, self.now, rows, fresh=self._fresh)

    def register(self, agent_id: str = "S1") -> Message:
        """Connect; returns what the agent has said first."""
        first = self.do(self.agent.connected(self.now))[0]
        assert isinstance(first, ToMaster)
        self.heard("REGISTERED", agent_id=identity(agent_id), ping_s=15.0, pings=5)
        return decode(encode(first.item))["register"]

    def heard(self, kind: str, **payload: Any) -> None:
        self.do(self.agent.from_master(message(kind, **payload), self.now))

    def run(self, *tasks: Message, executor: Message | None = None, **framework: Any) -> None:
        info = {"id": identity("F1"), "name": "f", "user": "me"} | framework
        more = {} if executor is None else {"executor_info": executor}
        self.heard("RUN", framework_info=info, tasks=list(tasks), **more)

    def kill(self, task: str, **more: Any) -> None:
        self.heard("KILL", framework_id=identity("F1"), task_id=identity(task), **more)

    def container(self, owner: str) -> ContainerSpec:
        """The one container that a task or a custom executor has."""
        (found,) = [
            item.id
            for item in self.agent.state.instances.values()
            if owner == (item.executor if item.task is None else item.task)
        ]
        return self.running[found]

    def start(self, owner: str) -> int:
        pid = next(self._pids)
        self.do(self.agent.started(self.container(owner).id, pid, pid + 7, self.now))
        return pid

    def change(
        self, owner: str, limit: Any = None, request: Any = None, seconds: float | None = None, **more: Any
    ) -> Message:
        """What ASA_UPDATE_LIMITS is answered with that an operator calls for an owner's container."""
        asked: Message = {"container_id": identity(self.container(owner).id)}
        asked |= {} if limit is None else {"limits": {"cpus": {"value": limit}}}
        asked |= {} if request is None else {"requests": {"cpus": {"value": request}}}
        asked |= {} if seconds is None else {"lease_seconds": seconds}
        call = decode(encode(message("ASA_UPDATE_LIMITS", **asked | more)))
        answer, effects = self.agent.operate(call, lambda _: None, self.now)
        self.do(effects)
        assert answer is not None
        found: Message = decode(encode(answer))["asa_update_limits"]
        return found

    def exit(self, owner: str, code: int | None = 0, reason: str = "") -> None:
        self.do(self.agent.exited(self.container(owner).id, code, reason, self.now))

    def wake(self, now: float | None = None) -> None:
        """Let time go on to when the machine wants to be woken, or to `now`, being woken whenever it wants to."""
        until = self.agent.due() if now is None else now
        while self.agent.due() <= until:
            self.now = max(self.now, self.agent.due())
            self.do(self.agent.wake(self.now))
        self.now = until

    def updates(self) -> list[tuple[str, str]]:
        """Task and state of all updates that the master was sent since this was asked last."""
        found = [item["update"]["status"] for item in self.ups if item["type"] == "UPDATE"]
        self.ups = [item for item in self.ups if item["type"] != "UPDATE"]
        self.last = found[-1] if found else None
        return [(value_of(status, "task_id"), status["state"]) for status in found]

    def acknowledge(self, task: str) -> None:
        """Acknowledge the update of a task that was sent last."""
        head = self.agent.state.frameworks["F1"].tasks[task].pending[0]
        self.heard("ACKNOWLEDGE", framework_id=identity("F1"), task_id=identity(task), uuid=head["uuid"])

    # ------------------------------------------------------- executors

    def subscribe(self, executor: str = "e1", stream: str = "s1", **more: Any) -> list[Message]:
        self.sent[stream] = []
        call = {"type": "SUBSCRIBE", "framework_id": identity("F1"), "executor_id": identity(executor)}
        self.do(self.agent.subscribe(call | {"subscribe": more}, stream, self.now))
        return self.sent[stream]

    def call(self, kind: str, executor: str = "e1", **payload: Any) -> None:
        ids = {"framework_id": identity("F1"), "executor_id": identity(executor)}
        self.do(self.agent.call(ids | message(kind, **payload), self.now))

    def update(self, task: str, state: str, uuid: int = 0, **more: Any) -> str:
        """An executor's update; returns its uuid. `more` may hold what is wrong in it."""
        text = base64_of((uuid or 10_000 + next(self._uuids)).to_bytes(16, "big"))
        status = {"task_id": identity(task), "state": state, "uuid": text, "source": "SOURCE_EXECUTOR"}
        self.call("UPDATE", status=status | more.pop("wrong", {}) | more)
        return text


@pytest.fixture
def node(new_node: Callable[..., Node]) -> Node:
    """A registered agent."""
    found = new_node()
    found.register()
    return found


@pytest.fixture(scope="session")
def new_node() -> Callable[..., Node]:
    """An agent that has not registered yet, with some options changed."""
    return lambda **changes: Node(replace(OPTIONS, **changes))


@pytest.fixture(scope="session")
def task() -> Callable[..., Message]:
    """A TaskInfo."""

    def make(name: str = "t1", cpus: float = 1.0, mem: float = 64.0, **more: Any) -> Message:
        given = to_json(scalars(cpus=cpus, mem=mem), "*")
        found = {"name": name, "task_id": identity(name), "agent_id": identity("S1"), "resources": given}
        return found | {"command": {"value": "true"}} | more

    return make


@pytest.fixture(scope="session")
def executor() -> Callable[..., Message]:
    """An ExecutorInfo of a custom executor, or with ``type="DEFAULT"`` of the default one."""

    def make(name: str = "e1", cpus: float = 0.1, **more: Any) -> Message:
        found: Message = {"executor_id": identity(name), "type": "CUSTOM", "resources": to_json(scalars(cpus=cpus))}
        return found | {"command": {"value": "run"}} | more

    return make


@pytest.fixture
def running(node: Node, task: Callable[..., Message], executor: Callable[..., Message]) -> Node:
    """An agent with task t1 of executor e1, which has subscribed on stream s1."""
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.subscribe()
    return node


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(tmp_path)
    pool.master.start()
    pool.agent.start()
    yield pool
    pool.close()


@pytest.fixture(params=["cgroup v2", "cgroup v1", "duty cycle"])
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """A pool whose agent keeps quotas."""
    try:
        probe.best(SPACE, request.param)
    except StateError as error:
        pytest.skip(str(error))
    pool = Pool(tmp_path, lambda: probe.best(SPACE, request.param))
    pool.master.start()
    pool.agent.start()
    yield pool
    pool.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "agent").mkdir(0o700)
    return Place(tmp_path / "agent")


@pytest.fixture
def victims() -> Iterator[Victims]:
    found = Victims()
    yield found
    found.end()
