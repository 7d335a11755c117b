"""Agents: they register, are pinged, lost, found again, drained, given up; and what becomes of their tasks."""

from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import KeepRow
from executors.mesos.master import agents
from executors.mesos.messages import identity, message
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.master.world import AWARE, World, executor_info, task_info

# ---------------------------------------------------------------------- agents


UNAWARE: dict[str, list[Message]] = {"capabilities": []}


def running(**known_info: object) -> tuple[World, str, str]:
    """A framework with task `t` that runs on an agent."""
    world = World()
    agent, framework = world.agent(), world.subscribe(**known_info)
    world.start(framework, task_info("t", agent))
    world.acknowledge(framework, agent, "t", world.update(agent, framework, "t", "TASK_RUNNING"))
    world.take(agent), world.take(framework)
    return world, agent, framework


def there(framework: str, task: str = "t", state: str = "TASK_RUNNING", cpus: float = 1, **more: object) -> Message:
    """A task as an agent tells of it."""
    return {
        "task_id": identity(task),
        "framework_id": identity(framework),
        "name": task,
        "resources": to_json(scalars(cpus=cpus), "*"),
        "state": state,
        "statuses": [],
        "task_info": {"name": task, "task_id": identity(task), "command": {"value": "true"}},
    } | more


def lose(world: World, agent: str) -> None:
    world.cut(agent)
    world.sleep(15 * 6 + 1)
    assert agent in world.state.unreachable


def known_info(framework: str, **more: object) -> Message:
    return {"id": identity(framework), "user": "me", "name": "test", "failover_timeout": 100} | more


def test_a_new_agent_gets_an_id_and_is_offered() -> None:
    world = World()
    framework = world.subscribe()
    assert world.offers(framework) == []
    agent = world.agent(resources=scalars(cpus=2, mem=100))
    (offer,) = world.offers(framework)
    assert offer["agent_id"] == identity(agent) and offer["hostname"] == "n1"
    assert world.agent() != agent
    assert world.agent("M-S3") == "M-S3" and world.agent() == "M-S4"


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"agent_info": []},
        {"agent_info": {"hostname": "n"}},
        {"agent_info": {"hostname": "n", "resources": [{"name": "cpus"}]}},
        {"agent_info": {"hostname": "n", "resources": [], "id": identity("a b")}},
        {"agent_info": {"hostname": "n", "resources": []}, "tasks": [3]},
        {"agent_info": {"hostname": "n", "resources": []}, "tasks": [there("F") | {"state": "TASK_DANCING"}]},
        {"agent_info": {"hostname": "n", "resources": []}, "tasks": [there("F") | {"task_id": identity("../x")}]},
        {"agent_info": {"hostname": "n", "resources": []}, "tasks": [there("F") | {"statuses": [3]}]},
        {"agent_info": {"hostname": "n", "resources": []}, "frameworks": [{}]},
        {"agent_info": {"hostname": "n", "resources": []}, "executors": [{"framework_id": identity("F")}]},
        {"agent_info": {"hostname": "n", "resources": []}, "unavailability": {}},
        {"agent_info": {"hostname": "n", "resources": []}, "unavailability": 3},
    ],
)
def test_a_malformed_agent_is_refused_and_changes_nothing(item: Message) -> None:
    world = World()
    with pytest.raises(HTTPError) as caught:
        world.master.register(message("REGISTER", **item) if item else {"type": "REGISTER"}, "s", world.now)
    assert caught.value.status == 400
    assert not world.state.agents and not world.state.recovered and not world.state.streams and not world.state.serial


def test_a_node_is_not_offered_twice() -> None:
    world = World()
    agent = world.agent()
    info: Message = {"hostname": "n1", "port": 5052, "resources": to_json(scalars(cpus=1))}
    with pytest.raises(HTTPError, match=rf"agent {agent} has this name .*'n1'.*--name or --attribute") as caught:
        world.agent(agent_info=info)
    assert caught.value.status == 409 and [*world.state.agents] == [agent]
    allocation = {"name": "allocation", "type": "TEXT", "text": {"value": "2"}}
    assert world.agent(agent_info=info | {"attributes": [allocation]}) != agent, "two allocations share the node"
    assert world.agent(agent) == agent
    world.cut(agent)
    assert world.agent(agent_info=info) in world.state.agents


