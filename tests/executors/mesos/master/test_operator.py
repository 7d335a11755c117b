from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.web.errors import HTTPError
from executors.mesos import codec
from executors.mesos.codec import Message
from executors.mesos.effects import Effect, Send
from executors.mesos.master import operator, views
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import VERSION, base64_of, identity, message, task_status
from executors.mesos.resources import scalars, to_json

LOOKS = """GET_HEALTH GET_FLAGS GET_VERSION GET_METRICS GET_STATE GET_AGENTS GET_FRAMEWORKS
GET_EXECUTORS GET_TASKS GET_ROLES GET_WEIGHTS GET_QUOTA GET_MASTER"""
CHANGES = """TEARDOWN MARK_AGENT_GONE DRAIN_AGENT DEACTIVATE_AGENT REACTIVATE_AGENT UPDATE_WEIGHTS UPDATE_QUOTA"""


def pool() -> Master:
    """A master with an agent, on which a task of a framework runs."""
    master = Master("M", MasterOptions(), 1000.0)
    agent = {"hostname": "node1", "port": 5051, "resources": to_json(scalars(cpus=8, mem=1024))}
    master.register({"type": "REGISTER", "register": {"agent_info": agent}}, "agent", 1000.0)
    info = {"name": "one", "user": "ann", "roles": ["hpc"], "capabilities": [{"type": "MULTI_ROLE"}]}
    sent = master.subscribe(message("SUBSCRIBE", framework_info=info), None, "framework", 1001.0)
    [offer] = next(e for e in sends(sent) if e["type"] == "OFFERS")["offers"]["offers"]
    task = {
        "name": "work",
        "task_id": identity("t1"),
        "agent_id": offer["agent_id"],
        "command": {"value": "true"},
        "resources": to_json(scalars(cpus=1)),
    }
    operations = [{"type": "LAUNCH", "launch": {"task_infos": [task]}}]
    accept = message("ACCEPT", offer_ids=[offer["id"]], operations=operations)
    master.call(accept | {"framework_id": offer["framework_id"]}, None, "framework", 1002.0)
    return master


def run(master: Master, state: str = "TASK_RUNNING") -> None:
    agent_id = only(master.state.agents)
    status = task_status("t1", state, 1003.0, source="SOURCE_EXECUTOR", agent_id=agent_id, uuid=state[-16:].encode())
    status["uuid"] = base64_of(state.ljust(16)[:16].encode())
    update = {"framework_id": identity(only(master.state.frameworks)), "status": status, "latest_state": state}
    master.from_agent("agent", [{"type": "UPDATE", "update": update}], 1003.0)


