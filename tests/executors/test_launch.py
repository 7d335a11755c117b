from __future__ import annotations

import json
import os
import pickle
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import asa
from asa.core.errors import CommandFailed
from asa.core.launch import Launch
from asa.log.values import load
from executors.launch import environment, how, prefix, read_outcomes
from executors.wire import OrderOutcome, TaskOrder
from executors.worker import Caller, rank_number

SRUN = Launch(("srun", "--mpi=pmix"), ranks=8, cores=2)
MPIRUN = Launch(("mpirun", "-v"), ranks=9, cores=2)

# A launcher that starts its ranks one after the other. The first to fail ends it, with the fourth word as exit code.
FAKE = """#!/bin/sh
echo "$@" >"{folder}/argv"
code=$1 ranks=$3; shift 3
rank=0
while [ $rank -lt $ranks ]; do
    PMI_RANK=$rank "$@" || exit 1
    rank=$((rank + 1))
done
exit $code
"""


OUTER = {
    "PATH": "/bin",
    "SLURM_CONF": "/etc/slurm.conf",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_MPI_TYPE": "pmix",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1(x4)",
    "SLURM_CPU_BIND": "quiet,none",
    "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_PROCID": "3",
    "PMIX_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "OMPI_MCA_btl": "tcp,self",
}


class TestPrefix:
    def test_srun_shares_the_jobs_cores_on_the_nodes_that_were_given(self) -> None:
        assert prefix(SRUN, 2, ["n1", "n7"]) == [
            "srun", "--overlap", "--ntasks=8", "--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=2",
            "--nodelist=n1,n7", "--kill-on-bad-exit=1", "--mpi=pmix",
        ]  # fmt: skip

    def test_nodes_without_names_are_left_to_srun(self) -> None:
        assert not any(word.startswith("--nodelist") for word in prefix(SRUN, 2, []))

    def test_ranks_that_do_not_divide_over_the_nodes(self) -> None:
        words = prefix(Launch(("srun",), ranks=9, cores=1), 2, [])
        assert {"--ntasks=9", "--nodes=2", "--ntasks-per-node=5"} <= set(words)

    def test_mpirun_gets_the_number_of_ranks(self) -> None:
        assert prefix(MPIRUN, 2, ["n1", "n7"]) == ["mpirun", "-v", "-np", "9"]


class TestEnvironment:
    def test_srun_sees_the_job_but_not_the_step_of_the_supervisor(self) -> None:
        kept = {"PATH", "SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_MPI_TYPE", "OMPI_MCA_btl"}
        assert environment(SRUN, OUTER, root=True) == {key: OUTER[key] for key in kept}

    def test_srun_outside_a_job_is_refused(self) -> None:
        with pytest.raises(CommandFailed, match="inside an allocation of Slurm only"):
            environment(SRUN, {"PATH": "/bin"}, root=False)

    def test_so_does_mpirun(self) -> None:
        found = environment(MPIRUN, OUTER, root=False)
        kept = {"SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_MPI_TYPE"}
        assert {key: value for key, value in found.items() if key.startswith("SLURM_")} == {k: OUTER[k] for k in kept}

    def test_open_mpi_is_allowed_to_root_only_when_we_are_root(self) -> None:
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        assert allowed.items() <= environment(MPIRUN, {}, root=True).items()
        assert not allowed.keys() & environment(MPIRUN, {}, root=False).keys()

    def test_the_users_own_settings_of_open_mpi_win(self) -> None:
        name = "OMPI_MCA_hwloc_base_binding_policy"
        assert environment(MPIRUN, {}, root=False)[name] == "none"
        assert environment(MPIRUN, {name: "core"}, root=False)[name] == "core"


class TestHow:
    def order(self, launch: Launch, *hosts: str) -> TaskOrder:
        return TaskOrder(7, "s", 0, "f", b"", (), 1, 0, 0, len(hosts), launch, hosts)

    def test_mpirun_finds_its_nodes_and_a_shell_for_them_in_files_that_are_gone_afterwards(self) -> None:
        with how(self.order(MPIRUN, "n3", "n7"), "/the run's/values", "p") as (words, variables):
            assert words == prefix(MPIRUN, 2, ["n3", "n7"])
            hosts, shell = variables["HYDRA_HOST_FILE"], variables["HYDRA_LAUNCHER_EXEC"]
            assert Path(hosts).read_text().split() == [socket.gethostname()] * 5 + ["n7"] * 4
            assert os.access(shell, os.X_OK) and "'/the run'\"'\"'s' 7 \"$@\"" in Path(shell).read_text()
            assert not set(" :") & set(hosts + shell)
            slots = variables["OMPI_MCA_orte_default_hostfile"]
            assert slots == variables["PRTE_MCA_prte_default_hostfile"]
            assert Path(slots).read_text() == f"{socket.gethostname()} slots=5\nn7 slots=4\n"
            assert variables["OMPI_MCA_plm_rsh_agent"] == variables["PRTE_MCA_plm_ssh_agent"] == shell
        assert not os.path.exists(hosts) and not os.path.exists(shell)

    def test_srun_needs_neither(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        with how(self.order(SRUN, "n3", "n7"), "/run/values", "p") as (_, variables):
            assert not any(value.startswith("/proc/") for value in variables.values())


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"SLURM_PROCID": "2"}, 2),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "5", "PMIX_RANK": "5"}, 5),
        ({"SLURM_PROCID": "0", "PMI_RANK": "3"}, 3),
    ],
)
def test_a_rank_is_that_of_its_own_launcher(environ: dict[str, str], rank: int) -> None:
    assert rank_number(environ) == rank


