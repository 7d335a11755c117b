"""Custom executors: how they start, subscribe, get and report tasks, and end."""

from __future__ import annotations

import pytest

from asa.web.errors import HTTPError
from executors.mesos.agent.state import LimitCpu, StopContainer
from executors.mesos.codec import BadMessage
from executors.mesos.messages import base64_of, identity, nanoseconds


def kinds(events):
    return [event["type"] for event in events]


def test_tasks_wait_until_their_executor_has_subscribed(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.run(task("t2"), executor=executor())
    assert len(node.running) == 1
    pid = node.start("e1")
    events = node.subscribe()
    said = events[0]["subscribed"]
    assert said["executor_info"]["executor_id"] == identity("e1")
    assert said["executor_info"]["framework_id"] == said["framework_info"]["id"] == identity("F1")
    assert said["agent_info"]["id"] == identity("S1") and said["agent_info"]["hostname"] == "n1"
    assert said["container_id"] == identity(node.container("e1").id)
    assert [event["launch"]["task"]["task_id"]["value"] for event in events[1:]] == ["t1", "t2"]
    node.run(task("t3"), executor=executor())
    assert events[-1]["launch"]["task"]["task_id"] == identity("t3")
    node.update("t1", "TASK_RUNNING")
    assert node.updates() == [("t1", "TASK_RUNNING")]
    assert node.last["container_status"] == {"container_id": said["container_id"], "executor_pid": pid}
    assert (node.last["agent_id"], node.last["executor_id"]) == (identity("S1"), identity("e1"))


def test_the_cpu_limit_follows_the_tasks(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=0.5))
    container = node.container("e1")
    assert (container.cpus, container.cpus_limit, container.memory) == (1.5, 1.5, 1024 << 20)
    node.run(task("t2", cpus=2, limits={"cpus": {"value": 3}}), executor=executor())
    assert node.limits == [LimitCpu(container.id, 4.5)]
    node.subscribe()
    node.update("t1", "TASK_FINISHED")
    assert node.limits[-1] == LimitCpu(container.id, 3.5)
    node.run(task("t3", limits={"cpus": {"value": "Infinity"}}), executor=executor())
    assert node.limits[-1] == LimitCpu(container.id, None)
    node.update("t2", "TASK_FINISHED")
    node.update("t3", "TASK_FINISHED")
    assert node.limits[-1] == LimitCpu(container.id, 0.5) and not node.stops  # an idle executor stays


def test_the_cpu_limit_is_that_of_the_tasks_after_a_restart(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=0.5))
    container = node.container("e1").id
    node.start("e1")
    node.subscribe()
    node.run(task("t2", cpus=0.1), task("t3", limits={"cpus": {"value": "Infinity"}}), executor=executor())
    node.update("t3", "TASK_FINISHED")
    node.limits.clear()  # as if the agent had died before the last one
    node.restart()
    node.register()
    assert node.limits == [LimitCpu(container, 1.6)]
    node.subscribe(tasks=["t2"])
    node.update("t2", "TASK_FINISHED")
    assert node.limits[-1] == LimitCpu(container, 1.5)


