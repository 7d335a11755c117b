"""An executor on our own driver: a task ends as soon as the file that its data names is there."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from threading import Thread
from typing import Any

from executors.mesos.executor_driver import ExecutorDriver


class Waiting:
    def launchTask(self, driver: ExecutorDriver, task: dict[str, Any]) -> None:
        def run() -> None:
            driver.sendStatusUpdate({"task_id": task["task_id"], "state": "TASK_RUNNING"})
            file = Path(base64.b64decode(task["data"]).decode())
            while not file.exists():
                time.sleep(0.01)
            driver.sendStatusUpdate({"task_id": task["task_id"], "state": "TASK_FINISHED"})

        Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    ExecutorDriver(Waiting()).run()