def sends(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def only(group: dict[str, Any]) -> str:
    [found] = group
    return found


def ask(master: Master, call: Message, now: float = 1010.0) -> tuple[Message | None, list[Effect]]:
    return master.operate(call, now)


@pytest.mark.parametrize("kind", LOOKS.split())
def test_looks(kind: str) -> None:
    for master in (Master("M", MasterOptions(), 0.0), pool()):
        answer, effects = ask(master, {"type": kind, kind.lower(): {"timeout": {"nanoseconds": 5}}})
        assert effects == []
        assert answer is not None and answer["type"] == kind
        assert isinstance(answer[kind.lower()], dict)
        assert json.loads(codec.encode(answer)) == answer
    assert not operator.needs_write({"type": kind})


def test_what_looks_say() -> None:
    master = pool()
    run(master)

    def look(kind: str) -> Any:
        answer, _ = ask(master, {"type": kind})
        assert answer is not None
        return answer[kind.lower()]

    assert look("GET_HEALTH") == {"healthy": True}
    assert look("GET_VERSION") == {"version_info": {"version": VERSION}}
    assert look("GET_MASTER")["master_info"]["id"] == "M"
    assert look("GET_STATE") == views.state(master.state)
    assert [task["state"] for task in look("GET_TASKS")["tasks"]] == ["TASK_RUNNING"]
    assert look("GET_AGENTS")["agents"][0]["agent_info"]["hostname"] == "node1"
    assert [one["framework_info"]["name"] for one in look("GET_FRAMEWORKS")["frameworks"]] == ["one"]
    metrics = {item["name"]: item["value"] for item in look("GET_METRICS")["metrics"]}
    assert (metrics["master/tasks_running"], metrics["master/uptime_secs"]) == (1.0, 10.0)
    flags = {item["name"]: item["value"] for item in look("GET_FLAGS")["flags"]}
    assert flags["agent_ping_timeout"] == "15secs"
    assert flags.keys() == operator.flags(MasterOptions()).keys()
    assert operator.flags(MasterOptions(offer_timeout_s=30.0)) == flags | {"offer_timeout": "30secs"}


@pytest.mark.parametrize("kind", CHANGES.split())
@pytest.mark.parametrize("payload", [None, 5, [], {}, {"agent_id": 5}])
def test_changes_with_malformed_payloads_change_nothing(kind: str, payload: Any) -> None:
    master = pool()
    before = codec.encode(views.state(master.state))
    with pytest.raises(HTTPError) as refused:
        ask(master, {"type": kind} if payload is None else {"type": kind, kind.lower(): payload})
    assert refused.value.status == 400
    assert codec.encode(views.state(master.state)) == before
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
def test_no_call(call: Message, status: int) -> None:
    with pytest.raises(HTTPError) as refused:
        ask(pool(), call)
    assert refused.value.status == status


def test_teardown() -> None:
    master = pool()
    run(master)
    name = only(master.state.frameworks)
    ask(master, message("TEARDOWN", framework_id=identity(name)))
    assert name in master.state.completed
    answer, _ = ask(master, {"type": "GET_FRAMEWORKS"})
    assert answer is not None
    assert [one["active"] for one in answer["get_frameworks"]["completed_frameworks"]] == [False]
    with pytest.raises(HTTPError, match="is not known"):
        ask(master, message("TEARDOWN", framework_id=identity(name)))


def test_mark_agent_gone() -> None:
    master = pool()
    run(master)
    name = only(master.state.agents)
    call = message("MARK_AGENT_GONE", agent_id=identity(name))
    _, effects = ask(master, call)
    assert name in master.state.gone
    states = [one["update"]["status"]["state"] for one in sends(effects) if one["type"] == "UPDATE"]
    assert states == ["TASK_LOST"]  # this framework cannot tell partitions apart
    assert ask(master, call) == (None, [])
    with pytest.raises(HTTPError) as refused:
        ask(master, message("MARK_AGENT_GONE", agent_id=identity("another")))
    assert refused.value.status == 404


def test_a_subscriber_hears_what_it_can_apply_to_what_it_was_told_first() -> None:
    master = pool()
    first = sends(master.watch("watcher", 1005.0))
    assert [event["type"] for event in first] == ["SUBSCRIBED", "HEARTBEAT"]
    assert first[0]["subscribed"]["get_state"] == views.state(master.state)


PYMESOS = """
import json, sys
from executors.mesos.compat import enable_pymesos
enable_pymesos()
from pymesos.operator_v1 import MesosOperatorMasterDriver
calls = []
driver = MesosOperatorMasterDriver("127.0.0.1:1")
driver._send = lambda body, **more: calls.append(body)
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
    master = pool()
    run(master)
    agent_id = only(master.state.agents)
    looks = """getHealth getFlags getVersion getState getFrameworks getExecutors getTasks getAgents getRoles getWeights
    getMaster getQuota"""
    changes = [["updateWeights", [[{"role": "web", "weight": 2.0}]]], ["markAgentGone", [agent_id]]]
    for call in spoken([*([name, []] for name in looks.split()), ["getMetrics", [10**9]]]):
        answer, _ = ask(master, call)
        assert answer is not None and call["type"].lower() in answer
    for call in spoken(changes):
        assert ask(master, call)[0] is None
    assert agent_id in master.state.gone
    refusals = {
        "getLoggingLevel": [],
        "listFiles": ["/"],
        "reserveResources": ["S", []],
        "getMaintenanceSchedule": [],
        "setQuota": [{"role": "web", "guarantee": []}],
    }
    for call in spoken([[*one] for one in refusals.items()]):
        with pytest.raises(HTTPError, match=r"is not supported here: docs/mesos\.md") as refused:
            ask(master, call)
        assert refused.value.status == 501


NAMES = """agent_id value framework_id resources schedule windows machine_ids hostname ip unavailability start duration
nanoseconds machines quota_configs role limits guarantees cpus weight_infos weight max_grace_period mark_gone level
reservations type name scalar quota_request guarantee source"""
names = st.sampled_from(NAMES.split())
texts = st.text(max_size=8) | st.sampled_from(["M-S1", "M-0001", "node1", "hpc", "SCALAR", "5s"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(CHANGES.split()), st.dictionaries(names, json_values, max_size=4))
def test_no_call_crashes_the_master(kind: str, payload: Message) -> None:
    master = pool()
    with suppress(HTTPError):
        ask(master, {"type": kind, kind.lower(): payload})
    answer, _ = ask(master, {"type": "GET_STATE"})
    assert answer is not None and codec.encode(answer)
