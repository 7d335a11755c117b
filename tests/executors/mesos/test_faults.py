"""Processes of a pool are killed, each at every point of a launch: no task is lost, or run twice, without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executors.mesos import live
from tests.executors.mesos.ledger import Ledger
from tests.executors.mesos.processes import Ground
from tests.waiting import until

pytestmark = pytest.mark.slow

MACHINE = "executors.mesos.master.machine:Master"
AGENT = "executors.mesos.agent.machine:NodeAgent"
WRITE = "executors.mesos.journal:Journal.write"

MASTER_POINTS = {
    "it hears ACCEPT": f"before {MACHINE}.call 'ACCEPT'",
    "before the tasks are journalled": f"before {WRITE} table='tasks'",
    "after the tasks are journalled": f"after {WRITE} table='tasks'",
    "RUN is about to go": "before asa.web.server:ResponseStream.put RUN",
    "it hears UPDATE": f"before {MACHINE}.from_agent TASK_RUNNING",
    "before the update is journalled": f"before {WRITE} table='tasks' TASK_RUNNING",
    "after the update is journalled": f"after {WRITE} table='tasks' TASK_RUNNING",
    "it hears ACKNOWLEDGE": f"before {MACHINE}.call 'ACKNOWLEDGE'",
    "it has passed ACKNOWLEDGE on": f"after {MACHINE}.call 'ACKNOWLEDGE'",
    "before the end is journalled": f"before {WRITE} TASK_FINISHED",
    "after the end is journalled": f"after {WRITE} TASK_FINISHED",
    "the task is forgotten": f"after {WRITE} table='tasks' row=None",
}
AGENT_POINTS = {
    "it hears RUN": f"before {AGENT}.from_master 'RUN'",
    "before its rows are kept": f"before {WRITE} table='tasks'",
    "after its rows are kept": f"after {WRITE} table='tasks'",
    "before the container is started": "before executors.mesos.agent.containers:NodeContainers.start argv",
    "after the container is started": f"before {AGENT}.started",
    "before RUNNING is kept": f"before {WRITE} TASK_RUNNING",
    "after RUNNING is kept": f"after {WRITE} TASK_RUNNING",
    "it hears ACKNOWLEDGE": f"before {AGENT}.from_master 'ACKNOWLEDGE'",
    "it has taken ACKNOWLEDGE": f"after {AGENT}.from_master 'ACKNOWLEDGE'",
    "the container has ended": f"before {AGENT}.exited",
    "before the end is kept": f"before {WRITE} TASK_FINISHED",
    "after the end is kept": f"after {WRITE} TASK_FINISHED",
    "the task is forgotten": f"after {WRITE} table='tasks' row=None",
}
DRIVER = "executors.mesos.driver:SchedulerDriver"
DRIVER_POINTS = {
    "before ACCEPT": f"before {DRIVER}.launchTasks task_id",
    "after ACCEPT": f"after {DRIVER}.launchTasks task_id",
    "it hears UPDATE": "before tests.executors.mesos.ledger:Ledger.statusUpdate TASK_RUNNING",
    "before ACKNOWLEDGE": f"before {DRIVER}.acknowledgeStatusUpdate TASK_RUNNING",
    "after ACKNOWLEDGE": f"after {DRIVER}.acknowledgeStatusUpdate TASK_RUNNING",
    "before the end is acknowledged": f"before {DRIVER}.acknowledgeStatusUpdate TASK_FINISHED",
}
WORK = ("a", "b", "c")
HEEDS = """
import signal, sys
from tests.executors.mesos.programs import mortal

def look(number, handler, install=signal.signal):
    if number == signal.SIGUSR1:
        sys.exit(" ".join(sys.modules))
    return install(number, handler)

signal.signal = look
mortal.main(*sys.argv[1:])
"""
"""Says which modules are there when the process begins to heed the signal."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """One pool for all: whoever was killed is there again when the next test begins."""
    ground = Ground(tmp_path_factory.mktemp("faults"))
    ground.start("master")
    until(ground.directory.master, "the master")
    ground.start("agent")
    ground.ready("agent")
    yield ground
    ground.close()
    assert ground.left == [], "no process or cgroup is left behind"


def work_through(ground: Ground, ledger: Ledger, mortal: str, point: str) -> None:
    """Have work done while one of the processes is killed, and another takes its place."""
    ground.revive()
    ground.arm(mortal, point)
    driver = ledger.driver(ground.directory)
    driver.start()
    try:
        ground.killed(mortal)
    finally:
        ground.start(mortal)
    ground.work(ledger, driver)
    driver.stop()
    driver.join()
    ledger.check()


@pytest.mark.parametrize(("which", "points"), [("master", MASTER_POINTS), ("agent", AGENT_POINTS)])
def test_a_signal_is_heeded_once_all_that_a_point_may_name_is_loaded(
    tmp_path: Path, which: str, points: dict[str, str]
) -> None:
    command = [sys.executable, "-c", HEEDS, str(tmp_path / "none"), which]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(live.ROOT)}, stderr=subprocess.PIPE, text=True)
    assert {point.split()[1].partition(":")[0] for point in points.values()} <= set(done.stderr.split())


@pytest.mark.parametrize("mortal", ["master", "agent"])
def test_who_was_started_just_now_is_told_its_point(ground: Ground, tmp_path: Path, mortal: str) -> None:
    ground.start(mortal)
    work_through(ground, Ledger(tmp_path / "ledger", WORK), mortal, f"before {WRITE} table='tasks'")


def test_a_process_that_does_not_do_what_it_should_is_explained(ground: Ground) -> None:
    told = ground.explain("master")
    assert "State:" in told and "loop_thread.py" in told


@pytest.mark.parametrize("point", MASTER_POINTS)
def test_the_master_is_killed_when(ground: Ground, tmp_path: Path, point: str) -> None:
    work_through(ground, Ledger(tmp_path / "ledger", WORK), "master", MASTER_POINTS[point])


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_the_agent_is_killed_when(ground: Ground, tmp_path: Path, point: str) -> None:
    work_through(ground, Ledger(tmp_path / "ledger", WORK), "agent", AGENT_POINTS[point])


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_the_driver_is_killed_when(ground: Ground, tmp_path: Path, point: str) -> None:
    words = str(ground.directory.path), str(tmp_path / "ledger"), *WORK
    ground.revive()
    ground.start("framework", *words, point=DRIVER_POINTS[point])
    ground.killed("framework")
    assert ground.start("framework", *words).wait(30) == 0, ground.log()
    Ledger(tmp_path / "ledger", ()).check()


@pytest.mark.parametrize(
    "point",
    [
        "it hears RUN",
        "after its rows are kept",
        "after the container is started",
        "before RUNNING is kept",
        "after RUNNING is kept",
        "it has taken ACKNOWLEDGE",
        "after the end is kept",
    ],
)
def test_the_agent_of_a_custom_executor_is_killed_when(ground: Ground, tmp_path: Path, point: str) -> None:
    ledger = Ledger(tmp_path / "ledger", WORK, executor=ground.executor())
    work_through(ground, ledger, "agent", AGENT_POINTS[point])
