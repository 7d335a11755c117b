from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.effects import Send
from executors.mesos.messages import identity, message
from tests.executors.mesos.master.world import World, launch, task_info, uuid


def pair(**options: object) -> tuple[World, str, str]:
    world = World(**options)
    agent = world.agent()
    return world, agent, world.subscribe()


def test_a_task_from_offer_to_acknowledged_end() -> None:
    world, agent, framework = pair()
    (offer,) = world.offers(framework)
    assert offer["agent_id"] == identity(agent) and offer["allocation_info"] == {"role": "*"}
    world.accept(framework, [offer["id"]["value"]], launch(task_info("t", agent, 3, data="eA==")))
    (run,) = [record["run"] for record in world.take(agent) if record["type"] == "RUN"]
    assert run["tasks"][0]["task_id"] == identity("t") and run["tasks"][0]["data"] == "eA=="
    assert "executor_info" not in run and run["framework_info"]["id"] == identity(framework)
    assert world.state.agents[agent].used.scalar("cpus") == 3
    first = world.update(agent, framework, "t", "TASK_RUNNING")
    world.acknowledge(framework, agent, "t", first)
    last = world.update(agent, framework, "t", "TASK_FINISHED")
    assert world.updates(framework) == [("t", "TASK_RUNNING"), ("t", "TASK_FINISHED")]
    assert not world.state.agents[agent].used and framework in world.state.frameworks
    world.acknowledge(framework, agent, "t", last)
    acknowledged = [record["acknowledge"]["uuid"] for record in world.take(agent) if record["type"] == "ACKNOWLEDGE"]
    assert acknowledged == [first, last]
    assert not world.state.frameworks[framework].tasks and not world.state.agents[agent].tasks
    assert [task.id for task in world.state.frameworks[framework].completed] == ["t"]
    assert not [key for key in world.journal if key[0] == "tasks"]


@pytest.mark.parametrize(
    ("call", "stream", "status", "text"),
    [
        ({"type": "REVIVE", "framework_id": {"value": "nobody"}}, "own", 400, "cannot be found"),
        ({"type": "REVIVE"}, "own", 400, "framework_id"),
        ({"type": "REVIVE", "framework_id": "own"}, "other", 400, "Mesos-Stream-Id"),
        ({"type": "REVIVE", "framework_id": "own"}, None, 400, "Mesos-Stream-Id"),
        ({"type": "DANCE", "framework_id": "own"}, "own", 501, "DANCE"),
        ({"type": "SUBSCRIBE", "framework_id": "own"}, "own", 400, "SUBSCRIBE"),
        ({"framework_id": "own"}, "own", 400, "type"),
        ({"type": "KILL", "framework_id": "own"}, "own", 400, "task_id"),
        ({"type": "ACCEPT", "framework_id": "own", "accept": {"offer_ids": 1}}, "own", 400, "offer_ids"),
        ({"type": "ACCEPT", "framework_id": "own", "accept": []}, "own", 400, "accept"),
        ({"type": "MESSAGE", "framework_id": "own", "message": {"agent_id": 3}}, "own", 400, "executor_id"),
    ],
)
def test_calls_that_make_no_sense(call: dict[str, object], stream: str | None, status: int, text: str) -> None:
    world, _, framework = pair()
    if call.get("framework_id") == "own":
        call = call | {"framework_id": identity(framework)}
    header = world.stream_of[framework] if stream == "own" else stream
    with pytest.raises(HTTPError, match=text) as caught:
        world.master.call(call, "p", header, world.now)
    assert caught.value.status == status


def test_only_its_own_principal_speaks_for_a_framework() -> None:
    world, _, framework = pair()
    call = {"type": "REVIVE", "framework_id": identity(framework)}
    with pytest.raises(HTTPError, match="principal"):
        world.master.call(call, "q", world.stream_of[framework], world.now)
    world.do(world.master.call(call, "p", world.stream_of[framework], world.now))


def test_a_framework_without_a_stream_has_to_subscribe() -> None:
    world, _, framework = pair()
    stream = world.stream_of[framework]
    world.cut(framework)
    with pytest.raises(HTTPError, match="not subscribed") as caught:
        world.master.call({"type": "REVIVE", "framework_id": identity(framework)}, "p", stream, world.now)
    assert caught.value.status == 403


def test_an_agent_that_is_not_known_has_to_register() -> None:
    world, agent, framework = pair()
    for stream in ("nobody", world.stream_of[framework]):
        effects, problem = world.master.from_agent(stream, [message("PONG")], world.now)
        assert isinstance(problem, HTTPError) and problem.status == 403 and effects == []
    with pytest.raises(HTTPError, match="DANCE"):
        world.hear(agent, "DANCE")


@pytest.mark.parametrize("wrong", [message("DANCE"), message("UPDATE"), {}, [], None, 3])
def test_what_comes_with_a_malformed_item_counts_at_once(wrong: Any) -> None:
    world, agent, framework = pair()
    world.start(framework, task_info("t", agent))
    status = {"task_id": identity("t"), "state": "TASK_FINISHED", "uuid": uuid(1)}
    update = message("UPDATE", framework_id=identity(framework), status=status, latest_state="TASK_FINISHED")
    effects, problem = world.master.from_agent(world.stream_of[agent], [update, wrong], world.now)
    assert isinstance(problem, HTTPError) and problem.status == 400
    told = [effect.message["type"] for effect in effects if isinstance(effect, Send)]
    assert told == ["UPDATE", "OFFERS"], "what the task has freed is offered with this answer"