def test_an_executor_that_does_not_subscribe_is_ended(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.wake(node.now + 59.9)
    assert not node.stops
    node.wake(node.now + 0.2)
    assert node.stops == [StopContainer(node.container("e1").id, 0.0)]
    assert node.updates() == []
    node.exit("e1", -9)
    assert node.updates() == [("t1", "TASK_FAILED")]
    assert node.last["reason"] == "REASON_EXECUTOR_REGISTRATION_TIMEOUT"
    gone = {"framework_id": identity("F1"), "executor_id": identity("e1"), "status": 9}
    assert node.ups[-1] == {"type": "EXITED_EXECUTOR", "exited_executor": gone}


def test_an_executor_that_ends_fails_its_tasks(running):
    running.exit("e1", 3)
    assert running.updates() == [("t1", "TASK_FAILED")]
    assert running.last["reason"] == "REASON_EXECUTOR_TERMINATED" and "status 3" in running.last["message"]
    assert running.ups[-1]["exited_executor"]["status"] == 3 << 8
    assert running.sent["s1"][-1] == {"type": "CLOSED"}
    with pytest.raises(HTTPError, match="cannot be found"):
        running.subscribe()
    running.acknowledge("t1")
    assert set(running.journal) == {("agent", "id")}


def test_an_executor_that_cannot_be_started_fails_its_tasks(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.exit("e1", None, "no such file")
    assert node.updates() == [("t1", "TASK_FAILED")]
    assert node.last["reason"] == "REASON_CONTAINER_LAUNCH_FAILED"
    assert node.ups[-1]["exited_executor"]["status"] == -1


def test_messages_go_both_ways(running):
    running.heard("MESSAGE", framework_id=identity("F1"), executor_id=identity("e1"), data="aGk=")
    assert running.sent["s1"][-1] == {"type": "MESSAGE", "message": {"data": "aGk="}}
    running.call("MESSAGE", data="aG8=")
    said = {"framework_id": identity("F1"), "executor_id": identity("e1"), "data": "aG8="}
    assert running.ups[-1] == {"type": "MESSAGE", "message": said}
    with pytest.raises(BadMessage, match="base64"):
        running.call("MESSAGE", data="?")
    running.call("HEARTBEAT")
    with pytest.raises(HTTPError, match="'KILL' is no call"):
        running.call("KILL")


def test_an_executor_is_sent_heartbeats(running):
    running.update("t1", "TASK_RUNNING")
    running.acknowledge("t1")
    running.wake(running.now + 1800)
    assert kinds(running.sent["s1"])[-1] == "HEARTBEAT"


def test_an_acknowledgement_is_passed_to_the_executor(running):
    uuid = running.update("t1", "TASK_RUNNING")
    assert kinds(running.sent["s1"])[-1] == "LAUNCH"
    running.acknowledge("t1")
    assert running.sent["s1"][-1] == {"type": "ACKNOWLEDGED", "acknowledged": {"task_id": identity("t1"), "uuid": uuid}}


def test_an_update_that_comes_twice_is_taken_once(running):
    running.update("t1", "TASK_RUNNING", uuid=5)
    running.update("t1", "TASK_RUNNING", uuid=5)
    assert running.updates() == [("t1", "TASK_RUNNING")]
    running.acknowledge("t1")
    before = len(running.sent["s1"])
    running.update("t1", "TASK_RUNNING", uuid=5)
    assert running.updates() == [] and kinds(running.sent["s1"][before:]) == ["ACKNOWLEDGED"]


def test_updates_after_a_tasks_end_are_passed_over(running):
    running.update("t1", "TASK_FINISHED")
    running.update("t1", "TASK_RUNNING")
    assert running.updates() == [("t1", "TASK_FINISHED")]
    running.acknowledge("t1")
    running.update("t1", "TASK_FAILED")
    running.update("never", "TASK_RUNNING")
    assert running.updates() == [] and kinds(running.sent["s1"])[-2:] == ["ACKNOWLEDGED"] * 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"uuid": "AAAA"}, "16 bytes, found 3"),
        ({"state": "TASK_UNREACHABLE"}, "that an executor can report"),
        ({"state": "TASK_STAGING"}, "that an executor can report"),
        ({"source": "SOURCE_MASTER"}, "SOURCE_EXECUTOR"),
        ({"executor_id": {"value": "e2"}}, "expected 'executor_id' to be 'e1'"),
        ({"task_id": "t1"}, "task_id"),
        ({"data": "?"}, "base64"),
    ],
)
def test_an_update_must_make_sense(running, changes, text):
    with pytest.raises(BadMessage, match=text):
        running.update("t1", "TASK_RUNNING", wrong=changes)
    assert running.updates() == []


