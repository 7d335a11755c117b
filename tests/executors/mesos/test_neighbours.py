"""What runs know of one another, as a master tells it."""

from __future__ import annotations

import pytest

from executors.mesos.codec import BadMessage, Message
from executors.mesos.sharing import PoolNode, PoolRun, attribute, look_at_pool
from tests.executors.mesos.shared import Asking, Pool


def text(name: str, value: str) -> Message:
    return {"name": name, "type": "TEXT", "text": {"value": value}}


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_runs_and_what_they_hold(pool: Pool) -> None:
    pool.run("left")
    pool.run("right", waits=True)
    own, lent = pool.node("left.0", "left", "12.5"), pool.node("left.1", "left")
    pool.work("left", "t1", own, 3.0)
    pool.work("left", "t2", lent, 1.0)
    pool.work("right", "t3", lent, 2.0)
    found = look_at_pool(pool.operator)
    assert found.runs == {
        "left": PoolRun("left", connected=True, waits=False, cores=4.0),
        "right": PoolRun("right", connected=True, waits=True, cores=2.0),
    }
    assert found.nodes == {
        own: PoolNode(own, "left", "left.0", 12.5, active=True, used=3.0),
        lent: PoolNode(lent, "left", "left.1", 60.0, active=True, used=3.0),
    }
    pool.end("left", "t1", own)
    assert look_at_pool(pool.operator).nodes[own].used == 0.0


def test_a_run_may_wait_and_cease_to(pool: Pool) -> None:
    pool.run("left")
    for waits in (True, False):
        pool.tell("left", waits=waits)
        assert look_at_pool(pool.operator).runs["left"].waits is waits


def test_a_driver_goes_and_another_comes(pool: Pool) -> None:
    pool.run("left")
    pool.leave("left")
    assert not look_at_pool(pool.operator).runs["left"].connected
    pool.run("left", waits=True)
    assert look_at_pool(pool.operator).runs["left"] == PoolRun("left", connected=True, waits=True, cores=0.0)


def test_a_run_that_does_not_come_back_is_forgotten(pool: Pool) -> None:
    pool.run("left")
    pool.leave("left")
    pool.world.sleep(101.0)  # its failover timeout
    assert look_at_pool(pool.operator).runs == {}


def test_an_agent_that_is_to_get_nothing_new(pool: Pool) -> None:
    agent = pool.node("left.0", "left")
    pool.operator.deactivate(agent)
    assert not look_at_pool(pool.operator).nodes[agent].active


def test_frameworks_of_others_are_no_runs(pool: Pool) -> None:
    pool.world.subscribe(name="asa")
    pool.world.subscribe(name="spark")
    assert look_at_pool(pool.operator).runs == {}


def test_an_agent_that_was_started_by_hand_is_nobody_s(pool: Pool) -> None:
    agent = pool.agent(text("rack", "7"))
    assert look_at_pool(pool.operator).nodes[agent] == PoolNode(agent, "", "", 0.0, active=True, used=0.0)


def test_an_attribute_by_its_name() -> None:
    message = {"attributes": [{"name": "size", "type": "SCALAR", "scalar": {"value": 3.0}}, text("run", "left")]}
    assert attribute(message, "run") == "left"
    assert attribute(message, "allocation", "none") == "none"
    assert attribute(message, "size", "3") == "3", "only texts are read"
    assert attribute({}, "run") == ""


def test_what_makes_no_sense_is_a_bad_message(pool: Pool) -> None:
    class Odd(Asking):
        def call(self, name: str, **payload: object) -> Message:
            return {"agents": [{"agent_info": 7}]} if name == "GET_AGENTS" else super().call(name, **payload)

    with pytest.raises(BadMessage):
        look_at_pool(Odd(pool.world))
