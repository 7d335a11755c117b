"""Command tasks: launched, limited, killed, ended; their updates, their leases, and how the agent ends."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.agent.state import OUT_OF_MEMORY, HoldMemory, LimitCpu, StopContainer, WeighCpu
from executors.mesos.agent.task_info import variables
from executors.mesos.codec import BadMessage
from executors.mesos.messages import base64_of, identity, message, nanoseconds
from executors.mesos.resources import scalars, to_json


def test_a_command_runs_and_finishes(node, task):
    node.run(task("t1", cpus=2, mem=64, command={"value": "echo $A", "environment": _variables(A="b")}))
    container = node.container("t1")
    assert container.argv == ("/bin/sh", "-c", "echo $A")
    assert (container.cpus, container.cpus_limit, container.memory) == (2.0, 2.0, 64 << 20)
    assert container.environment["A"] == "b" and container.environment["PATH"] == "/bin"
    assert node.updates() == []
    pid = node.start("t1")
    assert node.updates() == [("t1", "TASK_RUNNING")]
    assert node.last["container_status"] == {"container_id": identity(container.id), "executor_pid": pid}
    assert (node.last["agent_id"], node.last["executor_id"]) == (identity("S1"), identity("t1"))
    assert node.last["source"] == "SOURCE_AGENT" and node.last["timestamp"] == node.now
    node.acknowledge("t1")
    node.exit("t1", 0)
    assert node.updates() == [("t1", "TASK_FINISHED")] and not node.running
    node.acknowledge("t1")
    assert set(node.journal) == {("agent", "id")}  # nothing is left
    assert node.agent.state.completed[0]["state"] == "TASK_FINISHED"


def test_the_environment_is_that_of_mesos(node, task):
    node.run(task("t1"), checkpoint=False)
    container = node.container("t1")
    path = f"/sandboxes/slaves/S1/frameworks/F1/executors/t1/runs/{container.id}"
    assert container.sandbox == path
    assert container.environment == {
        "PATH": "/bin",
        "MESOS_FRAMEWORK_ID": "F1",
        "MESOS_EXECUTOR_ID": "t1",
        "MESOS_DIRECTORY": path,
        "MESOS_SANDBOX": path,
        "MESOS_SLAVE_ID": "S1",
        "MESOS_SLAVE_PID": "slave(1)@127.0.0.1:5051",
        "MESOS_AGENT_ENDPOINT": "127.0.0.1:5051",
        "MESOS_HTTP_COMMAND_EXECUTOR": "0",
        "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "5secs",
        "LIBPROCESS_PORT": "0",
    }
    node.run(task("t2"), checkpoint=True)
    found = node.container("t2").environment
    assert (found["MESOS_CHECKPOINT"], found["MESOS_RECOVERY_TIMEOUT"]) == ("1", "900secs")


def test_another_agents_variables_are_not_inherited(new_node, task):
    node = new_node(environment={"MESOS_CHECKPOINT": "1", "LIBPROCESS_IP": "::", "HOME": "/home/me"})
    node.register()
    node.run(task("t1"))
    found = node.container("t1").environment
    assert found["HOME"] == "/home/me" and not {"MESOS_CHECKPOINT", "LIBPROCESS_IP"} & found.keys()


def test_secrets_come_by_value_only(node, task):
    secret = {"name": "KEY", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": base64_of(b"open")}}}
    node.run(task("t1", command={"value": "true", "environment": {"variables": [secret]}}))
    assert node.container("t1").environment["KEY"] == "open"
    secret = secret | {"secret": {"type": "REFERENCE", "reference": {"name": "x"}}}
    node.run(task("t2", command={"value": "true", "environment": {"variables": [secret]}}))
    assert node.updates() == [("t2", "TASK_ERROR")] and "by reference" in node.last["message"]


@pytest.mark.parametrize(
    ("code", "reason", "state", "why", "text"),
    [
        (0, "", "TASK_FINISHED", None, "Command exited with status 0"),
        (3, "", "TASK_FAILED", None, "Command exited with status 3"),
        (-9, "", "TASK_FAILED", None, "Command terminated with signal Killed"),
        (-9, OUT_OF_MEMORY, "TASK_FAILED", OUT_OF_MEMORY, "signal Killed: out of memory, its limit is 64 MiB"),
        (0, OUT_OF_MEMORY, "TASK_FINISHED", None, "Command exited with status 0"),
        (None, "not known", "TASK_FAILED", None, "Command ended in an unknown way: not known"),
    ],
)
def test_the_end_of_a_command_is_reported(node, task, code, reason, state, why, text):
    node.run(task("t1"))
    node.start("t1")
    node.acknowledge("t1")
    node.updates()
    node.exit("t1", code, reason)
    assert node.updates() == [("t1", state)]
    assert text in node.last["message"] and node.last.get("reason") == why


def test_a_command_that_cannot_be_started_has_failed(node, task):
    node.run(task("t1"))
    node.exit("t1", None, "no such directory")
    assert node.updates() == [("t1", "TASK_FAILED")] and not node.running
    assert node.last["reason"] == "REASON_CONTAINER_LAUNCH_FAILED" and node.last["message"] == "no such directory"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"command": {"value": ""}}, "must not be empty"),
        ({"command": {"value": "a", "user": "root"}}, "'me' here, not as 'root'"),
        ({"command": {"value": "a", "uris": [{"value": "http://h/x"}]}}, "does not fetch 'uris'"),
        ({"command": {"shell": False, "value": "/bin/a", "arguments": ["a", 5]}}, "arguments of a command to be texts"),
        ({"container": {"type": "DOCKER"}}, "images and volumes are not supported"),
        ({"health_check": {}}, "does not carry out a 'health_check'"),
        ({"max_completion_time": {"nanoseconds": 1}}, "does not carry out a 'max_completion_time'"),
        ({"limits": {"cpus": {"value": -1}}}, "must not be negative"),
    ],
)
def test_tasks_that_an_agent_cannot_run_are_an_error(node, task, changes, text):
    node.run(task("t1", **changes))
    assert node.updates() == [("t1", "TASK_ERROR")] and not node.running
    assert node.last["reason"] == "REASON_TASK_INVALID" and text in node.last["message"]
    node.acknowledge("t1")
    assert set(node.journal) == {("agent", "id")}


def test_tasks_of_other_users_are_refused(node, task, new_node):
    node.run(task("t1"), user="you")
    assert node.updates() == [("t1", "TASK_ERROR")] and "not as 'you'" in node.last["message"]
    anybody = new_node(user=None)
    anybody.register()
    anybody.run(task("t1"), user="you")
    assert list(anybody.running)


def test_a_command_may_do_without_a_shell(node, task):
    node.run(task("t1", command={"shell": False, "value": "/bin/ls", "arguments": ["ls", "-l"]}))
    assert node.container("t1").argv == ("/bin/ls", "-l")


@pytest.mark.parametrize(
    ("quotas", "limits", "cpus", "memory"),
    [
        (True, {}, 2.0, 64 << 20),
        (False, {}, None, 64 << 20),
        (True, {"cpus": {"value": 3}, "mem": {"value": 128}}, 3.0, 128 << 20),
        (False, {"cpus": {"value": 3}}, 3.0, 64 << 20),
        (True, {"cpus": {"value": "Infinity"}, "mem": {"value": "Infinity"}}, None, None),
        (True, {"cpus": {"value": 0}}, 0.01, 64 << 20),
    ],
)
def test_limits_are_what_was_asked_for(new_node, task, quotas, limits, cpus, memory):
    node = new_node(quotas=quotas)
    node.register()
    node.run(task("t1", cpus=2, mem=64, limits=limits))
    container = node.container("t1")
    assert (container.cpus_limit, container.memory) == (cpus, memory)


def test_a_killed_task_is_killed_whatever_it_exits_with(node, task):
    node.run(task("t1"))
    node.start("t1")
    node.kill("t1")
    assert node.stops == [StopContainer(node.container("t1").id, 3.0)]
    node.kill("t1")
    assert len(node.stops) == 1
    node.kill("t1", kill_policy={"grace_period": nanoseconds(0.5)})  # in more of a hurry
    assert node.stops[1].grace_s == 0.5
    node.updates()
    node.acknowledge("t1")
    node.exit("t1", 0)
    assert node.updates() == [("t1", "TASK_KILLED")]


def test_a_task_has_a_grace_period_of_its_own(node, task):
    node.run(task("t1", kill_policy={"grace_period": nanoseconds(7)}))
    node.kill("t1")
    assert node.stops[0].grace_s == 7.0
    node.start("t1")  # the start was under way
    assert node.updates() == []
    node.exit("t1", -15)
    assert node.updates() == [("t1", "TASK_KILLED")]


def test_a_command_task_is_its_own_executor(node, task):
    node.run(task("t1"))
    node.start("t1")
    ids = {"framework_id": identity("F1"), "executor_id": identity("t1")}
    node.heard("MESSAGE", **ids, data="")
    assert not node.stops
    node.heard("SHUTDOWN_EXECUTOR", **ids)
    assert len(node.stops) == 1
    node.exit("t1", -15)
    assert node.agent.state.task("F1", "t1").state == "TASK_KILLED"


def test_killing_is_reported_to_frameworks_that_declare_the_state(node, task):
    node.run(task("t1"), capabilities=[{"type": "TASK_KILLING_STATE"}])
    node.start("t1")
    node.acknowledge("t1")
    node.updates()
    node.kill("t1")
    assert node.updates() == [("t1", "TASK_KILLING")]


def test_a_task_that_is_known_is_not_launched_again(node, task):
    node.run(task("t1"))
    node.run(task("t1"))
    node.exit("t1", 0)
    node.run(task("t1"))  # it has ended, but that is not acknowledged
    assert not node.running


def test_a_framework_that_is_gone_leaves_nothing(node, task):
    node.run(task("t1"))
    node.run(task("t2"))
    node.start("t1")
    node.exit("t2", 1)
    node.updates()
    node.heard("SHUTDOWN_FRAMEWORK", framework_id=identity("F1"))
    assert [stop.id for stop in node.stops] == [node.container("t1").id]
    node.exit("t1", -15)
    assert node.updates() == [("t1", "TASK_KILLED")] and set(node.journal) == {("agent", "id")}
    assert not node.agent.state.frameworks
    assert node.agent.due() == float("inf")


def _variables(**values: str) -> dict[str, object]:
    return {"variables": [{"name": name, "value": value} for name, value in values.items()]}


def _gpus(count):
    return [*to_json(scalars(cpus=1, gpus=count), "*")]


def test_each_container_sees_its_own_gpus(new_node, task, executor):
    node = new_node(gpus=("3", "5", "GPU-7"), environment={"CUDA_VISIBLE_DEVICES": "3,5,GPU-7"})
    node.register()

    def seen(owner):
        return node.container(owner).environment["CUDA_VISIBLE_DEVICES"]

    node.run(task("t1", resources=_gpus(1)), task("t2", resources=_gpus(2)), task("t3"))
    assert [seen(name) for name in ("t1", "t2", "t3")] == ["3", "5,GPU-7", "-1"]
    node.start("t1")
    node.start("t2")
    node.exit("t2")
    node.restart()
    node.register()
    node.run(task("t4", resources=_gpus(0.5)))
    assert seen("t4") == "5"
    given = {"executor_id": identity("e1"), "resources": _gpus(1)}
    node.run(task("t5", resources=_gpus(1)), executor=executor("e1", **given))
    assert seen("e1").split(",")[0] == "GPU-7" and len(set(seen("e1").split(","))) == 2, "its own, and its first task's"


def test_gpus_without_names_are_all_seen(new_node, task):
    node = new_node(environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    node.register()
    node.run(task("t1", resources=_gpus(1)))
    assert node.container("t1").environment["CUDA_VISIBLE_DEVICES"] == "0,1"


# ------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"name": "", "value": "a"}, "'' cannot be set"),
        ({"name": "A=B", "value": "a"}, "'A=B' cannot be set"),
        ({"name": "A", "value": "a\0b"}, "'A' cannot be set: it has no name, a '=' or a zero byte"),
        ({"value": "a"}, "'name'"),
        (
            {"name": "KEY", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": base64_of(b"\xff")}}},
            "secret of environment variable 'KEY' to be a text in UTF-8",
        ),
    ],
)
def test_what_cannot_be_a_variable_is_named(item: Any, text: str) -> None:
    with pytest.raises(BadMessage, match=text):
        variables({"environment": {"variables": [item]}})


# ------------------------------------------------------- updates


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


def test_only_the_acknowledgement_of_the_update_that_was_sent_counts(running):
    running.update("t1", "TASK_RUNNING", uuid=1)
    running.update("t1", "TASK_FINISHED", uuid=2)
    for uuid in (2, 3):
        ids = {"framework_id": identity("F1"), "task_id": identity("t1")}
        running.heard("ACKNOWLEDGE", **ids, uuid=base64_of(uuid.to_bytes(16, "big")))
        running.heard("ACKNOWLEDGE", **ids | {"task_id": identity("t2")}, uuid=base64_of(bytes(16)))
    assert len(running.agent.state.task("F1", "t1").pending) == 2


def test_an_update_that_is_not_acknowledged_is_sent_again_and_again(running):
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


def test_all_first_updates_are_sent_when_the_master_is_back(node, task):
    for name in ("t1", "t2", "t3"):
        node.run(task(name))
        node.start(name)
    node.acknowledge("t2")
    node.updates()
    node.do(node.agent.disconnected(node.now))
    node.exit("t2", 0)
    node.wake(node.now + 100)
    assert node.updates() == []  # there is no master
    node.register()
    assert node.updates() == [("t1", "TASK_RUNNING"), ("t2", "TASK_FINISHED"), ("t3", "TASK_RUNNING")]


def test_updates_carry_the_id_that_the_agent_has_now(node, task):
    node.run(task("t1"))
    node.start("t1")
    node.updates()
    node.register("S2")
    node.updates()
    assert node.last["agent_id"] == identity("S2")


def test_updates_outlive_a_restart(running):
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


# ------------------------------------------------------- leases


@pytest.fixture
def busy(node, task):
    """A node on which a task of two cores runs, of which nothing is to be done."""
    node.run(task("t1", cpus=2))
    node.start("t1")
    node.acknowledge("t1")
    return node


def test_limit_and_weight_have_leases_that_end_by_themselves(busy):
    container = busy.container("t1").id
    busy.change("t1", 0.5, seconds=20)
    busy.change("t1", request=4, seconds=30)
    assert (busy.limits, busy.weights) == ([LimitCpu(container, 0.5)], [WeighCpu(container, 4.0)])
    busy.wake(busy.now + 20)
    assert (busy.limits[1:], busy.weights[1:]) == ([LimitCpu(container, 2.0)], [])
    busy.change("t1", request=3, seconds=30)  # renewed, with another weight
    busy.wake(busy.now + 29)
    assert busy.weights[1:] == [WeighCpu(container, 3.0)]
    busy.wake(busy.now + 1)
    assert busy.weights[2:] == [WeighCpu(container, 2.0)] and busy.agent.due() == float("inf")


@pytest.mark.parametrize(("limit", "request_"), [(1, None), (None, 1), (1, 1)])
def test_a_lease_of_0_s_ends_what_it_names_at_once(busy, limit, request_):
    container = busy.container("t1").id
    busy.change("t1", 4, 0.5, 30)
    busy.change("t1", limit, request_, 0)
    assert busy.limits[1:] == ([] if limit is None else [LimitCpu(container, 2.0)])
    assert busy.weights[1:] == ([] if request_ is None else [WeighCpu(container, 2.0)])
    busy.change("t1", limit, request_, 0)
    busy.wake(busy.now + 30)
    assert (len(busy.limits), len(busy.weights)) == (2, 2), "each comes back once"


def test_a_change_for_good_ends_a_lease(busy):
    container = busy.container("t1").id
    busy.change("t1", 4, 4, 30)
    answer = busy.change("t1", 1, 0.5)
    assert "until" not in answer and busy.agent.due() == float("inf")
    assert (busy.limits[-1], busy.weights[-1]) == (LimitCpu(container, 1.0), WeighCpu(container, 0.5))
    busy.change("t1", 4, 4, 0)
    busy.wake(busy.now + 60)
    assert (len(busy.limits), len(busy.weights)) == (2, 2), "there is nothing to give back"
    busy.change("t1", 3, 3, 30)
    busy.wake(busy.now + 30)
    assert (busy.limits[-1], busy.weights[-1]) == (LimitCpu(container, 1.0), WeighCpu(container, 0.5))


@pytest.mark.parametrize("seconds", [None, 30])
def test_a_limit_can_be_lifted(busy, seconds):
    container = busy.container("t1").id
    assert busy.change("t1", "Infinity", seconds=seconds)["limits"] == {"cpus": {"value": "Infinity"}}
    assert busy.limits == [LimitCpu(container, None)] and busy.weights == []
    busy.wake(busy.now + 60)
    assert busy.limits[1:] == ([] if seconds is None else [LimitCpu(container, 2.0)])


def test_a_limit_for_good_outlasts_what_an_executors_tasks_ask_for(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=1))
    node.subscribe()
    container = node.container("e1").id
    node.change("e1", 0.5)
    node.run(task("t2", cpus=2), executor=executor())
    node.change("e1", request=3)  # which says nothing of the limit
    assert (node.limits, node.weights) == ([LimitCpu(container, 0.5)], [WeighCpu(container, 3.0)])
    node.change("e1", 2, seconds=10)
    node.wake(node.now + 10)
    assert node.limits[-1] == LimitCpu(container, 0.5)


def test_leases_of_a_container_that_ends_end_with_it(busy):
    busy.change("t1", 4, 0.5, 30)
    busy.exit("t1")
    busy.acknowledge("t1")
    busy.wake(busy.now + 60)
    assert (len(busy.limits), len(busy.weights)) == (1, 1) and busy.agent.due() == float("inf")


def _hold(node, memory, **lease):
    container = node.container("t1").id
    asked = {"container_id": identity(container), "memory_bytes": memory, **lease}
    node.do(node.agent.operate(message("ASA_HOLD_MEMORY", **asked), lambda _: None, node.now)[1])
    return container


def test_memory_is_held_for_as_long_as_it_is_renewed(busy):
    for _ in range(3):
        container = _hold(busy, 7, lease_seconds=5)
        busy.wake(busy.now + 4)
    assert busy.told == [HoldMemory(container, 7)] * 3
    busy.wake(busy.now + 1)
    assert busy.told[3:] == [HoldMemory(container, None)] and busy.agent.due() == float("inf")
    _hold(busy, 7, lease_seconds=5)
    _hold(busy, "Infinity")
    busy.wake(busy.now + 60)
    assert busy.told[4:] == [HoldMemory(container, 7), HoldMemory(container, None)]


def test_an_agent_that_is_started_again_holds_no_memory(busy):
    """Nothing says how long it was to be held."""
    container = _hold(busy, 7, lease_seconds=5)
    busy.restart()
    busy.wake(busy.now + 1)
    assert busy.told == [HoldMemory(container, 7), HoldMemory(container, None)]


def test_limits_change_before_the_container_has_started(node, task):
    node.run(task("t1", cpus=2))
    node.change("t1", 1, 0.5)
    container = node.container("t1").id
    assert (node.limits, node.weights) == ([LimitCpu(container, 1.0)], [WeighCpu(container, 0.5)])


# ------------------------------------------------------- departure


def test_everything_ends_before_the_allocation_does(new_node, task, executor):
    node = new_node(ends=5000.0)
    assert node.agent.due() == 5000.0 - 15.0, "5 s to end, and 10 s for the last updates"
    node.register()
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    events = node.subscribe()
    node.acknowledge("t1")
    node.updates()
    node.wake(4984.9)
    assert not node.stops
    node.wake(4985.0)
    assert node.stops == [StopContainer(node.container("t1").id, 5.0)] and events[-1] == {"type": "SHUTDOWN"}
    node.run(task("t3"))
    assert node.updates() == [("t3", "TASK_LOST")] and node.last["reason"] == "REASON_AGENT_DRAINING"
    node.acknowledge("t3")
    node.exit("t1", -15)
    node.exit("e1", 0)
    assert node.updates() == [("t1", "TASK_KILLED"), ("t2", "TASK_KILLED")]
    assert node.last["reason"] == "REASON_AGENT_DRAINING" and "allocation ends" in node.last["message"]
    assert node.code is None  # both are to be acknowledged
    node.acknowledge("t1")
    node.acknowledge("t2")
    assert node.code == 0 and node.ups[-1]["type"] == "UNREGISTER" and not node.journal


@pytest.mark.parametrize("exits", [False, True])
def test_updates_that_are_not_acknowledged_do_not_keep_it_beyond_its_allocation(new_node, task, exits):
    node = new_node(ends=5000.0)
    node.register()
    node.run(task("t1"))
    node.start("t1")
    node.wake(4994.9)
    if exits:
        node.exit("t1", -9)
    assert node.code is None
    node.wake(4995.0)
    assert node.code == 0 and not node.journal


@pytest.mark.parametrize("by", ["the master", "itself", "itself, with no master"])
def test_it_ends_what_runs_and_then_itself(node, task, by):
    node.run(task("t1"))
    node.start("t1")
    node.acknowledge("t1")
    if by == "the master":
        node.heard("SHUTDOWN", message="given up")
    else:
        node.do(node.agent.leave("given up", node.now, notified=by != "itself"))
    assert len(node.stops) == 1 and node.code is None
    node.exit("t1", -15)
    if by == "itself":
        assert node.code is None
        node.acknowledge("t1")
    assert node.code == 0 and not node.journal
    assert node.ups[-1] == {"type": "UNREGISTER", "unregister": {"reason": "given up"}}


@pytest.mark.parametrize(("margin_s", "begins"), [(60.0, 4940.0), (2.0, 4998.0), (None, math.inf)])
def test_the_margin_is_to_choose(new_node, task, margin_s, begins):
    node = new_node(ends=5000.0, margin_s=margin_s)
    assert node.agent.due() == begins
    node.register()
    node.run(task("t1"))
    node.start("t1")
    node.acknowledge("t1")
    node.wake(min(begins, 6000.0))
    assert bool(node.stops) == (margin_s is not None) and node.code is None
    node.exit("t1", 0)
    assert node.updates()[-1] == ("t1", "TASK_KILLED" if margin_s else "TASK_FINISHED")
    node.acknowledge("t1")
    assert node.code == (0 if margin_s else None)