def test_an_executor_cannot_flood_the_agent(running, monkeypatch):
    monkeypatch.setattr("executors.mesos.agent.api.PENDING_MOST", 3)
    for _ in range(3):
        running.update("t1", "TASK_RUNNING")
    with pytest.raises(HTTPError) as refused:
        running.update("t1", "TASK_RUNNING")
    assert refused.value.status == 429


def test_data_of_an_executor_have_bounds(running, monkeypatch):
    monkeypatch.setattr("executors.mesos.agent.api.DATA_MOST", 2)
    for kind in ("MESSAGE", "UPDATE"):
        with pytest.raises(HTTPError, match="at most 2 bytes") as refused:
            running.call("MESSAGE", data="AAAA") if kind == "MESSAGE" else running.update(
                "t1", "TASK_RUNNING", data="AAAA"
            )
        assert refused.value.status == 413
    running.update("t1", "TASK_RUNNING", data="AAA=")


def test_a_kill_is_the_executors_to_carry_out(running):
    policy = {"grace_period": nanoseconds(1)}
    running.kill("t1", kill_policy=policy)
    killed = {"task_id": identity("t1"), "kill_policy": policy}
    assert running.sent["s1"][-1] == {"type": "KILL", "kill": killed} and not running.stops
    running.update("t1", "TASK_KILLED")
    assert running.updates() == [("t1", "TASK_KILLED")]


def test_a_task_that_its_executor_has_not_received_is_killed_at_once(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.run(task("t2"), executor=executor())
    node.start("e1")
    node.kill("t1")
    assert node.updates() == [("t1", "TASK_KILLED")]
    assert node.last["reason"] == "REASON_TASK_KILLED_DURING_LAUNCH" and not node.stops
    node.kill("t2")
    assert [stop.id for stop in node.stops] == [node.container("e1").id]  # nothing is left for it to do
    assert kinds(node.subscribe()) == ["SHUTDOWN", "CLOSED"]


def test_an_executor_is_asked_to_end_and_then_ended(running):
    ids = {"framework_id": identity("F1"), "executor_id": identity("e1")}
    running.heard("SHUTDOWN_EXECUTOR", **ids)
    running.heard("SHUTDOWN_EXECUTOR", **ids)
    assert kinds(running.sent["s1"])[-2:] == ["LAUNCH", "SHUTDOWN"] and not running.stops
    running.wake(running.now + 5.0)
    assert running.stops == [StopContainer(running.container("e1").id, 0.0)]
    running.exit("e1", -9)
    assert running.updates() == [("t1", "TASK_FAILED")]


def test_no_task_goes_to_an_executor_that_is_about_to_end(running, task, executor):
    running.heard("SHUTDOWN_EXECUTOR", framework_id=identity("F1"), executor_id=identity("e1"))
    running.run(task("t2"), executor=executor(), capabilities=[{"type": "PARTITION_AWARE"}])
    assert running.updates() == [("t2", "TASK_DROPPED")]
    running.exit("e1", 0)
    running.run(task("t3"), executor=executor())
    assert len(running.running) == 1  # and a new one for those that come later


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"command": {}}, "'value' to be present"),
        ({"command": {"value": "a", "user": "root"}}, "not as 'root'"),
        ({"shutdown_grace_period": 5}, "shutdown_grace_period"),
        ({"type": 5}, "type"),
        ({"type": "DEFAULT"}, "default executors are not supported"),
        ({"resources": 5}, "resources"),
    ],
)
def test_an_executor_that_cannot_run_here_is_an_error(node, task, executor, changes, text):
    node.run(task("t1"), executor=executor(**changes))
    assert node.updates() == [("t1", "TASK_ERROR")] and not node.running
    assert text in node.last["message"]
    assert node.register()["executors"] == []


