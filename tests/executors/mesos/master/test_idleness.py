"""A master that was started on demand ends by itself, but not while somebody needs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService, until_idle
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.resources import NONE
from tests.executors.mesos import live
from tests.executors.mesos.scripted import until

pytestmark = pytest.mark.slow

PATIENCE_S = 20.0


def framework(stream: str | None) -> FrameworkRecord:
    return FrameworkRecord("F", {}, frozenset(), 0.0, stream=stream)


@pytest.mark.parametrize("who", ["framework", "agent"])
def test_not_while_somebody_is_there(who: str) -> None:
    async def story() -> None:
        state = MasterState("M", MasterOptions(), 0.0)
        if who == "framework":
            state.frameworks["F"] = framework("s1")
        else:
            state.agents["S"] = AgentRecord("S", {}, NONE, 0.0)
        idle = asyncio.create_task(until_idle(state, 0.05))
        done, _ = await asyncio.wait([idle], timeout=0.5)
        assert not done
        if who == "framework":
            state.frameworks["F"].stream = None  # known, but gone
        else:
            del state.agents["S"]
        await asyncio.wait_for(idle, PATIENCE_S)

    asyncio.run(story())


def test_not_while_somebody_comes_and_goes() -> None:
    async def story() -> None:
        state = MasterState("M", MasterOptions(), 0.0)
        idle = asyncio.create_task(until_idle(state, 2.0))
        loop = asyncio.get_running_loop()
        end = loop.time() + 3.0
        while loop.time() < end:
            state.counters["slave_registrations"] = state.counters.get("slave_registrations", 0) + 1
            done, _ = await asyncio.wait([idle], timeout=0.2)
            assert not done
        await asyncio.wait_for(idle, PATIENCE_S)

    asyncio.run(story())


def test_a_service_ends_and_lets_the_next_one_in(tmp_path: Path) -> None:
    pool = PoolDirectory.create(tmp_path / "pool", "p")
    with MasterService(pool, idle_s=0.2) as service:
        service.wait(PATIENCE_S)
    assert pool.master() is None
    with MasterService(pool, idle_s=1.0) as service:
        driver = SchedulerDriver(object(), live.FRAMEWORK, pool)  # type: ignore[arg-type]
        driver.start()
        until(lambda: driver.connected, "the framework")
        driver.stop()
        driver.join()
        service.wait(PATIENCE_S)
