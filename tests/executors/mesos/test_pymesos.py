"""Unmodified pymesos against our master and agent, through the tunnel; each program in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.service import MasterService
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, WRITER, PoolDirectory
from executors.mesos.tunnel import Tunnel
from tests.executors.mesos import live
from tests.executors.mesos.scripted import until

pytestmark = [
    pytest.mark.mesos,
    pytest.mark.skipif(importlib.util.find_spec("pymesos") is None, reason="pymesos is not installed"),
]

PROGRAMS = Path(__file__).parent / "programs"
EXECUTOR = live.python(PROGRAMS / "pymesos_executor.py")
DEADLINE_S = 90.0


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolDirectory]:
    with live.pool(tmp_path, agents=2) as directory:
        yield directory


def program(name: str, *arguments: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-P", str(PROGRAMS / f"{name}.py"), *arguments]
    environ = os.environ | {"PYTHONPATH": str(live.ROOT)}
    return subprocess.Popen(
        words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def seen(process: subprocess.Popen[str], stdin: str = "") -> Any:
    """What it prints last; its standard error is shown when that is nothing."""
    try:
        out, err = process.communicate(stdin, timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0 and out, err[-4000:]
    return json.loads(out.splitlines()[-1])


def test_its_scheduler_and_its_executor(pool: PoolDirectory) -> None:
    with Tunnel(pool) as tunnel, Operator(pool, READER) as operator:
        found = seen(program("pymesos_scheduler", tunnel.address, EXECUTOR, "20"), json.dumps(live.USER))
        assert found["registered"] == 1 and found["version"] == "1.11.0" and found["offers"] >= 2
        assert found["states"] == {f"t{n}": ["TASK_RUNNING", "TASK_FINISHED"] for n in range(1, 21)}
        assert found["messages"] == [["sleeper", "olleh"]]
        until(lambda: not operator.get_frameworks(), "TEARDOWN")
        state = operator.get_state()
        (completed,) = state["get_frameworks"]["completed_frameworks"]
        assert completed["framework_info"]["id"]["value"] == found["framework"]
        until(lambda: not operator.call("GET_EXECUTORS")["executors"], "the end of the executors")


def test_our_framework_runs_on_it(pool: PoolDirectory) -> None:
    with Tunnel(pool) as tunnel:
        found = seen(program("pymesos_framework", tunnel.address), json.dumps(live.USER))
    assert found == [["trio", "started", ""], ["trio", "finished", ""]]


class Launcher:
    """Runs one task of pymesos's executor on our own driver, when told to."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.states: list[str] = []

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        if self.states or not self.go.wait(60):
            return driver.declineOffer([offer["id"] for offer in offers])
        task = live.command("t1", offers[0], "")
        executor = {"executor_id": {"value": "sleeper"}, "name": "sleeper", "command": {"value": EXECUTOR}}
        task = {name: value for name, value in task.items() if name != "command"} | {"executor": executor}
        self.states.append("launched")
        return driver.launchTasks(offers[0]["id"], [task | {"data": "MC4z"}])

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        self.states.append(status["state"])


def test_its_operators_and_its_executor_on_our_driver(pool: PoolDirectory) -> None:
    launcher = Launcher()
    driver = SchedulerDriver(launcher, live.FRAMEWORK, pool)
    with Operator(pool, READER) as operator:
        infos = [agent["agent_info"] for agent in operator.get_agents()]
    with Tunnel(pool, WRITER) as tunnel, Tunnel(pool, READER, f"127.0.0.1:{infos[0]['port']}") as to_agent:
        process = program("pymesos_operator", tunnel.address, to_agent.address)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            driver.start()
            launcher.go.set()
            found = seen(process)
        finally:
            process.kill()
            driver.stop()
            driver.join()
    assert launcher.states == ["launched", "TASK_RUNNING", "TASK_FINISHED"]
    for name in ("metrics", "agents", "frameworks", "executors", "tasks", "roles", "state", "flags", "weights"):
        assert found[name]["type"] == f"GET_{name.upper()}" and found[name][f"get_{name}"]
    assert found["health"]["get_health"] == {"healthy": True} == found["agent health"]["get_health"]
    assert found["version"]["get_version"]["version_info"]["version"] == "1.11.0"
    assert found["weights"]["get_weights"]["weight_infos"] == [{"role": "test", "weight": 2.0}]
    assert found["quota"]["get_quota"]["status"]["infos"][0]["role"] == "test"
    assert not found["no quota"]["get_quota"]["status"].get("infos")
    assert {agent["agent_info"]["id"]["value"] for agent in found["agents"]["get_agents"]["agents"]} == {
        info["id"]["value"] for info in infos
    }
    assert found["added"] == ["t1"] and found["joined"] == ["test"]
    assert found["updated"] == ["TASK_RUNNING", "TASK_FINISHED"]
    assert "get_tasks" in found["agent state"]["get_state"] and found["containers"]["type"] == "GET_CONTAINERS"


def test_the_masters_death_costs_no_task(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "test")
    master = MasterService(directory)
    master.start()
    try:
        with live.agent(directory, tmp_path / "work"), Tunnel(directory) as tunnel:
            process = program("pymesos_scheduler", tunnel.address, EXECUTOR, "9")
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(live.USER) + "\n")
                process.stdin.close()
                process.stdin = None
                with Operator(directory, READER) as operator:
                    until(lambda: operator.call("GET_TASKS")["tasks"], "a task")
                master.kill()
                master.start()
                found = seen(process)
            finally:
                process.kill()
    finally:
        master.close()
    assert found["registered"] == 1 and found["reregistered"]
    ended = {task for task, states in found["states"].items() if states[-1] == "TASK_FINISHED"}
    assert ended == {f"t{n}" for n in range(1, 10)}
