"""Containers of a run's agents, as the page shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from asa.core.event import ContainersSeen, ContainerUse, DriverStarted
from asa.dashboard.containers import Containers, containers
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from tests.waiting import until

WORKFLOW = """
import time
import asa

@asa.stage(cores=2, walltime="5m")
def work(number):
    deadline = time.time() + 60
    while time.time() < deadline:
        pass

workflow = work.map(range(2))
"""


def test_where_there_is_no_pool_there_are_none(tmp_path: Path) -> None:
    assert containers(tmp_path / "pool") is None


def test_a_pool_that_does_not_answer_has_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pool").mkdir(0o700)
    assert containers(tmp_path / "pool") is None


def used(*uses: ContainerUse, at: float = 0.0, gone: tuple[str, ...] = ()) -> ContainersSeen:
    return ContainersSeen(at, uses, gone)


def test_a_log_tells_of_containers_until_they_are_gone() -> None:
    told = Containers()
    assert not told.told and told.table({"cn01"}) == {}
    told.on(used(ContainerUse("c1", "cn01", 4.0), ContainerUse("c2", "cn02", 2.0), at=10.0))
    told.on(used(ContainerUse("c1", "cn01", 3.0, 2.9, 0.4), at=15.0))
    assert told.told
    assert told.table({"cn01", "cn02"})["c1"] == {
        "node": "cn01",
        "container": "c1",
        "state": "running",
        "limit_cores": 3.0,
        "used": 2.9,
        "throttled_share": 0.4,
        "at": 15.0,
    }
    assert list(told.table({"cn02"})) == ["c2"]  # the other node has left, although nobody has looked since
    told.on(used(at=20.0, gone=("c2", "c9")))
    assert told.table({"cn02"}) == {} and told.told


def test_a_new_driver_tells_anew() -> None:
    told = Containers()
    told.on(used(ContainerUse("c1", "cn01", 4.0)))
    told.on(DriverStarted(5.0, 4711, "login1"))
    assert told.table({"cn01"}) == {}


@pytest.mark.slow
def test_quotas_and_use_are_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "work.py").write_text(WORKFLOW)
    command = [sys.executable, "-P", "-m", "asa", "run", "work.py", "--backend", "local:cores=2", "--executor", "mesos"]
    environment = os.environ | {"ASA_STATE_DIR": str(tmp_path)}
    with subprocess.Popen([*command, "--quiet"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            (directory,) = until(lambda: list_runs(tmp_path), "the run")

            def spent() -> float:
                rows = containers(directory.path / "pool") or [{"cpu_s": None, "limit_cores": None}]
                assert rows[0]["limit_cores"] in (None, 2.0)
                return rows[0]["cpu_s"] or 0.0

            first = until(spent, "CPU time")
            assert until(lambda: spent() > first, "more of it")
            with EventLog(directory.events) as log:
                told = until(lambda: log.latest(ContainersSeen), "what the log tells of it", within_s=60)
            assert isinstance(told, ContainersSeen) and told.seen[0].limit_cores in (None, 2.0)
        finally:
            run.terminate()
            run.wait(60)
