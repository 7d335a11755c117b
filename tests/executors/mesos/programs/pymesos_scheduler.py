"""A scheduler on unmodified pymesos: ``ADDRESS COMMAND TASKS``; prints what it saw once all tasks have ended."""

from __future__ import annotations

import json
import sys
import time
from threading import Thread
from typing import Any

from executors.mesos.compat import enable_pymesos

enable_pymesos()

from pymesos import MesosSchedulerDriver, Scheduler, decode_data, encode_data  # noqa: E402

EXECUTOR = {"value": "sleeper"}


class Many(Scheduler):
    def __init__(self, command: str, tasks: int) -> None:
        self.command, self.left, self.tasks = command, tasks, tasks
        self.seen: dict[str, Any] = {"states": {}, "messages": [], "registered": 0, "reregistered": False, "offers": 0}
        self.asked = False

    def registered(self, driver: Any, framework_id: Any, master_info: Any) -> None:
        self.seen["registered"] += 1
        self.seen["framework"], self.seen["version"] = framework_id["value"], master_info["version"]

    def reregistered(self, driver: Any, master_info: Any) -> None:
        self.seen["reregistered"] = True
        self._end(driver)

    def resourceOffers(self, driver: Any, offers: Any) -> None:
        self.seen["offers"] += len(offers)
        for offer in offers:
            amounts = {item["name"]: item.get("scalar", {}).get("value") for item in offer["resources"]}
            room = min(self.left, int(amounts["cpus"] - 0.1))
            tasks = [self._task(offer, self.left - n) for n in range(room)]
            self.left -= len(tasks)
            driver.launchTasks(offer["id"], tasks, {"refuse_seconds": 0.1})
        if not self.left:
            driver.suppressOffers()

    def statusUpdate(self, driver: Any, status: Any) -> None:
        self.seen["states"].setdefault(status["task_id"]["value"], []).append(status["state"])
        if status["state"] == "TASK_RUNNING" and not self.asked:
            self.asked = True
            driver.sendFrameworkMessage(EXECUTOR, status["agent_id"], encode_data(b"hello"))
        self._end(driver)

    def frameworkMessage(self, driver: Any, executor_id: Any, agent_id: Any, message: str) -> None:
        self.seen["messages"].append([executor_id["value"], decode_data(message).decode()])
        self._end(driver)

    def _end(self, driver: Any) -> None:
        ended = sum(states[-1] == "TASK_FINISHED" for states in self.seen["states"].values())
        if ended == self.tasks and (self.seen["messages"] or self.seen["reregistered"]):  # messages may be lost then
            driver.stop()

    def _task(self, offer: Any, number: int) -> dict[str, Any]:
        scalar = {"type": "SCALAR", "scalar": {"value": 1}}
        executor = {
            "executor_id": EXECUTOR,
            "name": "sleeper",
            "command": {"value": self.command},
            "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}}],
        }
        return {
            "name": f"task {number}",
            "task_id": {"value": f"t{number}"},
            "agent_id": offer["agent_id"],
            "resources": [{"name": "cpus"} | scalar, {"name": "mem"} | scalar],
            "executor": executor,
            "data": encode_data(b"0.01"),
        }


if __name__ == "__main__":
    address, command, tasks = sys.argv[1:]
    user = json.loads(sys.stdin.readline())
    scheduler = Many(command, int(tasks))
    driver = MesosSchedulerDriver(scheduler, {"user": user, "name": "many"}, address)
    thread = Thread(target=driver.run)
    thread.start()
    while thread.is_alive():  # signals come to the main thread
        time.sleep(0.05)
    print(json.dumps(scheduler.seen))
