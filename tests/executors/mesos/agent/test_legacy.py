"""The older GETs, of an agent that runs something."""

from __future__ import annotations

from executors.mesos.agent import legacy
from executors.mesos.codec import encode


def test_the_older_state_shows_what_runs_and_what_has_ended(node, task, executor):
    node.run(task("t1", cpus=2.0))
    node.start("t1")
    node.run(task("t2"), executor=executor() | {"name": "first"})
    node.start("e1")
    node.subscribe()
    node.update("t2", "TASK_FINISHED")
    node.run(task("t3", resources=5), executor=executor() | {"name": "first"})  # refused, and not acknowledged yet
    found = legacy.state(node.agent.state, node.options)
    encode(found)
    [framework] = found["frameworks"]
    assert (framework["id"], framework["name"], framework["user"]) == ("F1", "f", "me")
    command, custom = framework["executors"]
    assert (command["id"], command["type"], command["name"]) == ("t1", "COMMAND", "")
    assert command["container"] == node.container("t1").id and command["directory"] == node.container("t1").sandbox
    [running] = command["tasks"]
    assert (running["id"], running["state"], running["executor_id"]) == ("t1", "TASK_RUNNING", "")
    assert (running["resources"]["cpus"], running["slave_id"]) == (2.0, "S1")
    assert [status["state"] for status in running["statuses"]] == ["TASK_RUNNING"]
    assert (custom["id"], custom["type"], custom["name"], custom["tasks"]) == ("e1", "CUSTOM", "first", [])
    assert [(one["id"], one["state"]) for one in custom["completed_tasks"]] == [
        ("t2", "TASK_FINISHED"),
        ("t3", "TASK_ERROR"),
    ]
    assert custom["completed_tasks"][1]["resources"]["cpus"] == 0.0
