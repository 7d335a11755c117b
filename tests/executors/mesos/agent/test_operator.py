"""What operators ask an agent, and what they may change."""

from __future__ import annotations

import random
import signal
from collections import Counter
from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.cgroup.group import GroupUsage
from executors.mesos.agent.api import QUERIES, needs_write
from executors.mesos.agent.state import HoldMemory, SignalContainer
from executors.mesos.codec import BadMessage, decode, encode
from executors.mesos.messages import base64_of, identity
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.oracle import API, check, made

USAGE = GroupUsage(1.5, 0.5, 30, 10, 0.7, 4096, None, 2, 3)
CHANGES = ["ASA_UPDATE_LIMITS", "ASA_HOLD_MEMORY", "ASA_SIGNAL_CONTAINER"]
GETS = ["HEALTH", "VERSION", "FRAMEWORKS", "EXECUTORS", "TASKS", "STATE", "CONTAINERS"]


def ask(node, kind, **payload):
    answer, effects = node.agent.operate({"type": kind, kind.lower(): payload}, lambda _: USAGE, node.now)
    node.do(effects)
    return answer


@pytest.mark.parametrize("name", GETS)
@pytest.mark.parametrize("full", [False, True])
def test_every_question_has_an_answer(node, task, executor, name, full):
    if full:
        node.run(task("t1"))
        node.run(task("t2"), executor=executor())
        node.start("t1")
        node.exit("t1")
    answer = ask(node, f"GET_{name}")
    assert answer["type"] == f"GET_{name}" and set(answer) == {"type", f"get_{name.lower()}"}
    encode(answer)
    assert not needs_write({"type": f"GET_{name}"})


def test_tasks_are_listed_by_state(node, task):
    for name in ("t1", "t2", "t3", "t4"):
        node.run(task(name))
    for name in ("t2", "t3", "t4"):
        node.start(name)
        node.acknowledge(name)
    node.exit("t3")
    node.exit("t4", 1)
    node.acknowledge("t4")
    found = ask(node, "GET_TASKS")["get_tasks"]
    names = {where: [item["name"] for item in items] for where, items in found.items()}
    assert names == {
        "queued_tasks": ["t1"],
        "launched_tasks": ["t2"],
        "terminated_tasks": ["t3"],
        "completed_tasks": ["t4"],
    }
    assert [status["state"] for status in found["completed_tasks"][0]["statuses"]] == ["TASK_RUNNING", "TASK_FAILED"]


def test_containers_come_with_what_they_use(node, task):
    node.run(task("t1", cpus=2, mem=64))
    pid = node.start("t1")
    (found,) = ask(node, "GET_CONTAINERS")["get_containers"]["containers"]
    container = identity(node.container("t1").id)
    assert found["container_id"] == container and found["executor_id"] == identity("t1")
    assert found["container_status"] == {"container_id": container, "executor_pid": pid}
    assert found["resource_statistics"] == {
        "timestamp": node.now,
        "cpus_limit": 2.0,
        "cpus_user_time_secs": 1.5,
        "cpus_system_time_secs": 0.5,
        "cpus_nr_periods": 30,
        "cpus_nr_throttled": 10,
        "cpus_throttled_time_secs": 0.7,
        "mem_rss_bytes": 4096,
        "mem_limit_bytes": 64 << 20,
        "processes": 2,
        "threads": 3,
    }


