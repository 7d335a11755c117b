"""What can be seen, and limited, from outside while a workflow runs in its allocations."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from asa.core.event import NodeJoined, Submitted, TaskDone
from tests.cluster.processes import wait_until
from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

BURN = ("run", f"{FLOWS}:burn", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")


def looked(shell: Shell, what: str) -> list[dict[str, Any]]:
    """What ``asa pool`` shows of the run's pool."""
    outcome = shell.beside("pool", what, "--run", shell.run)
    assert outcome.code == 0, outcome.err
    rows: list[dict[str, Any]] = outcome.data["rows"]
    return rows


def test_two_allocations_are_one_pool_in_which_quotas_bite(shell: Shell) -> None:
    with shell.started(*BURN) as run:
        joined = shell.await_events(NodeJoined, 2)
        assert len({event.allocation for event in joined}) == 2
        assert {row["allocation"] for row in looked(shell, "nodes")} == {event.allocation for event in joined}
        held = looked(shell, "containers")[0]
        limit = ("pool", "limit", held["agent"], held["container"], 0.2, "--run", shell.run, "--lease")
        limited = shell.beside(*limit, 60)
        assert limited.code == 0, limited.err

        def bites() -> bool:
            (now,) = (row for row in looked(shell, "containers") if row["container"] == held["container"])
            return bool(now["limit_cores"] == pytest.approx(0.2) and now["throttled"] > held["throttled"])

        assert wait_until(bites, 60)
        lifted = shell.beside(*limit, 0)
        assert lifted.code == 0, lifted.err
        outcome = shell.ended(run, 200)
    assert outcome.code == 0, outcome.err
    assert len({event.allocation for event in shell.events(TaskDone)}) >= 2


def files_with(word: str, folders: Iterable[Path]) -> list[Path]:
    found = []
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(OSError):  # it was removed meanwhile
            if path.is_file() and word.encode() in path.read_bytes():
                found.append(path)
    return found


def processes_with(word: str, name: str, driver: int = -1) -> list[psutil.Process]:
    """Those that have a word in this file of /proc, but for the driver and what it has started on its own machine."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            there = word.encode() in Path(f"/proc/{process.pid}/{name}").read_bytes()
            if there and driver not in [process.pid, *(above.pid for above in process.parents())]:
                found.append(process)
    return found


@pytest.mark.parametrize("executor", ["local", "mesos"])
def test_a_secret_is_nowhere_but_in_its_task(shell: Shell, monkeypatch: pytest.MonkeyPatch, executor: str) -> None:
    """What is no secret, and is looked for in the same way, is found: in the job's environment, and Slurm's files."""
    secret, plain = (f"{word}-{secrets.token_hex(8)}" for word in ("secret", "plain"))
    for name, value in (("LICENSE", secret), ("HARMLESS", plain)):
        monkeypatch.setenv(name, value)
    slurm = Path(shell.cluster.config.base)
    words = ("--backend", "slurm:poll_s=1", "--executor", executor, "--log-level", "debug")
    with shell.started("run", f"{FLOWS}:licensed", *words) as driver:
        assert wait_until((shell.folder / "task-0").exists, 60)
        (submitted,) = shell.events(Submitted)
        job = submitted.handle.job_id
        agents = [*Path(tempfile.gettempdir()).glob(f"asa-agent-{os.geteuid()}-*")]
        places = [shell.folder, slurm, *agents]
        in_job = processes_with(plain, "environ", driver.pid)  # the batch script has become its program
        program = "mesos.agent" if executor == "mesos" else "executors.supervisor"
        assert any(program in " ".join(process.cmdline()) for process in in_job) and (agents or executor == "local")
        assert files_with(plain, [slurm])
        assert processes_with(secret, "environ", driver.pid) == [] and processes_with(secret, "cmdline") == []
        assert secret not in shell.cluster.run("scontrol", "--details", "show", "job", job)
        assert secret not in shell.cluster.run("scontrol", "write", "batch_script", job, "-")
        assert files_with(secret, places) == []
        (shell.folder / "go").touch()
        outcome = shell.ended(driver)
    assert outcome.code == 0, outcome.err
    assert hashlib.sha256(secret.encode()).hexdigest() in outcome.out
    assert secret not in outcome.out + outcome.err and " DEBUG " in outcome.err
    assert files_with(secret, places) == []
