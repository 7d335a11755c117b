"""A framework that writes down what it does and what it is told, so that another can go on where it was killed."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

from executors.mesos.driver import SchedulerDriver
from executors.mesos.messages import TERMINAL
from executors.mesos.pool_directory import PoolDirectory
from tests.executors.mesos import live
from tests.executors.mesos.simple_executor import SimpleExecutor

INFO = live.FRAMEWORK | {"failover_timeout": 60, "checkpoint": True}
CPUS = 0.25
_AGREE = (
    {"TASK_DROPPED", "TASK_GONE"},  # it was asked about meanwhile, and what the master says of itself is said once
    {"TASK_LOST", "TASK_KILLED"},  # its agent came back, and it was ended there
)


class Ledger:
    """Has every piece of work done once: one whose task has ended badly gets another task.

    Each task leaves a line in a file of its own before it does anything else, so that one can see how often it ran.

    Parameters
    ----------
    path
        Directory for the record and the tasks' files.
    work
        Names; what is in the record already is known.
    script
        What a task does beyond leaving its line.
    executor
        The command of a custom executor, if that is what the tasks are for.
    aware
        Whether it can tell an agent that is away from one that is lost.
    """

    def __init__(
        self, path: Path, work: Collection[str], script: str = "sleep .1", executor: str = "", *, aware: bool = True
    ) -> None:
        self.path, self.script, self.executor, self.aware = path, script, executor, aware
        self.lock = threading.RLock()
        self.framework: str | None = None
        self.agents: dict[str, str] = {}
        """Task -> its agent."""
        self.told: dict[str, list[str]] = {}
        """Task -> states, in the order in which they were told."""
        self.why: list[str] = []
        path.mkdir(exist_ok=True)
        if (record := path / "record").exists():
            for line in record.read_text().splitlines():
                self._note(*json.loads(line))
        for name in work:
            self.told.setdefault(f"{name}.0", [])
        self.errors: list[str] = []

    def driver(self, directory: PoolDirectory) -> SchedulerDriver:
        own = {} if self.framework is None else {"id": {"value": self.framework}}
        able = {"capabilities": [{"type": kind} for kind in ("MULTI_ROLE", "PARTITION_AWARE")[: 1 + self.aware]]}
        return SchedulerDriver(self, INFO | able | own, directory)

    def over(self, task: str) -> bool:
        return any(state in TERMINAL for state in self.told[task])

    def done(self) -> bool:
        with self.lock:
            return all(self.over(task) for task in self.told)

    def reconcile(self, driver: SchedulerDriver) -> None:
        """Ask where the tasks stand that are not over. What is told meanwhile is acknowledged after that."""
        with self.lock:
            known = [task for task in self.agents if not self.over(task)]
            asked = [{"task_id": {"value": task}, "agent_id": {"value": self.agents[task]}} for task in known]
            if asked:
                driver.reconcileTasks(asked)

    def runs(self, task: str) -> int:
        """How often the task has begun."""
        file = self.path / f"{task}.ran"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def check(self) -> None:
        """Every piece of work was done once; nothing has happened of which the framework was not told."""
        assert self.errors == []
        assert {file.stem for file in self.path.glob("*.ran")} <= set(self.agents), "tasks that nobody has launched"
        finished = []
        for task, states in self.told.items():
            ends = {state for state in states if state in TERMINAL}
            assert len(ends) == 1 or ends in _AGREE, f"{task} was told to have ended as {states}: {self.why}"
            assert self.runs(task) <= 1, f"{task} ran twice"
            if "TASK_DROPPED" in ends:
                assert self.runs(task) == 0, f"{task} ran although it was told to be dropped"
            if "TASK_FINISHED" in ends:
                assert self.runs(task) == 1, f"{task} did not run although it was told to be finished"
                finished.append(task.partition(".")[0])
        names = {task.partition(".")[0] for task in self.told}
        assert sorted(finished) == sorted(names), "each piece of work was finished, and once"

    # ------------------------------------------------------- callbacks

    def registered(self, driver: SchedulerDriver, framework_id: dict[str, Any], master: Any) -> None:
        self._write("framework", framework_id["value"])

    def reregistered(self, driver: SchedulerDriver, master: Any) -> None:
        self.reconcile(driver)

    def resourceOffers(self, driver: SchedulerDriver, offers: list[dict[str, Any]]) -> None:
        with self.lock:
            waiting = [task for task in self.told if task not in self.agents]
            for offer in offers:
                room = int(_cpus(offer) / CPUS) - (2 if self.executor else 0)
                tasks, waiting = waiting[: max(0, room)], waiting[max(0, room) :]
                for task in tasks:
                    self._write("launch", task, offer["agent_id"]["value"])
                infos = [self._info(task, offer) for task in tasks]
                driver.launchTasks(offer["id"], infos, {"refuse_seconds": 0.0 if tasks else 1.0})

    def statusUpdate(self, driver: SchedulerDriver, status: dict[str, Any]) -> None:
        with self.lock:
            text = " ".join(str(status[name]) for name in ("state", "reason", "message") if name in status)
            self._write("told", status["task_id"]["value"], status["state"], text)

    def error(self, driver: SchedulerDriver, message: str) -> None:
        self.errors.append(message)

    def _info(self, task: str, offer: dict[str, Any]) -> dict[str, Any]:
        info = live.command(task, offer, f"echo >> {self.path / task}.ran; {self.script}", CPUS)
        if not self.executor:
            return info
        del info["command"]
        executor = {"executor_id": {"value": "own"}, "command": {"value": self.executor}}
        return info | {"executor": executor, "data": live.data(f"{self.path / task}.ran")}

    def _write(self, *what: str) -> None:
        with self.lock:
            with open(self.path / "record", "a") as file:
                file.write(json.dumps(what) + "\n")
            self._note(*what)

    def _note(self, kind: str, *what: str) -> None:
        if kind == "framework":
            self.framework = what[0]
        elif kind == "launch":
            self.agents[what[0]] = what[1]
            self.told.setdefault(what[0], [])
        elif what[0] in self.told:
            task, state, why = what
            fresh = not self.over(task)
            self.told[task].append(state)
            self.why.append(f"{task}: {why}")
            if fresh and state in TERMINAL and state != "TASK_FINISHED":
                name, _, number = task.partition(".")
                self.told.setdefault(f"{name}.{int(number) + 1}", [])


def _cpus(offer: dict[str, Any]) -> float:
    found = [item["scalar"]["value"] for item in offer["resources"] if item["name"] == "cpus"]
    return float(sum(found))


def main(directory: str, path: str, *work: str) -> None:
    """The same in a process of its own, until it is killed or done."""
    from tests.executors.mesos.scripted import until

    ledger = Ledger(Path(path), work)
    driver = ledger.driver(PoolDirectory(Path(directory)))
    driver.start()
    until(ledger.done, "the work")
    driver.stop()
    driver.join()


def launch(executor: SimpleExecutor, task: dict[str, Any]) -> None:
    """What a custom executor does with a task: it leaves its line, and no more."""
    with open(base64.b64decode(task["data"]), "a") as file:
        file.write("\n")
    executor.send(task, "TASK_RUNNING")
    executor.send(task, "TASK_FINISHED")


def execute() -> None:
    """Such an executor in a process of its own."""
    SimpleExecutor(launch).run()
