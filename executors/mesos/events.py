"""Which callback of a scheduler an event is for, and what it is given."""

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
    "RESCIND": ("offerRescinded", (("offer_id", dict),)),
    "UPDATE": ("statusUpdate", (("status", dict),)),
    "MESSAGE": ("frameworkMessage", (("executor_id", dict), ("agent_id", dict), ("data", str))),
    "ERROR": ("error", (("message", str),)),
    "HEARTBEAT": ("processHeartBeat", ()),
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
