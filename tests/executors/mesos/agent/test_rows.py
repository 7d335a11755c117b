"""An agent that is started again on what the one before has kept."""

from __future__ import annotations

import pytest

from executors.mesos.agent.state import LimitCpu, StopContainer, WeighCpu
from executors.mesos.messages import identity, nanoseconds


def test_containers_that_still_run_go_on(node, task):
    node.run(task("t1"))
    pid = node.start("t1")
    container = node.container("t1").id
    node.acknowledge("t1")
    node.updates()
    node.restart()
    assert node.agent.recovered() == [(container, pid, pid + 7)]
    said = node.register()
    assert [item["state"] for item in said["tasks"]] == ["TASK_RUNNING"] and node.updates() == []
    assert node.stops == [] and list(node.running) == [container]
    node.exit("t1", 0)
    assert node.updates() == [("t1", "TASK_FINISHED")]


def test_what_has_ended_meanwhile_is_told(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    node.updates()
    node.restart()
    node.exit("t1", 3)
    node.exit("e1", None, "nobody saw it")
    node.register()
    assert node.updates() == [("t1", "TASK_RUNNING"), ("t2", "TASK_FAILED")]
    node.acknowledge("t1")
    assert node.updates() == [("t1", "TASK_FAILED")]
    node.acknowledge("t1")
    node.acknowledge("t2")
    assert set(node.journal) == {("agent", "id")}


def test_a_start_that_nobody_saw_has_failed(node, task, executor):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.run(task("t3"))
    node.start("t3")
    node.updates()
    node.restart()
    assert [item[0] for item in node.agent.recovered()] == [node.container("t3").id]
    node.wake(node.now)  # it wants to be woken at once
    node.register()
    assert node.updates() == [("t1", "TASK_FAILED"), ("t2", "TASK_FAILED"), ("t3", "TASK_RUNNING")]
    failed = node.agent.state.task("F1", "t1").pending[0]
    assert failed["reason"] == "REASON_CONTAINER_LAUNCH_FAILED"
    assert node.stops == [] and len(node.running) == 1


def test_an_agent_that_has_ended_for_good_leaves_nothing_whatever_still_runs(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.run(task("t2"))
    node.start("e1")
    node.do(node.agent.leave("done", node.now))
    node.wake(node.now + 1000.0)
    assert node.code == 0 and node.journal == {} and len(node.running) == 2


def test_executors_have_time_to_come_back(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.subscribe()
    node.update("t1", "TASK_RUNNING")
    node.restart()
    node.register()
    node.wake(node.now + 899)
    assert not node.stops
    events = node.subscribe(stream="s2")
    assert [event["type"] for event in events] == ["SUBSCRIBED"]
    node.wake(node.now + 10)
    assert not node.stops
    node.restart()
    node.wake(node.now + 900)
    assert node.stops == [StopContainer(node.container("e1").id, 0.0)]


def test_executors_that_had_not_subscribed_still_have_to(node, task, executor):
    node.run(task("t1"), executor=executor())
    node.start("e1")
    node.restart()
    node.kill("t1")
    node.wake(node.now + 60)
    assert [stop.id for stop in node.stops] == [node.container("e1").id]


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_about_to_end_is_ended(node, task, executor, gone):
    node.run(task("t1"))
    node.run(task("t2"), executor=executor())
    node.start("t1")
    node.start("e1")
    if gone:
        node.heard("SHUTDOWN_FRAMEWORK", framework_id=identity("F1"))
    else:
        node.kill("t1")
        node.heard("SHUTDOWN_EXECUTOR", framework_id=identity("F1"), executor_id=identity("e1"))
    node.stops.clear()
    node.updates()
    node.restart()
    said = node.register()
    assert {stop.id for stop in node.stops} == {node.container("t1").id, node.container("e1").id}
    node.exit("t1", 0)
    node.exit("e1", 0)
    if gone:
        assert said["tasks"] == said["executors"] == [] and node.updates() == []
        assert set(node.journal) == {("agent", "id")}
    else:
        assert node.agent.state.task("F1", "t1").state == "TASK_KILLED"


def test_a_lease_ends_though_the_agent_has_not_lived_through_it(node, task):
    node.run(task("t1", cpus=2))
    node.start("t1")
    container = node.container("t1").id
    asked = {"container_id": identity(container), "limits": {"cpus": {"value": 0.5}}, "lease_seconds": 30}
    node.do(node.agent.operate({"type": "ASA_UPDATE_LIMITS", "asa_update_limits": asked}, lambda _: None, node.now)[1])
    node.limits.clear()
    node.restart()
    node.wake(node.now + 29)
    assert node.limits == [LimitCpu(container, 0.5)], "in case that the agent had not come to it"
    node.wake(node.now + 1)
    assert node.limits[1:] == [LimitCpu(container, 2.0)]


def test_both_leases_go_on(node, task):
    node.run(task("t1", cpus=2))
    node.start("t1")
    container = node.container("t1").id
    node.change("t1", "Infinity", 0.25, 30)
    node.limits.clear(), node.weights.clear()
    node.restart()
    node.wake(node.now + 29)
    assert (node.limits, node.weights) == ([LimitCpu(container, None)], [WeighCpu(container, 0.25)])
    node.wake(node.now + 1)
    assert (node.limits[1:], node.weights[1:]) == ([LimitCpu(container, 2.0)], [WeighCpu(container, 2.0)])


@pytest.mark.parametrize(("limit", "cpus"), [(0.5, 0.5), ("Infinity", None)])
def test_what_was_changed_for_good_stays(node, task, limit, cpus):
    node.run(task("t1", cpus=2))
    node.start("t1")
    container = node.container("t1").id
    node.change("t1", limit, 0.25)
    node.limits.clear(), node.weights.clear()
    node.restart()
    node.wake(node.now)
    assert (node.limits, node.weights) == ([LimitCpu(container, cpus)], [WeighCpu(container, 0.25)])
    node.change("t1", 4, 4, 30)
    node.wake(node.now + 30)
    assert (node.limits[-1], node.weights[-1]) == (LimitCpu(container, cpus), WeighCpu(container, 0.25))


def test_a_limit_for_good_is_not_that_of_the_tasks_after_a_restart_either(node, task, executor):
    node.run(task("t1", cpus=1), executor=executor(cpus=0.5))
    container = node.container("e1").id
    node.start("e1")
    node.subscribe()
    node.change("e1", 0.7)
    node.limits.clear()
    node.restart()
    node.register()
    assert node.limits == [LimitCpu(container, 0.7)]
    node.run(task("t2", cpus=2), executor=executor())
    assert node.limits == [LimitCpu(container, 0.7)]


def test_time_limits_of_tasks_go_on(node, task):
    node.run(task("t1", max_completion_time=nanoseconds(60)))
    node.start("t1")
    node.wake(node.now + 30)
    node.restart()
    node.wake(node.now + 29)
    assert not node.stops
    node.wake(node.now + 1)
    assert len(node.stops) == 1


def test_nothing_is_done_by_an_agent_that_starts_for_the_first_time(new_node):
    node = new_node()
    assert node.agent.recovered() == [] and node.agent.due() == float("inf") and node.agent.state.id is None