def test_without_a_launcher_there_is_no_rank() -> None:
    with pytest.raises(KeyError, match="none of OMPI_COMM_WORLD_RANK"):
        rank_number({"PATH": "/bin"})


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a function in ranks of the fake launcher, as a worker would."""
    fake = tmp_path / "mpirun"
    fake.write_text(FAKE.format(folder=tmp_path))
    fake.chmod(0o700)

    def run(
        function: Any, *args: Any, ranks: int = 3, code: int = 0, program: str = str(fake), starts: bool = False
    ) -> OrderOutcome:
        file = tmp_path / "function"
        file.write_bytes(cloudpickle.dumps(function))
        launch = Launch((program, str(code)), ranks, 1, program=starts)
        order = TaskOrder(1, "s", 5, str(file), pickle.dumps((args, {})), (), 1, 0, 0, 1, launch)
        return Caller(str(tmp_path)).run(order)

    return run


class TestRanks:
    def test_all_are_called_and_the_first_ones_value_counts(self, run: Any, tmp_path: Path) -> None:
        def work(word: str) -> Any:
            rank = int(os.environ["PMI_RANK"])
            tmp_path.joinpath(f"seen-{rank}").write_text(word)
            return rank if rank == 0 else (item for item in "what cannot travel need not")

        outcome = run(work, "hello")
        assert load(outcome.value) == 0, outcome.error
        assert {file.name: file.read_text() for file in tmp_path.glob("seen-*")} == dict.fromkeys(
            ("seen-0", "seen-1", "seen-2"), "hello"
        )
        assert outcome.ticket == 1 and outcome.started <= outcome.ended

    def test_nothing_but_the_folder_is_in_the_arguments_and_it_is_ours_alone(self, run: Any, tmp_path: Path) -> None:
        def look(secret: str) -> dict[str, int]:
            (folder,) = tmp_path.glob("ranks-*")
            return {str(path): stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "order")}

        modes = json.loads(json.dumps(load(run(look, "s3cret").value)))
        assert sorted(modes.values()) == [0o600, 0o700]
        assert "s3cret" not in (tmp_path / "argv").read_text()
        assert not list(tmp_path.glob("ranks-*")), "it is removed"

    def test_one_that_fails_is_named(self, run: Any) -> None:
        def fail() -> None:
            if os.environ["PMI_RANK"] == "1":
                raise KeyError("band")

        outcome = run(fail)
        assert outcome.value is None
        assert outcome.error == "rank 1 of 3: KeyError: 'band'"
        assert "in fail" in outcome.traceback and not outcome.infrastructure

    def test_one_that_is_killed_cannot_say_why(self, run: Any) -> None:
        outcome = run(lambda: os.kill(os.getpid(), 9))
        assert "mpirun ended with exit code 1: a rank was killed" in outcome.error

    def test_a_launcher_that_fails_afterwards_fails_the_task(self, run: Any) -> None:
        assert "ended with exit code 4" in run(lambda: None, code=4).error

    def test_a_program_is_started_through_the_launcher(self, run: Any) -> None:
        outcome = run(asa.command("printenv PMI_RANK").function, starts=True)
        assert load(outcome.value) == "0\n1\n2\n", outcome.error

    def test_a_launcher_that_is_not_there(self, run: Any) -> None:
        assert "CommandFailed: /nowhere/mpirun cannot be started" in run(print, program="/nowhere/mpirun").error

    def test_the_worker_itself_does_not_load_the_function(self, run: Any, tmp_path: Path) -> None:
        rank = "__import__('os').environ.get('PMI_RANK', 'none')"
        code = f"open({str(tmp_path / 'loaders')!r}, 'a').write({rank}) and abs"

        class Loaded:
            def __reduce__(self) -> Any:
                return eval, (code,)

        assert load(run(Loaded(), -1).value) == 1
        assert (tmp_path / "loaders").read_text() == "012"


def test_a_result_that_a_network_file_system_shows_late_is_waited_for(tmp_path: Path) -> None:
    outcome = OrderOutcome(1, 0.0, 9.0, b"value")

    def show() -> None:
        (tmp_path / "new").write_bytes(pickle.dumps(outcome))
        (tmp_path / "new").rename(tmp_path / "0")

    assert read_outcomes(tmp_path, patience_s=0.0) == {}
    timer = threading.Timer(0.02, show)
    timer.start()
    assert read_outcomes(tmp_path, patience_s=60.0) == {0: outcome}
    timer.join()
