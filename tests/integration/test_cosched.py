"""The co-scheduler's machine in a job of a real cluster."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from coscheduler.agents.groups import BatchAgents, end_recorded
from coscheduler.agents.machine import AgentMachine
from coscheduler.real.machine import ContainerEnded, ContainerEvent, ContainerProgram, ContainerStarted
from tests.cluster.processes import wait_until
from tests.integration.shell import PATIENCE_S, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]


def await_news(machine: AgentMachine, *wanted: ContainerEvent) -> None:
    """Until all of these were told, in whatever order."""
    left, deadline = set(wanted), time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"not told: {left}"
        left -= set(machine.news(1.0))


def test_containers_run_on_both_nodes_of_a_job_that_ends_at_close(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(shell.cluster.config.slurm_conf))
    monkeypatch.setenv("ASA_STATE_DIR", str(shell.state))
    pool = BatchAgents(2, 2, 300.0, "slurm:poll_s=1")
    with AgentMachine(pool) as machine:
        assert [(node.cores, node.speed) for node in machine.nodes] == [(2, 1.0), (2, 1.0)]
        names = [node.name for node in machine.nodes]
        assert set(names) <= set(shell.cluster.nodes)
        for name in names:
            script = f"echo $SLURMD_NODENAME >{tmp_path}/$NAME; exec sleep 1000"
            machine.start(f"job.{name}", name, ContainerProgram(("/bin/sh", "-c", script), {"NAME": name}), 1.0, 2.0)
        await_news(machine, *(ContainerStarted(f"job.{name}") for name in names))
        assert wait_until(lambda: set(machine.used()) == {f"job.{name}" for name in names}, PATIENCE_S)
        assert wait_until(lambda: all(_written(tmp_path / name) == f"{name}\n" for name in names), PATIENCE_S)
        machine.stop(f"job.{names[0]}")
        await_news(machine, ContainerEnded(f"job.{names[0]}"))
        assert shell.queue() == [pool.job.job_id]
    assert wait_until(lambda: not shell.queue(), PATIENCE_S)
    assert shell.await_job(pool.job.job_id, "COMPLETED")["ExitCode"] == "0:0"
    assert not list(shell.state.glob("asa-cosched-*"))
    assert f"job {pool.job.job_id} with 2 nodes" in capfd.readouterr().err


def test_a_job_that_waits_is_cancelled_when_nobody_waits_for_it_any_more(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(shell.cluster.config.slurm_conf))
    monkeypatch.setenv("ASA_STATE_DIR", str(shell.state))
    (first,) = shell.cluster.run("sbatch", "--parsable", "--nodes=4", "--exclusive", "--wrap=sleep 300").split()
    shell.await_job(first, "RUNNING")
    pool = BatchAgents(1, 1, 300.0, "slurm:poll_s=1")
    pool.check()
    assert set(shell.queue()) == {first, pool.job.job_id}
    pool.close()
    shell.await_job(pool.job.job_id, "CANCELLED")


def test_jobs_have_ended_before_their_queue_goes_on(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(shell.cluster.config.slurm_conf))
    monkeypatch.setenv("ASA_STATE_DIR", str(shell.state))
    record, started = tmp_path / "agents.json", tmp_path / "started"
    pool = BatchAgents(1, 1, 300.0, "slurm:poll_s=1", record)
    with AgentMachine(pool) as machine:
        script = f"echo $$ >{started}; exec sleep 1000"
        machine.start("job", machine.nodes[0].name, ContainerProgram(("/bin/sh", "-c", script), {}), 1.0, 1.0)
        assert wait_until(lambda: _written(started).endswith("\n"), PATIENCE_S)
        end_recorded(record)
        assert not psutil.pid_exists(int(_written(started)))
    assert shell.await_job(pool.job.job_id, "CANCELLED")
    assert f"in job {pool.job.job_id}: it is cancelled" in capfd.readouterr().err
    assert not record.exists()


def _written(path: Path) -> str:
    return path.read_text() if path.exists() else ""
