"""Our scheduler driver: pymesos's callbacks and methods, and what pymesos lacks.

It speaks TLS, shows a token, notices a master that has fallen silent, waits longer and longer between attempts, and
sends calls without waiting for their answers. A scheduler that was written for ``pymesos.MesosSchedulerDriver`` with
``use_addict=False`` runs on it as it is; and one that was written for it runs on pymesos if it keeps to what pymesos
has.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from executors.mesos.client import SchedulerClient
from executors.mesos.codec import BadMessage, Message
from executors.mesos.endpoint import basic, bearer, of_pool, of_url
from executors.mesos.messages import SCHEDULER_PATH, field, identity
from executors.mesos.pool_directory import PoolDirectory


class Callback(NamedTuple):
    """A method's name, as pymesos has it, and its arguments, the driver aside."""

    name: str
    arguments: tuple[Any, ...] = ()


_Needed = tuple[str, tuple[tuple[str, type], ...]]

_SCHEDULER: dict[str, _Needed] = {
    "OFFERS": ("resourceOffers", (("offers", list),)),
    "RESCIND": ("offerRescinded", (("offer_id", dict),)),
    "UPDATE": ("statusUpdate", (("status", dict),)),
    "MESSAGE": ("frameworkMessage", (("executor_id", dict), ("agent_id", dict), ("data", str))),
    "ERROR": ("error", (("message", str),)),
    "HEARTBEAT": ("processHeartBeat", ()),
}


def of_scheduler(event: Message) -> Callback | None:
    """The scheduler's callback; None when the event is unknown or empty.

    Raises
    ------
    BadMessage
        When a field that the callback needs is missing.

    Examples
    --------
    >>> of_scheduler({"type": "RESCIND", "rescind": {"offer_id": {"value": "O1"}}})
    Callback(name='offerRescinded', arguments=({'value': 'O1'},))
    """
    if event.get("type") == "FAILURE":
        failure = field(event, "failure", dict)
        agent = field(failure, "agent_id", dict)
        if "executor_id" not in failure:
            return Callback("slaveLost", (agent,))
        return Callback("executorLost", (field(failure, "executor_id", dict), agent, field(failure, "status", int, -1)))
    found = _callback(event)
    if found is not None and found.name == "statusUpdate":
        status = found.arguments[0]
        for name in ("task_id", "agent_id") if "uuid" in status else ("task_id",):
            field(status, f"{name}.value", str)
    return None if found is not None and found.arguments == ([],) else found


def _callback(event: Message) -> Callback | None:
    kind = field(event, "type", str)
    if kind not in _SCHEDULER:
        return None
    name, needed = _SCHEDULER[kind]
    payload = field(event, kind.lower(), dict, {})
    return Callback(name, tuple(field(payload, path, shape) for path, shape in needed))


_LOG = logging.getLogger(__name__)
_FAILOVER_S = 100.0
_GOODBYE_S = 5.0

Ids = Message | Sequence[Message]
"""One id or several, each ``{"value": TEXT}``."""


