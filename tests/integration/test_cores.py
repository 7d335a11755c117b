"""Cores anywhere: an allocation in uneven pieces is used whole."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import AllocationStarted, Submitted
from tests.cluster.cluster import Cluster
from tests.executors.mpi import needs_mpirun
from tests.integration.conftest import leave_nothing
from tests.integration.mpi_flows import traces
from tests.integration.shell import Outcome, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]

FLOWS = Path(__file__).with_name("mpi_flows.py")
FREE = (1, 3, 4, 0)
"""Cores that other people's jobs leave free on each node."""


@pytest.fixture(scope="module")
def crowd(slurm_cluster: Cluster) -> Iterator[dict[str, int]]:
    """Other people's jobs on each node: node -> cores that are free there."""
    free = dict(zip(slurm_cluster.nodes, FREE, strict=True))
    for node, left in free.items():
        cores = int(slurm_cluster.run("sinfo", "--noheader", "--nodes", node, "--format=%c", "--partition=main"))
        wanted = ["--nodelist", node, f"--ntasks={cores - left}", "--time=30", "--output=/dev/null"]
        job = slurm_cluster.run("sbatch", "--parsable", *wanted, "--wrap", "sleep 1500").strip()
        Shell(slurm_cluster, Path()).await_job(job, "RUNNING")
    yield free
    leave_nothing(Shell(slurm_cluster, Path()))


def run(shell: Shell, flow: str, *sizes: str, executor: str = "mesos") -> Outcome:
    words = [word for size in (f"folder={shell.folder}", *sizes) for word in ("--set", size)]
    outcome = shell.asa("run", f"{FLOWS}:{flow}", "--backend", "slurm:poll_s=1", "--executor", executor, *words)
    assert outcome.code == 0, outcome.err
    return outcome


def used(crowd: dict[str, int]) -> dict[str, int]:
    return {node: cores for node, cores in crowd.items() if cores}


@pytest.mark.parametrize("executor", ["mesos", "local"])
def test_uneven_pieces_are_used_whole_and_at_once(
    slurm_cluster: Cluster, crowd: dict[str, int], tmp_path: Path, executor: str
) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    outcome = run(shell, "anywhere", executor=executor)
    assert Counter(ast.literal_eval(outcome.out.strip().splitlines()[-1])) == used(crowd)
    (job,) = outcome.data["jobs"]
    said = slurm_cluster.job(job["job_id"])
    assert (said["NumCPUs"], said["NumTasks"], said["CPUs/Task"]) == ("8", "8", "1")
    assert (job["cores"], sorted(job["nodes"])) == (8, sorted(used(crowd)))
    assert len(shell.events(AllocationStarted)) == 1


@pytest.mark.parametrize(
    "launcher",
    [
        "srun",
        pytest.param(
            "mpirun --mca btl tcp,self",
            marks=needs_mpirun,
        ),
    ],
)
def test_ranks_lie_in_uneven_pieces(
    slurm_cluster: Cluster, crowd: dict[str, int], tmp_path: Path, launcher: str
) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    outcome = run(shell, "anywhere_in_ranks", f"launcher={launcher}")
    assert outcome.out.strip().splitlines()[-1] == "0", "rank 0's value"
    ranks = traces(tmp_path)
    assert sorted(ranks) == list(range(8)), "each once"
    assert Counter(node for ((node, _),) in ranks.values()) == used(crowd)


def test_packed_cores_wait_for_whole_nodes(slurm_cluster: Cluster, crowd: dict[str, int], tmp_path: Path) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    flow = [f"{FLOWS}:anywhere", "--backend", "slurm:poll_s=1", "--set", f"folder={tmp_path}", "--set", "spread=pack"]
    with shell.started("run", *flow):
        (submitted,) = shell.await_events(Submitted)
        said = slurm_cluster.job(submitted.handle.job_id)
        assert (said["JobState"], said["NumNodes"], said["NumTasks"]) == ("PENDING", "1-1", "8")
        slurm_cluster.run("scancel", submitted.handle.job_id)


GUESTS = """
import os
import time
from pathlib import Path

import asa


@asa.stage(cores=2, cpus=2, memory="256M", walltime="5m", shares=True)
def host(folder, visitors):
    end = time.monotonic() + 150
    while (came := len([*Path(folder).glob("guest-*")])) < visitors and time.monotonic() < end:
        sum(range(100_000))
    return came


@asa.stage(cores=2, memory="128M", walltime="1m", shares=True)
def guest(number, folder):
    Path(folder, f"guest-{number}").touch()
    return os.environ.get("ASA_GUEST", ""), os.environ["SLURM_JOB_ID"]


def workflow(folder):
    return host(folder, 3), guest.map(range(3), folder=folder)
"""


@pytest.mark.parametrize("executor", ["mesos", "local"])
def test_tasks_of_one_stage_are_guests_on_idle_cores_of_another_s_job(
    slurm_cluster: Cluster, tmp_path: Path, executor: str
) -> None:
    shell = Shell(slurm_cluster, tmp_path)
    (shell.folder / "flow.py").write_text(GUESTS)
    words = ["--backend", "slurm:poll_s=1", "--strategy", "big-job", "--executor", executor]
    outcome = shell.asa("run", "flow.py", *words, "--set", f"folder={shell.folder}")
    assert outcome.code == 0, outcome.err
    came, guests = ast.literal_eval(outcome.out.strip().splitlines()[-1])
    (job,) = outcome.data["jobs"]
    assert came == 3 and guests == [("1", job["job_id"])] * 3
    assert "3 tasks as guests on idle cores of host" in shell.asa("explain").out
