"""An executor on unmodified pymesos: each task sleeps a little in a thread of its own; messages are sent back."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any

from executors.mesos.compat import enable_pymesos

enable_pymesos()

from pymesos import Executor, MesosExecutorDriver, decode_data, encode_data  # noqa: E402


class Sleeper(Executor):
    def launchTask(self, driver: Any, task: Any) -> None:
        def run() -> None:
            driver.sendStatusUpdate({"task_id": task["task_id"], "state": "TASK_RUNNING", "timestamp": time.time()})
            time.sleep(float(decode_data(task["data"])))
            driver.sendStatusUpdate({"task_id": task["task_id"], "state": "TASK_FINISHED", "timestamp": time.time()})

        Thread(target=run).start()

    def frameworkMessage(self, driver: Any, message: str) -> None:
        driver.sendFrameworkMessage(encode_data(decode_data(message)[::-1]))


if __name__ == "__main__":
    MesosExecutorDriver(Sleeper()).run()
