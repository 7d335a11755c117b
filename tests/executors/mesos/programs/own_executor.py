"""A custom executor: a task ends as soon as the file that its data names is there."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from threading import Thread
from typing import Any

from tests.executors.mesos.simple_executor import SimpleExecutor


def launch(executor: SimpleExecutor, task: dict[str, Any]) -> None:
    def run() -> None:
        executor.send(task, "TASK_RUNNING")
        file = Path(base64.b64decode(task["data"]).decode())
        while not file.exists():
            time.sleep(0.01)
        executor.send(task, "TASK_FINISHED")

    Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    SimpleExecutor(launch).run()
