"""Agent and master, machine to machine: what one says, the other understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from executors.mesos.codec import Message, decode, encode
from executors.mesos.effects import Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import Options
from executors.mesos.messages import identity, message, nanoseconds, value_of


class Pool:
    """A master, one agent that is connected to it, and one framework that acknowledges what it hears."""

    def __init__(self, node: Any, **framework: Any) -> None:
        self.node = node
        self.master = Master("M1", Options(), node.now)
        self.events: list[Message] = []
        info = {"user": "me", "name": "f", "roles": ["hpc"], "failover_timeout": 100.0}
        info |= {"capabilities": [{"type": "MULTI_ROLE"}]} | framework
        call = message("SUBSCRIBE", framework_info=info)
        self.connected = False
        self.take(self.master.subscribe(call, None, "f", node.now))
        self.framework = self.events[0]["subscribed"]["framework_id"]
        self.connect()

    def connect(self) -> None:
        first, *_ = self.node.do(self.node.agent.connected(self.node.now))
        self.node.ups.clear()
        self.connected = True
        self.take(self.master.register(decode(encode(first.item)), "a", self.node.now))
        self.up()

    def disconnect(self) -> None:
        self.connected = False
        self.node.do(self.node.agent.disconnected(self.node.now))
        self.take(self.master.closed("a", self.node.now))

    def take(self, effects: list[Any]) -> None:
        """Pass on what the master says."""
        for effect in effects:
            if isinstance(effect, Send):
                item = decode(encode(effect.message))
                if effect.stream == "f":
                    self.events.append(item)
                elif self.connected:
                    self.node.do(self.node.agent.from_master(item, self.node.now))
                    self.up()

    def up(self) -> None:
        """Pass on what the agent says."""
        items, self.node.ups = self.node.ups, []
        if items and self.connected:
            effects, problem = self.master.from_agent("a", items, self.node.now)
            assert problem is None
            self.take(effects)

    def call(self, kind: str, **payload: Any) -> None:
        self.take(
            self.master.call({"framework_id": self.framework} | message(kind, **payload), None, "f", self.node.now)
        )

    def accept(self, operation: Message) -> None:
        (offer,) = [event for event in self.events if event["type"] == "OFFERS"][-1]["offers"]["offers"]
        self.call("ACCEPT", offer_ids=[offer["id"]], operations=[operation], filters={"refuse_seconds": 0.0})

    def told(self) -> list[tuple[str, str]]:
        """Updates that the framework has heard since it was asked last; they are acknowledged."""
        found = []
        for event in self.events:
            if event["type"] == "UPDATE":
                status = event["update"]["status"]
                found.append((value_of(status, "task_id"), status["state"]))
                if "uuid" in status:
                    ids = {name: status[name] for name in ("agent_id", "task_id", "uuid")}
                    self.call("ACKNOWLEDGE", **ids)
        self.events = [event for event in self.events if event["type"] != "UPDATE"]
        return found

    def act(self, act: Callable[[], Any]) -> None:
        """Something happens on the node."""
        act()
        self.up()


@pytest.fixture
def pool(new_node):
    return Pool(new_node())


def plain(task: Message) -> Message:
    """As a framework would write it."""
    resources = [{key: item[key] for key in ("name", "type", "scalar")} for item in task["resources"]]
    return task | {"agent_id": identity("M1-S1"), "resources": resources}


def test_a_command_task_from_offer_to_end(pool, task):
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1"))]))
    pool.act(lambda: pool.node.start("t1"))
    assert pool.told() == [("t1", "TASK_RUNNING")]
    pool.act(lambda: pool.node.exit("t1", 0))
    assert pool.told() == [("t1", "TASK_FINISHED")]
    assert set(pool.node.journal) == {("agent", "id")}
    (agent,) = pool.master.state.agents.values()
    assert agent.used.scalars() == {} and not agent.tasks


def test_a_custom_executor_and_its_tasks(pool, task, executor):
    mine = executor() | {"resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}}]}
    pool.accept(message("LAUNCH", task_infos=[_of(plain(task("t1")), mine), _of(plain(task("t2")), mine)]))
    assert len(pool.node.running) == 1
    node, node_id = pool.node, pool.framework["value"]
    node.start("e1")
    node.sent["s1"] = []
    ids = {"framework_id": pool.framework, "executor_id": identity("e1")}
    node.do(node.agent.subscribe(ids | message("SUBSCRIBE", unacknowledged_tasks=[]), "s1", node.now))
    assert [event["type"] for event in node.sent["s1"]] == ["SUBSCRIBED", "LAUNCH", "LAUNCH"]
    assert value_of(node.sent["s1"][0], "subscribed.framework_info.id") == node_id
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}
    pool.act(lambda: node.do(node.agent.call(ids | message("UPDATE", status=status), node.now)))
    assert pool.told() == [("t1", "TASK_RUNNING")]
    assert node.sent["s1"][-1]["acknowledged"]["uuid"] == status["uuid"]
    pool.call("MESSAGE", agent_id=identity("M1-S1"), executor_id=identity("e1"), data="aGk=")
    assert node.sent["s1"][-1] == {"type": "MESSAGE", "message": {"data": "aGk="}}
    pool.act(lambda: node.exit("e1", 1))
    assert pool.told() == [("t1", "TASK_FAILED"), ("t2", "TASK_FAILED")]
    (failure,) = [event["failure"] for event in pool.events if event["type"] == "FAILURE"]
    assert failure == {"agent_id": identity("M1-S1"), "executor_id": identity("e1"), "status": 256}
    assert not next(iter(pool.master.state.agents.values())).used


def test_both_agree_after_the_agent_was_away(pool, task):
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1")), plain(task("t2"))]))
    pool.act(lambda: pool.node.start("t1"))
    pool.act(lambda: pool.node.start("t2"))
    assert sorted(pool.told()) == [("t1", "TASK_RUNNING"), ("t2", "TASK_RUNNING")]
    pool.disconnect()
    pool.node.exit("t1", 3)
    pool.node.restart()
    pool.connect()
    assert pool.told() == [("t1", "TASK_FAILED")]
    pool.call("KILL", task_id=identity("t2"), kill_policy={"grace_period": nanoseconds(1)})
    assert pool.node.stops[-1].grace_s == 1.0
    pool.act(lambda: pool.node.exit("t2", -15))
    assert pool.told() == [("t2", "TASK_KILLED")]


def test_what_the_agent_never_got_is_told(pool, task):
    pool.connected = False  # the record is lost on its way
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1"))]))
    pool.disconnect()
    pool.connect()
    assert pool.told() == [("t1", "TASK_LOST")] and not pool.node.running


def test_what_cannot_run_is_told(pool, task):
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1", health_check={"type": "COMMAND"}))]))
    assert pool.told() == [("t1", "TASK_ERROR")] and not pool.node.running


def test_a_framework_that_is_torn_down_leaves_nothing(pool, task):
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1"))]))
    pool.act(lambda: pool.node.start("t1"))
    pool.call("TEARDOWN")
    assert len(pool.node.stops) == 1
    pool.act(lambda: pool.node.exit("t1", -15))
    assert set(pool.node.journal) == {("agent", "id")}


def test_frameworks_know_when_the_allocation_ends(new_node, task):
    pool = Pool(new_node(ends=5000.0))
    (offer,) = pool.events[-1]["offers"]["offers"]
    assert offer["unavailability"]["start"] == nanoseconds(5000.0)
    pool.accept(message("LAUNCH", task_infos=[plain(task("t1"))]))
    pool.act(lambda: pool.node.start("t1"))
    assert pool.told() == [("t1", "TASK_RUNNING")]
    pool.act(lambda: pool.node.wake(4985.0))
    pool.act(lambda: pool.node.exit("t1", -15))
    assert pool.told() == [("t1", "TASK_KILLED")]
    assert pool.node.code == 0 and not pool.node.journal
    assert list(pool.master.state.gone) == ["M1-S1"]


def _of(task: Message, executor: Message) -> Message:
    return {name: task[name] for name in task if name != "command"} | {"executor": executor}
