"""Agents whose run has no driver: how long they are waited for, and how they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from executors.mesos import sharing
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.sharing import OrphanWatch, look_at_pool
from tests.executors.mesos import live
from tests.executors.mesos.scripted import until
from tests.executors.mesos.shared import Pool


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def watch(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> OrphanWatch:
    """Steps by hand, in the time of the test."""
    monkeypatch.setattr(sharing, "Operator", lambda directory: pool.operator)
    return OrphanWatch(PoolDirectory(Path("nowhere")))


def agents(pool: Pool) -> list[str]:
    return list(look_at_pool(pool.operator).nodes)


def test_while_its_driver_is_there_an_agent_stays(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    pool.node("left.0", "left", "0")
    for now in (0.0, 1e6):
        watch.step(now)
    assert pool.operator.changes == []


def test_an_idle_one_goes_when_its_driver_has_been_away_for_long(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    agent = pool.node("left.0", "left", "30")
    pool.leave("left")
    for now in (100.0, 129.9):
        watch.step(now)
    assert agents(pool) == [agent]
    watch.step(130.0)
    assert agents(pool) == []


def test_a_driver_that_comes_back_in_time_keeps_them(pool: Pool, watch: OrphanWatch) -> None:
    pool.run("left")
    agent = pool.node("left.0", "left", "30")
    pool.leave("left")
    watch.step(100.0)
    pool.run("left")
    watch.step(120.0)
    pool.leave("left")
    watch.step(131.0)
    watch.step(160.0)
    assert agents(pool) == [agent], "the time counts from when it went last"
    watch.step(161.0)
    assert agents(pool) == []


def test_one_on_which_others_work_gets_nothing_new_and_goes_when_they_have_ended(
    pool: Pool, watch: OrphanWatch
) -> None:
    for run in ("left", "right"):
        pool.run(run)
    agent = pool.node("left.0", "left", "0")
    pool.work("right", "t1", agent)
    pool.leave("left")
    for now in (100.0, 101.0):
        watch.step(now)
    assert pool.operator.changes == ["DEACTIVATE_AGENT"], "once"
    assert not look_at_pool(pool.operator).nodes[agent].active
    pool.end("right", "t1", agent)
    watch.step(102.0)
    assert agents(pool) == []


def test_one_of_a_run_that_the_master_does_not_know_is_an_orphan(pool: Pool, watch: OrphanWatch) -> None:
    pool.node("left.0", "left", "5")
    watch.step(100.0)
    assert len(agents(pool)) == 1
    watch.step(105.0)
    assert agents(pool) == []


def test_one_that_was_started_by_hand_stays(pool: Pool, watch: OrphanWatch) -> None:
    agent = pool.agent()
    for now in (0.0, 1e6):
        watch.step(now)
    assert agents(pool) == [agent]


def test_its_thread_does_so_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a master and agents that are real: one belongs to a run that is not there, one to none."""
    monkeypatch.setattr(sharing, "_EVERY_S", 0.05)
    with live.pool(tmp_path, agents=1) as directory:
        attributes = [{"name": "run", "type": "TEXT", "text": {"value": "left"}}]
        with live.agent(directory, tmp_path / "orphan", attributes=attributes), sharing.Operator(directory) as operator:
            until(lambda: len(operator.get_agents()) == 2, "both agents")
            with OrphanWatch(directory):
                until(lambda: len(operator.get_agents()) == 1, "the end of the orphan")
            (left,) = look_at_pool(operator).nodes.values()
            assert left.run == ""
