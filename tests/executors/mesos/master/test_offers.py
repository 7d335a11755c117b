"""Offers, and what becomes of those that are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.messages import identity
from executors.mesos.resources import parse, scalars, to_json
from tests.executors.mesos.master.world import AWARE, MULTI, World, executor_info, launch, task_info

# ---------------------------------------------------------------------- offers


def test_an_offer_says_where_and_what() -> None:
    world = World()
    framework = world.subscribe()
    attributes = [{"name": "slurm_job_id", "type": "TEXT", "text": {"value": "4711"}}]
    info = {"hostname": "10.0.0.3", "port": 5051, "resources": [], "attributes": attributes}
    info["resources"] = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 2}}]
    agent = world.agent(agent_info=info)
    (offer,) = world.offers(framework)
    assert offer == {
        "id": identity("M-O1"),
        "framework_id": identity(framework),
        "agent_id": identity(agent),
        "hostname": "10.0.0.3",
        "url": {
            "scheme": "http",
            "address": {"hostname": "10.0.0.3", "ip": "10.0.0.3", "port": 5051},
            "path": "/slave(1)",
            "query": [],
        },
        "allocation_info": {"role": "*"},
        "resources": [
            {
                "name": "cpus",
                "type": "SCALAR",
                "scalar": {"value": 2.0},
                "role": "*",
                "allocation_info": {"role": "*"},
            }
        ],
        "attributes": attributes,
        "executor_ids": [],
    }


def test_an_offer_names_the_executors_that_run_there() -> None:
    world = World()
    agent, framework = world.agent(ip="10.0.0.9", tls=True), world.subscribe()
    world.take(framework)
    world.start(framework, task_info("t", agent, executor=executor_info("e")), refuse_s=0)
    (offer,) = world.offers(framework)
    assert offer["executor_ids"] == [identity("e")]
    assert offer["url"]["address"]["ip"] == "10.0.0.9" and offer["url"]["scheme"] == "https"


def test_an_event_has_so_many_offers_at_most() -> None:
    world = World(offers_most=3)
    for _ in range(7):
        world.agent()
    records = [record for record in world.take(world.subscribe()) if record["type"] == "OFFERS"]
    assert [len(record["offers"]["offers"]) for record in records] == [3, 3, 1]


def test_what_is_declined_goes_to_the_next_and_not_back() -> None:
    world = World()
    world.agent()
    first, second = world.subscribe(), world.subscribe()
    (offer,) = world.offers(first)
    assert world.offers(second) == []
    world.call(first, "DECLINE", {"offer_ids": [offer["id"], identity("unknown")]})
    assert world.offers(first) == [] and len(world.offers(second)) == 1


@pytest.mark.parametrize(
    ("filters", "refused_s"),
    [
        ({}, 5),
        ({"filters": {}}, 5),
        ({"filters": {"refuse_seconds": 30}}, 30),
        ({"filters": {"refuse_seconds": -3}}, 5),
        ({"filters": {"refuse_seconds": 0}}, 0.1),
    ],
)
def test_refusals_end(filters: Message, refused_s: float) -> None:
    world = World()
    world.agent()
    framework = world.subscribe()
    (offer,) = world.offers(framework)
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]]} | filters)
    world.sleep(max(0.1, refused_s - 1.5))
    assert world.offers(framework) == []
    world.sleep(3)
    assert len(world.offers(framework)) == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"offer_ids": identity("M-O1")},
        {"offer_ids": ["M-O1"]},
        {"offer_ids": [identity("M-O1"), 3]},
        {"offer_ids": [{"value": 1}]},
        {"offer_ids": [], "filters": 3},
        {"offer_ids": [], "filters": {"refuse_seconds": "soon"}},
        {"offer_ids": [identity("M-O1")], "filters": {"refuse_seconds": "NaN"}},
    ],
)
def test_malformed_declines_change_nothing(payload: Message) -> None:
    world = World()
    world.agent()
    framework = world.subscribe()
    with pytest.raises(HTTPError):
        world.call(framework, "DECLINE", payload)
    assert list(world.state.offers) == ["M-O1"]


def test_offers_without_an_answer_are_rescinded() -> None:
    world = World(offer_timeout_s=30)
    world.agent()
    framework = world.subscribe()
    world.take(framework)
    world.sleep(29)
    assert world.take(framework) == []
    world.sleep(2)
    assert world.types(framework) == ["RESCIND", "OFFERS"]


def test_what_is_offered_is_neither_free_nor_used() -> None:
    world = World()
    agent = world.agent(resources=scalars(cpus=2))
    framework = world.subscribe()
    found = world.state.agents[agent]
    assert found.offered == scalars(cpus=2) and not found.free and not found.used
    world.start(framework, task_info("t", agent), refuse_s=100)
    assert not found.offered and found.free == found.used == scalars(cpus=1)


# ---------------------------------------------------------------------- accept


def pair(**options: Any) -> tuple[World, str, str, str]:
    world = World(**options)
    agent, framework = world.agent(resources=scalars(cpus=4, mem=1024)), world.subscribe()
    world.take(agent)
    (offer,) = world.offers(framework)
    return world, agent, framework, offer["id"]["value"]


def statuses(world: World, framework: str) -> list[Message]:
    return [record["update"]["status"] for record in world.take(framework) if record["type"] == "UPDATE"]


BAD = [
    ({"command": None}, "exactly one"),
    ({"executor": executor_info("e")}, "exactly one"),
    ({"task_id": identity("a b")}, "TaskID"),
    ({"task_id": identity("x" * 256)}, "TaskID"),
    ({"agent_id": identity("another")}, "agent"),
    ({"resources": []}, "no resources"),
    ({"resources": None}, "no resources"),
    ({"resources": [3]}, "object"),
    ({"resources": to_json(scalars(cpus=5))}, "more resources than available: cpus"),
    ({"resources": to_json(scalars(cpus=1, gpus=1))}, "gpus"),
    ({"resources": to_json(scalars(cpus=1), "hpc")}, "role 'hpc'"),
    ({"resources": [*to_json(scalars(cpus=1)), to_json(scalars(cpus=1))[0] | {"revocable": {}}]}, "revocable"),
    ({"command": {"value": "x", "user": "root"}}, "'me' only"),
    ({"command": []}, "command"),
    ({"limits": {"cpus": {"value": 0.5}}}, "less than"),
    ({"limits": {"cpus": 3}}, "limits"),
    ({"limits": {"ports": {"value": 3}}}, "ports"),
    ({"limits": []}, "limits"),
    ({"kill_policy": {"grace_period": {"nanoseconds": -1}}}, "kill_policy"),
    ({"max_completion_time": {"nanoseconds": -1}}, "max_completion_time"),
    ({"command": None, "executor": executor_info("e", framework_id=identity("F9"))}, "'F9'"),
    ({"command": None, "executor": executor_info("e/e")}, "ExecutorID"),
    ({"command": None, "executor": executor_info("e", 9)}, "cpus"),
    ({"command": None, "executor": executor_info("e", type="STRANGE")}, "STRANGE"),
    ({"command": None, "executor": executor_info("e", type="DEFAULT")}, "'DEFAULT', expected CUSTOM"),
    ({"command": None, "executor": {"executor_id": identity("e")}}, "command"),
    ({"command": None, "executor": executor_info("e") | {"command": {"user": "root"}}}, "'me' only"),
]


@pytest.mark.parametrize(("change", "text"), BAD)
def test_a_bad_task_is_refused_and_the_others_run(change: Message, text: str) -> None:
    world, agent, framework, offer = pair(user="me")
    bad = {name: item for name, item in (task_info("bad", agent) | change).items() if item is not None}
    world.accept(framework, [offer], launch(bad, task_info("good", agent)))
    (status,) = statuses(world, framework)
    assert (status["state"], status["reason"]) == ("TASK_ERROR", "REASON_TASK_INVALID")
    assert status["task_id"] == bad["task_id"] and "uuid" not in status
    assert text in status["message"]
    assert list(world.state.frameworks[framework].tasks) == ["good"]
    assert world.state.agents[agent].used == scalars(cpus=1)


@pytest.mark.parametrize("change", [{"task_id": None}, {"task_id": "t"}, {"agent_id": None}])
def test_a_task_without_ids_is_no_task(change: Message) -> None:
    world, agent, framework, offer = pair()
    bad = {name: item for name, item in (task_info("bad", agent) | change).items() if item is not None}
    with pytest.raises(HTTPError):
        world.accept(framework, [offer], launch(task_info("good", agent), bad))
    assert list(world.state.offers) == [offer] and not world.state.frameworks[framework].tasks


@pytest.mark.parametrize(
    "operation",
    [
        3,
        {},
        {"type": "LAUNCH"},
        {"type": "LAUNCH", "launch": {"task_infos": 3}},
        {"type": "LAUNCH", "launch": {"task_infos": [3]}},
        {"type": "LAUNCH_GROUP", "launch_group": {"executor": executor_info("e"), "task_group": {"tasks": []}}},
        {"type": "RESERVE", "id": 3},
    ],
)
def test_a_malformed_operation_changes_nothing(operation: Any) -> None:
    world, _, framework, offer = pair()
    with pytest.raises(HTTPError):
        world.accept(framework, [offer], operation)
    assert list(world.state.offers) == [offer]


@pytest.mark.parametrize("operation", [{"type": "LAUNCH", "launch": {}}, launch()])
def test_an_empty_list_may_be_left_out(operation: Message) -> None:
    """As JSON that is made from .proto files does it."""
    world, agent, framework, offer = pair()
    world.accept(framework, [offer], operation)
    assert not world.state.offers and not world.state.frameworks[framework].tasks
    world.call(framework, "ACCEPT", {"operations": [launch(task_info("t", agent))]})
    (status,) = statuses(world, framework)
    assert status["reason"] == "REASON_INVALID_OFFERS" and "No offers" in status["message"]
    world.call(framework, "DECLINE", {})


def test_a_task_id_is_used_once_at_a_time() -> None:
    world, agent, framework, offer = pair()
    world.accept(framework, [offer], launch(task_info("t", agent), task_info("t", agent)))
    (status,) = statuses(world, framework)
    assert "duplicate" in status["message"]
    last = world.update(agent, framework, "t", "TASK_FINISHED")
    world.acknowledge(framework, agent, "t", last)
    world.call(framework, "REVIVE")
    world.take(framework)
    world.start(framework, task_info("t", agent))
    assert statuses(world, framework) == []


@pytest.mark.parametrize(("capabilities", "state"), [([AWARE], "TASK_DROPPED"), ([], "TASK_LOST")])
def test_offers_that_are_no_longer_valid(capabilities: list[Message], state: str) -> None:
    world = World()
    agent = world.agent()
    framework = world.subscribe(capabilities=capabilities)
    world.take(framework)
    for names in ([], ["M-O1", "nobody's"], ["M-O1", "M-O1"], ["nobody's"]):
        infos = task_info("t", agent), task_info("u", agent)
        world.accept(framework, names, launch(infos[0]), launch(infos[1]))
        found = statuses(world, framework)
        assert [(one["state"], one["reason"]) for one in found] == [(state, "REASON_INVALID_OFFERS")] * 2
        assert not world.state.frameworks[framework].tasks


def test_the_valid_ones_among_invalid_offers_are_used_up() -> None:
    world, agent, framework, offer = pair()
    world.accept(framework, [offer, "nobody's"], launch(task_info("t", agent)))
    assert offer not in world.state.offers
    assert [record["type"] for record in world.take(framework)] == ["UPDATE", "OFFERS"]


def test_offers_of_another_framework_cannot_be_taken() -> None:
    world, agent, framework, offer = pair()
    thief = world.subscribe()
    world.take(thief)
    world.accept(thief, [offer], launch(task_info("t", agent)))
    assert statuses(world, thief)[0]["reason"] == "REASON_INVALID_OFFERS"
    assert world.state.offers[offer].framework == framework


def test_offers_of_two_agents_cannot_be_taken_together() -> None:
    world = World()
    agents, framework = [world.agent(), world.agent()], world.subscribe()
    names = [offer["id"]["value"] for offer in world.offers(framework)]
    world.accept(framework, names, launch(task_info("t", agents[0])))
    assert "one single agent" in statuses(world, framework)[0]["message"]


def test_offers_for_two_roles_cannot_be_taken_together() -> None:
    world = World()
    config = {"role": "a", "limits": {"cpus": {"value": 1}, "mem": {"value": 32}}}
    world.operate("UPDATE_QUOTA", quota_configs=[config])
    agent = world.agent()
    framework = world.subscribe(roles=["a", "b"], capabilities=[AWARE, MULTI])
    names = [offer["id"]["value"] for offer in world.offers(framework)]
    assert len(names) == 2
    world.accept(framework, names, launch(task_info("t", agent)))
    assert "allocated to the same role" in statuses(world, framework)[0]["message"]


def test_offers_of_one_agent_can() -> None:
    world, agent, framework, offer = pair()
    world.accept(framework, [offer], launch(task_info("t", agent, 2)), refuse_s=0)
    (rest,) = world.offers(framework)
    world.update(agent, framework, "t", "TASK_FINISHED")
    (freed,) = world.offers(framework)
    world.accept(framework, [rest["id"]["value"], freed["id"]["value"]], launch(task_info("u", agent, 4)))
    assert world.state.frameworks[framework].tasks["u"].resources == scalars(cpus=4)


def test_what_is_left_is_refused_for_a_while() -> None:
    world, agent, framework, offer = pair()
    world.accept(framework, [offer], launch(task_info("t", agent)), refuse_s=10)
    assert world.offers(framework) == []
    other = world.subscribe()
    assert parse(world.offers(other)[0]["resources"]) == scalars(cpus=3, mem=1024)


def test_an_executor_is_started_once_and_takes_its_resources_once() -> None:
    world, agent, framework, offer = pair()
    executor = executor_info("e", 0.5)
    infos = [task_info(name, agent, executor=executor) for name in "tu"]
    world.accept(framework, [offer], launch(*infos), refuse_s=0)
    (run,) = [record["run"] for record in world.take(agent)]
    assert run["executor_info"]["executor_id"] == identity("e") and len(run["tasks"]) == 2
    assert run["executor_info"]["framework_id"] == identity(framework)
    assert world.state.agents[agent].used == scalars(cpus=2.5)
    world.start(framework, task_info("v", agent, executor=executor))
    assert world.state.agents[agent].used == scalars(cpus=3.5)
    world.call(framework, "REVIVE")
    world.take(framework)
    world.start(framework, task_info("w", agent, 0.1, executor=executor_info("e", 0.4)))
    assert "another one" in statuses(world, framework)[0]["message"]


def test_tasks_of_each_executor_are_sent_together() -> None:
    world, agent, framework, offer = pair()
    infos = [
        task_info("a", agent, 0.1),
        task_info("b", agent, 0.1),
        task_info("c", agent, 0.1, executor=executor_info("e")),
        task_info("d", agent, 0.1, executor=executor_info("f")),
    ]
    world.accept(framework, [offer], launch(*infos))
    runs = [record["run"] for record in world.take(agent)]
    assert [[info["task_id"]["value"] for info in run["tasks"]] for run in runs] == [["a", "b"], ["c"], ["d"]]
    assert ["executor_info" in run for run in runs] == [False, True, True]