def test_pings_are_answered_or_the_agent_is_given_up() -> None:
    world, agent, framework = running()
    world.sleep(20, answer=False)
    assert set(world.types(agent)) == {"PING"}
    world.hear(agent, "PONG")
    world.sleep(15 * 5, answer=False)
    assert agent in world.state.agents
    stream = world.stream_of[agent]
    world.sleep(16, answer=False)
    assert agent in world.state.unreachable and stream not in world.open
    records = world.take(framework)
    updates = [record["update"]["status"] for record in records if record["type"] == "UPDATE"]
    assert [(one["state"], one["reason"]) for one in updates] == [("TASK_UNREACHABLE", "REASON_AGENT_REMOVED")]
    assert updates[0]["unreachable_time"] and "uuid" not in updates[0]
    assert message("FAILURE", agent_id=identity(agent)) in records
    assert [record["type"] for record in records if record["type"] == "RESCIND"]
    assert not world.state.frameworks[framework].tasks and not world.state.offers


def test_frameworks_that_cannot_tell_partitions_take_it_for_lost() -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    assert world.updates(framework) == [("t", "TASK_LOST")]


def test_an_agent_that_is_away_is_offered_no_more() -> None:
    world, agent, framework = running()
    world.call(framework, "REVIVE")
    world.take(framework)
    world.cut(agent)
    assert world.types(framework) == ["RESCIND"]
    world.call(framework, "REVIVE")
    world.sleep(5)
    assert world.take(framework) == []
    assert world.agent(agent, tasks=[there(framework)]) == agent
    assert world.types(framework) == ["OFFERS"]


def test_an_agent_that_comes_back_brings_its_tasks() -> None:
    world, agent, framework = running()
    lose(world, agent)
    world.take(framework)
    assert world.agent(agent, tasks=[there(framework)]) == agent
    assert world.updates(framework) == [("t", "TASK_RUNNING")]
    assert world.state.frameworks[framework].tasks["t"].state == "TASK_RUNNING"
    assert world.state.agents[agent].used.scalar("cpus") == 1
    assert not world.state.unreachable and not world.state.unreachable_tasks and not world.state.away
    last = world.update(agent, framework, "t", "TASK_FINISHED")
    world.acknowledge(framework, agent, "t", last)
    assert not world.state.frameworks[framework].tasks and not world.state.agents[agent].used


def test_tasks_that_are_taken_for_lost_are_killed_on_return() -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    world.take(framework)
    world.agent(agent, tasks=[there(framework)])
    assert world.types(agent) == ["KILL"]
    last = world.update(agent, framework, "t", "TASK_KILLED")
    assert world.updates(framework) == [("t", "TASK_KILLED")]
    world.acknowledge(framework, agent, "t", last)
    assert not world.state.agents[agent].tasks and not world.state.frameworks[framework].tasks


def test_a_lost_task_that_was_launched_again_elsewhere_is_another_one() -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    other = world.agent()
    world.start(framework, task_info("t", other))
    world.take(framework)
    world.agent(agent, tasks=[there(framework)])
    assert world.types(agent) == ["KILL"]
    assert world.state.agents[agent].used.scalar("cpus") == 1
    world.update(agent, framework, "t", "TASK_KILLED")
    assert world.updates(framework) == [] and world.types(agent) == ["ACKNOWLEDGE"]
    assert not world.state.agents[agent].used and not world.state.agents[agent].tasks
    assert world.state.frameworks[framework].tasks["t"].agent == other


def test_tasks_that_have_ended_take_nothing_whatever_an_agent_says() -> None:
    world, agent, framework = running()
    world.update(agent, framework, "t", "TASK_FINISHED")
    world.take(framework)
    world.agent(agent, tasks=[there(framework)])
    assert world.state.frameworks[framework].tasks["t"].state == "TASK_FINISHED"
    assert not world.state.agents[agent].used and world.types(agent) == []


