"""Which callback of a scheduler or an executor an event is for, and what it is given."""

from __future__ import annotations

from typing import Any, NamedTuple

from executors.mesos.codec import Message
from executors.mesos.messages import field


class Callback(NamedTuple):
    """A method's name, as pymesos has it, and its arguments, the driver aside."""

    name: str
    arguments: tuple[Any, ...] = ()


_Needed = tuple[str, tuple[tuple[str, type], ...]]

_SCHEDULER: dict[str, _Needed] = {
    "OFFERS": ("resourceOffers", (("offers", list),)),
    "INVERSE_OFFERS": ("inverseOffers", (("inverse_offers", list),)),
    "RESCIND": ("offerRescinded", (("offer_id", dict),)),
    "RESCIND_INVERSE_OFFER": ("inverseOfferRescinded", (("inverse_offer_id", dict),)),
    "UPDATE": ("statusUpdate", (("status", dict),)),
    "UPDATE_OPERATION_STATUS": ("operationStatusUpdate", (("status", dict),)),
    "MESSAGE": ("frameworkMessage", (("executor_id", dict), ("agent_id", dict), ("data", str))),
    "ERROR": ("error", (("message", str),)),
    "HEARTBEAT": ("processHeartBeat", ()),
}
_EXECUTOR: dict[str, _Needed] = {
    "LAUNCH": ("launchTask", (("task", dict),)),
    "KILL": ("killTask", (("task_id", dict),)),
    "MESSAGE": ("frameworkMessage", (("data", str),)),
    "SHUTDOWN": ("shutdown", ()),
    "ERROR": ("error", (("message", str),)),
}


def of_scheduler(event: Message) -> Callback | None:
    """The scheduler's callback; None when the event is unknown or says nothing.

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
    found = _callback(event, _SCHEDULER)
    if found is not None and found.name == "statusUpdate":
        status = found.arguments[0]
        for name in ("task_id", "agent_id") if "uuid" in status else ("task_id",):
            field(status, f"{name}.value", str)
    return None if found is not None and found.arguments == ([],) else found


def of_executor(event: Message) -> Callback | None:
    """The executor's callback; None when the event is unknown. Raises as `of_scheduler` does.

    >>> of_executor({"type": "SHUTDOWN"})
    Callback(name='shutdown', arguments=())
    """
    if event.get("type") == "LAUNCH_GROUP":
        tasks = field(event, "launch_group.task_group.tasks", list)
        for task in tasks:
            field(task, "task_id.value", str)
        return Callback("launchTaskGroup", (tasks,))
    found = _callback(event, _EXECUTOR)
    if found is not None and found.name == "launchTask":
        field(found.arguments[0], "task_id.value", str)
    return found


def _callback(event: Message, table: dict[str, _Needed]) -> Callback | None:
    kind = field(event, "type", str)
    if kind not in table:
        return None
    name, needed = table[kind]
    payload = field(event, kind.lower(), dict, {})
    return Callback(name, tuple(field(payload, path, shape) for path, shape in needed))
