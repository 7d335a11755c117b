from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.master.frameworks import wrong_id, wrong_role
from executors.mesos.master.state import COMPLETED_MOST
from executors.mesos.messages import identity
from tests.executors.mesos.master.world import AWARE, MULTI, World, executor_info, task_info


def errors(world: World, stream: str) -> list[str]:
    return [record["error"]["message"] for record in world.take(stream) if record["type"] == "ERROR"]


def test_a_new_framework_gets_an_id_a_heartbeat_and_offers() -> None:
    world = World(hostname="10.0.0.7", port=5050, heartbeat_s=15.0)
    world.agent()
    framework = world.subscribe()
    first, second, third = world.take(framework)
    assert first["subscribed"]["heartbeat_interval_seconds"] == 15.0
    assert first["subscribed"]["master_info"]["address"] == {"hostname": "10.0.0.7", "ip": "10.0.0.7", "port": 5050}
    assert second == {"type": "HEARTBEAT"} and third["type"] == "OFFERS"
    info = world.state.frameworks[framework].info
    assert info["principal"] == "p" and info["roles"] == ["*"] and info["id"] == identity(framework)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({"user": "root"}, "'me' only"),
        ({"role": "a/../b"}, "'..'"),
        ({"role": "two words"}, "spaces"),
        ({"roles": ["a"]}, "MULTI_ROLE"),
        ({"role": "a", "capabilities": [MULTI]}, "'role'|role"),
        ({"roles": ["a", "a"], "capabilities": [MULTI]}, "duplicates"),
        ({"roles": [["a"]], "capabilities": [MULTI]}, "text"),
        ({"failover_timeout": -1}, "failover_timeout"),
        ({"failover_timeout": "Infinity"}, "failover_timeout"),
        ({"failover_timeout": 1e308}, "failover_timeout"),
        ({"capabilities": ["x"]}, "capabilities"),
        ({"capabilities": {}}, "capabilities"),
        ({"user": 7}, "user"),
    ],
)
def test_a_bad_framework_info_is_refused_on_the_stream(info: Message, text: str) -> None:
    world = World(user="me")
    stream = world.subscribe(**info)
    (error,) = errors(world, stream)
    assert any(part in error for part in text.split("|"))
    assert stream not in world.open and not world.state.frameworks and not world.journal


def test_a_bad_id_is_refused_on_the_stream() -> None:
    world = World()
    assert "'/'" in errors(world, world.subscribe("a/b"))[0] and not world.state.frameworks


def test_suppressed_roles_must_be_its_own() -> None:
    world = World()
    assert "'b'" in errors(world, world.subscribe(quiet=["b"]))[0]
    world.agent()
    assert world.offers(world.subscribe(quiet=["*"])) == []


@pytest.mark.parametrize(
    "call", [{}, {"subscribe": {}}, {"subscribe": {"framework_info": []}}, {"subscribe": {"framework_info": {"id": 3}}}]
)
def test_a_subscribe_without_shape_is_refused(call: Message) -> None:
    with pytest.raises(HTTPError) as caught:
        World().master.subscribe({"type": "SUBSCRIBE"} | call, "p", "s", 0.0)
    assert caught.value.status == 400


def test_a_framework_cannot_claim_another_principal() -> None:
    world = World()
    call = {"type": "SUBSCRIBE", "subscribe": {"framework_info": {"user": "me", "principal": "q"}}}
    with pytest.raises(HTTPError, match="credentials"):
        world.master.subscribe(call, "p", "s", world.now)
    framework = world.subscribe()
    other = {"user": "me", "id": identity(framework)}
    stream = world.stream()
    world.do(world.master.subscribe({"type": "SUBSCRIBE", "subscribe": {"framework_info": other}}, "q", stream, 1.0))
    assert "another principal" in errors(world, stream)[0]
    assert world.state.frameworks[framework].stream == world.stream_of[framework]


