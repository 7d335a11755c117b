import random

import pytest

from executors.mesos.effects import KeepRow
from executors.mesos.master.machine import Master
from executors.mesos.messages import identity, message
from tests.executors.mesos.master.world import MULTI, World, executor_info, task_info


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
    for call in (
        message("MARK_AGENT_GONE", agent_id=identity(other)),
        message("UPDATE_WEIGHTS", weight_infos=[{"role": "a", "weight": 3}]),
        message("UPDATE_QUOTA", quota_configs=[{"role": "a", "limits": {"cpus": {"value": 8}}}]),
    ):
        world.do(world.master.operate(call, world.now)[1])
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
    assert state.weights == {"a": 3.0} and state.quota == before.quota == {"a": {"cpus": 8000}}
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
def test_all_is_kept_before_anybody_is_told(kind: str) -> None:
    """A row exists for everything that anyone was told of."""
    world, agent, framework = busy()
    assert (kind, framework if kind == "frameworks" else agent) in world.journal
