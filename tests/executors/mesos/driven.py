"""What a scheduler on a driver is told, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from executors.mesos.driver import SchedulerDriver
from tests.executors.mesos.scripted import Message, until

INFO = {"user": "me", "name": "test", "roles": ["a", "b"]}


class Recorder:
    """A scheduler that remembers all that it is told; `do` may do something about it."""

    def __init__(self, do: Callable[..., None] = lambda driver, name, arguments: None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.threads = set[str]()
        self._do = do

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def callback(driver: SchedulerDriver, *arguments: Any) -> None:
            self.told.append((name, *arguments))
            self.threads.add(threading.current_thread().name)
            self._do(driver, name, arguments)

        return callback

    def names(self) -> list[str]:
        return [name for name, *_ in self.told]

    def heard(self, name: str, times: int = 1) -> tuple[Any, ...]:
        until(lambda: self.names().count(name) >= times, f"{name}, {times} times")
        return [told for told in self.told if told[0] == name][times - 1]


Start = Callable[..., tuple[SchedulerDriver, Recorder]]


def status(task: str, n: int = 0, **more: Any) -> Message:
    ids = {"task_id": {"value": task}, "agent_id": {"value": "S1"}, "uuid": f"{n:024d}"}
    return {"type": "UPDATE", "update": {"status": ids | {"state": "TASK_RUNNING"} | more}}
