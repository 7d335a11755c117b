"""Our executor driver: pymesos's callbacks and methods, with updates that survive the agent's restart."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from asa.core.errors import InvalidInput
from executors.mesos.client import Client
from executors.mesos.codec import BadMessage, Message
from executors.mesos.endpoint import Endpoint, bearer, of_url
from executors.mesos.events import Callback, of_executor
from executors.mesos.messages import EXECUTOR_PATH, base64_of, field, identity, value_of

_LOG = logging.getLogger(__name__)
_GRACE_S, _RECOVERY_S, _BACKOFF_S = 5.0, 900.0, 2.0
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "secs": 1, "mins": 60, "hrs": 3600, "days": 86400, "weeks": 604800}
_DURATION = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{0,12}})?)({'|'.join(_UNITS)})")


class ExecutorDriver:
    """Connects an executor with the agent that has started it.

    Parameters
    ----------
    executor
        Its methods are called back, on the driver's thread; those that it does not have are not missed::

            registered(driver, executor_info, framework_info, agent_info)   reregistered(driver, agent_info)
            disconnected(driver)                                            frameworkMessage(driver, data)
            launchTask(driver, task)                                        launchTaskGroup(driver, tasks)
            killTask(driver, task_id)                                       shutdown(driver)
            error(driver, message)

        After `shutdown` the driver ends; a process that is still there when the agent's grace period is over is killed
        with its process group, if that is its own. What a callback raises ends the driver, and `join` raises it again.
    environ
        Where the agent has left its ``MESOS_...`` variables.

    Raises
    ------
    InvalidInput
        When variables are missing or make no sense.

    Notes
    -----
    A task is never launched twice and no update is lost when the agent restarts: the new agent is told the tasks of
    which, and the updates that, no agent has acknowledged. Without ``MESOS_CHECKPOINT`` the executor shuts down as soon
    as the agent is gone, else when the agent has not come back for ``MESOS_RECOVERY_TIMEOUT``.
    """

    def __init__(self, executor: Any, environ: Mapping[str, str] = os.environ) -> None:
        self._executor = executor
        self._framework_id = identity(_required(environ, "MESOS_FRAMEWORK_ID"))
        self._executor_id = identity(_required(environ, "MESOS_EXECUTOR_ID"))
        self._grace = _seconds(environ, "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", _GRACE_S)
        self._checkpoint = environ.get("MESOS_CHECKPOINT", "0") not in ("", "0", "false")
        self._local = bool(environ.get("MESOS_LOCAL"))
        self._registered = False
        self._lock = threading.Lock()
        self._tasks: dict[str, Message] = {}
        self._updates: dict[str, Message] = {}
        self._told: frozenset[str] = frozenset()  # updates that were in the subscription
        self._ready = False  # whether all earlier updates are on their way, so that a new one may follow them
        self._leaving = False
        token = environ.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN")
        endpoint = of_url(_required(environ, "MESOS_AGENT_ENDPOINT"), bearer(token) if token else None)

        def find() -> Endpoint:
            return endpoint

        self._client = Client(
            find,
            EXECUTOR_PATH,
            _Callbacks(self),
            longest_s=_seconds(environ, "MESOS_SUBSCRIPTION_BACKOFF_MAX", _BACKOFF_S),
            give_up_s=_seconds(environ, "MESOS_RECOVERY_TIMEOUT", _RECOVERY_S),
        )

    @property
    def connected(self) -> bool:
        """Whether there is a subscription."""
        return self._client.endpoint is not None

    @property
    def aborted(self) -> bool:
        """Whether it does not run: not yet, or not any more."""
        return not self._client.running

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._client.start()

    def stop(self) -> None:
        """End once the agent has taken the updates so far, if need be after its restart; returns at once."""
        with self._lock:
            self._leaving = bool(self._updates) and not self._ready
        if not self._leaving:
            self._client.stop()

    def abort(self) -> None:
        """End at once."""
        self._client.stop(wait_s=0.0)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, or for `timeout` [s]; raises what a callback has raised."""
        self._client.join(timeout)

    def run(self) -> None:
        """`start` and `join`."""
        self.start()
        self.join()

    def sendStatusUpdate(self, status: Mapping[str, Any]) -> None:
        """Tell what has become of a task: ``{"task_id": {"value": TEXT}, "state": "TASK_RUNNING"}`` and more.

        It is said again to an agent that has restarted, until one has acknowledged it. From any thread; never waits.
        """
        own = {"uuid": base64_of(uuid.uuid4().bytes), "executor_id": self._executor_id}
        whole: Message = {"timestamp": time.time(), "source": "SOURCE_EXECUTOR"} | own | dict(status)
        with self._lock:
            self._updates[whole["uuid"]] = {"status": whole}
            if self._ready:
                self._client.call(self._call("UPDATE", status=whole))

    def sendFrameworkMessage(self, data: str) -> None:
        """Tell the scheduler something, in base64; it may be lost."""
        self._client.call(self._call("MESSAGE", data=data))

    def _call(self, kind: str, **payload: Any) -> Message:
        ids = {"framework_id": self._framework_id, "executor_id": self._executor_id}
        return {"type": kind} | ids | {kind.lower(): payload}


