"""Tasks that frameworks were told to be lost, and that come back; some have been launched again meanwhile."""

from __future__ import annotations

import pytest

from executors.mesos.messages import identity, message
from tests.executors.mesos.master.test_agents import UNAWARE, lose, running, there
from tests.executors.mesos.master.world import World, task_info


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
    call = message("DRAIN_AGENT", agent_id=identity(agent), mark_gone=True)
    world.do(world.master.operate(call, world.now)[1])
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
        call = message("MARK_AGENT_GONE", agent_id=identity(agent))
        world.do(world.master.operate(call, world.now)[1])
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
    world.do(world.master.operate(message("DRAIN_AGENT", agent_id=identity(agent)), world.now)[1])
    world.restart()
    assert world.state.frameworks[framework].tasks["t"].agent == other
