"""Tasks of many processes on a real cluster: on the nodes they were given, and none is left behind."""

from __future__ import annotations

import ast
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from asa.core.event import JobEnded, TasksKept
from asa.core.job import JobState
from asa.testing.executors import is_gone
from tests.cluster.cluster import Cluster
from tests.cluster.host import open_mpi
from tests.cluster.processes import wait_until
from tests.executors.mpi import needs_mpirun
from tests.integration.conftest import leave_nothing
from tests.integration.mpi_flows import traces
from tests.integration.shell import PATIENCE_S, Outcome, Shell

pytest_plugins = ("tests.cluster.fixtures", "tests.executors.mpi")
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

FLOWS = Path(__file__).with_name("mpi_flows.py")
# All nodes are this machine, whose shared memory the ranks of one of them must not look for on another.
MPIRUN = "mpirun --mca btl tcp,self"

needs_open_mpi_4 = pytest.mark.skipif(
    open_mpi() != 4,
    reason="not on PATH: mpirun of Open MPI 4; ranks of 5 find no way between nodes that share an address",
)


def words(flow: str, **given: object) -> list[str]:
    return ["run", f"{FLOWS}:{flow}", "--quiet", "--backend", "slurm:poll_s=1", *sizes(**given)]


def sizes(**given: object) -> list[str]:
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


def result_of(outcome: Outcome) -> str:
    assert outcome.code == 0, outcome.err
    return outcome.out.strip().splitlines()[-1]


def nodes_of(outcome: Outcome) -> list[str]:
    (job,) = outcome.data["jobs"]
    return sorted(job["nodes"])


def await_ranks(shell: Shell, times: int = 1) -> list[int]:
    """Process numbers of the four ranks, once they were started as often."""

    def there() -> bool:
        return sum(len(starts) == times for starts in traces(shell.folder).values()) == 4

    assert wait_until(there, PATIENCE_S), traces(shell.folder)
    return [starts[-1][1] for starts in traces(shell.folder).values()]


