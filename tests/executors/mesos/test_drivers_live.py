"""Our drivers against our master and agent, which end in the middle of it and come back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.service import MasterService
from executors.mesos.pool_directory import PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.scripted import until

EXECUTOR = live.python(Path(__file__).parent / "programs" / "own_executor.py")


class Scheduler:
    """Launches tasks that wait for files, and remembers what it is told."""

    def __init__(self, *files: Path) -> None:
        self.files = list(files)
        self.told: list[str] = []
        self.states: dict[str, list[str]] = {}

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        for offer in offers:
            tasks = [self._task(offer, self.files.pop()) for _ in self.files[:]]
            driver.launchTasks(offer["id"], tasks)

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        self.states.setdefault(status["task_id"]["value"], []).append(status["state"])

    def registered(self, *_: Any) -> None:
        self.told.append("registered")

    def reregistered(self, *_: Any) -> None:
        self.told.append("reregistered")

    def disconnected(self, driver: SchedulerDriver) -> None:
        self.told.append("disconnected")

    def error(self, driver: SchedulerDriver, message: str) -> None:
        self.told.append(message)

    def reached(self, state: str, tasks: int) -> bool:
        return sum(state in states for states in list(self.states.values())) == tasks

    def _task(self, offer: dict[str, Any], file: Path) -> dict[str, Any]:
        task = live.command(file.name, offer, "", cpus=0.5)
        del task["command"]
        executor = {"executor_id": {"value": "own"}, "command": {"value": EXECUTOR}}
        return task | {"executor": executor, "data": base64.b64encode(str(file).encode()).decode()}


@contextmanager
def running(directory: PoolDirectory, scheduler: Scheduler) -> Iterator[SchedulerDriver]:
    info = live.FRAMEWORK | {"checkpoint": True, "failover_timeout": 60}
    driver = SchedulerDriver(scheduler, info, directory)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()
        driver.join()


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "test")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"t{n}" for n in range(3)]


def test_tasks_of_our_executor(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    scheduler = Scheduler(*files)
    master, agent = MasterService(directory), live.agent(directory, tmp_path / "work")
    with master, agent, running(directory, scheduler):
        until(lambda: scheduler.reached("TASK_RUNNING", 3), "tasks")
        for file in files:
            file.touch()
        until(lambda: scheduler.reached("TASK_FINISHED", 3), "their end")
    assert scheduler.states == {file.name: ["TASK_RUNNING", "TASK_FINISHED"] for file in files}
    assert scheduler.told == ["registered"]


def test_the_masters_death_costs_no_task(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    scheduler = Scheduler(*files)
    master = MasterService(directory)
    master.start()
    try:
        with live.agent(directory, tmp_path / "work"), running(directory, scheduler) as driver:
            until(lambda: scheduler.reached("TASK_RUNNING", 3), "tasks")
            own = driver.framework_id
            files[0].touch()
            until(lambda: scheduler.reached("TASK_FINISHED", 1), "the first to end")
            master.kill()
            files[1].touch()
            until(lambda: "disconnected" in scheduler.told)
            master.start()
            until(lambda: "reregistered" in scheduler.told)
            until(lambda: scheduler.reached("TASK_FINISHED", 2), "the update from meanwhile")
            files[2].touch()
            until(lambda: scheduler.reached("TASK_FINISHED", 3), "the last to end")
            assert driver.framework_id == own
    finally:
        master.close()
    assert scheduler.told == ["registered", "disconnected", "reregistered"]
    assert all(states[-1] == "TASK_FINISHED" and "TASK_LOST" not in states for states in scheduler.states.values())


def test_the_agents_death_costs_no_task(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    scheduler = Scheduler(*files)
    agent = live.agent(directory, tmp_path / "work")
    with MasterService(directory), running(directory, scheduler) as driver:
        agent.start()
        try:
            until(lambda: scheduler.reached("TASK_RUNNING", 3), "tasks")
            agent.kill()
            files[0].touch()
            agent = live.agent(directory, tmp_path / "work")
            agent.start()
            until(lambda: scheduler.reached("TASK_FINISHED", 1), "the update from meanwhile")
            for file in files[1:]:
                file.touch()
            until(lambda: scheduler.reached("TASK_FINISHED", 3), "their end")
            assert driver.connected
        finally:
            agent.close()
    assert all(states == ["TASK_RUNNING", "TASK_FINISHED"] for states in scheduler.states.values())


def test_another_driver_takes_over_the_tasks(tmp_path: Path, directory: PoolDirectory, files: list[Path]) -> None:
    first, second = Scheduler(*files), Scheduler()
    with MasterService(directory), live.agent(directory, tmp_path / "work"):
        info = live.FRAMEWORK | {"failover_timeout": 60}
        driver = SchedulerDriver(first, info, directory)
        driver.start()
        until(lambda: first.reached("TASK_RUNNING", 3), "tasks")
        other = SchedulerDriver(second, info | {"id": {"value": driver.framework_id}}, directory)
        other.start()
        driver.join(20)
        assert driver.aborted and first.told[0] == "registered" and "failed over" in first.told[-1]
        until(lambda: "reregistered" in second.told)
        other.reconcileTasks([])
        until(lambda: second.reached("TASK_RUNNING", 3), "reconciliation")
        for file in files:
            file.touch()
        until(lambda: second.reached("TASK_FINISHED", 3), "their end")
        other.stop()
        other.join()
    assert not any("TASK_FINISHED" in states for states in first.states.values())
