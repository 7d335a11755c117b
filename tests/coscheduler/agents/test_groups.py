"""Agents on this machine, in jobs of the local backend, which is a batch system too, and in named pools."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from asa.core.errors import BackendError, InvalidInput, StateError, UnknownName
from coscheduler.agents import groups as pools
from coscheduler.agents.groups import BatchAgents, NamedPool, OwnMaster, batch_agents, local_agents
from coscheduler.agents.machine import AgentMachine
from coscheduler.real.machine import ContainerEnded, ContainerProgram, ContainerStarted
from executors.mesos.pool_directory import PoolDirectory
from tests.waiting import until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def batch() -> BatchAgents:
    return batch_agents(1, 1, 120.0, "local:cores=1,poll_s=0.1")


def test_a_job_runs_the_agents_until_they_are_sent_away(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = batch()
    with AgentMachine(pool) as machine:
        (node,) = machine.nodes
        assert node.cores == 1
        machine.start("c", node.name, ContainerProgram(("/bin/true",), {}), 1.0, 1.0)
        told = []
        until(lambda: told.extend(machine.news(0.1)) or ContainerEnded("c") in told, "its end")
        assert told == [ContainerStarted("c"), ContainerEnded("c")]
    assert f"job {pool.job.job_id} with 1 nodes: " in capsys.readouterr().err
    assert list(state.glob("asa-cosched-*")) == []


def test_a_job_that_ends_before_its_agents_have_come_is_told_with_their_words(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("/bin/sh", "-c", "echo no room; exit 4")
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: words)
    with pytest.raises(StateError, match=r"has ended \(failed.*\), and none .* was run. Its agents have said: no room"):
        AgentMachine(batch())
    assert list(state.glob("asa-cosched-*")) == []


def test_a_job_whose_agents_do_not_come_is_given_up_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coscheduler.agents.groups._AGENTS_S", 0.5)
    monkeypatch.setattr("coscheduler.agents.groups._JOB_ENDS_S", 0.5)
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/sleep", "1000"))
    ended = []
    pool = batch()
    cancel = pool.backend.cancel
    monkeypatch.setattr(pool.backend, "cancel", lambda handles: ended.extend(handles) or cancel(handles))
    with pytest.raises(StateError, match=r"not all of its agents have come within 0\.5 s"):
        AgentMachine(pool)
    assert ended == [pool.job]


def test_what_the_batch_system_refuses_is_told(state: Path) -> None:
    with pytest.raises(BackendError, match="refuses 1 nodes of 100000 cores"):
        batch_agents(1, 100000, 60.0, "local:cores=1")
    assert list(state.glob("asa-cosched-*")) == []


def test_a_batch_system_that_does_not_answer(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a while that is no matter; what is wrong for good is told, and the end goes on nevertheless."""
    monkeypatch.setattr(OwnMaster, "agent", lambda own, **options: ("/bin/true",))
    pool, errors = batch(), [BackendError("busy", transient=True)]
    asked = []

    def refuse(handles: object) -> None:
        asked.append(handles)
        raise errors[-1]

    monkeypatch.setattr(pool.backend, "query", refuse)
    monkeypatch.setattr(pool.backend, "cancel", refuse)
    monkeypatch.setattr(pool, "poll_s", 1000.0)
    pool.check()
    pool.check()
    assert len(asked) == 1, "the second time it was too soon to ask again"
    errors.append(BackendError("no such job"))
    monkeypatch.setattr(pool, "poll_s", 0.0)
    with pytest.raises(BackendError, match="no such job"):
        pool.check()
    pool.close()
    assert f"job {pool.job.job_id} could not be cancelled: no such job" in capsys.readouterr().err
    assert list(state.glob("asa-cosched-*")) == []


def test_agents_that_have_not_even_a_file_have_said_nothing() -> None:
    pool = batch()
    pool.output.unlink(missing_ok=True)
    assert pool.last_words() == "Its agents have said nothing"
    pool.close()


@pytest.mark.parametrize(("nodes", "cores", "walltime_s"), [(0, 1, 60.0), (1, 0, 60.0), (1, 1, 0.0)])
def test_jobs_of_nothing_are_refused(nodes: int, cores: int, walltime_s: float) -> None:
    with pytest.raises(InvalidInput, match="at least 1 node, 1 core"):
        batch_agents(nodes, cores, walltime_s)


def test_backends_that_there_are_not_are_refused() -> None:
    with pytest.raises(UnknownName, match="slurm"):
        batch_agents(1, 1, 60.0, "slrum")


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
