"""Command tasks: launched, limited, killed, ended."""

from __future__ import annotations

import pytest

from executors.mesos.agent.state import OUT_OF_MEMORY, SandboxFile, StopContainer
from executors.mesos.messages import base64_of, identity, nanoseconds
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
        "MESOS_ALLOCATION_ROLE": "*",
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
        (None, "nobody saw it", "TASK_FAILED", None, "Command ended in an unknown way: nobody saw it"),
    ],
)
def test_how_a_command_ended_is_told(node, task, code, reason, state, why, text):
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
        ({"command": {"value": "a", "uris": [{"value": "http://h/x"}]}}, "only absolute paths"),
        ({"command": {"value": "a", "uris": [{"value": "/a/b.tar.gz"}]}}, 'set "extract" to false'),
        ({"command": {"value": "a", "uris": [{"value": "/a/b", "output_file": "../c"}]}}, "file in the sandbox"),
        ({"command": {"shell": False, "value": "/bin/a", "arguments": ["a", 5]}}, "arguments of a command to be texts"),
        ({"container": {"type": "DOCKER"}}, "images and volumes are not supported"),
        ({"health_check": {}}, "does not carry out a 'health_check'"),
        ({"limits": {"cpus": {"value": -1}}}, "must not be negative"),
    ],
)
def test_what_an_agent_cannot_do_is_an_error(node, task, changes, text):
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


def test_files_come_into_the_sandbox(node, task):
    uris = [{"value": "file:///a/b"}, {"value": "/a/c.zip", "extract": False, "executable": True, "output_file": "d"}]
    node.run(task("t1", command={"shell": False, "value": "/bin/ls", "arguments": ["ls", "-l"], "uris": uris}))
    container = node.container("t1")
    assert container.files == (SandboxFile("/a/b", "b"), SandboxFile("/a/c.zip", "d", True))
    assert container.argv == ("/bin/ls", "-l")


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


def test_a_task_knows_how_long_it_may_take_to_end(node, task):
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


def test_frameworks_that_want_to_know_are_told_of_killing(node, task):
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
    node.run(task("t1"))  # it has ended, but nobody has acknowledged that
    assert not node.running


def test_a_task_that_takes_too_long_has_failed(node, task):
    node.run(task("t1", max_completion_time=nanoseconds(60)))
    node.start("t1")
    node.acknowledge("t1")
    node.updates()
    node.wake(node.now + 59.9)
    assert not node.stops
    node.wake(node.now + 0.2)
    assert len(node.stops) == 1
    node.exit("t1", -15)
    assert node.updates() == [("t1", "TASK_FAILED")]
    assert node.last["reason"] == "REASON_MAX_COMPLETION_TIME_REACHED"


def test_the_framework_is_gone(node, task):
    node.run(task("t1"))
    node.run(task("t2"))
    node.start("t1")
    node.exit("t2", 1)
    node.updates()
    node.heard("SHUTDOWN_FRAMEWORK", framework_id=identity("F1"))
    assert [stop.id for stop in node.stops] == [node.container("t1").id]
    node.exit("t1", -15)
    assert node.updates() == [] and set(node.journal) == {("agent", "id")}
    assert not node.agent.state.frameworks
    assert node.agent.due() == float("inf")


# ------------------------------------------------------- the agent's end


def test_everything_ends_before_the_allocation_does(new_node, task, executor):
    node = new_node(ends=5000.0)
    node.register()
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    events = node.subscribe()
    node.acknowledge("t1")
    node.updates()
    node.wake(4984.0)
    assert not node.stops
    node.wake(4985.0)
    assert [stop.id for stop in node.stops] == [node.container("t1").id] and events[-1] == {"type": "SHUTDOWN"}
    node.run(task("t3"))
    assert node.updates() == [("t3", "TASK_LOST")] and node.last["reason"] == "REASON_AGENT_DRAINING"
    node.acknowledge("t3")
    node.exit("t1", -15)
    node.exit("e1", 0)
    assert node.updates() == [("t1", "TASK_KILLED"), ("t2", "TASK_KILLED")]
    assert node.last["reason"] == "REASON_AGENT_DRAINING"
    assert node.code is None  # what has happened is to be acknowledged
    node.acknowledge("t1")
    node.acknowledge("t2")
    assert node.code == 0 and node.ups[-1]["type"] == "UNREGISTER" and not node.journal


def test_the_allocation_ends_whether_or_not_anybody_has_listened(new_node, task):
    node = new_node(ends=5000.0)
    node.register()
    node.run(task("t1"))
    node.start("t1")
    node.wake(4995.0)
    assert node.code == 0 and not node.journal


def test_leaves_when_it_is_told_to(node, task):
    node.do(node.agent.leave("it was asked to", node.now))
    assert node.code == 0 and node.ups[-1] == {"type": "UNREGISTER", "unregister": {"reason": "it was asked to"}}


def test_the_master_sends_it_away(node, task):
    node.run(task("t1"))
    node.start("t1")
    node.heard("SHUTDOWN", message="given up")
    assert len(node.stops) == 1 and node.code is None
    node.exit("t1", -15)
    assert node.code == 0 and not node.journal


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
    assert [seen(name) for name in ("t1", "t2", "t3")] == ["3", "5,GPU-7", ""]
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


def test_gpus_are_not_told_apart_unless_they_have_names(new_node, task):
    node = new_node(environment={"CUDA_VISIBLE_DEVICES": "0,1"})
    node.register()
    node.run(task("t1", resources=_gpus(1)))
    assert node.container("t1").environment["CUDA_VISIBLE_DEVICES"] == "0,1"
