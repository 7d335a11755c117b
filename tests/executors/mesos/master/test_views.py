from __future__ import annotations

import json
from typing import Any

import pytest

from executors.mesos import codec
from executors.mesos.master import views
from executors.mesos.master.state import (
    AgentRecord,
    ExecutorRecord,
    FrameworkRecord,
    MasterOptions,
    MasterState,
    Offer,
    TaskRecord,
)
from executors.mesos.master.views import redacted
from executors.mesos.messages import task_status
from executors.mesos.resources import scalars, to_json

SECRET = "aHVzaCBodXNo"


def full() -> MasterState:
    """A pool with one of everything: in F1 a running, an ended and an unreachable task, F0 is completed."""
    state = MasterState("M", MasterOptions(), started=1000.0)
    agent = AgentRecord("S1", info("S1", "node1"), scalars(cpus=8, mem=1024), 1001.0, stream="a1", reregistered=1002.0)
    state.agents["S1"] = agent
    state.recovered["S2"] = AgentRecord("S2", info("S2", "node2"), scalars(cpus=8), 900.0)
    framework = FrameworkRecord("F1", {"id": {"value": "F1"}, "name": "one"}, frozenset({"hpc"}), 1003.0, stream="f1")
    state.frameworks["F1"] = framework
    for task in (launched("t1", "TASK_RUNNING"), launched("t2", "TASK_FINISHED")):
        framework.tasks[task.id] = agent.tasks[task.key] = task
    framework.tasks["t1"].unacknowledged = "dXVpZA=="
    framework.completed.append(launched("t0", "TASK_FAILED"))
    framework.unreachable["t3"] = launched("t3", "TASK_UNREACHABLE")
    executor = ExecutorRecord("e1", "F1", "S1", {"command": {"value": "run"} | secretive()}, scalars(mem=32), "hpc")
    agent.executors["F1", "e1"] = executor
    agent.used = scalars(cpus=1, mem=32)
    agent.offered = scalars(cpus=2)
    for offer in (Offer("O1", "F1", "S1", "hpc", scalars(cpus=2), 1004.0),):
        state.offers[offer.id] = framework.offers[offer.id] = agent.offers[offer.id] = offer
    state.completed["F0"] = FrameworkRecord("F0", {"id": {"value": "F0"}}, frozenset({"*"}), 990.0, disconnected=995.0)
    return state


def info(agent_id: str, hostname: str) -> dict[str, Any]:
    return {"id": {"value": agent_id}, "hostname": hostname, "port": 5051, "resources": to_json(scalars(cpus=8))}