def test_only_so_many_agents_that_are_away_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "AWAY_MOST", 1)
    world, first, framework = running()
    names = [first, world.agent(), world.agent()]
    world.take(framework)
    lose(world, names[0])
    assert world.updates(framework) == [("t", "TASK_UNREACHABLE")]
    lose(world, names[1])
    assert world.updates(framework) == [("t", "TASK_GONE_BY_OPERATOR")]
    assert list(world.state.unreachable) == [names[1]] and list(world.state.gone) == [first]
    lose(world, names[2])
    assert list(world.state.unreachable) == [names[2]] and list(world.state.gone) == [names[1]]
    assert {key for table, key in world.journal if table in ("gone", "unreachable")} == {names[1], names[2]}


def test_a_task_that_may_come_back_is_not_launched_twice() -> None:
    world, agent, framework = running()
    lose(world, agent)
    world.take(framework)
    world.start(framework, task_info("t", world.agent()))
    assert world.updates(framework) == [("t", "TASK_ERROR")]


@pytest.mark.parametrize(
    ("capabilities", "launched", "ran"), [([AWARE], "TASK_DROPPED", "TASK_GONE"), ([], "TASK_LOST", "TASK_LOST")]
)
def test_tasks_that_the_agent_does_not_have(capabilities: list[Message], launched: str, ran: str) -> None:
    world, agent, framework = running(capabilities=capabilities)
    world.call(framework, "REVIVE")
    world.start(framework, task_info("u", agent))
    world.cut(agent)
    world.take(framework)
    world.agent(agent)
    assert sorted(world.updates(framework)) == [("t", ran), ("u", launched)]
    assert not world.state.agents[agent].used and not world.state.frameworks[framework].tasks
    assert not [key for key in world.journal if key[0] == "tasks"]


def test_tasks_and_frameworks_that_the_master_does_not_know_are_adopted() -> None:
    world = World()
    executor = {"framework_id": identity("F"), "executor_info": executor_info("e", resources=to_json(scalars(mem=64)))}
    pending = there("F", "u", "TASK_FINISHED", 2, status_update_uuid="AAAAAAAAAAAAAAAAAAAAAA==")
    pending["statuses"] = [
        {"task_id": identity("u"), "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {"task_id": identity("u"), "state": "TASK_FINISHED", "uuid": "BBBBBBBBBBBBBBBBBBBBBA=="},
    ]
    item = {"frameworks": [known_info("F")], "executors": [executor], "tasks": [there("F"), pending]}
    agent = world.agent("old-agent", **item)
    assert agent == "old-agent" and world.state.agents[agent].used == scalars(cpus=1, mem=64)
    framework = world.state.frameworks["F"]
    assert framework.stream is None and {task.id: task.state for task in framework.tasks.values()} == {
        "t": "TASK_RUNNING",
        "u": "TASK_FINISHED",
    }
    assert framework.tasks["u"].unacknowledged == "AAAAAAAAAAAAAAAAAAAAAA=="
    assert [status["state"] for status in framework.tasks["u"].statuses] == ["TASK_RUNNING"]
    world.sleep(101)
    assert "F" in world.state.completed
    world.agent(agent)
    assert not world.state.agents[agent].used


def test_a_reported_task_whose_name_another_agent_s_task_has_is_killed() -> None:
    world, agent, framework = running()
    other = world.agent("from-before", tasks=[there(framework)])
    assert world.types(other) == ["KILL"] and world.state.agents[other].used.scalar("cpus") == 1
    assert world.state.frameworks[framework].tasks["t"].agent == agent
    world.update(other, framework, "t", "TASK_KILLED")
    assert not world.state.agents[other].used and world.updates(framework) == []


def test_removed_frameworks_stay_removed() -> None:
    world, agent, framework = running()
    world.cut(agent)
    world.call(framework, "TEARDOWN")
    world.agent(agent, frameworks=[known_info(framework)], tasks=[there(framework)])
    assert world.take(agent) == [message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework))]
    assert world.state.agents[agent].used.scalar("cpus") == 1
    world.agent(agent)
    assert not world.state.agents[agent].used, "it has none any more"


def test_a_kill_for_an_agent_that_is_away_is_sent_when_it_is_back() -> None:
    world, agent, framework = running()
    world.cut(agent)
    world.call(framework, "KILL", {"task_id": identity("t"), "kill_policy": {"grace_period": {"nanoseconds": 5}}})
    world.restart()
    world.agent(agent, tasks=[there(framework)])
    (kill,) = world.take(agent)
    assert kill["kill"]["kill_policy"] == {"grace_period": {"nanoseconds": 5}}