def test_ids_must_agree() -> None:
    world = World()
    info = {"user": "me", "name": "x", "id": identity("F1")}
    call = {"type": "SUBSCRIBE", "framework_id": identity("F2"), "subscribe": {"framework_info": info}}
    stream = world.stream()
    world.do(world.master.subscribe(call, "p", stream, world.now))
    assert "'F1'" in errors(world, stream)[0]


def test_an_unknown_id_is_kept() -> None:
    world = World()
    assert world.subscribe("from-before") == "from-before"
    assert world.subscribe("M-0001") == "M-0001" and world.subscribe() == "M-0002"


def test_another_scheduler_takes_over() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe()
    world.start(framework, task_info("t", agent))
    uuid = world.update(agent, framework, "t", "TASK_RUNNING")
    old, first = world.stream_of[framework], {offer.id for offer in world.state.offers.values()}
    world.take(framework)
    assert world.subscribe(framework) == framework
    assert errors(world, old) == ["Framework failed over"] and old not in world.open
    records = world.take(framework)
    assert [record["type"] for record in records[:3]] == ["SUBSCRIBED", "HEARTBEAT", "UPDATE"]
    assert records[2]["update"]["status"]["uuid"] == uuid
    assert not first & world.state.offers.keys()
    world.do(world.master.closed(old, world.now))  # the server notices late
    assert world.state.frameworks[framework].stream is not None


def test_without_authentication_a_framework_is_not_taken_from_its_scheduler() -> None:
    world = World(authenticated=False)
    framework = world.subscribe(principal="me")
    own = world.stream_of[framework]
    assert "has a scheduler" in errors(world, world.subscribe(framework, principal="me"))[0]
    world.stream_of[framework] = own
    assert own in world.open and world.state.frameworks[framework].stream == own
    world.cut(framework)
    for other in ({}, {"principal": "you"}):
        assert "another principal" in errors(world, world.subscribe(framework, **other))[0]
    assert world.subscribe(framework, principal="me") == framework


def test_an_acknowledged_update_is_not_sent_again() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe()
    world.start(framework, task_info("t", agent))
    world.acknowledge(framework, agent, "t", world.update(agent, framework, "t", "TASK_RUNNING"))
    world.cut(framework)
    world.subscribe(framework)
    assert world.updates(framework) == []


def test_a_framework_that_is_away_keeps_its_tasks_for_its_failover_time() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe(failover_timeout=100)
    world.start(framework, task_info("t", agent, executor=executor_info("e")))
    world.cut(framework)
    assert not world.state.offers
    world.sleep(99)
    assert world.state.frameworks[framework].tasks and world.state.agents[agent].used
    world.take(agent)
    world.sleep(2)
    assert framework in world.state.completed and not world.state.frameworks
    assert "SHUTDOWN_FRAMEWORK" in world.types(agent)
    stream = world.subscribe(framework)
    assert errors(world, stream) == ["Framework has been removed"] and stream not in world.open


def test_one_that_came_back_has_all_its_failover_time_again() -> None:
    world = World()
    framework = world.subscribe(failover_timeout=100)
    world.cut(framework)
    world.sleep(90)
    world.subscribe(framework)
    world.sleep(20)
    world.cut(framework)
    world.sleep(90)
    assert framework in world.state.frameworks
    world.sleep(20)
    assert framework in world.state.completed


def test_without_a_failover_time_it_is_removed_at_once() -> None:
    world = World()
    framework = world.subscribe(failover_timeout=0)
    world.cut(framework)
    world.sleep(0)
    assert framework in world.state.completed


def test_the_failover_time_survives_the_master() -> None:
    world = World()
    framework = world.subscribe(failover_timeout=100)
    other = world.subscribe(failover_timeout=100)
    world.cut(framework)
    world.sleep(60)
    world.restart()  # while there was no master it could not come back: its time begins anew
    world.sleep(60)
    assert world.subscribe(other) == other
    world.sleep(60)
    assert framework in world.state.completed and other in world.state.frameworks
    world.restart()
    assert errors(world, world.subscribe(framework)) == ["Framework has been removed"]
    assert world.subscribe(other) == other


