"""Status updates: in order, one at a time, until they are acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.messages import base64_of, identity


@pytest.fixture
def running(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.subscribe()
    return node


def test_the_next_goes_only_after_the_one_before_was_acknowledged(running):
    running.update("t1", "TASK_STARTING", data="aGk=")
    running.update("t1", "TASK_RUNNING")
    running.update("t1", "TASK_FINISHED")
    (item,) = [item["update"] for item in running.ups if item["type"] == "UPDATE"]
    assert item["latest_state"] == "TASK_STARTING" and item["status"]["data"] == "aGk="
    assert running.updates() == [("t1", "TASK_STARTING")]
    running.acknowledge("t1")
    assert running.ups[-1]["update"]["latest_state"] == "TASK_FINISHED"
    assert running.updates() == [("t1", "TASK_RUNNING")]
    running.acknowledge("t1")
    running.acknowledge("t1")
    assert running.updates() == [("t1", "TASK_FINISHED")]
    assert running.agent.state.task("F1", "t1") is None


def test_only_the_right_acknowledgement_counts(running):
    running.update("t1", "TASK_RUNNING", uuid=1)
    running.update("t1", "TASK_FINISHED", uuid=2)
    for uuid in (2, 3):
        ids = {"framework_id": identity("F1"), "task_id": identity("t1")}
        running.heard("ACKNOWLEDGE", **ids, uuid=base64_of(uuid.to_bytes(16, "big")))
        running.heard("ACKNOWLEDGE", **ids | {"task_id": identity("t2")}, uuid=base64_of(bytes(16)))
    assert len(running.agent.state.task("F1", "t1").pending) == 2


def test_one_that_is_not_acknowledged_is_sent_again_and_again(running):
    running.update("t1", "TASK_RUNNING")
    assert running.updates() == [("t1", "TASK_RUNNING")]
    began, when = running.now, []
    while running.now < began + 4000:
        running.wake()
        if running.updates() == [("t1", "TASK_RUNNING")]:
            when.append(running.now - began)
    assert when[:7] == [10.0, 30.0, 70.0, 150.0, 310.0, 630.0, 1230.0]
    running.acknowledge("t1")
    running.update("t1", "TASK_FINISHED")
    running.updates()
    running.wake(running.now + 10)  # the next one begins anew
    assert running.updates() == [("t1", "TASK_FINISHED")]


def test_all_that_wait_are_sent_when_the_master_is_back(node, task):
    for name in ("t1", "t2", "t3"):
        node.run(task(name))
        node.start(name)
    node.acknowledge("t2")
    node.updates()
    node.do(node.agent.disconnected(node.now))
    node.exit("t2", 0)
    node.wake(node.now + 100)
    assert node.updates() == []  # nobody is there
    node.register()
    assert node.updates() == [("t1", "TASK_RUNNING"), ("t2", "TASK_FINISHED"), ("t3", "TASK_RUNNING")]


def test_updates_carry_the_id_that_the_agent_has_now(node, task):
    node.run(task("t1"))
    node.start("t1")
    node.updates()
    node.register("S2")
    node.updates()
    assert node.last["agent_id"] == identity("S2")


def test_what_has_come_survives_a_restart(running):
    uuid = running.update("t1", "TASK_RUNNING")
    running.update("t1", "TASK_FINISHED")
    running.updates()
    running.restart()
    running.register()
    assert running.updates() == [("t1", "TASK_RUNNING")] and running.last["uuid"] == uuid
    running.acknowledge("t1")
    assert running.updates() == [("t1", "TASK_FINISHED")]


@given(st.lists(st.sampled_from(["update", "acknowledge", "replay", "restart", "wait", "back"]), max_size=30))
def test_every_update_arrives_in_order_whatever_happens(new_node, task, executor, steps: list[str]):
    node = new_node()
    node.register()
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.subscribe()
    said, uuids = [], []
    for number, step in enumerate(steps, 1):
        if step == "update":
            uuids.append(number)
            said.append(node.update("t1", "TASK_RUNNING", uuid=number))
        elif step == "replay" and uuids:
            node.update("t1", "TASK_RUNNING", uuid=uuids[number % len(uuids)])
        elif step == "acknowledge" and _on_its_way(node) in _arrived(node):
            node.acknowledge("t1")
        elif step == "restart":
            node.restart()
            node.do(node.agent.started(node.container("e1").id, 1, 1, node.now))
            node.subscribe(stream=f"s{number}")
        elif step == "wait":
            node.wake(node.now + 10)
        elif step == "back":
            node.register()
    node.register()
    while _on_its_way(node) is not None:
        node.acknowledge("t1")
    assert _arrived(node) == said


def _on_its_way(node) -> str | None:
    pending = node.agent.state.task("F1", "t1").pending
    return pending[0]["uuid"] if pending else None


def _arrived(node) -> list[str]:
    """What the master was sent, each once, in the order in which it came first."""
    return list(dict.fromkeys(item["update"]["status"]["uuid"] for item in node.ups if item["type"] == "UPDATE"))
