from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, StateError
from coscheduler.agents import groups as pools
from coscheduler.agents.groups import NamedPool, OwnMaster, local_agents
from executors.mesos.pool_directory import PoolDirectory
from tests.waiting import until


@pytest.mark.parametrize(("nodes", "cores", "capacity"), [(0, 1, None), (1, 0, None), (1, 1, 0.0)])
def test_pools_of_nothing_are_refused(nodes: int, cores: int, capacity: float | None) -> None:
    with pytest.raises(InvalidInput, match="at least 1 node, 1 core"):
        local_agents(nodes, cores, capacity)


def test_a_pool_without_a_master_is_none(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no pool with a master"):
        NamedPool(tmp_path / "none")
    PoolDirectory.create(tmp_path / "pool", "test")
    with pytest.raises(StateError, match="asa master --directory"):
        NamedPool(tmp_path / "pool")


def test_what_agents_say_is_kept_private_and_told(tmp_path: Path) -> None:
    pool = local_agents(1, cores=1)
    try:
        ground = pool.directory.path.parent
        assert stat.S_IMODE(ground.stat().st_mode) == 0o700
        pool.check()
        pool.agents["node0"].kill()
        pool.agents["node0"].wait(10)
        with pytest.raises(StateError, match="the agent node0 was killed by signal 9"):
            pool.check()
        assert pool.last_words().startswith("node0: ")
        (ground / "node0.log").unlink()
        assert pool.last_words() == "node0: it has said nothing"
    finally:
        pool.close()
    assert not ground.exists()


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pools are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_agents_that_cannot_be_started_leave_nothing(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: (str(ground / "none"),))
    with pytest.raises(FileNotFoundError, match="none"):
        local_agents(1, cores=1)
    assert list(ground.iterdir()) == []


def test_an_agent_that_does_not_end_is_killed(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_ENDING_S", 0.1)
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sh", "-c", script))
    pool = local_agents(1, cores=1)
    until(lambda: pool.last_words() == "node0: ready", "its trap")
    pool.close()
    assert pool.agents["node0"].returncode == -signal.SIGKILL
    assert list(ground.iterdir()) == []
