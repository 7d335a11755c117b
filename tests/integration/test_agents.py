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
from tests.executors.mpi import needs_mpirun
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
    # Not by rglob, which ends with an error where a directory is removed meanwhile, maybe another program's.
    for path in (Path(where, name) for folder in folders for where, _, names in os.walk(folder) for name in names):
        with suppress(OSError):  # it was removed meanwhile
            if path.is_file() and word.encode() in path.read_bytes():
                found.append(path)
    return found


def processes_with(word: str, name: str) -> list[psutil.Process]:
    """Those that have a word in this file of /proc, but for this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if word.encode() in Path(f"/proc/{process.pid}/{name}").read_bytes() and process.pid != os.getpid():
                found.append(process)
    return found


ASKING = ("squeue", "sacct", "sinfo", "scontrol", "sbatch", "scancel", "env")
"""What the driver asks the batch system with: it has the driver's environment for a moment, and hands nothing on."""


@pytest.mark.parametrize(
    ("backend", "executor", "launcher"),
    [
        ("slurm:poll_s=1", "local", ""),
        ("slurm:poll_s=1", "mesos", ""),
        ("slurm:poll_s=1", "local", "srun"),
        pytest.param("slurm:poll_s=1", "local", "mpirun", marks=needs_mpirun),
        ("local", "local", ""),
        ("local", "mesos", ""),
    ],
)
def test_a_secret_is_nowhere_but_in_its_task(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, backend: str, executor: str, launcher: str
) -> None:
    """What is no secret, and is looked for in the same way, is found: in the job's environment, and Slurm's files."""
    secret, plain = (f"{word}-{secrets.token_hex(8)}" for word in ("secret", "plain"))
    for name, value in (("LICENSE", secret), ("HARMLESS", plain)):
        monkeypatch.setenv(name, value)
    slurm = Path(shell.cluster.config.base)
    words = ["--backend", backend, "--executor", executor, "--log-level", "debug"]
    if launcher:
        words += ["--set", f"launcher={launcher}"]
    if (backend, executor) == ("local", "mesos"):
        words += ["--pool", "shared:mine"]  # its master is a process of its own, which outlives the driver
    with shell.started("run", f"{FLOWS}:licensed", *words) as driver:
        ranks = 2 if launcher else 1
        assert wait_until(lambda: len(list(shell.folder.glob("task-*"))) == ranks, 60)
        (submitted,) = shell.events(Submitted)
        job = submitted.handle.job_id
        temporary = [Path(tempfile.gettempdir()), *slurm.glob("tmp/*")]
        agents = [found for folder in temporary for found in folder.glob(f"asa-agent-{os.geteuid()}-*")]
        places = [shell.folder, slurm, *agents]
        in_job = [" ".join(process.cmdline()) for process in processes_with(plain, "environ")]
        program = "mesos.agent" if executor == "mesos" else "executors.supervisor"
        assert any(program in line for line in in_job) and (agents or executor == "local")
        assert any("asa master" in line for line in in_job) == ("shared:mine" in words)
        having = [process for process in processes_with(secret, "environ") if process.pid != driver.pid]
        theirs = [process for process in having if "executors.worker" in " ".join(process.cmdline())]
        assert len(theirs) == (ranks if launcher else 0), "ranks have it from their start"
        assert [process for process in having if process not in theirs and process.name() not in ASKING] == []
        assert processes_with(secret, "cmdline") == []
        if backend != "local":
            assert files_with(plain, [slurm])
            assert secret not in shell.cluster.run("scontrol", "--details", "show", "job", job)
            assert secret not in shell.cluster.run("scontrol", "write", "batch_script", job, "-")
            assert secret not in shell.cluster.run("scontrol", "--details", "show", "step")
        assert files_with(secret, places) == []
        (shell.folder / "go").touch()
        outcome = shell.ended(driver)
    assert outcome.code == 0, outcome.err
    assert hashlib.sha256(secret.encode()).hexdigest() in outcome.out
    assert secret not in outcome.out + outcome.err and " DEBUG " in outcome.err
    assert files_with(secret, places) == []


@pytest.mark.parametrize("launcher", ["srun", pytest.param("mpirun", marks=needs_mpirun)])
def test_a_program_s_ranks_have_its_secret(shell: Shell, monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    monkeypatch.setenv("LICENSE", secret := f"secret-{secrets.token_hex(8)}")
    words = ("--backend", "slurm:poll_s=1", "--executor", "local", "--quiet", "--set", f"launcher={launcher}")
    outcome = shell.asa("run", f"{FLOWS}:licensed_program", *words)
    assert outcome.code == 0, outcome.err
    digests = [path.read_text().split()[0] for path in shell.folder.glob("digest-*")]
    assert digests == [hashlib.sha256(secret.encode()).hexdigest()] * 2
    assert files_with(secret, [shell.folder, Path(shell.cluster.config.base)]) == []
