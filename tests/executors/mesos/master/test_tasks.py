"""Tasks: updates, acknowledgements, reconciliation."""

from __future__ import annotations

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.master.tasks import STATUSES_MOST
from executors.mesos.messages import identity, message
from tests.executors.mesos.master.world import World, task_info, uuid

# ---------------------------------------------------------------------- tasks


def launched(*tasks: str) -> tuple[World, str, str]:
    world = World()
    agent, framework = world.agent(), world.subscribe()
    world.start(framework, *(task_info(name, agent) for name in tasks or ("t",)))
    world.take(agent), world.take(framework)
    return world, agent, framework


def test_an_update_is_passed_on_as_often_as_it_comes_and_noted_once() -> None:
    world, agent, framework = launched()
    world.update(agent, framework, "t", "TASK_RUNNING", number=1)
    before = dict(world.journal)
    world.update(agent, framework, "t", "TASK_RUNNING", number=1)
    assert world.updates(framework) == [("t", "TASK_RUNNING")] * 2
    assert world.journal == before and len(world.state.frameworks[framework].tasks["t"].statuses) == 1


def test_an_update_whose_acknowledgement_was_lost_is_acknowledged_by_the_master() -> None:
    world, agent, framework = launched()
    first = world.update(agent, framework, "t", "TASK_RUNNING", number=1)
    world.acknowledge(framework, agent, "t", first)
    world.take(agent), world.take(framework)
    world.update(agent, framework, "t", "TASK_RUNNING", number=1)
    assert world.updates(framework) == [] and world.types(agent) == ["ACKNOWLEDGE"]
    last = world.update(agent, framework, "t", "TASK_FINISHED", number=2)
    world.acknowledge(framework, agent, "t", last)
    world.take(agent), world.take(framework)
    world.update(agent, framework, "t", "TASK_FINISHED", number=2)
    assert world.updates(framework) == [] and world.types(agent) == ["ACKNOWLEDGE"]


def test_an_update_older_than_the_end_is_not_sent_after_it() -> None:
    world, agent, framework = launched()
    for number in (1, 2):
        world.acknowledge(framework, agent, "t", world.update(agent, framework, "t", "TASK_RUNNING", number=number))
    last = world.update(agent, framework, "t", "TASK_FINISHED", number=3)
    world.take(framework)
    world.update(agent, framework, "t", "TASK_RUNNING", number=1)
    assert world.updates(framework) == []
    world.acknowledge(framework, agent, "t", last)
    assert not world.state.frameworks[framework].tasks


def test_resources_are_free_as_soon_as_the_task_has_ended() -> None:
    world, agent, framework = launched()
    world.update(agent, framework, "t", "TASK_STARTING", number=1)
    assert world.state.agents[agent].used
    world.take(framework)
    world.update(agent, framework, "t", "TASK_STARTING", "TASK_FINISHED", number=1)  # sent again, now more is known
    assert not world.state.agents[agent].used
    assert world.types(framework) == ["UPDATE", "OFFERS"]
    assert world.state.frameworks[framework].tasks["t"].state == "TASK_FINISHED"
    world.restart()
    assert not world.state.recovered[agent].used


def test_a_task_never_comes_back_to_life() -> None:
    world, agent, framework = launched()
    world.update(agent, framework, "t", "TASK_RUNNING", "TASK_FINISHED")
    world.update(agent, framework, "t", "TASK_RUNNING", "TASK_RUNNING")
    assert world.state.frameworks[framework].tasks["t"].state == "TASK_FINISHED" and not world.state.agents[agent].used


def test_an_acknowledgement_of_something_else_changes_nothing() -> None:
    world, agent, framework = launched()
    world.update(agent, framework, "t", "TASK_FINISHED", number=1)
    world.acknowledge(framework, agent, "t", uuid(99))
    assert world.state.frameworks[framework].tasks["t"].unacknowledged == uuid(1)
    other = world.agent()
    world.acknowledge(framework, other, "t", uuid(1))
    assert world.state.frameworks[framework].tasks["t"].unacknowledged == uuid(1)
    with pytest.raises(HTTPError, match="16 bytes"):
        world.acknowledge(framework, agent, "t", "AAAA")