def secretive() -> dict[str, Any]:
    secret = {"name": "TOKEN", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": SECRET}}}
    older = {"name": "OTHER", "type": "SECRET", "value": SECRET}
    return {"environment": {"variables": [secret, older, {"name": "A", "type": "VALUE", "value": "seen"}]}}


def launched(name: str, state: str) -> TaskRecord:
    pull = {"type": "DOCKER", "docker": {"name": "image", "config": {"type": "VALUE", "value": {"data": SECRET}}}}
    given = {
        "name": "some " + name,
        "command": {"value": "true", "user": "ann"} | secretive(),
        "container": {"type": "MESOS", "mesos": {"image": pull}},
        "labels": {"labels": [{"key": "a", "value": "b"}]},
        "data": "eA==",
    }
    statuses = [] if state == "TASK_STAGING" else [task_status(name, state, 1005.0, source="SOURCE_EXECUTOR")]
    return TaskRecord(name, "F1", "S1", "e1" if name == "t1" else None, given, scalars(cpus=1), "hpc", state, statuses)


def test_everything_is_plain_json_and_without_secrets() -> None:
    for state in (full(), MasterState("M", MasterOptions(), 0.0)):
        text = codec.encode(views.state(state)).decode()
        assert SECRET not in text
        assert json.loads(text) == views.state(state)
    assert "seen" in codec.encode(views.state(full())).decode()


def test_tasks_are_told_apart_by_what_became_of_them() -> None:
    found = views.tasks(full())
    ids = {name: [task["task_id"]["value"] for task in found[name]] for name in found}
    assert ids == {
        "pending_tasks": [],
        "tasks": ["t1", "t2"],
        "unreachable_tasks": ["t3"],
        "completed_tasks": ["t0"],
        "orphan_tasks": [],
    }


def test_tasks_that_a_removed_framework_left_are_completed() -> None:
    state = full()
    state.completed["F1"] = state.frameworks.pop("F1")
    assert {task["task_id"]["value"] for task in views.tasks(state)["completed_tasks"]} == {"t0", "t1", "t2"}
    assert views.framework(state.completed["F1"], state)["active"] is False


def test_task() -> None:
    found = views.task(full().frameworks["F1"].tasks["t1"])
    assert found["name"] == "some t1"
    assert found["executor_id"] == {"value": "e1"}
    assert found["resources"][0]["allocation_info"] == {"role": "hpc"}
    assert (found["status_update_state"], found["status_update_uuid"]) == ("TASK_RUNNING", "dXVpZA==")
    assert found["user"] == "ann"
    assert found["labels"] == {"labels": [{"key": "a", "value": "b"}]}
    assert not {"command", "data"} & found.keys()
    assert "executor_id" not in views.task(launched("t2", "TASK_STAGING"))


@pytest.mark.parametrize("command", [5, [], {"user": 5}, {"user": {"value": "x"}}])
def test_task_bears_odd_commands(command: Any) -> None:
    task = launched("t1", "TASK_STAGING")
    task.info = {"command": command, "executor": command}
    assert "user" not in views.task(task)


def test_framework() -> None:
    state = full()
    found = views.framework(state.frameworks["F1"], state)
    assert (found["active"], found["connected"], found["recovered"]) == (True, True, False)
    assert found["registered_time"] == {"nanoseconds": 1003 * 10**9}
    assert [offer["id"]["value"] for offer in found["offers"]] == ["O1"]
    amounts = {item["name"]: item["scalar"]["value"] for item in found["allocated_resources"]}
    assert amounts == {"cpus": 1.0, "mem": 32.0}  # the ended task takes nothing, the executor does
    assert found["offered_resources"][0]["scalar"]["value"] == 2.0
    assert found == views.frameworks(state)["frameworks"][0]


def test_completed_framework_has_the_time_of_its_end() -> None:
    [found] = views.frameworks(full())["completed_frameworks"]
    assert found["unregistered_time"] == {"nanoseconds": 995 * 10**9}
    assert found["recovered"] is False


def test_framework_from_before_the_restart_is_recovered_until_it_is_back() -> None:
    state = full()
    framework = state.frameworks["F1"]
    framework.registered, framework.stream = 900.0, None
    assert views.framework(framework, state)["recovered"] is True
    framework.reregistered = 1001.0
    assert views.framework(framework, state)["recovered"] is False


def test_agent() -> None:
    state = full()
    agent = state.agents["S1"]
    found = views.agent(agent, state)
    assert (found["active"], found["deactivated"], found["version"]) == (True, False, "1.11.0")
    assert found["pid"] == "slave(1)@node1:5051"
    assert found["total_resources"] == to_json(agent.total)
    assert {item["allocation_info"]["role"] for item in found["allocated_resources"]} == {"hpc"}
    assert "drain_info" not in found
    agent.ip = "10.0.0.7"
    assert views.agent(agent, state)["pid"] == "slave(1)@10.0.0.7:5051"


def test_agent_is_drained_once_it_has_no_task() -> None:
    state = full()
    agent = state.agents["S1"]
    agent.drain, agent.active = {"mark_gone": False}, False
    found = views.agent(agent, state)
    assert (found["active"], found["deactivated"]) == (False, True)
    assert found["drain_info"] == {"state": "DRAINING", "config": {"mark_gone": False}}
    agent.tasks.clear()
    assert views.agent(agent, state)["drain_info"]["state"] == "DRAINED"


def test_recovered_agents_are_told_by_their_info() -> None:
    assert [one["id"]["value"] for one in views.agents(full())["recovered_agents"]] == ["S2"]


def test_master_info_has_the_address_as_a_number() -> None:
    found = views.master(MasterState("M", MasterOptions(hostname="127.0.0.1", port=5050), 0.0))
    assert (found["id"], found["ip"], found["address"]["ip"]) == ("M", 16777343, "127.0.0.1")
    named = views.master(MasterState("M", MasterOptions(hostname="node0"), 0.0))
    assert named["ip"] == 0
    assert "ip" not in named["address"]


def test_events() -> None:
    state = full()
    framework, agent = state.frameworks["F1"], state.agents["S1"]
    task = framework.tasks["t1"]
    status = task_status("t1", "TASK_RUNNING", 1.0, source="SOURCE_EXECUTOR", data="eA==")
    events = [
        views.subscribed(state),
        views.task_added(task),
        views.task_updated(task, status),
        views.agent_added(agent, state),
        views.agent_removed("S1"),
        views.framework_added(framework, state),
        views.framework_updated(framework, state),
        views.framework_removed(framework),
    ]
    assert all(event["type"].lower() in event for event in events)
    assert "data" not in events[2]["task_updated"]["status"]
    assert events[2]["task_updated"]["state"] == "TASK_RUNNING"
    assert events[0]["subscribed"]["heartbeat_interval_seconds"] == 15.0
    assert events[0]["subscribed"]["get_state"] == views.state(state)
    assert [codec.encode(event) for event in events]


def test_redaction_leaves_the_original_alone() -> None:
    given = secretive()
    assert SECRET not in json.dumps(redacted(given))
    assert SECRET in json.dumps(given)
    assert redacted({"value": {"data": SECRET, "more": 1}}) == {"value": {"data": "", "more": 1}}