def test_its_own_grace_period_counts(node, task, executor):
    node.run(task("t1"), executor=executor(shutdown_grace_period=nanoseconds(0.25)))
    assert node.container("e1").environment["MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD"] == "250ms"
    node.subscribe()
    node.heard("SHUTDOWN_EXECUTOR", framework_id=identity("F1"), executor_id=identity("e1"))
    node.wake(node.now + 0.25)
    assert len(node.stops) == 1


# ------------------------------------------------------- connections that break


def test_an_executor_that_subscribes_again_is_sent_what_it_has_missed(running, task, executor):
    running.update("t1", "TASK_RUNNING")
    running.do(running.agent.closed("s1", running.now))
    running.run(task("t2"), executor=executor())
    running.kill("t1")
    events = running.subscribe(stream="s2", unacknowledged_tasks=[{"task_id": identity("t1")}])
    assert kinds(events) == ["SUBSCRIBED", "LAUNCH", "KILL"]
    assert events[1]["launch"]["task"]["task_id"] == identity("t2")
    running.wake(running.now + 1000)
    assert not running.stops


def test_a_launch_that_was_lost_is_sent_again(running):
    running.do(running.agent.closed("s1", running.now))
    assert kinds(running.subscribe(stream="s2")) == ["SUBSCRIBED", "LAUNCH"]
    running.do(running.agent.closed("s2", running.now))
    listed = [{"task_id": identity("t1")}]
    assert kinds(running.subscribe(stream="s3", unacknowledged_tasks=listed)) == ["SUBSCRIBED"]


def test_a_task_that_was_killed_before_it_arrived_is_never_launched(running):
    running.do(running.agent.closed("s1", running.now))
    running.kill("t1")
    assert kinds(running.subscribe(stream="s2")) == ["SUBSCRIBED"]
    assert running.updates() == [("t1", "TASK_KILLED")]


def test_updates_come_with_a_new_subscription(running):
    running.do(running.agent.closed("s1", running.now))
    status = {"task_id": identity("t1"), "state": "TASK_RUNNING", "uuid": base64_of(bytes(16))}
    events = running.subscribe(stream="s2", unacknowledged_updates=[{"status": status}, {"status": {}}, 5])
    assert kinds(events) == ["SUBSCRIBED"]  # it has the task
    assert running.updates() == [("t1", "TASK_RUNNING")]
    running.subscribe(stream="s3", unacknowledged_updates=[{"status": status}])
    assert running.updates() == [] and running.sent["s2"][-1] == {"type": "CLOSED"}


def test_an_executor_that_does_not_subscribe_again_is_ended(running):
    running.update("t1", "TASK_RUNNING")
    running.acknowledge("t1")
    running.updates()
    running.do(running.agent.closed("s1", running.now))
    with pytest.raises(HTTPError):
        running.call("HEARTBEAT")
    running.wake(running.now + 900)
    assert running.stops == [StopContainer(running.container("e1").id, 0.0)]
    running.exit("e1", -9)
    assert running.updates() == [("t1", "TASK_FAILED")]
    assert running.last["reason"] == "REASON_EXECUTOR_REREGISTRATION_TIMEOUT"


def test_an_older_stream_that_breaks_late_is_of_no_matter(running):
    running.subscribe(stream="s2", unacknowledged_tasks=[{"task_id": identity("t1")}])
    running.do(running.agent.closed("s1", running.now))
    running.call("HEARTBEAT")
    assert running.agent.state.streams == {"s2": ("F1", "e1")}


def test_a_framework_that_is_gone_takes_its_executors_with_it(running):
    running.update("t1", "TASK_RUNNING")
    running.heard("SHUTDOWN_FRAMEWORK", framework_id=identity("F1"))
    assert kinds(running.sent["s1"])[-1] == "SHUTDOWN"
    running.updates()
    running.exit("e1", 0)
    assert running.updates() == [("t1", "TASK_KILLED")] and set(running.journal) == {("agent", "id")}
