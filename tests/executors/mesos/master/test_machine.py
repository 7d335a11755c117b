"""Calls and what agents send, and the rows that make the master durable."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.effects import KeepRow, Send
from executors.mesos.master.machine import Master
from executors.mesos.messages import identity, message
from tests.executors.mesos.master.world import AWARE, MULTI, World, executor_info, launch, task_info, uuid

# ---------------------------------------------------------------------- machine


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


def test_operators_are_sent_what_changes() -> None:
    world = World()
    stream = world.watch()
    assert world.types(stream) == ["SUBSCRIBED", "HEARTBEAT"]
    agent = world.agent()
    framework = world.subscribe()
    world.start(framework, task_info("t", agent))
    world.update(agent, framework, "t", "TASK_RUNNING")
    assert world.types(stream) == ["AGENT_ADDED", "FRAMEWORK_ADDED", "TASK_ADDED", "TASK_UPDATED"]
    world.cut(framework)
    world.subscribe(framework)
    events = world.take(stream)
    assert [event["type"] for event in events] == ["FRAMEWORK_UPDATED"] * 2
    assert [event["framework_updated"]["framework"].get("connected", False) for event in events] == [False, True]
    world.call(framework, "TEARDOWN")
    world.operate("MARK_AGENT_GONE", agent_id=identity(agent))
    assert world.types(stream) == ["TASK_UPDATED", "FRAMEWORK_REMOVED", "AGENT_REMOVED"]
    world.do(world.master.closed(stream, world.now))
    assert not world.state.operators


def test_each_transition_and_refusal_has_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "executors.mesos.master")
    world, agent, framework = pair(user="me")
    world.subscribe(user="root")
    secret = {"environment": {"variables": [{"name": "TOKEN", "value": "hush"}]}}
    executor = executor_info("e", command={"value": "run"} | secret)
    world.start(framework, task_info("t", agent, executor=executor), task_info("a/b", agent), refuse_s=0)
    world.update(agent, framework, "t", "TASK_RUNNING")
    world.call(framework, "KILL", {"task_id": identity("t")})
    world.call(framework, "SUPPRESS")
    world.call(framework, "REVIVE")
    info = {"id": identity(framework), "name": "new", "failover_timeout": 100, "capabilities": [AWARE]}
    world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info})
    world.operate("UPDATE_QUOTA", quota_configs=[{"role": "web", "limits": {"cpus": {"value": 1}}}])
    world.operate("DEACTIVATE_AGENT", agent_id=identity(agent))
    world.operate("REACTIVATE_AGENT", agent_id=identity(agent))
    world.hear(agent, "EXITED_EXECUTOR", framework_id=identity(framework), executor_id=identity("e"), status=9)
    world.cut(agent)
    world.sleep(100)
    world.cut(framework)
    world.subscribe(framework)
    world.subscribe(framework)
    world.agent(agent)
    world.operate("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    world.agent(agent)
    world.call(framework, "TEARDOWN")
    lines = [
        "agent M-S1 on n1 is registered, with 0 tasks",
        "framework M-0001 (test) has subscribed",
        "framework without an id is refused: frameworks of user 'root' are not taken",
        "task a/b of M-0001 is refused (REASON_TASK_INVALID): TaskID must not contain",
        "task t of M-0001 is on M-S1: TASK_STAGING",
        "task t of M-0001 on M-S1: TASK_STAGING -> TASK_RUNNING",
        "task t of M-0001 on M-S1 is to be killed",
        "framework M-0001 wants no offers, as ['*']",
        "framework M-0001 wants offers again, as ['*']",
        "framework M-0001 has changed what it says of itself",
        "roles have limits: {'web': {'cpus': 1000}}",
        "agent M-S1 is not active any more",
        "agent M-S1 is active again",
        "executor e of M-0001 on M-S1 has ended, with status 9",
        "agent M-S1 is disconnected",
        "agent M-S1 is unreachable, with 1 tasks",
        "task t of M-0001 on M-S1: TASK_RUNNING -> TASK_UNREACHABLE",
        "framework M-0001 is disconnected: it has 100 s to come back",
        "framework M-0001 has subscribed again",
        "framework M-0001 fails over",
        "agent M-S1 on n1 is back, with 0 tasks",
        "agent M-S1 is drained: {'mark_gone': True}",
        "agent M-S1 is gone, with 0 tasks",
        "agent M-S1 was given up: it is refused",
        "framework M-0001 is removed: it was torn down",
    ]
    said = "\n".join(record.getMessage() for record in caplog.records)
    for line in lines:
        assert line in said
    assert "hush" not in said


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
    world.operate("UPDATE_QUOTA", quota_configs=[config])
    first, second = world.agent(), world.agent()
    framework = world.subscribe(role="hpc")
    (offer,) = [one for one in world.offers(framework) if one["resources"][0]["name"] == "cpus"]
    refused = offer["agent_id"]["value"]
    world.call(framework, "DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 1000}})
    world.sleep(1.5)
    cpus = [one["agent_id"]["value"] for one in world.offers(framework) if one["resources"][0]["name"] == "cpus"]
    assert [refused, *cpus] in ([first, second], [second, first])


# ---------------------------------------------------------------------- rows


def busy() -> tuple[World, str, str]:
    """A world in which every table has a row."""
    world = World()
    agent, other, lost = world.agent(), world.agent(), world.agent()
    framework = world.subscribe(roles=["a", "b"], capabilities=[MULTI, {"type": "PARTITION_AWARE"}])
    world.start(framework, task_info("t", agent, executor=executor_info("e"), data="secret"))
    world.start(framework, task_info("away", lost))
    world.update(agent, framework, "t", "TASK_RUNNING")
    world.call(framework, "SUPPRESS", {"roles": ["b"]})
    world.cut(lost)
    world.sleep(100)
    world.operate("MARK_AGENT_GONE", agent_id=identity(other))
    world.operate("UPDATE_QUOTA", quota_configs=[{"role": "a", "limits": {"cpus": {"value": 8}}}])
    world.call(world.subscribe(), "TEARDOWN")
    return world, agent, framework


def test_everything_comes_back_whatever_the_order_of_the_rows() -> None:
    world, agent, framework = busy()
    before = world.state
    rows = world.rows()
    assert {row.table for row in rows} >= {
        "serial",
        "roles",
        "frameworks",
        "agents",
        "unreachable",
        "gone",
        "executors",
        "tasks",
    }
    random.Random(7).shuffle(rows)
    state = Master("M", world.options, world.now + 5, rows).state
    assert state.frameworks.keys() == before.frameworks.keys() and state.completed.keys() == before.completed.keys()
    found, known = state.frameworks[framework], before.frameworks[framework]
    assert (found.info, found.roles, found.suppressed) == (known.info, {"a", "b"}, {"b"})
    assert found.stream is None and found.disconnected == world.now + 5
    assert list(found.tasks) == ["t"] and list(found.unreachable) == ["away"]
    assert found.tasks["t"].statuses == known.tasks["t"].statuses and found.tasks["t"].executor == "e"
    assert "data" not in found.tasks["t"].info
    (recovered,) = state.recovered.values()
    assert recovered.id == agent and recovered.used == before.agents[agent].used and recovered.executors
    assert (state.gone, state.unreachable) == (before.gone, before.unreachable)
    assert state.quota == before.quota == {"a": {"cpus": 8000}}
    assert not state.agents and not state.offers and not state.streams


def test_numbers_are_never_given_twice() -> None:
    world, *_ = busy()
    before = {*world.state.agents, *world.state.unreachable, *world.state.gone, *world.state.frameworks}
    offers = set(world.state.offers)
    for _ in range(3):
        world.restart()
        assert world.agent() not in before
        assert world.subscribe() not in before
        assert world.state.offers and not offers & world.state.offers.keys()
        before |= {*world.state.agents, *world.state.frameworks}
        offers |= world.state.offers.keys()


def test_rows_of_what_is_unknown_are_left_out() -> None:
    world, *_ = busy()
    orphans = [row for row in world.rows() if row.table in ("tasks", "executors")]
    state = Master("M", world.options, world.now, [*orphans, KeepRow("tables of the future", "x", {})]).state
    assert not state.frameworks and not state.recovered


def test_rows_of_tasks_on_agents_that_are_unknown_are_left_out() -> None:
    world, _, framework = busy()
    rows = [row for row in world.rows() if row.table in ("frameworks", "tasks")]
    state = Master("M", world.options, world.now, [*rows, KeepRow("maintenance", "schedule", {})]).state
    assert not state.frameworks[framework].tasks and not state.frameworks[framework].unreachable
    assert list(state.frameworks) == [framework]


def test_an_acknowledgement_and_an_offer_cost_no_row() -> None:
    world = World()
    agent, framework = world.agent(), world.subscribe()
    world.start(framework, task_info("t", agent))
    uuid = world.update(agent, framework, "t", "TASK_RUNNING")
    call = {"agent_id": identity(agent), "task_id": identity("t"), "uuid": uuid}
    effects = world.master.call(
        {"type": "ACKNOWLEDGE", "framework_id": identity(framework), "acknowledge": call},
        "p",
        world.stream_of[framework],
        world.now,
    )
    effects += world.master.from_agent(world.stream_of[agent], [message("PONG")], world.now)[0]
    call = {"type": "REVIVE", "framework_id": identity(framework)}
    effects += world.master.call(call, "p", world.stream_of[framework], world.now)
    assert effects and not [effect for effect in effects if isinstance(effect, KeepRow)]


@pytest.mark.parametrize("kind", ["frameworks", "agents"])
def test_a_row_exists_for_all_that_was_sent(kind: str) -> None:
    """A row exists for everything that anyone was told of."""
    world, agent, framework = busy()
    assert (kind, framework if kind == "frameworks" else agent) in world.journal