@pytest.fixture
def shell(slurm_cluster: Cluster, tmp_path: Path) -> Shell:
    """A shell in a folder of its own. It leaves the others' jobs alone: one run goes on all the time."""
    return Shell(slurm_cluster, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def overdue(slurm_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A run whose job reaches its wall time while the other tests run; in the end no job is left."""
    shell = Shell(slurm_cluster, tmp_path_factory.mktemp("overdue"))
    with shell.started(*words("function", folder=shell.folder, seconds=600, walltime="2m")):
        yield shell
    leave_nothing(shell)


@pytest.fixture(params=["srun", pytest.param("mpirun", marks=needs_mpirun)])
def launcher(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["local", "dask"])
def function(request: pytest.FixtureRequest, launcher: str, shell: Shell) -> list[str]:
    """Words that run a function in four ranks."""
    if request.param == "dask":
        pytest.importorskip("distributed")
    return [*words("function", launcher=launcher, folder=shell.folder), "--executor", request.param]


class TestFunction:
    def test_it_is_called_in_every_rank_on_both_nodes(self, shell: Shell, function: list[str]) -> None:
        outcome = shell.asa(*function)
        assert result_of(outcome) == "0"
        started = traces(shell.folder)
        assert sorted(node for ((node, _),) in started.values()) == sorted(2 * nodes_of(outcome))
        assert len({pid for ((_, pid),) in started.values()}) == len(started) == 4

    def test_a_rank_that_fails_fails_the_task_and_ends_the_others(self, shell: Shell, function: list[str]) -> None:
        outcome = shell.asa(*function, *sizes(seconds=600, failing=2))
        assert outcome.code == 1
        assert "rank 2 of 4: ValueError: no such band" in outcome.err
        assert "in trace" in outcome.err, "its traceback"
        assert "last lines of its output" in outcome.err
        assert all(is_gone(pid) for ((_, pid),) in traces(shell.folder).values())

    def test_interrupted_it_leaves_no_rank(self, shell: Shell, function: list[str]) -> None:
        with shell.started(*function, *sizes(seconds=600)) as driver:
            ranks = await_ranks(shell)
            driver.send_signal(signal.SIGINT)
            assert shell.ended(driver).code == 130
        assert all(map(is_gone, ranks))

    def test_without_a_driver_its_ranks_run_on_or_end_before_they_are_started_again(
        self, shell: Shell, function: list[str]
    ) -> None:
        """They end with dask's workers, which end with their scheduler, the driver's."""
        with shell.started(*function, *sizes(seconds=5)) as driver:
            ranks = await_ranks(shell)
            driver.kill()
            driver.wait()
            outcome = shell.asa("resume", shell.run, "--quiet")
        assert result_of(outcome) == "0"
        assert all(map(is_gone, ranks))
        if "dask" not in function:
            assert await_ranks(shell, times=1) == ranks
        else:
            assert set(await_ranks(shell, times=2)).isdisjoint(ranks)

    @pytest.mark.parametrize("executor", ["local", "mesos"])
    @needs_mpirun
    def test_mpirun_on_two_nodes_outlives_a_driver_that_is_killed_in_the_middle(
        self, shell: Shell, executor: str
    ) -> None:
        run = words("function", launcher="mpirun", folder=shell.folder, seconds=20)
        with shell.started(*run, "--executor", executor) as driver:
            ranks = await_ranks(shell)
            begun = time.time()
            time.sleep(5)
            driver.kill()
            driver.wait()
        time.sleep(3)
        assert all(map(psutil.pid_exists, ranks)), "without a driver, on both nodes"
        outcome = shell.asa("resume", shell.run, "--quiet")
        assert result_of(outcome) == "0"
        assert await_ranks(shell, times=1) == ranks
        assert 20 <= time.time() - begun < 35
        (stage,) = outcome.data["stages"]
        assert stage["launched"] == stage["done"] == 1, "no restart"
        assert [event.tasks for event in shell.events(TasksKept)] == [(("trace", 0),)]

    def test_a_job_that_is_cancelled_leaves_no_rank_and_is_asked_for_again(
        self, shell: Shell, function: list[str]
    ) -> None:
        with shell.started(*function, *sizes(seconds=600)) as driver:
            ranks = await_ranks(shell)
            shell.cluster.run("scancel", "--name", shell.run + ".0")
            others = await_ranks(shell, times=2)
            assert all(map(is_gone, ranks))
            driver.send_signal(signal.SIGINT)
            assert shell.ended(driver).code == 130
        assert all(map(is_gone, others))


class TestProgram:
    def test_srun_starts_it_on_both_nodes(self, shell: Shell) -> None:
        outcome = shell.asa(*words("program", line="printenv SLURMD_NODENAME"))
        printed = ast.literal_eval(result_of(outcome))
        assert sorted(printed.split()) == sorted(2 * nodes_of(outcome))

    @needs_open_mpi_4
    def test_mpi_with_mpirun(self, shell: Shell, hello: Path) -> None:
        outcome = shell.asa(*words("program", line=hello, launcher=MPIRUN))
        assert "4 ranks, sum 6" in result_of(outcome)

    def test_mpi_with_srun_and_options(self, shell: Shell, hello: Path) -> None:
        if "pmix" not in subprocess.run(["srun", "--mpi=list"], env=shell.env, capture_output=True, text=True).stdout:
            pytest.skip("this srun has no pmix")
        # On one node only: two of Slurm's PMIx servers cannot live on the one machine that all nodes are.
        outcome = shell.asa(*words("program", line=hello, launcher="srun --mpi=pmix", nodes=1))
        assert "2 ranks, sum 1" in result_of(outcome)

    def test_one_whose_rank_fails(self, shell: Shell) -> None:
        outcome = shell.asa(*words("program", line="sh -c 'echo oh no >&2; exit $SLURM_PROCID'"))
        assert outcome.code == 1
        assert "--nodes=2" in outcome.err and "oh no" in outcome.err


def test_it_shares_a_larger_allocation_with_others(shell: Shell) -> None:
    outcome = shell.asa(*words("beside", folder=shell.folder), "--strategy", "big-job")
    assert outcome.code == 0, outcome.err
    assert len(nodes_of(outcome)) == 3
    assert len({node for ((node, _),) in traces(shell.folder).values()}) == 2


def test_the_wall_time_ends_its_ranks(overdue: Shell) -> None:
    ended = overdue.await_events(JobEnded, timeout=400)[0]
    assert ended.state is JobState.TIMEOUT
    ranks = [starts[0][1] for starts in traces(overdue.folder).values()]  # of that job: the task may run again by now
    assert len(ranks) == 4
    assert all(map(is_gone, ranks))
