"""A custom executor that is written against the API's documents alone, and uses nothing of the product.

Updates that no agent has acknowledged are sent again to an agent that has restarted.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

Message = dict[str, Any]
PATIENCE_S = 20.0


class SimpleExecutor:
    """Runs `launch(executor, task)` for each task, on the thread of the stream.

    Without an agent for so long [s] it ends, as it does when it is told to.
    """

    def __init__(self, launch: Callable[[SimpleExecutor, Message], None]) -> None:
        self.launch = launch
        ids = {"framework_id": "MESOS_FRAMEWORK_ID", "executor_id": "MESOS_EXECUTOR_ID"}
        self.ids = {name: {"value": os.environ[variable]} for name, variable in ids.items()}
        self.lock = threading.RLock()
        self.tasks: dict[str, Message] = {}
        self.updates: dict[str, Message] = {}
        self.subscribed = False

    def send(self, task: Message, state: str) -> None:
        """An update, from any thread."""
        own = base64.b64encode(uuid.uuid4().bytes).decode()
        status = {"task_id": task["task_id"], "state": state, "uuid": own, "timestamp": time.time()}
        with self.lock:
            self.updates[own] = {"status": status | {"source": "SOURCE_EXECUTOR"}}
            if self.subscribed:
                self._post("UPDATE", self.updates[own])

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                for event in self._events():
                    deadline = time.monotonic() + PATIENCE_S
                    if event["type"] == "SHUTDOWN":
                        return
                    self._heard(event)
            except (OSError, http.client.HTTPException, ValueError):
                pass
            self.subscribed = False
            time.sleep(0.05)

    def _heard(self, event: Message) -> None:
        if event["type"] == "LAUNCH":
            task = event["launch"]["task"]
            self.tasks[task["task_id"]["value"]] = task
            self.launch(self, task)
        elif event["type"] == "ACKNOWLEDGED":
            with self.lock:
                self.updates.pop(event["acknowledged"]["uuid"], None)
                self.tasks.pop(event["acknowledged"]["task_id"]["value"], None)

    def _events(self) -> Iterator[Message]:
        with self.lock:
            told = set(self.updates)
            subscribe = {
                "unacknowledged_tasks": [*self.tasks.values()],
                "unacknowledged_updates": [*self.updates.values()],
            }
        answer = self._post("SUBSCRIBE", subscribe)
        with self.lock:
            for own in self.updates.keys() - told:
                self._post("UPDATE", self.updates[own])
            self.subscribed = True
        while line := answer.readline():
            yield json.loads(answer.read(int(line)))

    def _post(self, kind: str, payload: Message) -> http.client.HTTPResponse:
        """Raises `OSError` when the agent is gone; an update that is lost then is in the next subscription."""
        connection = http.client.HTTPConnection(os.environ["MESOS_AGENT_ENDPOINT"])
        body = json.dumps({"type": kind, kind.lower(): payload} | self.ids)
        try:
            connection.request("POST", "/api/v1/executor", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
        except OSError:
            if kind == "SUBSCRIBE":
                raise
            self.subscribed = False
            return None  # type: ignore[return-value]
        if answer.status not in (200, 202):
            raise ValueError(answer.read())
        return answer
