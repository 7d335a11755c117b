from __future__ import annotations

from typing import Any

import pytest

from executors.mesos.codec import Message
from executors.mesos.master import feedback
from executors.mesos.messages import base64_of, identity
from executors.mesos.resources import scalars
from tests.executors.mesos.master.test_accept import operation_statuses, reserve
from tests.executors.mesos.master.world import MULTI, World

ROLES: dict[str, Any] = {"roles": ["hpc"], "capabilities": [MULTI]}


def reserved(*names: str, cpus: float = 4) -> tuple[World, str, str, list[Message]]:
    """A framework that has reserved a core by each of these operations, and what it was told of them."""
    world = World()
    agent = world.agent(resources=scalars(cpus=cpus))
    framework = world.subscribe(**ROLES)
    (offer,) = world.offers(framework)
    world.accept(framework, [offer["id"]["value"]], *(reserve("RESERVE", 1, "hpc", id=identity(n)) for n in names))
    return world, agent, framework, operation_statuses(world, framework)


def listed(world: World) -> list[Message]:
    answer, _ = world.master.operate({"type": "GET_OPERATIONS"}, None, world.now)
    assert answer is not None
    found: list[Message] = answer["get_operations"]["operations"]
    return found


def asked(world: World, framework: str, *operations: Message) -> list[Message]:
    world.call(framework, "RECONCILE_OPERATIONS", {"operations": list(operations)})
    return operation_statuses(world, framework)


def acknowledge(world: World, framework: str, status: Message) -> None:
    payload = {"operation_id": status["operation_id"], "uuid": status["uuid"]["value"]}
    world.call(framework, "ACKNOWLEDGE_OPERATION_STATUS", payload)


def test_an_operation_is_listed_until_acknowledged() -> None:
    world, agent, framework, (status,) = reserved("op")
    assert status["state"] == "OPERATION_FINISHED" and status["agent_id"] == identity(agent)
    (found,) = listed(world)
    assert found["framework_id"] == identity(framework) and found["agent_id"] == identity(agent)
    assert found["info"]["type"] == "RESERVE" and found["info"]["id"] == identity("op")
    assert found["info"]["reserve"]["resources"] == status["converted_resources"]
    assert found["latest_status"] == status and found["statuses"] == [status]
    other = {"operation_id": status["operation_id"], "uuid": base64_of(bytes(16))}
    world.call(framework, "ACKNOWLEDGE_OPERATION_STATUS", other)
    assert listed(world) == [found]
    acknowledge(world, framework, status)
    assert listed(world) == [] and not any(table == "operations" for table, _ in world.journal)


def test_its_uuid_is_not_that_of_its_status_nor_anybody_elses() -> None:
    world, _, _, statuses = reserved("a", "b")
    assert len({one["uuid"]["value"] for one in (*statuses, *listed(world))}) == 4


def test_an_operation_is_acknowledged_by_its_whole_status_as_well() -> None:
    world, _, framework, (status,) = reserved("op")
    world.call(framework, "ACKNOWLEDGE_OPERATION_STATUS", status)
    assert listed(world) == []


def test_a_status_is_sent_again_until_acknowledged_later_and_later() -> None:
    world, _, framework, (status,) = reserved("op")
    gaps = []
    while world.now < 5000:
        before = world.now
        while not (again := operation_statuses(world, framework)):
            world.sleep(1.0)
        assert again == [status]
        gaps.append(round(world.now - before))
    assert gaps[:4] == [10, 10, 20, 40] and max(gaps) == feedback.RETRY_MOST_S
    acknowledge(world, framework, status)
    world.sleep(2000)
    assert operation_statuses(world, framework) == []


def test_a_status_is_sent_again_at_once_to_a_scheduler_that_comes_back() -> None:
    world, _, framework, (status,) = reserved("op")
    world.cut(framework)
    world.subscribe(framework, **ROLES)
    assert operation_statuses(world, framework) == [status]


