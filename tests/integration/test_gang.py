"""A gang over four nodes of a real cluster, two to an allocation: it is rolled back when one dies during its launch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER
from tests.cluster.processes import wait_until
from tests.executors.mesos import live
from tests.executors.mesos.processes import MARK, MORTAL, Bench
from tests.executors.mesos.scripted import until
from tests.executors.mesos.test_gang_live import SIZE, Pool, files, written
from tests.integration.shell import PATIENCE_S, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]

AGENT = f"""
export {MARK}={{mark}} PYTHONPATH={live.ROOT}
exec {sys.executable} {MORTAL} {{path}}/$SLURMD_NODENAME.point agent --directory {{path}}/pool --host 127.0.0.1 \\
    --cores 2 --memory {1 << 29} --orphan-grace 1 --work {{path}}/$SLURM_JOB_ID-$SLURMD_NODENAME
"""


class Jobs:
    """Allocations whose nodes run agents; a node's agent is killed when it comes to its point."""

    def __init__(self, shell: Shell, bench: Bench) -> None:
        self._shell, self._bench = shell, bench
        self._script = bench.path / "agent.sh"
        self._script.write_text(AGENT.format(mark=bench.mark, path=bench.path))

    def submit(self, *nodes: str) -> None:
        where = f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"
        size = "--ntasks-per-node=1", "--cpus-per-task=2", "--time=5", f"--output={self._bench.path}/log"
        program = f"--wrap=exec srun --kill-on-bad-exit=0 sh {self._script}"
        self._shell.cluster.run("sbatch", *where, *size, "--open-mode=append", program)

    def ready(self, *nodes: str) -> None:
        """Wait for agents on these nodes to be registered."""
        with Operator(self._bench.directory, READER) as operator:

            def hosts() -> list[str]:
                return sorted(agent["agent_info"]["hostname"] for agent in operator.get_agents())

            assert wait_until(lambda: hosts() == sorted(nodes), PATIENCE_S), self._bench.log()


@pytest.fixture
def bench(shell: Shell, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    with MasterService(bench.directory, MasterOptions(ping_s=0.5, pings=4), host="127.0.0.1"):
        yield bench
        if jobs := shell.queue():
            shell.cluster.run("scancel", *jobs)
        assert wait_until(lambda: not shell.queue(), PATIENCE_S)
    bench.close()
    groups = [Path(item) for item in bench.left if item.startswith("/sys/fs/cgroup/")]
    assert len(groups) == len(bench.left), f"no process is left behind: {bench.left}"
    # Slurm ends what tidies up after an agent that was killed, too, so that groups may stay, but empty.
    for group in groups:
        group.rmdir()
        group.parent.rmdir()


@pytest.mark.parametrize(
    "point",
    [
        "before executors.mesos.agent.machine:NodeAgent.from_master 'RUN'",
        "before executors.mesos.agent.machine:NodeAgent.started",
    ],
    ids=["is to launch", "has launched"],
)
def test_it_is_rolled_back_when_an_agent_is_killed_and_starts_with_another(
    shell: Shell, bench: Bench, point: str
) -> None:
    jobs, nodes, place = Jobs(shell, bench), shell.cluster.nodes[:SIZE], bench.path
    (place / f"{nodes[-1]}.point").write_text(point)
    jobs.submit(*nodes[:2])
    jobs.submit(*nodes[2:])
    jobs.ready(*nodes)
    pool = Pool(bench)
    try:
        pool.gang(place)
        assert pool.outcome().startswith("retried rank")
        until(lambda: pool.ranks(1) == 0, "the end of the first attempt")
        jobs.ready(*nodes[:-1])
        assert pool.told == [] and pool.ranks(2) == 0, "three agents are not enough"
        jobs.submit(nodes[-1])
        assert pool.outcome() == "started"
        until(lambda: written(place, 2) == files(2), "all to have met")
        assert written(place, 1) == set() and pool.ranks(2) == SIZE
        (place / "end").touch()
        assert pool.outcome() == "finished"
    finally:
        pool.close()