@pytest.mark.parametrize("state", ["TASK_RUNNING", "TASK_FINISHED"])
def test_an_acknowledgement_while_the_agent_is_away_is_passed_on_later(state: str) -> None:
    world, agent, framework = launched()
    last = world.update(agent, framework, "t", state, number=1)
    world.cut(agent)
    world.acknowledge(framework, agent, "t", last)
    world.take(framework)
    here = {"task_id": identity("t"), "framework_id": identity(framework), "state": state, "status_update_uuid": last}
    here["statuses"] = [{"state": state, "uuid": last}]
    world.agent(agent, tasks=[here])
    world.update(agent, framework, "t", state, number=1)
    assert world.updates(framework) == [] and world.types(agent) == ["ACKNOWLEDGE"]
    assert list(world.state.frameworks[framework].tasks) == (["t"] if state == "TASK_RUNNING" else [])


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "AAAA"},
        {"uuid": None},
        {"uuid": 3},
        {"state": "TASK_DANCING"},
        {"state": 3},
        {"task_id": "t"},
        {"task_id": {}},
    ],
)
def test_malformed_updates_change_nothing(change: dict[str, object]) -> None:
    world, agent, framework = launched()
    status = {"task_id": identity("t"), "state": "TASK_FINISHED", "uuid": uuid(1)} | change
    with pytest.raises(HTTPError) as caught:
        world.hear(agent, "UPDATE", framework_id=identity(framework), status=status)
    assert caught.value.status == 400 and world.state.agents[agent].used
    with pytest.raises(HTTPError):
        world.hear(agent, "UPDATE", framework_id=identity(framework), status=3)


def test_an_update_of_a_task_of_which_the_master_knows_nothing_is_passed_on() -> None:
    world, agent, framework = launched()
    world.update(agent, framework, "nobody", "TASK_FINISHED", number=7)
    assert world.updates(framework) == [("nobody", "TASK_FINISHED")]
    world.acknowledge(framework, agent, "nobody", uuid(7))
    assert world.types(agent) == ["ACKNOWLEDGE"]


def test_what_is_not_acknowledged_is_told_to_a_framework_that_comes_back() -> None:
    world, agent, framework = launched("t", "u")
    world.cut(framework)
    world.update(agent, framework, "t", "TASK_FINISHED")
    world.update(agent, framework, "u", "TASK_RUNNING")
    world.subscribe(framework)
    assert world.updates(framework) == [("t", "TASK_FINISHED"), ("u", "TASK_RUNNING")]


def test_statuses_are_bounded_and_without_data() -> None:
    world, agent, framework = launched()
    for number in range(1, 3 * STATUSES_MOST):
        state = "TASK_RUNNING" if number % 2 else "TASK_STARTING"
        status = {"task_id": identity("t"), "state": state, "uuid": uuid(number), "data": "x" * 100}
        world.hear(agent, "UPDATE", framework_id=identity(framework), status=status)
    task = world.state.frameworks[framework].tasks["t"]
    assert len(task.statuses) == STATUSES_MOST and all("data" not in status for status in task.statuses)
    last = [record["update"]["status"] for record in world.take(framework)][-1]
    assert last["data"] == "x" * 100


def test_kill() -> None:
    world, agent, framework = launched()
    policy = {"grace_period": {"nanoseconds": 5}}
    world.call(framework, "KILL", {"task_id": identity("t"), "agent_id": identity(agent), "kill_policy": policy})
    assert world.take(agent) == [
        message("KILL", framework_id=identity(framework), task_id=identity("t"), kill_policy=policy)
    ]
    world.call(framework, "KILL", {"task_id": identity("t")})
    assert world.types(agent) == ["KILL"]


def test_kill_of_an_unknown_task_tells_that_it_is_unknown() -> None:
    world, agent, framework = launched()
    world.call(framework, "KILL", {"task_id": identity("x"), "agent_id": identity(agent)})
    world.call(framework, "KILL", {"task_id": identity("y")})
    world.call(framework, "KILL", {"task_id": identity("t"), "agent_id": identity("another")})
    assert world.updates(framework) == [("x", "TASK_GONE"), ("y", "TASK_UNKNOWN"), ("t", "TASK_STAGING")]
    assert world.take(agent) == []


