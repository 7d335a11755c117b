"""Ranks on several nodes without Slurm: through the remote shell, by a fake launcher and by whichever is installed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

import asa
from asa.core.job import Resources
from asa.core.launch import Launch
from asa.core.ports import RunContext
from asa.core.task import Task
from asa.security.ca import create
from asa.security.files import private_directory, write_private
from asa.testing.executors import Bench, ExecutorDriver, is_gone
from executors import remote
from executors.dask import dask
from executors.hub import local
from executors.mesos.executor import POOL, Mesos
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from executors.remote import main
from tests.executors.test_mpirun import rank_of
from tests.waiting import until

pytestmark = pytest.mark.slow

# As Open MPI does, it has a shell on the other host start what is to run there, which its first argument may misname,
# and ends all when one fails.
FAKE = """#!{python}
import os, shlex, signal, subprocess, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *signal: told.append(143))
wrong, program = sys.argv[1], sys.argv[4:]
with open(os.environ["HYDRA_HOST_FILE"]) as file:
    hosts = file.read().split()
ranks = []
for rank, host in enumerate(hosts):
    words = ["env", f"PMI_RANK={{rank}}", *program]
    if host != hosts[0]:
        words = [os.environ["OMPI_MCA_plm_rsh_agent"], wrong or host, *map(shlex.quote, words)]
    ranks.append(subprocess.Popen(words))
running, failed = True, []
while running:
    time.sleep(0.01)
    codes = [rank.poll() for rank in ranks]
    failed = [*filter(None, codes), *told]
    running = None in codes and not failed
for rank in ranks:
    rank.kill()
sys.exit(failed[0] & 255 if failed else 0)
"""
pytest_plugins = ("tests.executors.mpi",)

EXECUTORS = {"local": local, "dask": dask, "mesos": Mesos}
NODES = ("n1", "n2")

needs_mpirun = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="not on PATH: mpirun (Debian package openmpi-bin)"
)


@pytest.fixture
def executor() -> str:
    return "local"


@pytest.fixture
def bench(executor: str, context: RunContext, tmp_path: Path) -> Iterator[Bench]:
    """Its directory has a name that launchers would take apart."""
    if executor == "dask":
        pytest.importorskip("distributed")
    directory = tmp_path / "a run: this"
    with Bench(EXECUTORS[executor], replace(context, local=False, directory=directory)) as bench:
        yield bench


@pytest.fixture
def fake(tmp_path: Path) -> str:
    program = tmp_path / "mpirun"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o700)
    return str(program)


def launch(bench: Bench, words: Sequence[str], function: Any, *args: object, program: bool = False) -> ExecutorDriver:
    """Two nodes of two cores, and a task of two ranks on each."""
    driver = bench.driver()
    file = private_directory(bench.context.directory) / "function"
    write_private(file, cloudpickle.dumps(function))
    how = Launch(tuple(words), ranks=2 * len(NODES), cores=1, program=program)
    needs = Resources(cores=2 * len(NODES), nodes=len(NODES))
    driver.given.append(Task("s", 0, str(file), pickle.dumps((args, {})), (), needs, how))
    driver.executor.launch(driver.given, "a")
    for name in NODES:
        bench.node(resources=Resources(cores=2), name=name)
    return driver


def work(folder: Path, seconds: float) -> int:
    """Leave a file with the rank, its node and its control groups, and rest."""
    rank = rank_of(dict(os.environ))
    # MPICH gives all ranks the variables of the first node; who starts them is where they are
    node = psutil.Process(os.getppid()).environ()["SLURMD_NODENAME"]
    groups = Path("/proc/self/cgroup").read_text()
    folder.joinpath(f".{os.getpid()}").write_text(f"{rank} {node} {groups}")
    folder.joinpath(f".{os.getpid()}").rename(folder / str(os.getpid()))
    time.sleep(seconds)
    return rank


def there(pids: Path) -> list[tuple[str, list[psutil.Process]]]:
    """Each node and its ranks, beginning with rank 0, once all are there."""
    until(lambda: len(list(pids.glob("[0-9]*"))) == 2 * len(NODES), "all ranks")
    found: dict[str, list[psutil.Process]] = {}
    for file in sorted(pids.iterdir(), key=Path.read_text):
        found.setdefault(file.read_text().split()[1], []).append(psutil.Process(int(file.name)))
    return list(found.items())


def test_without_a_node_there_is_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And who has started it is left alone, if that is no launcher of ours."""
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", f"{tmp_path}/shell")
    assert main(str(tmp_path), 7, "n1,n3", "n2", "true") == 255
    assert "asa: no remote shell on n2: it is not one of the task's nodes" in capsys.readouterr().err
    create(private_directory(tmp_path / "tls"), "run")
    with socket.socket() as deaf:  # bound, and listening to none: its supervisor has died
        deaf.bind(("127.0.0.1", 0))
        where = {"host": socket.gethostname(), "addresses": [], "port": deaf.getsockname()[1]}
        write_private(private_directory(tmp_path / "reached") / "7-n2.json", json.dumps(where).encode())
        assert main(str(tmp_path), 7, "n2", "n2", "true") == 255
    assert "asa: no remote shell on n2: port " in capsys.readouterr().err
    monkeypatch.setattr(remote, "PATIENCE_S", 0.1)
    assert main(str(tmp_path), 8, "n2", "n2", "true") == 255
    assert "does not expect commands of this task" in capsys.readouterr().err