def test_a_kill_that_waits_already_is_written_once() -> None:
    world, agent, framework = running()
    world.cut(agent)
    call: Message = {"type": "KILL", "framework_id": identity(framework), "kill": {"task_id": identity("t")}}
    kept = []
    for _ in range(2):
        effects = world.master.call(call, "p", world.stream_of[framework], world.now)
        kept.append([effect for effect in effects if isinstance(effect, KeepRow)])
    assert kept[0] and not kept[1]


def test_a_second_stream_replaces_the_first() -> None:
    world, agent, framework = running()
    old = world.stream_of[agent]
    world.agent(agent, tasks=[there(framework)])
    assert old not in world.open and world.updates(framework) == []
    world.do(world.master.closed(old, world.now))
    assert world.state.agents[agent].stream == world.stream_of[agent]
    world.sleep(20, answer=False)
    assert world.types(agent).count("PING") == 1


def test_gone_is_for_good() -> None:
    world, agent, framework = running()
    world.hear(agent, "UNREGISTER", reason="wall time")
    assert world.updates(framework) == [("t", "TASK_GONE")]
    assert world.types(agent) == ["SHUTDOWN"] and agent in world.state.gone
    stream = world.agent(agent)
    assert world.types(stream) == ["SHUTDOWN"] and stream not in world.open
    world.restart()
    assert world.types(world.agent(agent)) == ["SHUTDOWN"]


def test_an_unreachable_agent_can_be_given_up_for_good() -> None:
    world, agent, framework = running()
    lose(world, agent)
    world.take(framework)
    world.operate("MARK_AGENT_GONE", agent_id=identity(agent))
    (update,) = [event["update"]["status"] for event in world.take(framework) if event["type"] == "UPDATE"]
    assert (update["state"], update["reason"]) == ("TASK_GONE_BY_OPERATOR", "REASON_AGENT_REMOVED_BY_OPERATOR")
    assert not world.state.unreachable and not world.state.unreachable_tasks and agent in world.state.gone
    assert not [key for key in world.journal if key[0] in ("tasks", "agents", "unreachable")]


def test_an_executor_that_exits() -> None:
    world = World()
    agent, framework = world.agent(), world.subscribe()
    world.start(framework, task_info("t", agent, executor=executor_info("e")))
    assert world.state.agents[agent].used.scalar("cpus") == 1.5
    last = world.update(agent, framework, "t", "TASK_FINISHED")
    assert world.state.agents[agent].used.scalar("cpus") == 0.5
    world.take(framework)
    world.hear(agent, "EXITED_EXECUTOR", framework_id=identity(framework), executor_id=identity("e"), status=9)
    failure = world.take(framework)[0]
    assert failure == message("FAILURE", agent_id=identity(agent), executor_id=identity("e"), status=9)
    assert not world.state.agents[agent].used
    world.acknowledge(framework, agent, "t", last)
    assert {table for table, _ in world.journal} == {"agents", "frameworks", "serial"}


def test_agents_that_do_not_come_back_after_a_restart_are_unreachable() -> None:
    world, agent, framework = running()
    world.restart()
    world.subscribe(framework)
    assert agent in world.state.recovered
    world.sleep(599)
    assert world.updates(framework) == []
    world.sleep(2)
    assert world.updates(framework) == [("t", "TASK_UNREACHABLE")]
    world.restart()
    assert agent in world.state.unreachable and [t.id for t in world.state.unreachable_tasks[agent]] == ["t"]
    world.subscribe(framework)
    world.agent(agent, tasks=[there(framework)])
    assert world.updates(framework) == [("t", "TASK_RUNNING")]


def test_pings_of_many_agents_are_spread() -> None:
    world = World()
    agents = [world.agent() for _ in range(50)]
    pinged = []
    for _ in range(int(10 * world.options.ping_s)):
        world.sleep(0.1, answer=False)
        pinged += [[agent for agent in agents if "PING" in world.types(agent)]]
    assert sum(map(len, pinged)) == 50 and sum(map(bool, pinged)) > 20


# ---------------------------------------------------------------------- lost tasks


