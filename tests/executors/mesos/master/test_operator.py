"""What operators see of the pool, and what they change: the operator API, roles, metrics."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message, encode
from executors.mesos.master import operator, views
from executors.mesos.messages import VERSION, identity, nanoseconds, redacted
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.master.world import AWARE, MULTI, World, executor_info, task_info

LOOKS = """GET_HEALTH GET_FLAGS GET_VERSION GET_METRICS GET_STATE GET_AGENTS GET_FRAMEWORKS
GET_EXECUTORS GET_TASKS GET_ROLES GET_QUOTA GET_MASTER"""
CHANGES = """TEARDOWN MARK_AGENT_GONE DRAIN_AGENT DEACTIVATE_AGENT REACTIVATE_AGENT UPDATE_QUOTA"""
SECRET = "aHVzaCBodXNo"


def secretive() -> Message:
    secret = {"name": "TOKEN", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": SECRET}}}
    older = {"name": "OTHER", "type": "SECRET", "value": SECRET}
    return {"environment": {"variables": [secret, older, {"name": "A", "type": "VALUE", "value": "seen"}]}}


def full() -> tuple[World, str, str]:
    """Of one framework: a task `t1` with an executor that runs, `t2` that has ended, `t3` on an agent that is away."""
    world = World()
    agent, away = world.agent(resources=scalars(cpus=8, mem=1024)), world.agent()
    framework = world.subscribe(roles=["hpc"], capabilities=[AWARE, MULTI], name="one")
    executor = executor_info("e1", 1, command={"value": "run"} | secretive())
    pull = {"type": "DOCKER", "docker": {"name": "image", "config": {"type": "VALUE", "value": {"data": SECRET}}}}
    more = {
        "container": {"type": "MESOS", "mesos": {"image": pull}},
        "labels": {"labels": [{"key": "a", "value": "b"}]},
        "data": "eA==",
    }
    first = task_info("t1", agent, executor=executor, **more)
    second = task_info("t2", agent, command={"value": "true", "user": "ann"} | secretive())
    world.start(framework, first, second, refuse_s=0)
    world.start(framework, task_info("t3", away))
    world.update(agent, framework, "t1", "TASK_RUNNING", number=7)
    world.acknowledge(framework, agent, "t2", world.update(agent, framework, "t2", "TASK_FINISHED"))
    world.cut(away)
    world.sleep(100)
    return world, agent, framework


@pytest.mark.parametrize("kind", LOOKS.split())
def test_looks_answer_what_the_api_says_and_change_nothing(kind: str) -> None:
    for world in (World(), full()[0]):
        before = dict(world.journal)
        assert isinstance(world.operate(kind, timeout={"nanoseconds": 5}), dict)
        assert world.journal == before
    assert not operator.needs_write({"type": kind})


def test_what_looks_say() -> None:
    world, _, _ = full()
    assert world.operate("GET_HEALTH") == {"healthy": True}
    assert world.operate("GET_VERSION") == {"version_info": {"version": VERSION}}
    assert world.operate("GET_STATE") == views.state(world.state)
    assert [one["agent_info"]["hostname"] for one in world.operate("GET_AGENTS")["agents"]] == ["n1"]
    assert [one["framework_info"]["name"] for one in world.operate("GET_FRAMEWORKS")["frameworks"]] == ["one"]
    flags = {item["name"]: item["value"] for item in world.operate("GET_FLAGS")["flags"]}
    assert flags["agent_ping_timeout"] == "15secs" and "offer_timeout" not in flags
    flags = {item["name"]: item["value"] for item in World(offer_timeout_s=30.0).operate("GET_FLAGS")["flags"]}
    assert flags["offer_timeout"] == "30secs"


@pytest.mark.parametrize("kind", CHANGES.split())
@pytest.mark.parametrize("payload", [None, 5, [], {}, {"agent_id": 5}])
def test_changes_with_malformed_payloads_change_nothing(kind: str, payload: Any) -> None:
    world, _, _ = full()
    before = encode(views.state(world.state))
    with pytest.raises(HTTPError) as refused:
        world.master.operate({"type": kind} if payload is None else {"type": kind, kind.lower(): payload}, world.now)
    assert refused.value.status == 400
    assert encode(views.state(world.state)) == before
    assert operator.needs_write({"type": kind})


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ({}, 400),
        ({"type": 5}, 400),
        ({"type": "SUBSCRIBE"}, 501),
        ({"type": "NONSENSE"}, 501),
        ({"type": "SET_QUOTA"}, 501),
    ],
)
def test_what_is_no_call_is_refused(call: Message, status: int) -> None:
    with pytest.raises(HTTPError) as refused:
        World().master.operate(call, 1010.0)
    assert refused.value.status == status


def test_teardown() -> None:
    world, _, framework = full()
    world.operate("TEARDOWN", framework_id=identity(framework))
    [completed] = world.operate("GET_FRAMEWORKS")["completed_frameworks"]
    assert (completed["active"], completed["recovered"]) == (False, False)
    assert completed["unregistered_time"] == nanoseconds(world.now)
    found = world.operate("GET_TASKS")
    assert {task["task_id"]["value"] for task in found["completed_tasks"]} == {"t1", "t2", "t3"}
    with pytest.raises(HTTPError, match="is not known"):
        world.operate("TEARDOWN", framework_id=identity(framework))


def test_mark_agent_gone() -> None:
    world = World()
    agent, framework = world.agent(), world.subscribe(capabilities=[])
    world.start(framework, task_info("t", agent))
    world.take(framework)
    for _ in range(2):
        assert world.operate("MARK_AGENT_GONE", agent_id=identity(agent)) == {}
    assert agent in world.state.gone
    assert world.updates(framework) == [("t", "TASK_LOST")]  # this framework cannot tell partitions apart
    with pytest.raises(HTTPError) as refused:
        world.operate("MARK_AGENT_GONE", agent_id=identity("another"))
    assert refused.value.status == 404


PYMESOS = """
import json, sys
from executors.mesos.compat import enable_pymesos
enable_pymesos()
from pymesos.operator_v1 import MesosOperatorMasterDriver
calls = []
driver = MesosOperatorMasterDriver("127.0.0.1:1")
setattr(driver, "_send", lambda body, **more: calls.append(body))
for name, arguments in json.load(sys.stdin):
    getattr(driver, name)(*arguments)