def test_answers_hold_no_secrets(node, task, executor):
    secret = {"name": "KEY", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": base64_of(b"open")}}}
    command = {"value": "run", "environment": {"variables": [secret]}}
    node.run(task("t1", command=command))
    node.run(task("t2"), executor=executor(command=command))
    said = b"".join(encode(ask(node, f"GET_{name}")) for name in GETS)
    assert base64_of(b"open").encode() not in said and b'"KEY"' in said


@pytest.mark.parametrize(
    ("limit", "request_", "seconds", "text"),
    [
        *((limit, None, 5, "a limit from 0.01 to the 8 cores") for limit in (0.001, 9, "-Infinity")),
        *((1, None, seconds, "'lease_seconds' to be from 0") for seconds in (-1, 1e9)),
        *((0.5, request, seconds, "a request from 0.01 to the 8 cores")
          for request in (0, 0.001, 9, "Infinity") for seconds in (None, 0, 5)),
        *((None, None, seconds, "nothing is to be changed") for seconds in (None, 0, 5)),
    ],
)  # fmt: skip
def test_a_change_has_bounds_and_is_done_whole_or_not_at_all(node, task, limit, request_, seconds, text):
    node.run(task("t1"))
    with pytest.raises(HTTPError, match=text) as refused:
        node.change("t1", limit, request_, seconds)
    assert refused.value.status == 400 and not node.limits and not node.weights


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_only_cores_can_be_changed(node, task, part):
    node.run(task("t1"))
    with pytest.raises(BadMessage, match=f"{part}.cpus"):
        node.change("t1", seconds=5, **{part: {"mem": {"value": 1}}})


def test_an_answer_has_limit_and_weight_as_they_are_now_and_until_when(node, task):
    node.run(task("t1", cpus=2))
    container = identity(node.container("t1").id)
    answer = node.change("t1", "Infinity", 0.5, 30)
    until = answer.pop("until")
    assert until["nanoseconds"] == pytest.approx((node.now + 30) * 1e9)
    now = {"container_id": container, "limits": {"cpus": {"value": "Infinity"}}, "requests": {"cpus": {"value": 0.5}}}
    assert answer == now
    (found,) = ask(node, "GET_CONTAINERS")["get_containers"]["containers"]
    assert "cpus_limit" not in found["resource_statistics"]
    assert node.change("t1", request=1) == now | {"requests": {"cpus": {"value": 1.0}}}
    back = node.change("t1", 1, seconds=0)
    assert back["limits"] == {"cpus": {"value": 2.0}} and back["requests"] == {"cpus": {"value": 1.0}}


def test_changes_are_for_writers():
    assert all(needs_write({"type": kind}) for kind in CHANGES) and not needs_write({"type": [CHANGES[0]]})


def test_memory_is_held_and_signals_are_sent(node, task):
    node.run(task("t1"))
    container = node.container("t1").id
    for memory in (1 << 30, "Infinity"):
        ask(node, "ASA_HOLD_MEMORY", container_id=identity(container), memory_bytes=memory)
    ask(node, "ASA_SIGNAL_CONTAINER", container_id=identity(container), signal="USR1")
    held = [HoldMemory(container, 1 << 30), HoldMemory(container, None)]
    assert node.told == [*held, SignalContainer(container, signal.SIGUSR1)]


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("ASA_HOLD_MEMORY", {"memory_bytes": 0}, "expected 'memory_bytes' above 0, found 0"),
        ("ASA_SIGNAL_CONTAINER", {"signal": "KILL"}, "expected 'signal' to be one that a program can handle"),
        ("ASA_SIGNAL_CONTAINER", {"signal": "usr1"}, "expected 'signal' .* found 'usr1'"),
    ],
)
def test_what_cannot_be_told_a_container_is_refused(node, task, kind, asked, words):
    node.run(task("t1"))
    with pytest.raises(HTTPError, match=words):
        ask(node, kind, container_id=identity(node.container("t1").id), **asked)
    assert node.told == []


@pytest.mark.parametrize(
    ("kind", "status"), [*((kind, 404) for kind in CHANGES), ("LAUNCH_NESTED_CONTAINER_SESSION", 501), (None, 400)]
)
def test_other_calls_and_containers_are_refused(node, kind, status):
    with pytest.raises(HTTPError) as refused:
        ask(node, kind, container_id=identity("c1")) if kind else node.agent.operate({}, lambda _: None, node.now)
    assert refused.value.status == status


# ------------------------------------------------------- wire


def test_what_an_agent_answers(new_node: Any, task: Any, executor: Any) -> None:
    node, rng, answered = new_node(), random.Random(1), Counter[str]()
    node.register()
    node.run(task("t1"), task("t2"))
    node.run(task("t3", resources=to_json(scalars(cpus=1), "*")), executor=executor("e1"))
    for owner in ("t1", "t2", "e1"):
        node.start(owner)
    node.exit("t2")
    kinds = sorted({*API.enums["agent.Call.Type"], *QUERIES})
    for kind in kinds * 10:
        payload = API.messages["agent.Call"].get(kind.lower())
        words = ("t1", "e1", *node.agent.state.instances)
        call = {"type": kind} | ({} if payload is None else {kind.lower(): made(payload.type, rng, words)})
        try:
            answer, effects = node.agent.operate(call, lambda container: None, node.now)
        except (HTTPError, BadMessage):
            continue
        node.do(effects)
        check("agent.Response", decode(encode(answer)))
        answered[kind] += 1
    assert set(QUERIES) | {"GET_CONTAINERS"} <= answered.keys()
