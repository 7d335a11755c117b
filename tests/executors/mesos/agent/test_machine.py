"""The agent's machine: registration, and what master and executors may send."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos.agent.state import ToMaster
from executors.mesos.codec import BadMessage
from executors.mesos.messages import identity, message

SHUTDOWNS = ("SHUTDOWN", "SHUTDOWN_EXECUTOR", "SHUTDOWN_FRAMEWORK")


def test_says_what_it_is_when_it_registers(new_node):
    node = new_node(ends=5000.0, attributes=[{"name": "job", "type": "TEXT", "text": {"value": "4711"}}])
    said = node.register("S7")
    assert said["agent_info"]["hostname"] == "n1" and "id" not in said["agent_info"]
    assert said["agent_info"]["attributes"][0]["text"]["value"] == "4711"
    assert said["unavailability"] == {"start": {"nanoseconds": 5_000_000_000_000}}
    assert (said["frameworks"], said["executors"], said["tasks"]) == ([], [], [])
    assert node.register("S7")["agent_info"]["id"] == identity("S7")


def test_registers_no_more_once_it_has_ended(node):
    node.do(node.agent.leave("done", node.now))
    assert node.agent.connected(node.now) == []


def test_waits_for_acknowledgements_only_where_there_is_a_master(node, task):
    node.run(task("t1"))
    node.start("t1")
    node.do(node.agent.leave("no master", node.now, told=True))
    node.exit("t1", -15)
    assert node.code == 0


def test_says_no_more_than_the_master_needs(new_node, task):
    node = new_node(ip="10.0.0.1")
    assert node.register()["ip"] == "10.0.0.1"
    node.run(task("t1", data="AAAA", labels={"labels": []}))
    (said,) = node.register()["tasks"]
    assert "data" not in said["task_info"] and said["labels"] == {"labels": []}


def test_keeps_its_id_over_restarts(node):
    node.restart()
    assert node.register()["agent_info"]["id"] == identity("S1")


def test_tells_what_it_has_when_it_registers_again(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.do(node.agent.disconnected(node.now))
    said = node.register()
    assert [item["id"]["value"] for item in said["frameworks"]] == ["F1"]
    assert [item["executor_info"]["executor_id"]["value"] for item in said["executors"]] == ["e1"]
    first, second = said["tasks"]
    assert (first["state"], second["state"]) == ("TASK_RUNNING", "TASK_STAGING")
    assert "executor_id" not in first and second["executor_id"] == identity("e1")
    assert first["status_update_uuid"] == node.agent.state.task("F1", "t1").pending[0]["uuid"]
    assert first["task_info"]["command"] == {"value": "true"}


def test_answers_pings_even_before_it_has_registered(new_node):
    node = new_node()
    assert node.agent.from_master(message("PING"), node.now) == [ToMaster({"type": "PONG"})]


def test_takes_no_tasks_before_it_has_an_id(new_node, task):
    node = new_node()
    node.run(task())
    assert not node.running


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    GARBAGE,
    st.sampled_from(
        ["framework_info", "executor_info", "tasks", "group", "framework_id", "task_id", "kill_policy", "uuid", "data"]
    ),
    st.sampled_from(["REGISTERED", "RUN", "KILL", "ACKNOWLEDGE", "MESSAGE", "FRAMEWORK", *SHUTDOWNS]),
)
def test_survives_whatever_the_master_sends(new_node, value: Any, name: str, kind: str):
    from_scratch, whole = new_node(), new_node()
    whole.register()
    from_scratch.do(from_scratch.agent.from_master({"type": kind, kind.lower(): value}, from_scratch.now))
    usual = {
        "framework_info": {"id": identity("F1"), "name": "f"},
        "executor_info": {"executor_id": identity("e1"), "command": {"value": "run"}, "resources": []},
        "tasks": [{"name": "t", "task_id": identity("t1"), "resources": [], "command": {"value": "true"}}],
        "framework_id": identity("F1"),
        "task_id": identity("t1"),
        "executor_id": identity("e1"),
        "uuid": "AAAA",
    }
    whole.do(whole.agent.from_master(message(kind, **usual | {name: value}), whole.now))
    if whole.code is None:
        whole.register()  # what it has can still be told


CALLS = ["framework_id", "executor_id", "type", "subscribe", "update", "message", "container_id", "limits", "unknown"]


@given(GARBAGE, st.sampled_from(CALLS), st.sampled_from(["SUBSCRIBE", "UPDATE", "MESSAGE", "ASA_UPDATE_LIMITS"]))
def test_calls_are_carried_out_or_change_nothing(new_node, task, executor, value: Any, name: str, kind: str):
    node = new_node()
    node.register()
    node.run(task("t1"), executor=executor())
    node.subscribe()
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}
    ids = {"framework_id": identity("F1"), "executor_id": identity("e1")}
    limits = {"container_id": identity(node.container("e1").id), "limits": {"cpus": {"value": 1}}, "lease_seconds": 1}
    usual = ids | {"type": kind, "subscribe": {}, "update": {"status": status}, "message": {"data": "AAAA"}}
    for item in (usual | {name: value}, usual | {kind.lower(): {name: value}}, {"asa_update_limits": limits} | usual):
        for call in (
            lambda item=item: node.agent.subscribe(item, "s2", node.now),
            lambda item=item: node.agent.call(item, node.now),
            lambda item=item: node.agent.operate(item, lambda _: None, node.now)[1],
        ):
            try:
                node.sent.setdefault("s2", [])
                node.do(call())
            except (BadMessage, HTTPError):
                assert node.agent.closed("none", node.now) == []  # nothing was half done
    node.restart()
    node.register()


def test_an_id_that_is_no_part_of_a_path_is_not_taken(new_node):
    node = new_node()
    node.register("../S1")
    assert node.agent.state.id is None


@given(
    st.sampled_from(
        ["name", "resources", "command", "limits", "kill_policy", "labels", "max_completion_time", "container"]
    ),
    st.sampled_from(
        [
            0,
            "x",
            [],
            [[]],
            [{}],
            {},
            {"value": 5},
            {"grace_period": 5},
            {"nanoseconds": "x"},
            {"cpus": {"value": -1}},
            True,
        ]
    ),
    st.booleans(),
)
def test_refuses_tasks_that_make_no_sense_without_a_fault(new_node, name: str, value: Any, custom: bool):
    node = new_node()
    node.register()
    task = {"name": "t", "task_id": identity("t1"), "resources": [], "command": {"value": "true"}}
    if custom:
        executor = {"executor_id": identity("e1"), "command": {"value": "run"}, "resources": []}
        node.run(task, executor=executor | {name: value})
    else:
        node.run(task | {name: value})
    said = node.register()
    assert [item["task_id"]["value"] for item in said["tasks"]] == ["t1"]
    assert (node.updates()[:1] == [("t1", "TASK_ERROR")]) != bool(node.running)


def test_an_item_that_makes_no_sense_is_counted(node):
    node.heard("LAUNCH")
    node.do(node.agent.from_master({"type": ["RUN"]}, node.now))
    assert node.agent.state.counters["invalid_master_messages"] == 2


@pytest.mark.parametrize("call", [{}, {"type": "SUBSCRIBE"}, {"framework_id": "F1", "executor_id": "e1"}])
def test_refuses_calls_of_executors_that_make_no_sense(node, call):
    with pytest.raises(BadMessage):
        node.agent.subscribe(call, "s1", node.now)
    with pytest.raises(BadMessage):
        node.agent.call(call, node.now)


def test_refuses_executors_that_are_not_known(node, task, executor):
    with pytest.raises(HTTPError, match="Framework cannot be found") as refused:
        node.subscribe()
    assert refused.value.status == 400
    node.run(task(), executor=executor())
    with pytest.raises(HTTPError, match="Executor cannot be found"):
        node.subscribe("e2")
    with pytest.raises(HTTPError, match="not subscribed") as refused:
        node.call("HEARTBEAT")
    assert refused.value.status == 403
    assert node.journal
