"""Runs that share a pool: they lend what they leave idle, take it back, and do each other no harm."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from asa.core.event import Event, Leased, LeaseEnded, NodeJoined, NodeLost, Recalled
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import PATIENCE_S, Bench, ExecutorDriver
from executors.mesos import driver_side, framework, master_command, sharing
from executors.mesos.agent.service import NO_MASTER
from executors.mesos.agent.shim import birth_of
from executors.mesos.executor import Mesos
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from tests.waiting import until

pytestmark = [pytest.mark.mesos, pytest.mark.slow]

CORE = Resources()


class Pool:
    """A pool with two runs in it, ``left`` and ``right``."""

    def __init__(self, path: Path) -> None:
        self.directory = PoolDirectory(path / "pools" / "ours")
        self.left, self.right = (self._bench(path / name) for name in ("left", "right"))

    def _bench(self, path: Path) -> Bench:
        path.mkdir()
        context = RunContext(
            path.name, path / "run", str(path), tuple(sys.path), 3.0, local=True, pool=self.directory.path
        )
        return Bench(Mesos, context)

    def master(self) -> int:
        """The master's process."""
        return until(self.directory.master, "a master").pid

    def until_gone(self, pid: int) -> None:
        until(lambda: birth_of(pid) is None, f"the end of process {pid}")


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(master_command, "IDLE_S", 5.0)
    monkeypatch.setattr(sharing, "IDLE_S", 0.5)
    monkeypatch.setattr(framework, "PASS_S", 0.5)
    monkeypatch.setattr(driver_side, "LOOK_EVERY_S", 0.2)
    pool = Pool(tmp_path)
    with pool.left, pool.right:
        yield pool
    if (address := pool.directory.master()) is not None:  # its nodes were killed: it would wait for them for long
        with suppress(ProcessLookupError):
            os.kill(address.pid, signal.SIGTERM)
        pool.until_gone(address.pid)


def leases(driver: ExecutorDriver, count: int = 1) -> list[Leased]:
    def of(events: list[Event]) -> list[Leased]:
        return [event for event in events if isinstance(event, Leased)]

    return of(driver.until(lambda events: len(of(events)) >= count))


def seen(driver: ExecutorDriver, kind: type[Event], allocation: str, times: int = 1) -> None:
    """Wait until this has happened."""
    driver.until(
        lambda events: (
            sum(isinstance(event, kind) and getattr(event, "allocation", "") == allocation for event in events) >= times
        )
    )


def lent(pool: Pool, cores: int = 2) -> tuple[ExecutorDriver, ExecutorDriver, Leased]:
    """The left run has a node and nothing to do; the right one has work and no node, and leases it."""
    left, right = pool.left.driver(), pool.right.driver()
    pool.left.node("left.0", Resources(cores=cores))
    left.joined()
    right.executor.want(CORE, cores)  # type: ignore[attr-defined]
    lease = leases(right)[0]
    seen(right, NodeJoined, lease.allocation)
    return left, right, lease


def test_what_one_leaves_idle_another_takes_and_gives_back(pool: Pool) -> None:
    left, right, lease = lent(pool)
    seen(left, NodeLost, "left.0")
    assert (lease.lender, lease.resources.cores) == ("left", 2)
    right.launch(tasks.echo, [("far",)], allocation=lease.allocation)
    assert right.values(1) == ["far"]
    right.executor.want(None, 0)  # type: ignore[attr-defined]
    left.executor.want(CORE, 1)  # type: ignore[attr-defined]
    seen(right, Recalled, lease.allocation)
    right.executor.release(lease.allocation)
    seen(right, LeaseEnded, lease.allocation)
    seen(left, NodeJoined, "left.0", times=2)
    left.launch(tasks.echo, [("home",)], allocation="left.0")
    assert left.values(1) == ["home"]


def test_a_node_that_works_is_not_lent(pool: Pool) -> None:
    left, right = pool.left.driver(), pool.right.driver()
    pool.left.node("left.0")
    left.joined()
    left.launch(time.sleep, [(2.0,)], allocation="left.0")
    right.executor.want(CORE, 2)  # type: ignore[attr-defined]
    left.ended(1)
    assert not any(isinstance(event, NodeLost) for event in left.events)
    leases(right)


def test_its_own_nodes_it_has_at_once(pool: Pool) -> None:
    """Others, who wait as well, leave it to its owner."""
    left, right = pool.left.driver(), pool.right.driver()
    for driver in (left, right):
        driver.executor.want(CORE, 2)  # type: ignore[attr-defined]
    pool.left.node("left.0")
    left.joined()
    assert not any(isinstance(event, Leased) for event in right.events)


def test_a_lease_takes_no_more_than_is_wanted(pool: Pool) -> None:
    left, right = pool.left.driver(), pool.right.driver()
    pool.left.node("left.0", Resources(cores=4))
    left.joined()
    right.executor.want(Resources(cores=2), 1)  # type: ignore[attr-defined]
    assert leases(right)[0].resources.cores == 2
    with Operator(pool.directory, READER) as operator:
        (agent,) = operator.get_agents()
    taken = [item["scalar"]["value"] for item in agent["allocated_resources"] if item["name"] == "cpus"]
    assert sum(taken) == 2


def test_leases_have_time_to_end_when_the_allocation_is_released(pool: Pool) -> None:
    left, right, lease = lent(pool)
    right.launch(time.sleep, [(2.0,)], allocation=lease.allocation)
    left.executor.release("left.0")
    seen(right, Recalled, lease.allocation)
    assert right.values(1) == [None]
    right.executor.release(lease.allocation)
    assert pool.left.programs[0].wait(PATIENCE_S) == 0
    seen(right, LeaseEnded, lease.allocation)


def test_a_driver_that_dies_takes_nothing_of_others_along(pool: Pool) -> None:
    left, right, lease = lent(pool)
    right.launch(time.sleep, [(5.0,)], allocation=lease.allocation)
    left.executor.close()  # without having released anything, as one that was killed
    seen(right, Recalled, lease.allocation)
    assert right.values(1) == [None]
    right.executor.release(lease.allocation)
    assert pool.left.programs[0].wait(PATIENCE_S) == NO_MASTER, "what waits for its release must not start"


def test_leases_end_with_their_driver(pool: Pool) -> None:
    left, right, _ = lent(pool)
    right.executor.close()
    left.executor.want(CORE, 1)  # type: ignore[attr-defined]
    seen(left, NodeJoined, "left.0", times=2)


def test_the_master_is_missed_and_started_again(pool: Pool) -> None:
    left, right, lease = lent(pool)
    before = pool.master()
    os.kill(before, signal.SIGKILL)
    right.launch(tasks.echo, [("on",)], allocation=lease.allocation)
    assert right.values(1) == ["on"]
    until(lambda: pool.master() != before, "a new master")
    right.executor.want(None, 0)  # type: ignore[attr-defined]
    left.executor.want(CORE, 1)  # type: ignore[attr-defined]
    seen(right, Recalled, lease.allocation)
    right.executor.release(lease.allocation)
    seen(left, NodeJoined, "left.0", times=2)


def test_the_last_one_out_leaves_no_master(pool: Pool) -> None:
    left = pool.left.driver()
    pool.left.node("left.0")
    left.joined()
    master = pool.master()
    left.executor.release("left.0")
    assert pool.left.programs[0].wait(PATIENCE_S) == 0
    with Operator(pool.directory, READER) as operator:
        left.executor.close()
        assert operator.get_frameworks() == []
    pool.until_gone(master)
