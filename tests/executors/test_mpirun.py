"""Real launchers on this machine: Open MPI's or MPICH's, whichever ``mpirun`` is."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import asa
from asa.core.errors import RunFailed
from asa.testing.executors import is_gone
from tests.waiting import until

pytest_plugins = ("tests.executors.mpi",)
pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="not on PATH: mpirun (Debian package openmpi-bin)"),
    pytest.mark.skipif("SLURM_JOB_ID" in os.environ, reason="inside a job of Slurm, mpirun would use its nodes"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


def value_of(node: asa.Node) -> Any:
    return asa.run(node, backend="local:cores=8").result()


def rank_of(environ: dict[str, str]) -> int:
    return int(environ.get("OMPI_COMM_WORLD_RANK") or environ["PMI_RANK"])


def test_a_function_runs_in_every_rank(tmp_path: Path) -> None:
    def work(folder: Path, word: str) -> tuple[str, int, str]:
        rank = rank_of(dict(os.environ))
        folder.joinpath(f"rank-{rank}").write_text(word)
        return word, rank, os.environ["OMP_NUM_THREADS"]

    stage = asa.stage(nodes=2, tasks_per_node=2, task_cores=2, launcher="mpirun")(work)
    assert value_of(stage(tmp_path, "hello")) == ("hello", 0, "2")
    assert sorted(path.name for path in tmp_path.glob("rank-*")) == ["rank-0", "rank-1", "rank-2", "rank-3"]


def test_its_value_goes_on_and_may_be_long() -> None:
    def make() -> bytes:
        return bytes(1_000_000)

    made = asa.stage(cores=2, launcher="mpirun")(make)()
    assert value_of(asa.stage(cores=3, launcher="mpiexec")(len)(made)) == 1_000_000


def test_several_tasks_take_turns() -> None:
    stage = asa.stage(cores=2, launcher="mpirun")(abs)
    assert value_of(stage.map([-1, -2, -3])) == [1, 2, 3]


def test_a_rank_that_fails_fails_the_task_and_takes_the_others_along() -> None:
    def work() -> None:
        if rank_of(dict(os.environ)) == 1:
            os.write(2, b"I am one\n")
            raise ValueError("no such band")
        time.sleep(600)  # longer than a test may take

    with pytest.raises(RunFailed) as caught:
        value_of(asa.stage(cores=3, launcher="mpirun")(work)())
    message = str(caught.value)
    assert "rank 1 of 3: ValueError: no such band" in message
    assert "in work" in message and "I am one" in message


def test_a_program(hello: Path) -> None:
    node = asa.command(str(hello), nodes=2, tasks_per_node=2, launcher="mpirun")()
    assert value_of(node) == "4 ranks, sum 6\n"


def test_a_program_whose_rank_fails(hello: Path) -> None:
    with pytest.raises(RunFailed, match=r"`mpirun -np 3 .*hello fail` ended with exit code 7"):
        value_of(asa.command(f"{hello} fail", cores=3, launcher="mpirun")())


def test_srun_needs_slurm() -> None:
    with pytest.raises(RunFailed, match="'srun' works inside an allocation of Slurm only"):
        value_of(asa.stage(launcher="srun")(abs)(1))


def sleep_in_ranks(folder: Path) -> None:
    folder.joinpath(str(os.getpid())).touch()
    time.sleep(600)


def test_a_worker_that_is_killed_leaves_no_rank(pids: Path) -> None:
    def sleep(folder: Path) -> None:
        launcher = psutil.Process().parent()
        assert launcher is not None
        worker = launcher.ppid()
        folder.joinpath(str(os.getpid())).touch()
        until(lambda: len(list(folder.iterdir())) == 2)
        if rank_of(dict(os.environ)) == 0:
            os.kill(worker, signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(RunFailed, match="signal 9"):
        value_of(asa.stage(cores=2, launcher="mpirun")(sleep)(pids))
    assert all(is_gone(int(file.name)) for file in pids.iterdir())


def test_a_cancelled_run_leaves_no_rank(pids: Path) -> None:
    run = asa.submit(asa.stage(cores=3, launcher="mpirun")(sleep_in_ranks)(pids), backend="local:cores=8")
    until(lambda: len(list(pids.iterdir())) == 3)
    ranks = [int(file.name) for file in pids.iterdir()]
    run.cancel()
    with pytest.raises(RunFailed):
        run.result()
    assert all(map(is_gone, ranks))