def test_messages_go_both_ways() -> None:
    world, agent, framework = pair()
    ids = {"agent_id": identity(agent), "executor_id": identity("e")}
    world.take(framework), world.take(agent)
    world.call(framework, "MESSAGE", ids | {"data": "aGk="})
    assert world.take(agent) == [
        message("MESSAGE", framework_id=identity(framework), executor_id=identity("e"), data="aGk=")
    ]
    world.hear(agent, "MESSAGE", framework_id=identity(framework), executor_id=identity("e"), data="aG8=")
    assert world.take(framework) == [message("MESSAGE", **ids, data="aG8=")]
    world.call(framework, "SHUTDOWN", ids)
    assert world.types(agent) == ["SHUTDOWN_EXECUTOR"]
    world.call(framework, "REQUEST", {"requests": []})
    assert world.take(agent) == world.take(framework) == []


def test_what_is_said_of_an_unknown_framework_ends_it() -> None:
    world, agent, _ = pair()
    world.take(agent)
    world.update(agent, "F9", "t", "TASK_RUNNING")
    assert world.take(agent) == [message("SHUTDOWN_FRAMEWORK", framework_id=identity("F9"))]


def test_operators_watch() -> None:
    world = World()
    stream = world.stream()
    world.do(world.master.watch(stream, world.now))
    assert world.types(stream) == ["SUBSCRIBED", "HEARTBEAT"]
    agent = world.agent()
    framework = world.subscribe()
    world.start(framework, task_info("t", agent))
    world.update(agent, framework, "t", "TASK_RUNNING")
    assert world.types(stream) == ["AGENT_ADDED", "FRAMEWORK_ADDED", "TASK_ADDED", "TASK_UPDATED"]
    world.call(framework, "TEARDOWN")
    assert world.types(stream) == ["TASK_UPDATED", "FRAMEWORK_REMOVED"]
    world.do(world.master.closed(stream, world.now))
    assert not world.state.operators


def test_operators_see_frameworks_come_and_go() -> None:
    world = World()
    framework, stream = world.subscribe(), world.stream()
    world.do(world.master.watch(stream, world.now))
    world.take(stream)
    world.cut(framework)
    world.subscribe(framework)
    events = world.take(stream)
    assert [event["type"] for event in events] == ["FRAMEWORK_UPDATED"] * 2
    assert [event["framework_updated"]["framework"].get("connected", False) for event in events] == [False, True]


def test_operators_call() -> None:
    world, agent, framework = pair()
    answer, effects = world.master.operate({"type": "GET_HEALTH"}, world.now)
    assert answer == {"type": "GET_HEALTH", "get_health": {"healthy": True}} and not effects
    call = message("MARK_AGENT_GONE", agent_id=identity(agent))
    answer, effects = world.master.operate(call, world.now)
    world.do(effects)
    assert answer is None and agent in world.state.gone
    assert "FAILURE" in world.types(framework)
    with pytest.raises(HTTPError):
        world.master.operate({"type": "DANCE"}, world.now)


def test_a_drained_agent_goes_when_its_last_task_has_ended() -> None:
    world, agent, framework = pair()
    world.start(framework, task_info("t", agent))
    call = message("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    world.do(world.master.operate(call, world.now)[1])
    assert world.types(agent) == ["RUN", "KILL"] and agent in world.state.agents
    uuid = world.update(agent, framework, "t", "TASK_KILLED")
    world.acknowledge(framework, agent, "t", uuid)
    assert agent in world.state.gone and world.types(agent) == ["ACKNOWLEDGE", "SHUTDOWN"]


def test_an_idle_master_wants_to_be_woken_now_and_then() -> None:
    world, agent, framework = pair(allocate_s=1.0)
    assert world.now < world.master.due() <= world.now + 1
    (offer,) = world.offers(framework)
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 3}})
    world.sleep(2.5)
    assert world.offers(framework) == []
    world.sleep(1.5)
    assert [one["agent_id"]["value"] for one in world.offers(framework)] == [agent]


def test_what_a_quota_allows_again_is_offered_on_other_agents_too() -> None:
    world = World()
    config = {"role": "hpc", "limits": {"cpus": {"value": 4}}}
    world.do(world.master.operate(message("UPDATE_QUOTA", quota_configs=[config]), world.now)[1])
    first, second = world.agent(), world.agent()
    framework = world.subscribe(role="hpc")
    (offer,) = [one for one in world.offers(framework) if one["resources"][0]["name"] == "cpus"]
    refused = offer["agent_id"]["value"]
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 1000}})
    world.sleep(1.5)
    cpus = [one["agent_id"]["value"] for one in world.offers(framework) if one["resources"][0]["name"] == "cpus"]
    assert [refused, *cpus] in ([first, second], [second, first])