def test_kill_of_an_unreachable_task_waits_for_its_return() -> None:
    world, agent, framework = launched()
    world.cut(agent)
    world.sleep(100)
    assert world.updates(framework) == [("t", "TASK_UNREACHABLE")]
    world.call(framework, "KILL", {"task_id": identity("t")})
    assert world.updates(framework) == [("t", "TASK_UNREACHABLE")]
    assert world.state.frameworks[framework].unreachable["t"].kill is not None


# ---------------------------------------------------------------------- reconcile


def told(world: World, framework: str) -> list[tuple[str, str]]:
    records = [record["update"]["status"] for record in world.take(framework) if record["type"] == "UPDATE"]
    assert all(one["reason"] == "REASON_RECONCILIATION" and "uuid" not in one for one in records)
    return [(one["task_id"]["value"], one["state"]) for one in records]


def question(*tasks: tuple[str, str | None]) -> Message:
    items = [{"task_id": identity(task)} | ({"agent_id": identity(agent)} if agent else {}) for task, agent in tasks]
    return {"tasks": items}


def two_tasks(**info: object) -> tuple[World, str, str]:
    world = World()
    agent, framework = world.agent(), world.subscribe(**info)
    world.start(framework, task_info("t", agent), task_info("u", agent))
    world.update(agent, framework, "t", "TASK_RUNNING", "TASK_FINISHED")
    world.take(framework)
    return world, agent, framework


def test_reconciliation_of_all_tasks() -> None:
    world, _, framework = two_tasks()
    world.call(framework, "RECONCILE", {"tasks": []})
    assert told(world, framework) == [("t", "TASK_RUNNING"), ("u", "TASK_STAGING")]
    world.call(framework, "RECONCILE")
    assert len(told(world, framework)) == 2


def test_reconciliation_of_some_tasks() -> None:
    world, agent, framework = two_tasks()
    world.call(framework, "RECONCILE", question(("t", agent), ("t", None), ("x", agent), ("y", None), ("z", "nowhere")))
    assert told(world, framework) == [
        ("t", "TASK_RUNNING"),
        ("t", "TASK_RUNNING"),
        ("x", "TASK_GONE"),
        ("y", "TASK_UNKNOWN"),
        ("z", "TASK_UNKNOWN"),
    ]


def test_frameworks_that_are_not_partition_aware_know_lost_only() -> None:
    world, agent, framework = two_tasks(capabilities=[])
    world.call(framework, "RECONCILE", question(("x", agent), ("y", None), ("t", None)))
    assert told(world, framework) == [("x", "TASK_LOST"), ("y", "TASK_LOST"), ("t", "TASK_RUNNING")]


def test_reconciliation_of_tasks_on_agents_that_are_unreachable_or_gone() -> None:
    world, agent, framework = two_tasks()
    world.cut(agent)
    world.sleep(100)
    world.take(framework)
    world.call(framework, "RECONCILE", question(("u", None), ("x", agent)))
    assert told(world, framework) == [("u", "TASK_UNREACHABLE"), ("x", "TASK_UNREACHABLE")]
    world.call(framework, "RECONCILE", {"tasks": []})
    assert ("u", "TASK_UNREACHABLE") in told(world, framework)
    world.operate("MARK_AGENT_GONE", agent_id=identity(agent))
    world.take(framework)
    world.call(framework, "RECONCILE", question(("u", agent)))
    assert told(world, framework) == [("u", "TASK_GONE_BY_OPERATOR")]


def test_reconciliation_is_silent_until_agents_are_back() -> None:
    world, agent, framework = two_tasks()
    world.restart()
    world.subscribe(framework)
    world.take(framework)
    world.call(framework, "RECONCILE", question(("t", agent), ("x", agent), ("y", None)))
    world.call(framework, "RECONCILE", {"tasks": []})
    assert told(world, framework) == []
    world.call(framework, "RECONCILE", question(("x", "nowhere")))
    assert told(world, framework) == [("x", "TASK_UNKNOWN")]
