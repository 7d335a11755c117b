"""A gang over four agents, which are processes: it starts whole, or is rolled back when one of them is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from executors.mesos.driver import SchedulerDriver
from executors.mesos.framework import Framework, FrameworkOutcome, Patience, TaskGang, TaskNeed, TaskProgram
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.scheduler import FrameworkScheduler
from tests.executors.mesos import live
from tests.executors.mesos.processes import Bench
from tests.executors.mesos.scripted import until

pytestmark = pytest.mark.slow

SIZE = 4
RANK = Path(__file__).parent / "programs" / "rank.py"
INFO = live.FRAMEWORK | {"failover_timeout": 60}
INFO["capabilities"] = [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}]


class Pool:
    """A framework of ours, its driver, and the pool that both are in."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.told = bench, list[FrameworkOutcome]()
        self.scheduler = FrameworkScheduler(Framework(patience=Patience(hold_s=5.0, pause_s=0.1)), self.told.extend)
        self.driver = SchedulerDriver(self.scheduler, INFO, bench.directory)
        self.driver.start()
        until(self.scheduler.ready.is_set, "the master")

    def gang(self, directory: Path) -> None:
        programs = [
            TaskProgram((sys.executable, "-SE", str(RANK), str(n), str(SIZE), str(directory))) for n in range(SIZE)
        ]
        gang = TaskGang("g", tuple(programs), TaskNeed(1.0, 64 << 20), apart=True)
        self.scheduler.want(lambda framework, now: framework.gang(gang, now))

    def outcome(self) -> str:
        """What became of the gang next, and why."""
        found = until(lambda: self.told and self.told.pop(0), "an outcome")
        return f"{found.state} {found.reason}".strip()

    def ranks(self, attempt: int) -> int:
        """How many processes of an attempt live."""
        tasks = {f"g.1.{attempt}.{n}" for n in range(SIZE)}
        return sum(item.info["environ"].get("MESOS_EXECUTOR_ID") in tasks for item in self.bench.processes())

    def close(self) -> None:
        self.driver.stop()
        self.driver.join()
        self.scheduler.close()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    bench = Bench(tmp_path)
    with MasterService(bench.directory, MasterOptions(ping_s=0.5, pings=4), host="127.0.0.1"):
        pool = Pool(bench)
        try:
            yield pool
        finally:
            pool.close()
            bench.close()
    assert bench.left == [], "no process or cgroup is left behind"


def start(pool: Pool, names: Sequence[str], **points: str) -> None:
    for name in names:
        pool.bench.start(name, "--orphan-grace", "1", point=points.get(name, ""))
    pool.bench.ready(*names)


def written(directory: Path, attempt: int) -> set[str]:
    return {path.name for path in directory.glob(f"g.1.{attempt}.rank*")}


NAMES = [f"node{n}" for n in range(SIZE)]


def files(attempt: int) -> set[str]:
    return {f"g.1.{attempt}.rank{n}" for n in range(SIZE)}


def test_it_starts_whole(pool: Pool, tmp_path: Path) -> None:
    pool.gang(tmp_path)
    start(pool, NAMES[:3])
    assert pool.told == [] and pool.ranks(1) == 0, "there is no room for all of it yet"
    pool.bench.start(NAMES[3])
    assert pool.outcome() == "started"
    until(lambda: written(tmp_path, 1) == files(1), "all to have met")
    assert pool.ranks(1) == SIZE
    (tmp_path / "end").touch()
    assert pool.outcome() == "finished"


@pytest.mark.parametrize(
    "point",
    [
        "before executors.mesos.agent.machine:NodeAgent.from_master 'RUN'",
        "before executors.mesos.agent.containers:NodeContainers.start argv",
        "before executors.mesos.agent.machine:NodeAgent.started",
    ],
    ids=["is to launch", "has taken note", "has launched"],
)
def test_it_is_rolled_back_when_an_agent_is_killed_that(pool: Pool, tmp_path: Path, point: str) -> None:
    start(pool, NAMES, node2=point)
    pool.gang(tmp_path)
    pool.bench.killed("node2")
    assert pool.outcome().startswith("retried rank")
    pool.bench.start("fifth")
    assert pool.outcome() == "started"
    until(lambda: written(tmp_path, 2) == files(2), "all to have met")
    until(lambda: pool.ranks(1) == 0, "the end of the first attempt")
    assert pool.ranks(2) == SIZE
    (tmp_path / "end").touch()
    assert pool.outcome() == "finished"


def test_it_ends_when_an_agent_is_killed_later(pool: Pool, tmp_path: Path) -> None:
    start(pool, NAMES)
    pool.gang(tmp_path)
    assert pool.outcome() == "started"
    until(lambda: written(tmp_path, 1) == files(1), "all to have met")
    pool.bench.running["node1"].kill()
    assert pool.outcome().startswith("failed rank")
    until(lambda: pool.ranks(1) == 0, "the end of all of it")