class TestShell:
    """With one task on two nodes and the fake launcher."""

    def test_it_runs_a_command_on_another_node_of_the_task(
        self, bench: Bench, fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def work(folder: Path) -> str:
            node, threads, rank = (os.environ[name] for name in ("SLURMD_NODENAME", "OMP_NUM_THREADS", "PMI_RANK"))
            folder.joinpath(f"rank-{rank}").write_text(f"{node} {threads} {'SLURM_PROCID' in os.environ}")
            return node

        monkeypatch.setenv("SLURM_PROCID", "7")  # as srun tells a supervisor
        (first,) = launch(bench, [fake, ""], work, tmp_path).values(1)
        (other,) = set(NODES) - {first}
        said = [tmp_path.joinpath(f"rank-{rank}").read_text() for rank in range(4)]
        assert said == [f"{node} 1 False" for node in (first, first, other, other)]

    def test_it_ends_as_the_command_ends(self, bench: Bench, fake: str) -> None:
        def work() -> None:
            if os.environ["PMI_RANK"] == "3":
                os._exit(5)

        failed = launch(bench, [fake, ""], work).failure()
        assert "ended with exit code 5" in failed.error and not failed.infrastructure

    def test_only_nodes_of_the_task_may_be_asked_for(self, bench: Bench, fake: str) -> None:
        failed = launch(bench, [fake, "n3"], os.getpid).failure()
        assert "ended with exit code" in failed.error
        assert "no remote shell on n3: it is not one of the task's nodes" in failed.stderr

    @pytest.mark.parametrize("victim", ["worker", "launcher", "shell", "first node", "other node"])
    def test_when_something_is_killed_no_rank_is_left(self, bench: Bench, fake: str, pids: Path, victim: str) -> None:
        check_kill(bench, [fake, ""], pids, victim)


def check_kill(bench: Bench, words: Sequence[str], pids: Path, victim: str) -> None:
    """Something is killed under way: the task fails, by its own fault unless a node is lost, and its processes end."""
    driver = launch(bench, words, work, pids, 600.0)
    first, other = there(pids)
    programs = dict(zip(NODES, bench.programs, strict=True))
    # the launcher may have put something between itself and its ranks
    ancestors = first[1][0].parents()
    forks = {"executors.supervisor", "executors.mesos.agent"}  # a supervisor may be a fork, too
    worker = next(each for each in ancestors if forks & {*each.cmdline()})
    family = [*worker.children(recursive=True), *other[1], *(each.parent() for each in other[1])]
    shell = next(each for each in family if each and "executors.remote" in each.cmdline())
    victims = {"worker": worker, "launcher": ancestors[ancestors.index(worker) - 1], "shell": shell}
    victims |= {"first node": programs[first[0]], "other node": programs[other[0]]}
    victims[victim].kill()
    assert driver.failure().infrastructure == victim.endswith("node")
    assert [process for process in family if process and not is_gone(process.pid)] == []


def check_next_driver(bench: Bench, words: Sequence[str], pids: Path, wanted: bool) -> None:
    """The driver dies under way: ranks of both nodes go on, and are the next driver's if that wants them."""
    driver = launch(bench, words, work, pids, 4.0 if wanted else 600.0)
    ranks = [rank for _, node in there(pids) for rank in node]
    driver.executor.close()
    time.sleep(0.5)
    assert all(rank.is_running() for rank in ranks)
    (task,) = driver.given
    other = bench.driver([task] if wanted else [replace(task, identity="another")], NODES)
    if wanted:
        assert other.kept() == (("s", 0),)
        assert other.values(1) == [0]
    else:
        assert other.kept() == ()
    until(lambda: all(is_gone(rank.pid) for rank in ranks), "the end of all ranks")
    assert len(list(pids.glob("[0-9]*"))) == len(ranks), "none was started again"


@pytest.mark.parametrize("wanted", [True, False])
def test_ranks_outlive_the_driver(bench: Bench, fake: str, pids: Path, wanted: bool) -> None:
    check_next_driver(bench, [fake, ""], pids, wanted)


@needs_mpirun
class TestMpirun:
    """Open MPI or MPICH: whichever is installed."""

    @pytest.fixture(params=list(EXECUTORS))
    def executor(self, request: pytest.FixtureRequest) -> str:
        name: str = request.param
        return name

    def test_ranks_are_on_all_nodes(self, bench: Bench, pids: Path) -> None:
        assert launch(bench, ["mpirun"], work, pids, 0.0).values(1) == [0]
        said = sorted(file.read_text().split()[:2] for file in pids.iterdir())
        assert [rank for rank, _ in said] == ["0", "1", "2", "3"]
        (first,), (other,) = ({node for _, node in said[start : start + 2]} for start in (0, 2))
        assert {first, other} == set(NODES)

    @pytest.mark.parametrize("executor", ["local", "mesos"], indirect=True)
    def test_ranks_outlive_the_driver(self, bench: Bench, pids: Path) -> None:
        check_next_driver(bench, ["mpirun"], pids, wanted=True)

    def test_a_program(self, bench: Bench, hello: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # All nodes are this machine, whose shared memory the ranks of one of them must not look for on another.
        monkeypatch.setenv("OMPI_MCA_btl", "tcp,self")
        driver = launch(bench, ["mpirun"], asa.command(str(hello)).function, program=True)
        assert driver.values(1) == ["4 ranks, sum 6\n"]

    @pytest.mark.parametrize(
        ("executor", "victim"),
        [
            *(("local", victim) for victim in ("worker", "launcher", "first node", "other node")),
            *(("dask", victim) for victim in ("worker", "other node")),
            *(("mesos", victim) for victim in ("first node", "other node")),
        ],
        indirect=["executor"],
    )
    def test_when_something_is_killed_no_rank_is_left(self, bench: Bench, pids: Path, victim: str) -> None:
        check_kill(bench, ["mpirun"], pids, victim)


@needs_mpirun
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make cgroups")
@pytest.mark.parametrize("executor", ["mesos"])
def test_ranks_are_in_the_containers_of_their_nodes(bench: Bench, pids: Path) -> None:
    driver = launch(bench, ["mpirun"], work, pids, 0.0)
    assert driver.values(1) == [0]
    groups: dict[str, set[str]] = {}
    for file in pids.iterdir():
        _, node, found = file.read_text().split(maxsplit=2)
        groups.setdefault(node, set()).add(found)
    with Operator(PoolDirectory(bench.context.directory / POOL), READER) as operator:
        for agent in (agent["agent_info"] for agent in operator.get_agents()):
            (container,) = operator.containers(agent["id"]["value"])
            (own,) = groups.pop(agent["hostname"])
            assert f"/{container['container_id']['value']}\n" in own
            assert container["resource_statistics"]["cpus_limit"] == pytest.approx(2.0)
    assert not groups
