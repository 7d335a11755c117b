"""The operator drivers of unmodified pymesos: ``MASTER AGENT``; prints what they said, once a task has ended."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from executors.mesos.compat import enable_pymesos

enable_pymesos()

from pymesos import MesosOperatorAgentDriver, MesosOperatorMasterDriver, OperatorMaster  # noqa: E402


class Watcher(OperatorMaster):
    def __init__(self) -> None:
        self.added: list[str] = []
        self.updated: list[str] = []
        self.frameworks: list[str] = []

    def taskAdded(self, task: Any) -> None:
        self.added.append(task["task_id"]["value"])

    def taskUpdated(self, task: Any) -> None:
        self.updated.append(task["state"])

    def frameworkAdded(self, framework: Any) -> None:
        self.frameworks.append(framework["framework_info"]["name"])


if __name__ == "__main__":
    watcher = Watcher()
    driver = MesosOperatorMasterDriver(sys.argv[1], watcher)
    driver.start()
    answers = {
        "health": driver.getHealth(),
        "version": driver.getVersion(),
        "flags": driver.getFlags(),
        "metrics": driver.getMetrics(1_000_000_000),
        "state": driver.getState(),
        "agents": driver.getAgents(),
        "frameworks": driver.getFrameworks(),
        "executors": driver.getExecutors(),
        "tasks": driver.getTasks(),
        "roles": driver.getRoles(),
        "master": driver.getMaster(),
    }
    answers["quota"] = driver.getQuota()
    agent = MesosOperatorAgentDriver(sys.argv[2])
    deadline = time.monotonic() + 30
    while not driver.connected and time.monotonic() < deadline:
        time.sleep(0.01)
    print("ready", flush=True)
    while "TASK_FINISHED" not in watcher.updated and time.monotonic() < deadline:
        answers |= {"containers": agent.getContainers()} if "TASK_RUNNING" in watcher.updated else {}
        time.sleep(0.01)
    answers |= {"agent health": agent.getHealth(), "agent state": agent.getState()}
    driver.stop()
    driver.join()
    answers |= {"added": watcher.added, "updated": watcher.updated, "joined": watcher.frameworks}
    print(json.dumps(answers))