print(json.dumps(calls))
"""


def spoken(calls: list[Any]) -> list[Message]:
    """What pymesos sends when its methods are called; in a process of its own, since it changes signal handling."""
    done = subprocess.run(
        [sys.executable, "-c", PYMESOS], input=json.dumps(calls), text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: list[Message] = json.loads(done.stdout)
    return found


@pytest.mark.mesos
@pytest.mark.skipif(importlib.util.find_spec("pymesos") is None, reason="pymesos is not installed")
def test_all_that_the_operator_driver_of_pymesos_asks_for() -> None:
    world, agent, _ = full()
    looks = """getHealth getFlags getVersion getState getFrameworks getExecutors getTasks getAgents getRoles
    getMaster getQuota"""
    changes = [["markAgentGone", [agent]]]
    for call in spoken([*([name, []] for name in looks.split()), ["getMetrics", [10**9]]]):
        answer, _ = world.master.operate(call, world.now)
        assert answer is not None and call["type"].lower() in answer
    for call in spoken(changes):
        assert world.master.operate(call, world.now)[0] is None
    assert agent in world.state.gone
    refusals = {
        "getLoggingLevel": [],
        "getWeights": [],
        "updateWeights": [[{"role": "web", "weight": 2.0}]],
        "listFiles": ["/"],
        "reserveResources": ["S", []],
        "getMaintenanceSchedule": [],
        "setQuota": [{"role": "web", "guarantee": []}],
    }
    for call in spoken([[*one] for one in refusals.items()]):
        with pytest.raises(HTTPError, match=r"is not supported here: docs/mesos\.md") as refused:
            world.master.operate(call, world.now)
        assert refused.value.status == 501


# ---------------------------------------------------------------------- what is seen


def test_secrets_are_not_shown_and_the_rest_is() -> None:
    world, _, _ = full()
    text = encode(world.operate("GET_STATE")).decode()
    assert SECRET not in text and "seen" in text
    given = secretive()
    assert SECRET not in json.dumps(redacted(given)) and SECRET in json.dumps(given)
    assert redacted({"value": {"data": SECRET, "more": 1}}) == {"value": {"data": "", "more": 1}}


def test_tasks_are_listed_by_what_became_of_them() -> None:
    world, _, _ = full()
    found = world.operate("GET_TASKS")
    assert {name: [task["task_id"]["value"] for task in found[name]] for name in found} == {
        "tasks": ["t1"],
        "unreachable_tasks": ["t3"],
        "completed_tasks": ["t2"],
    }
    [task], [ended] = found["tasks"], found["completed_tasks"]
    assert (task["executor_id"], task["labels"]) == (identity("e1"), {"labels": [{"key": "a", "value": "b"}]})
    assert task["resources"][0]["allocation_info"] == {"role": "hpc"}
    assert task["status_update_state"] == "TASK_RUNNING" and task["status_update_uuid"]
    assert not {"command", "data"} & task.keys() and "executor_id" not in ended


def test_a_framework_is_shown_with_what_it_holds_and_is_offered() -> None:
    world, _, framework = full()
    [found] = world.operate("GET_FRAMEWORKS")["frameworks"]
    assert (found["active"], found["connected"], found["recovered"]) == (True, True, False)
    assert found["registered_time"] == nanoseconds(1000.0)
    amounts = {item["name"]: item["scalar"]["value"] for item in found["allocated_resources"]}
    assert amounts == {"cpus": 2.0}  # the ended task takes nothing, the executor does
    assert found["offered_resources"][0]["scalar"]["value"] == 6.0
    world.now += 1
    world.restart()
    [found] = world.operate("GET_FRAMEWORKS")["frameworks"]
    assert (found["connected"], found["recovered"]) == (False, True)
    world.subscribe(framework, roles=["hpc"], capabilities=[AWARE, MULTI])
    world.cut(framework)
    [found] = world.operate("GET_FRAMEWORKS")["frameworks"]
    assert found["recovered"] is False and found["reregistered_time"] == nanoseconds(world.now)


def test_an_agent_is_shown_with_its_address_and_how_it_stands() -> None:
    world, agent, framework = full()

    def look() -> Message:
        [found] = world.operate("GET_AGENTS")["agents"]
        return dict(found)

    found = look()
    assert (found["active"], found["deactivated"], found["version"]) == (True, False, "1.11.0")
    assert found["pid"] == "slave(1)@n1:5051" and "drain_info" not in found and "reregistered_time" not in found
    world.operate("DRAIN_AGENT", agent_id=identity(agent))
    found = look()
    assert (found["active"], found["deactivated"]) == (False, True)
    assert found["drain_info"] == {"state": "DRAINING", "config": {"mark_gone": False}}
    world.acknowledge(framework, agent, "t1", world.update(agent, framework, "t1", "TASK_KILLED"))
    assert look()["drain_info"]["state"] == "DRAINED"
    world.restart()
    assert [one["id"]["value"] for one in world.operate("GET_AGENTS")["recovered_agents"]] == [agent]
    world.agent(agent, ip="10.0.0.9")
    assert look()["pid"] == "slave(1)@10.0.0.9:5051" and look()["reregistered_time"] == nanoseconds(world.now)


def test_master_info_has_the_address_as_a_number() -> None:
    found = World(hostname="127.0.0.1", port=5050).operate("GET_MASTER")["master_info"]
    assert (found["id"], found["ip"], found["address"]["ip"]) == ("M", 16777343, "127.0.0.1")
    named = World(hostname="node0").operate("GET_MASTER")["master_info"]
    assert named["ip"] == 0 and "ip" not in named["address"]


def test_a_subscriber_is_sent_the_state_and_then_what_changes_it() -> None:
    world, agent, framework = full()
    watcher = world.watch()
    first, second = world.take(watcher)
    assert first["subscribed"] == {"get_state": views.state(world.state), "heartbeat_interval_seconds": 15.0}
    assert second == {"type": "HEARTBEAT"}
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": "A" * 22 + "==", "data": "eA=="}
    world.hear(agent, "UPDATE", framework_id=identity(framework), status=status)
    [event] = world.take(watcher)
    assert event["task_updated"]["state"] == "TASK_RUNNING" and "data" not in event["task_updated"]["status"]


# ---------------------------------------------------------------------- metrics


def metrics(world: World) -> dict[str, float]:
    found = world.operate("GET_METRICS")["metrics"]
    return {item["name"].removeprefix("master/"): item["value"] for item in found}


def test_time_that_goes_back_is_no_metric() -> None:
    world = World()
    world.now += 30
    assert metrics(world)["uptime_secs"] == 30.0
    world.now -= 40
    assert metrics(world)["uptime_secs"] == 0.0


def test_what_is_there_is_counted() -> None:
    world, _, _ = full()
    world.operate("DEACTIVATE_AGENT", agent_id=identity(world.agent()))
    cut, gone = world.agent(resources=scalars(gpus=1)), world.subscribe()
    world.cut(cut), world.cut(gone)
    world.subscribe(quiet=["*"])
    expected = {
        "slaves_active": 1,
        "slaves_connected": 2,
        "slaves_disconnected": 1,
        "slaves_unreachable": 1,
        "frameworks_connected": 2,
        "frameworks_disconnected": 1,
        "tasks_running": 1,
        "tasks_staging": 0,
        "tasks_unreachable": 1,
        "cpus_total": 12,
        "cpus_used": 2,
        "mem_total": 1024 + 4096,
        "gpus_total": 1,
        "outstanding_offers": len(world.state.offers),
    }
    found = metrics(world)
    assert {name: found[name] for name in expected} == expected


# ---------------------------------------------------------------------- roles


def pool(*roles: str) -> tuple[World, str]:
    """An agent of 8 cores, and a framework in these roles, whose inbox is empty."""
    world = World()
    world.agent(resources=scalars(cpus=8, mem=1024))
    framework = world.subscribe(roles=list(roles), capabilities=[AWARE, MULTI])
    world.take(framework)
    return world, framework


def config(role: str, **limits: float) -> Message:
    return {"role": role, "limits": {name: {"value": amount} for name, amount in limits.items()}}


def test_roles_are_those_that_something_is_known_of() -> None:
    world, _ = pool("web", "hpc")
    world.operate("UPDATE_QUOTA", quota_configs=[config("tight", cpus=1)])
    found = {role["name"]: role for role in world.operate("GET_ROLES")["roles"]}
    assert list(found) == ["hpc", "tight", "web"]
    assert [len(found[name]["frameworks"]) for name in found] == [1, 0, 1]
    [offer] = world.state.offers.values()
    assert found[offer.role]["resources"] == to_json(scalars(cpus=8, mem=1024))


def test_quota_changes_offers_at_once_and_survives_a_restart() -> None:
    world, framework = pool("web")
    world.operate("UPDATE_QUOTA", quota_configs=[config("web", cpus=3)])
    assert world.types(framework) == ["RESCIND", "OFFERS"]
    [offer] = world.state.offers.values()
    assert offer.resources.scalar("cpus") == 3.0
    before = world.operate("GET_QUOTA")
    assert before["status"]["configs"] == [config("web", cpus=3.0) | {"guarantees": {}}]
    world.restart()
    assert world.operate("GET_QUOTA") == before
    world, _ = pool("web")
    world.operate("UPDATE_QUOTA", quota_configs=[config("web", cpus=3)])
    world.operate("UPDATE_QUOTA", quota_configs=[{"role": "web"}])
    assert [offer.resources.scalar("cpus") for offer in world.state.offers.values()] == [8.0]


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([config("*", cpus=1)], "cannot have quota"),
        ([config("a//b", cpus=1)], "empty parts"),
        ([config("a", cpus=1), config("a", cpus=2)], "named twice"),
        ([{"role": "a", "guarantees": {"cpus": {"value": 1}}}], "not guaranteed"),
        (["a"], "quota_config"),
        ([{}], "role"),
        ([{"role": 3}], "role"),
        ([{"role": "a", "limits": []}], "limits"),
        ([{"role": "a", "limits": {"cpus": 3}}], "limits"),
        ([config("a", cpus=-1)], "between 0 and"),
        ([{"role": "a", "limits": {"cpus": {"value": "Infinity"}}}], "between 0 and"),
        ([{"role": "a", "limits": {"cpus": {"value": "NaN"}}}], "a number"),
    ],
)
def test_quota_that_makes_no_sense_changes_nothing(configs: list[Any], words: str) -> None:
    world, _ = pool("a")
    world.operate("UPDATE_QUOTA", quota_configs=[config("b", cpus=5)])
    with pytest.raises(HTTPError, match=words):
        world.operate("UPDATE_QUOTA", quota_configs=[config("b", cpus=7), *configs], force=True)
    assert world.state.quota == {"b": {"cpus": 5000}}


def test_a_limit_below_what_runs_takes_force_and_stops_new_tasks_only() -> None:
    world, framework = pool("a")
    [agent] = world.state.agents
    world.start(framework, task_info("t", agent, resources=to_json(scalars(cpus=4, mem=100))), refuse_s=0)
    with pytest.raises(HTTPError, match=r"has 4\.0 cpus, more than 3\.0; use 'force'"):
        world.operate("UPDATE_QUOTA", quota_configs=[config("a", cpus=3)])
    world.operate("UPDATE_QUOTA", quota_configs=[config("a", cpus=3)], force=True)
    assert [one.resources for one in world.state.offers.values()] == [scalars(mem=924)]