class _Callbacks:
    """The driver as its client's handler."""

    def __init__(self, driver: ExecutorDriver) -> None:
        self._driver = driver

    def subscribe(self) -> Message:
        driver = self._driver
        with driver._lock:
            driver._ready, driver._told = False, frozenset(driver._updates)
            tasks, updates = list(driver._tasks.values()), list(driver._updates.values())
        return driver._call("SUBSCRIBE", unacknowledged_tasks=tasks, unacknowledged_updates=updates)

    def event(self, message: Message) -> None:
        try:
            found = self._found(message)
        except BadMessage as error:
            return _LOG.error("an event that makes no sense is left out: %s", error)
        if found is None or self._driver._leaving:
            return None
        if found.name == "error":
            self._driver.abort()
        self._tell(*found)
        if found.name == "shutdown":
            self._end()
        return None

    def lost(self) -> None:
        with self._driver._lock:
            self._driver._ready = False
        self._tell("disconnected")
        if not self._driver._checkpoint and not self._driver.aborted:
            self._shut_down()

    def failed(self, reason: str) -> None:
        self._driver.abort()
        self._tell("error", (reason,))
        self._shut_down()

    def refused(self, call: bytes, status: int, reason: str) -> None:
        _LOG.error("%s was answered with %d: %s", json.loads(call)["type"], status, reason)

    def _found(self, message: Message) -> Callback | None:
        kind, driver = message.get("type"), self._driver
        if kind == "SUBSCRIBED":
            self._follow_up()
            executor, framework, agent = (
                field(message, f"subscribed.{name}_info", dict) for name in ("executor", "framework", "agent")
            )
            first, driver._registered = not driver._registered, True
            return Callback("registered", (executor, framework, agent)) if first else Callback("reregistered", (agent,))
        if kind == "ACKNOWLEDGED":
            with driver._lock:
                driver._updates.pop(field(message, "acknowledged.uuid", str), None)
                driver._tasks.pop(value_of(message, "acknowledged.task_id"), None)
            return None
        found = of_executor(message)
        if found is not None and found.name in ("launchTask", "launchTaskGroup"):
            tasks = found.arguments if found.name == "launchTask" else found.arguments[0]
            with driver._lock:
                driver._tasks |= {value_of(task, "task_id"): task for task in tasks}
        return found

    def _follow_up(self) -> None:
        """Send what has happened since the call to subscribe was made."""
        driver = self._driver
        with driver._lock:
            for own, update in driver._updates.items():
                if own not in driver._told:
                    driver._client.call(driver._call("UPDATE", **update))
            driver._ready = True
            if driver._leaving:
                driver._client.stop()

    def _shut_down(self) -> None:
        self._tell("shutdown")
        self._end()

    def _end(self) -> None:
        driver = self._driver
        driver._client.stop()
        if not driver._local and os.getpgrp() == os.getpid():
            timer = threading.Timer(driver._grace, os.killpg, (0, signal.SIGKILL))
            timer.daemon = True  # a process that ends in time is not waited for
            timer.start()

    def _tell(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        callback = getattr(self._driver._executor, name, None)
        if callback is not None:
            callback(self._driver, *arguments)
        elif name == "error":
            _LOG.error("the driver has given up: %s", arguments[0])


def duration(text: str) -> float:
    """A duration as Mesos writes it [s].

    >>> duration("5secs"), duration("1.5mins"), duration("250ms")
    (5.0, 90.0, 0.25)

    Raises
    ------
    InvalidInput
        When it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found:
        return float(found[1]) * _UNITS[found[2]]
    raise InvalidInput(f"expected a duration such as 5secs or 15mins, found {text!r}")


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return duration(environ[name]) if environ.get(name) else default


def _required(environ: Mapping[str, str], name: str) -> str:
    if found := environ.get(name):
        return found
    raise InvalidInput(f"{name} is not set: an executor must be started by an agent")