def test_a_status_of_an_agent_that_is_unreachable_waits_for_it() -> None:
    world, agent, framework, _ = reserved("op")
    world.cut(agent)
    world.sleep(100)
    world.cut(framework)
    world.subscribe(framework, **ROLES)
    assert operation_statuses(world, framework) == []


def test_operations_outlive_the_master() -> None:
    world, agent, framework, statuses = reserved("a", "b c")
    acknowledge(world, framework, statuses[0])
    world.restart()
    assert [one["info"]["id"] for one in listed(world)] == [identity("b c")]
    world.subscribe(framework, **ROLES)
    assert operation_statuses(world, framework) == [statuses[1]]
    (found,) = asked(world, framework)  # although the agent is not back yet
    assert found["state"] == "OPERATION_FINISHED"
    (found,) = asked(world, framework, {"operation_id": identity("a"), "agent_id": identity(agent)})
    assert found["state"] == "OPERATION_RECOVERING"
    world.sleep(11)
    assert operation_statuses(world, framework) == [statuses[1]]
    acknowledge(world, framework, statuses[1])
    world.restart()
    assert listed(world) == []


def test_what_is_told_when_asked_needs_no_acknowledgement() -> None:
    world, agent, framework, (status,) = reserved("op")
    assert asked(world, framework) == [{name: item for name, item in status.items() if name != "uuid"}]
    found = asked(
        world,
        framework,
        {"operation_id": identity("op")},
        {"operation_id": identity("x"), "agent_id": identity(agent)},
        {"operation_id": identity("y")},
    )
    assert [one["state"] for one in found] == ["OPERATION_FINISHED", "OPERATION_UNKNOWN", "OPERATION_UNKNOWN"]
    assert not any("uuid" in one for one in found) and found[1]["agent_id"] == identity(agent)


def test_an_id_that_waits_cannot_be_used_again() -> None:
    world, agent, _, (first, second) = reserved("op", "op")
    assert (first["state"], second["state"]) == ("OPERATION_FINISHED", "OPERATION_ERROR")
    assert "another id" in second["message"] and "uuid" not in second
    assert {kind.role: amount for kind, amount in world.state.agents[agent].total} == {"*": 3000, "hpc": 1000}


def test_operations_on_an_agent_that_is_unreachable_and_back() -> None:
    world, agent, framework, (status,) = reserved("op")
    world.cut(agent)
    world.sleep(100)
    found = [one["state"] for one in operation_statuses(world, framework)]
    assert found[-1] == "OPERATION_UNREACHABLE"
    assert [one["state"] for one in asked(world, framework)] == ["OPERATION_UNREACHABLE"]
    world.sleep(1000)
    assert operation_statuses(world, framework) == []
    world.agent(agent, resources=scalars(cpus=4))
    world.sleep(feedback.RETRY_MOST_S)
    assert status in operation_statuses(world, framework)


def test_operations_on_an_agent_that_is_gone() -> None:
    world, agent, framework, _ = reserved("op")
    call = {"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": identity(agent)}}
    world.do(world.master.operate(call, None, world.now)[1])
    (found,) = operation_statuses(world, framework)
    assert found["state"] == "OPERATION_GONE_BY_OPERATOR" and "uuid" not in found
    assert listed(world) == [] and not any(table == "operations" for table, _ in world.journal)


def test_a_framework_that_is_over_leaves_nothing() -> None:
    world, _, framework, _ = reserved("op")
    world.call(framework, "TEARDOWN")
    assert listed(world) == [] and not any(table == "operations" for table, _ in world.journal)
    world.sleep(30)


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "PENDING_MOST", 2)
    world, _, _, statuses = reserved("a", "b", "c")
    assert len(statuses) == 3
    assert [one["info"]["id"]["value"] for one in listed(world)] == ["b", "c"]
    assert sum(table == "operations" for table, _ in world.journal) == 2