def stranger(world: World, agent: str, framework: str) -> str:
    """The framework's task is lost and launched again on another agent; the first agent comes back with it."""
    lose(world, agent)
    other = world.agent()
    world.start(framework, task_info("t", other))
    world.agent(agent, tasks=[there(framework)])
    world.take(framework), world.take(agent)
    return other


def test_an_agent_is_drained_when_only_a_lost_task_was_left() -> None:
    world, agent, framework = running(**UNAWARE)
    stranger(world, agent, framework)
    world.operate("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    assert agent in world.state.agents
    world.update(agent, framework, "t", "TASK_KILLED")
    assert agent in world.state.gone


@pytest.mark.parametrize("how", ["gone", "unreachable", "without it", "over"])
def test_a_lost_task_goes_with_its_agent_and_not_the_one_that_was_launched_again(how: str) -> None:
    world, agent, framework = running(**UNAWARE)
    other = stranger(world, agent, framework)
    if how == "gone":
        world.hear(agent, "UNREGISTER", reason="wall time")
    elif how == "unreachable":
        world.cut(agent)
        for _ in range(100):
            world.sleep(1)
        assert world.state.unreachable_tasks[agent] == []
    elif how == "without it":
        world.agent(agent)
        assert not world.state.agents[agent].tasks and not world.state.agents[agent].used
    else:
        world.agent(agent, tasks=[there(framework, state="TASK_KILLED")])
        assert not world.state.agents[agent].used
    assert world.updates(framework) == []
    assert world.state.frameworks[framework].tasks["t"].agent == other


@pytest.mark.parametrize("how", ["without it", "gone"])
def test_a_task_that_was_launched_again_outlives_the_master_when_the_lost_one_is_forgotten(how: str) -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    other = world.agent()
    world.start(framework, task_info("t", other))
    if how == "without it":
        world.agent(agent)
    else:
        world.operate("MARK_AGENT_GONE", agent_id=identity(agent))
    assert not world.state.frameworks[framework].unreachable
    world.restart()
    assert world.state.frameworks[framework].tasks["t"].agent == other


def test_a_task_that_was_lost_twice_comes_back_twice() -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    other = world.agent()
    world.start(framework, task_info("t", other))
    lose(world, other)
    world.agent(agent, tasks=[there(framework)])
    assert world.state.frameworks[framework].unreachable["t"].agent == other
    world.agent(other, tasks=[there(framework)])
    assert not world.state.frameworks[framework].unreachable
    assert world.types(agent).count("KILL") == world.types(other).count("KILL") == 1


def test_a_lost_task_that_does_not_come_back_is_over() -> None:
    world, agent, framework = running(**UNAWARE)
    lose(world, agent)
    world.take(framework)
    world.agent(agent)
    assert world.updates(framework) == []  # it was told to be lost
    assert [task.id for task in world.state.frameworks[framework].completed] == ["t"]
    assert not [key for key in world.journal if key[0] == "tasks"]


def test_a_kill_of_a_lost_task_does_not_take_the_place_of_the_one_that_was_launched_again() -> None:
    world, agent, framework = running(**UNAWARE)
    other = stranger(world, agent, framework)
    world.cut(agent)
    world.operate("DRAIN_AGENT", agent_id=identity(agent))
    world.restart()
    assert world.state.frameworks[framework].tasks["t"].agent == other


# ---------------------------------------------------------------------- maintenance


def test_drain_kills_and_is_over_with_the_last_task() -> None:
    world, agent, framework = running()
    world.call(framework, "REVIVE")
    world.start(framework, task_info("u", agent), refuse_s=0)
    world.take(agent), world.take(framework)
    world.operate("DRAIN_AGENT", agent_id=identity(agent))
    kills = world.take(agent)
    assert [kill["type"] for kill in kills] == ["KILL"] * 2 and "kill_policy" not in kills[0]["kill"]
    assert world.types(framework) == ["RESCIND"] and not world.state.offers
    with pytest.raises(HTTPError, match="still draining, 2 tasks"):
        world.operate("REACTIVATE_AGENT", agent_id=identity(agent))
    for task in ("t", "u"):
        world.acknowledge(framework, agent, task, world.update(agent, framework, task, "TASK_KILLED"))
    world.sleep(5)
    assert not world.state.offers
    world.operate("REACTIVATE_AGENT", agent_id=identity(agent))
    assert "OFFERS" in world.types(framework) and world.state.agents[agent].drain is None


@pytest.mark.parametrize(
    ("most", "own", "expected"),
    [
        ("5s", None, 5.0),
        ("0.5s", 3.0, 0.5),
        ("5s", 3.0, 3.0),
        ("5s", "nonsense", 5.0),  # as only the task's agent may know it
    ],
)
def test_drain_shortens_the_grace_of_tasks(most: Any, own: float | str | None, expected: float) -> None:
    world, agent, framework = running()
    if own is not None:
        policy = 5 if isinstance(own, str) else {"grace_period": {"nanoseconds": round(own * 1e9)}}
        world.state.frameworks[framework].tasks["t"].info["kill_policy"] = policy
    world.operate("DRAIN_AGENT", agent_id=identity(agent), max_grace_period=most)
    [kill] = world.take(agent)
    assert kill["kill"]["kill_policy"] == {"grace_period": {"nanoseconds": round(expected * 1e9)}}
    [shown] = world.operate("GET_AGENTS")["agents"]
    assert shown["drain_info"]["config"]["max_grace_period"] == {"nanoseconds": round(float(most[:-1]) * 1e9)}


@pytest.mark.parametrize("most", ["5", "-5s", "1e3s", "99999999999s", {"nanoseconds": -1}, {"seconds": "x"}, 5, []])
def test_drain_refuses_odd_grace_periods(most: Any) -> None:
    world, agent, _ = running()
    with pytest.raises(HTTPError, match="max_grace_period"):
        world.operate("DRAIN_AGENT", agent_id=identity(agent), max_grace_period=most)
    assert world.state.agents[agent].drain is None


def test_a_drained_agent_is_gone_with_its_last_task_if_that_was_asked_for() -> None:
    world, agent, framework = running()
    world.operate("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    assert agent in world.state.agents
    world.acknowledge(framework, agent, "t", world.update(agent, framework, "t", "TASK_KILLED"))
    assert agent in world.state.gone and world.types(agent) == ["KILL", "ACKNOWLEDGE", "SHUTDOWN"]
    idle = world.agent()
    world.operate("DRAIN_AGENT", agent_id=identity(idle))
    assert idle in world.state.agents
    world.operate("DRAIN_AGENT", agent_id=identity(idle), mark_gone=True)
    assert idle in world.state.gone


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_is_drained_before_or_after_a_restart_of_the_master(when: str) -> None:
    world, agent, framework = running()
    if when == "before":
        world.operate("DRAIN_AGENT", agent_id=identity(agent))
    world.restart()
    if when == "after":
        world.operate("DRAIN_AGENT", agent_id=identity(agent))
    world.subscribe(framework)
    world.agent(agent, tasks=[there(framework)])
    assert world.types(agent) == ["KILL"] and "OFFERS" not in world.types(framework)


def test_drain_is_over_for_an_agent_whose_framework_was_torn_down_while_it_was_away() -> None:
    world, agent, framework = running()
    world.operate("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    world.restart()
    world.operate("TEARDOWN", framework_id=identity(framework))
    assert agent in world.state.recovered
    world.agent(agent)
    assert agent in world.state.gone and world.types(agent) == ["SHUTDOWN"]


def test_a_deactivated_agent_keeps_its_tasks_and_gets_no_more() -> None:
    world, agent, framework = running()
    world.call(framework, "REVIVE")
    world.take(framework)
    world.operate("DEACTIVATE_AGENT", agent_id=identity(agent))
    assert world.types(framework) == ["RESCIND"] and world.types(agent) == []
    world.sleep(5)
    assert not world.state.offers and not world.state.agents[agent].active
    world.operate("REACTIVATE_AGENT", agent_id=identity(agent))
    assert world.types(framework) == ["OFFERS"]
    with pytest.raises(HTTPError, match="not deactivated"):
        world.operate("REACTIVATE_AGENT", agent_id=identity(agent))


@pytest.mark.parametrize("kind", ["DRAIN_AGENT", "DEACTIVATE_AGENT", "REACTIVATE_AGENT"])
def test_unknown_agents_are_refused(kind: str) -> None:
    with pytest.raises(HTTPError, match="'M-S9' is not known"):
        World().operate(kind, agent_id=identity("M-S9"))