class SchedulerDriver:
    """Connects a scheduler with a master.

    Parameters
    ----------
    scheduler
        Its methods are called back, on the driver's thread; those that it does not have are not missed::

            registered(driver, framework_id, master_info)       reregistered(driver, master_info)
            disconnected(driver)                                processHeartBeat(driver)
            resourceOffers(driver, offers)                      offerRescinded(driver, offer_id)
            statusUpdate(driver, status)
            frameworkMessage(driver, executor_id, agent_id, data)
            slaveLost(driver, agent_id)                         executorLost(driver, executor_id, agent_id, status)
            error(driver, message)                              callRefused(driver, call, status, reason)

        `error` comes when the driver has given up: the master has sent ERROR, or refuses this framework. What a
        callback raises ends the driver too, and `join` raises it again. `callRefused` is not in pymesos, whose methods
        raise instead: here the answer comes later.
    framework
        FrameworkInfo; without ``failover_timeout`` it gets pymesos's, 100 s. With ``id`` it takes the place of the
        scheduler that had this id.
    master
        A pool, or where a master listens: ``host:port`` or a URL.
    implicit_acknowledgements
        Whether the return of `statusUpdate` acknowledges the update; if not, the scheduler calls
        `acknowledgeStatusUpdate`.
    failover
        Whether the tasks are to outlive the driver: no TEARDOWN when it stops.
    principal, secret
        For a master that is not ours: Basic authentication, over plain HTTP if that is what the URL says.
    token
        The same, as ``Bearer``; a pool's own is found in its directory.

    Notes
    -----
    Calls can come from any thread and never wait; while there is no subscription they do nothing. Those that were not
    answered when the connection broke are lost: reconcile after `reregistered`. Suppressed roles stay suppressed then.
    """

    def __init__(
        self,
        scheduler: Any,
        framework: Mapping[str, Any],
        master: PoolDirectory | str,
        *,
        implicit_acknowledgements: bool = True,
        failover: bool = False,
        principal: str | None = None,
        secret: str | None = None,
        token: str | None = None,
    ) -> None:
        self._scheduler, self._failover, self._implicit = scheduler, failover, implicit_acknowledgements
        self._framework: Message = {"failover_timeout": _FAILOVER_S} | dict(framework)
        self._suppressed: frozenset[str] = frozenset()
        self._version: str | None = None
        if isinstance(master, PoolDirectory):
            find = of_pool(master)
        else:
            given = bearer(token) if token else basic(principal, secret) if principal and secret else None
            endpoint = of_url(master, given)

            def find() -> Any:
                return endpoint

        self._client = SchedulerClient(find, SCHEDULER_PATH, _DriverHandler(self))

    # ------------------------------------------------------- what it is

    @property
    def framework_id(self) -> str | None:
        """The framework's id; None before it has one."""
        found: str | None = field(self._framework, "id.value", str, None)
        return found

    @property
    def connected(self) -> bool:
        """Whether there is a subscription."""
        return self._client.endpoint is not None

    @property
    def aborted(self) -> bool:
        """Whether it does not run: not yet, or not any more."""
        return not self._client.running

    @property
    def master(self) -> str | None:
        """Where the master is, as ``host:port``; None while there is no subscription."""
        endpoint = self._client.endpoint
        return None if endpoint is None else f"{endpoint.hosts[0]}:{endpoint.port}"

    @property
    def version(self) -> str | None:
        """The version of Mesos that the master speaks; None before it is known."""
        return self._version

    # ------------------------------------------------------- its life

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._client.start()

    def stop(self, failover: bool = False) -> None:
        """End; tasks and executors end too, unless `failover`. Returns at once: `join` waits."""
        keep = failover or self._failover
        self._client.stop(None if keep else self._call("TEARDOWN"), _GOODBYE_S)

    def abort(self) -> None:
        """End at once, and leave the tasks alone: another driver may come with the same id."""
        self._client.stop(wait_s=0.0)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, or for `timeout` [s]; raises what a callback has raised."""
        self._client.join(timeout)

    def run(self) -> None:
        """`start` and `join`."""
        self.start()
        self.join()

    # ------------------------------------------------------- calls

    def acceptOffers(self, offer_ids: Ids, operations: Sequence[Message], filters: Message | None = None) -> None:
        """Carry out operations on offers of one agent; what they leave is declined. Without any, all is."""
        if not operations:
            return self.declineOffer(offer_ids, filters)
        return self._send("ACCEPT", offer_ids=_list(offer_ids), operations=list(operations), **_given(filters=filters))

    def launchTasks(self, offer_ids: Ids, tasks: Sequence[Message], filters: Message | None = None) -> None:
        """Launch TaskInfos on offers of one agent."""
        operations = [{"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}] if tasks else []
        self.acceptOffers(offer_ids, operations, filters)

    def declineOffer(self, offer_ids: Ids, filters: Message | None = None) -> None:
        """Refuse offers, by default for 5 s."""
        self._send("DECLINE", offer_ids=_list(offer_ids), **_given(filters=filters))

    def reviveOffers(self, roles: Sequence[str] = ()) -> None:
        """Ask for offers again, in these roles or in all, whatever was refused."""
        self._suppressed -= set(roles) or self._suppressed
        self._send("REVIVE", **_given(roles=list(roles) or None))

    def suppressOffers(self, roles: Sequence[str] = ()) -> None:
        """Ask for no more offers, in these roles or in all."""
        self._suppressed |= set(roles or _roles(self._framework))
        self._send("SUPPRESS", **_given(roles=list(roles) or None))

    def killTask(self, task_id: Message, agent_id: Message | None = None, kill_policy: Message | None = None) -> None:
        """End a task; the result comes as a status update. Only the first parameter is in pymesos."""
        self._send("KILL", task_id=task_id, **_given(agent_id=agent_id, kill_policy=kill_policy))

    def shutdownExecutor(self, executor_id: Message, agent_id: Message) -> None:
        """End an executor and its tasks; not in pymesos."""
        self._send("SHUTDOWN", executor_id=executor_id, agent_id=agent_id)

    def acknowledgeStatusUpdate(self, status: Message) -> None:
        """Say that an update is taken care of; one that asks for no acknowledgement gets none."""
        if "uuid" in status:
            self._send("ACKNOWLEDGE", **{name: status[name] for name in ("agent_id", "task_id", "uuid")})

    def reconcileTasks(self, tasks: Sequence[Message]) -> None:
        """Ask for the latest status of these tasks, or without any, of all: ``{"task_id": ..., "agent_id": ...}``."""
        known = ("task_id", "agent_id")
        self._send("RECONCILE", tasks=[{name: task[name] for name in known if name in task} for task in tasks])

    def sendFrameworkMessage(self, executor_id: Message, agent_id: Message, data: str) -> None:
        """Tell an executor something, in base64; it may be lost."""
        self._send("MESSAGE", executor_id=executor_id, agent_id=agent_id, data=data)

    def updateFramework(self, framework: Mapping[str, Any], suppressed_roles: Sequence[str] = ()) -> None:
        """Change the FrameworkInfo, its id aside; not in pymesos."""
        own = {"id": self._framework["id"]} if "id" in self._framework else {}
        self._framework = {"failover_timeout": _FAILOVER_S} | dict(framework) | own
        self._suppressed = frozenset(suppressed_roles)
        self._send("UPDATE_FRAMEWORK", framework_info=self._framework, suppressed_roles=sorted(suppressed_roles))

    def _call(self, kind: str, **payload: Any) -> Message:
        own = {"framework_id": self._framework["id"]} if "id" in self._framework else {}
        return {"type": kind} | own | ({kind.lower(): payload} if payload else {})

    def _send(self, kind: str, **payload: Any) -> None:
        if not self._client.call(self._call(kind, **payload)):
            _LOG.debug("%s: not connected, nothing was sent", kind)


class _DriverHandler:
    """The driver as its client's handler."""

    def __init__(self, driver: SchedulerDriver) -> None:
        self._driver = driver

    def subscribe(self) -> Message:
        driver = self._driver
        payload: Message = {"framework_info": driver._framework}
        if driver._suppressed:
            payload["suppressed_roles"] = sorted(driver._suppressed)
        return driver._call("SUBSCRIBE", **payload)

    def event(self, message: Message) -> None:
        driver = self._driver
        try:
            found = self._subscribed(message) if message.get("type") == "SUBSCRIBED" else of_scheduler(message)
        except BadMessage as error:
            return _LOG.error("an event that makes no sense is left out: %s", error)
        if found is None:
            return None
        if found.name == "error":
            driver.abort()
        self._call_back(*found)
        if driver._implicit and found.name == "statusUpdate":
            driver.acknowledgeStatusUpdate(found.arguments[0])
        return None

    def lost(self) -> None:
        self._call_back("disconnected")

    def failed(self, reason: str) -> None:
        self._driver.abort()
        self._call_back("error", (reason,))

    def refused(self, call: bytes, status: int, reason: str) -> None:
        message = json.loads(call)
        _LOG.error("%s was answered with %d: %s", message["type"], status, reason)
        self._call_back("callRefused", (message, status, reason))

    def _subscribed(self, message: Message) -> Callback:
        driver = self._driver
        own = identity(field(message, "subscribed.framework_id.value", str))
        endpoint = driver._client.endpoint
        where = {} if endpoint is None else {"hostname": endpoint.hosts[0], "port": endpoint.port}
        master = where | field(message, "subscribed.master_info", dict, {})
        driver._version = field(master, "version", str, None)
        known = "id" in driver._framework
        driver._framework = driver._framework | {"id": own}
        return Callback("reregistered", (master,)) if known else Callback("registered", (own, master))

    def _call_back(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        callback = getattr(self._driver._scheduler, name, None)
        if callback is not None:
            callback(self._driver, *arguments)
        elif name == "error":
            _LOG.error("the driver has given up: %s", arguments[0])


def _list(ids: Ids) -> list[Message]:
    return [ids] if isinstance(ids, dict) else list(ids)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _roles(framework: Message) -> list[str]:
    return list(framework.get("roles") or [framework.get("role", "*")])
