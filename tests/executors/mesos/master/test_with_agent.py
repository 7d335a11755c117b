"""The master's machine and the agent's, back to back: what one says the other understands."""

from __future__ import annotations

from typing import Any

from executors.mesos.agent.machine import NodeAgent
from executors.mesos.agent.state import (
    AgentOptions,
    ContainerSpec,
    LimitCpu,
    RemoveContainer,
    StartContainer,
    StopContainer,
    ToMaster,
)
from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Close, KeepRow, Send
from executors.mesos.resources import scalars
from tests.executors.mesos.master.world import World, task_info


class Node:
    """An agent whose containers start at once and end when they are told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.journal: dict[tuple[str, str], Message] = {}
        self.running: dict[str, ContainerSpec] = {}
        self.stream = ""
        self.agent = self._made()
        self.connect()

    def _made(self) -> NodeAgent:
        rows = [KeepRow(table, key, row) for (table, key), row in self.journal.items()]
        options = AgentOptions("n1", 5051, scalars(cpus=4, mem=4096), "/sandboxes", "10.0.0.1:5051", ip="10.0.0.1")
        return NodeAgent(options, self.world.now, rows)

    def connect(self) -> None:
        self.stream = self.world.stream()
        self.do(self.agent.connected(self.world.now))
        self.listen()

    def restart(self) -> None:
        self.world.do(self.world.master.closed(self.stream, self.world.now))
        self.agent = self._made()
        self.connect()

    @property
    def id(self) -> str:
        return str(self.agent.state.id)

    def do(self, done: list[Any]) -> None:
        for effect in done:
            if isinstance(effect, KeepRow):
                if effect.row is None:
                    self.journal.pop((effect.table, effect.key), None)
                else:
                    self.journal[effect.table, effect.key] = decode(encode(effect.row))
        for effect in done:
            if isinstance(effect, ToMaster):
                self.up(decode(encode(effect.item)))
            elif isinstance(effect, StartContainer):
                self.running[effect.container.id] = effect.container
                self.do(self.agent.started(effect.container.id, 100, 1, self.world.now))
            elif isinstance(effect, StopContainer):
                self.end(effect.id, -15)
            else:
                assert isinstance(effect, KeepRow | Send | Close | LimitCpu | RemoveContainer), effect

    def up(self, item: Message) -> None:
        now = self.world.now
        if item["type"] == "REGISTER":
            self.world.do(self.world.master.register(item, self.stream, now))
        else:
            effects, problem = self.world.master.from_agent(self.stream, [item], now)
            assert problem is None
            self.world.do(effects)

    def listen(self) -> None:
        while records := self.world.take(self.stream):
            for record in records:
                self.do(self.agent.from_master(record, self.world.now))

    def end(self, container: str, code: int) -> None:
        if self.running.pop(container, None) is not None:
            self.do(self.agent.exited(container, code, "", self.world.now))


def updates(world: World, framework: str) -> list[tuple[str, str]]:
    found = []
    for record in world.take(framework):
        if record["type"] == "UPDATE":
            status = record["update"]["status"]
            found.append((status["task_id"]["value"], status["state"]))
            if "uuid" in status:
                agent = status["agent_id"]["value"]
                world.acknowledge(framework, agent, status["task_id"]["value"], status["uuid"])
    return found


def told(world: World, node: Node, framework: str) -> list[tuple[str, str]]:
    """All updates there are, acknowledged one by one."""
    found = []
    while True:
        node.listen()
        fresh = updates(world, framework)
        if not fresh:
            return found
        found += fresh


def test_a_command_runs_to_its_end() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    assert node.id in world.state.agents
    world.start(framework, task_info("t", node.id))
    assert told(world, node, framework)[-1] == ("t", "TASK_RUNNING")
    (container,) = node.running.values()
    assert (container.framework, container.executor) == (framework, "t")
    node.end(container.id, 0)
    assert told(world, node, framework) == [("t", "TASK_FINISHED")]
    assert not world.state.frameworks[framework].tasks and not world.state.agents[node.id].used


def test_a_task_that_is_killed() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    world.start(framework, task_info("t", node.id))
    told(world, node, framework)
    world.call(framework, "KILL", {"task_id": {"value": "t"}})
    assert told(world, node, framework)[-1] == ("t", "TASK_KILLED")


def test_both_are_restarted_while_a_task_runs() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    world.start(framework, task_info("t", node.id))
    told(world, node, framework)
    first = node.id
    world.restart()
    node.restart()
    world.subscribe(framework)
    assert node.id == first and told(world, node, framework) == []
    assert world.state.agents[first].used == scalars(cpus=1)
    assert [task.state for task in world.state.frameworks[framework].tasks.values()] == ["TASK_RUNNING"]
    node.end(next(iter(node.running)), 3)
    assert told(world, node, framework) == [("t", "TASK_FAILED")]


def test_the_master_forgets_everything_and_the_agent_does_not() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    world.start(framework, task_info("t", node.id))
    told(world, node, framework)
    world.journal.clear()
    world.restart()
    node.connect()
    assert world.subscribe(framework) == framework
    assert [task.state for task in world.state.frameworks[framework].tasks.values()] == ["TASK_RUNNING"]
    node.end(next(iter(node.running)), 0)
    assert told(world, node, framework) == [("t", "TASK_FINISHED")]


def test_a_framework_that_is_torn_down_ends_its_containers() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    world.start(framework, task_info("t", node.id))
    told(world, node, framework)
    world.call(framework, "TEARDOWN")
    node.listen()
    assert not node.running and not world.state.agents[node.id].used


def test_an_agent_that_was_given_up_ends_everything() -> None:
    world = World()
    node, framework = Node(world), world.subscribe()
    world.start(framework, task_info("t", node.id))
    told(world, node, framework)
    call = {"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": {"value": node.id}}}
    world.do(world.master.operate(call, world.now)[1])
    records = world.take(node.stream)
    assert [record["type"] for record in records] == ["SHUTDOWN"]