def test_teardown_ends_everything() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe()
    world.start(framework, task_info("t", agent), task_info("u", agent, executor=executor_info("e")))
    stream = world.stream_of[framework]
    world.call(framework, "TEARDOWN")
    assert stream not in world.open and "SHUTDOWN_FRAMEWORK" in world.types(agent)
    found = world.state.agents[agent]
    assert found.used.scalar("cpus") == 2.5 and not found.offers, "they run until the agent says that they have ended"
    assert [task.state for task in world.state.completed[framework].completed] == ["TASK_KILLED", "TASK_KILLED"]
    for name in ("t", "u"):
        world.update(agent, framework, name, "TASK_KILLED")
    ids = {"framework_id": identity(framework), "executor_id": identity("e")}
    world.hear(agent, "EXITED_EXECUTOR", **ids, status=0)
    assert world.types(agent) == [] and world.updates(framework) == []
    assert not found.used and not found.tasks and not found.executors and not found.offers
    assert {table for table, _ in world.journal} == {"agents", "frameworks", "serial"}


def test_removed_frameworks_are_forgotten_one_day() -> None:
    world = World()
    for _ in range(COMPLETED_MOST + 5):
        world.call(world.subscribe(), "TEARDOWN")
    assert len(world.state.completed) == COMPLETED_MOST
    assert len([key for key in world.journal if key[0] == "frameworks"]) == COMPLETED_MOST


def test_suppress_and_revive() -> None:
    world = World()
    framework = world.subscribe(roles=["a", "b"], capabilities=[MULTI])
    world.call(framework, "SUPPRESS", {"roles": ["a"]})
    world.agent()
    (offer,) = world.offers(framework)
    assert offer["allocation_info"] == {"role": "b"}
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 1000}})
    assert world.offers(framework) == []
    world.call(framework, "REVIVE", {"roles": ["a", "none of its roles"]})
    (offer,) = world.offers(framework)
    assert offer["allocation_info"] == {"role": "a"}
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 1000}})
    world.call(framework, "SUPPRESS", {"role": "b"})  # the older form
    assert world.state.frameworks[framework].suppressed == {"b"}
    world.call(framework, "SUPPRESS")
    assert world.state.frameworks[framework].suppressed == {"a", "b"}
    world.call(framework, "REVIVE")
    assert len(world.offers(framework)) == 1


def test_update_framework() -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe(roles=["a"], capabilities=[MULTI])
    world.start(framework, task_info("t", agent), refuse_s=0)
    world.take(agent), world.take(framework)
    labels = {"labels": [{"key": "k", "value": "v"}]}
    info: dict[str, Any] = dict(world.state.frameworks[framework].info) | {"roles": ["b"], "labels": labels}
    world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info})
    assert [record["type"] for record in world.take(agent)] == ["FRAMEWORK"]
    rescinded, offered = world.take(framework)
    assert rescinded["type"] == "RESCIND" and offered["offers"]["offers"][0]["allocation_info"] == {"role": "b"}
    world.restart()
    assert world.state.frameworks[framework].roles == {"b"}
    answer, _ = world.master.operate({"type": "GET_FRAMEWORKS"}, world.now)
    assert answer and answer["get_frameworks"]["frameworks"][0]["framework_info"]["labels"] == labels


@pytest.mark.parametrize("change", [{"user": "you"}, {"checkpoint": True}, {"id": identity("F9")}, {"principal": "q"}])
def test_what_update_framework_cannot_change(change: Message) -> None:
    world = World()
    framework = world.subscribe(roles=["a"], capabilities=[MULTI, AWARE])
    before = world.state.frameworks[framework].info
    with pytest.raises(HTTPError, match="cannot change"):
        world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": before | change})
    assert world.state.frameworks[framework].info == before


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 256, "a\n", 3, None])
def test_wrong_ids(name: Any) -> None:
    assert wrong_id(name)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a//b", "a/*", "-a", "a/-b", "a b", "x" * 256, 3, None])
def test_wrong_roles(name: Any) -> None:
    assert wrong_role(name)
