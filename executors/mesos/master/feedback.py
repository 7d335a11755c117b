"""What a framework is told of its operations that have an id: until it acknowledges that, and when it asks."""

from __future__ import annotations

import uuid

from executors.mesos.codec import Message
from executors.mesos.master import rows
from executors.mesos.master.core import Core
from executors.mesos.master.state import Framework, Operation, State
from executors.mesos.messages import base64_of, field, identity, message, octets, value_of

PENDING_MOST = 1000
"""How many operations of a framework wait for its acknowledgement; of more, the oldest are forgotten."""
RETRY_S = 10.0
"""After how long a framework that has not acknowledged is told again at first [s]; then later and later."""
RETRY_MOST_S = 600.0


def finished(core: Core, framework: Framework, agent_id: str, info: Message, converted: list[Message]) -> None:
    """An operation that has an id is done: its framework is told until it acknowledges that.

    Parameters
    ----------
    info
        The operation.
    converted
        Its resources as they are now.
    """
    operation_id, number = value_of(info, "id"), rows.number(core, "operation")
    status = _status(operation_id, "OPERATION_FINISHED", agent_id)
    status |= {"converted_resources": converted, "uuid": _uuid(f"{core.state.id} status {number}")}
    described = {
        "framework_id": identity(framework.id),
        "agent_id": identity(agent_id),
        "info": info,
        "latest_status": status,
        "statuses": [status],
        "uuid": _uuid(f"{core.state.id} {number}"),
    }
    if len(framework.operations) >= PENDING_MOST:
        _forget(core, framework, next(iter(framework.operations)))
    operation = framework.operations[operation_id] = Operation(operation_id, described, core.now)
    rows.keep_operation(core, framework, operation)
    _send(core, framework, status)
    _await_acknowledgement(core, framework, operation)


def failed(core: Core, framework: Framework, agent_id: str | None, operation: Message, text: str) -> None:
    """An operation could not be done; it is told once, if it has an id."""
    if "id" in operation:
        _send(core, framework, _status(value_of(operation, "id"), "OPERATION_ERROR", agent_id, text))


def acknowledge(core: Core, framework: Framework, call: Message) -> None:
    """ACKNOWLEDGE_OPERATION_STATUS: the framework has taken note."""
    operation_id = value_of(call, "operation_id")
    number = octets(call, "uuid.value" if isinstance(call.get("uuid"), dict) else "uuid")  # pymesos sends the status
    operation = framework.operations.get(operation_id)
    if operation is not None and octets(operation.status, "uuid.value") == number:
        _forget(core, framework, operation_id)


def reconcile(core: Core, framework: Framework, call: Message) -> None:
    """RECONCILE_OPERATIONS: say what is known of these operations, or of all that wait for an acknowledgement.

    Such an answer has no uuid: it is not told again.
    """
    asked = []
    for item in field(call, "operations", list, []):
        one = {"it": item}
        agent_id = value_of(one, "it.agent_id") if "agent_id" in field(one, "it", dict) else None
        asked.append((value_of(one, "it.operation_id"), agent_id))
    for operation_id, agent_id in asked or [(name, None) for name in framework.operations]:
        known = framework.operations.get(operation_id)
        if known is not None and known.agent not in core.state.unreachable:
            _send(core, framework, {name: item for name, item in known.status.items() if name != "uuid"})
            continue
        agent_id = agent_id if known is None else known.agent
        state, text = _unknown(core.state, agent_id)
        _send(core, framework, _status(operation_id, state, agent_id, f"Reconciliation: {text}"))


def resend(core: Core, framework: Framework) -> None:
    """Its scheduler is back: tell it what it has not acknowledged."""
    for operation in framework.operations.values():
        operation.since = core.now
        if operation.agent not in core.state.unreachable:
            _send(core, framework, operation.status)


def resume(core: Core, framework: Framework) -> None:
    """The master has been restarted: go on telling."""
    for operation in framework.operations.values():
        _await_acknowledgement(core, framework, operation)


def retry(core: Core, framework_id: str, operation_id: str) -> None:
    """It is time to tell a framework again, if it has not acknowledged yet."""
    framework = core.state.frameworks.get(framework_id)
    operation = None if framework is None else framework.operations.get(operation_id)
    if framework is None or operation is None or core.now < operation.again:
        return
    if operation.agent not in core.state.unreachable:
        _send(core, framework, operation.status)
    _await_acknowledgement(core, framework, operation)


def lost(core: Core, agent_id: str, *, gone: bool) -> None:
    """An agent is unreachable or gone for good, and so is what operations have reserved on it."""
    state, text = _unknown(core.state, agent_id)
    for framework in core.state.frameworks.values():
        for operation in [one for one in framework.operations.values() if one.agent == agent_id]:
            _send(core, framework, _status(operation.id, state, agent_id, text))
            if gone:
                _forget(core, framework, operation.id)


def forget_all(core: Core, framework: Framework) -> None:
    """The framework is over."""
    for operation_id in list(framework.operations):
        _forget(core, framework, operation_id)


def view(state: State) -> Message:
    """The answer to GET_OPERATIONS: those that are done and not acknowledged. None is ever pending."""
    found = (operation.described for one in state.frameworks.values() for operation in one.operations.values())
    return {"operations": list(found)}


def _await_acknowledgement(core: Core, framework: Framework, operation: Operation) -> None:
    """Tell it again after as long as it has been told already: each time is twice as far away as the last."""
    operation.again = core.now + min(max(core.now - operation.since, RETRY_S), RETRY_MOST_S)
    core.timers.at(("operation", framework.id, operation.id), operation.again)


def _forget(core: Core, framework: Framework, operation_id: str) -> None:
    rows.drop_operation(core, framework, framework.operations.pop(operation_id))


def _unknown(state: State, agent_id: str | None) -> tuple[str, str]:
    if agent_id in state.recovered:
        return "OPERATION_RECOVERING", "Agent has not come back yet"
    if agent_id in state.unreachable:
        return "OPERATION_UNREACHABLE", "Agent is unreachable"
    if agent_id in state.gone:
        return "OPERATION_GONE_BY_OPERATOR", "Agent is gone"
    return "OPERATION_UNKNOWN", "Operation is unknown"


def _status(operation_id: str, state: str, agent_id: str | None, text: str = "") -> Message:
    found: Message = {"operation_id": identity(operation_id), "state": state}
    if agent_id is not None:
        found["agent_id"] = identity(agent_id)
    return found | ({"message": text} if text else {})


def _send(core: Core, framework: Framework, status: Message) -> None:
    core.send(framework.stream, message("UPDATE_OPERATION_STATUS", status=status))


def _uuid(name: str) -> Message:
    return {"value": base64_of(uuid.uuid5(uuid.NAMESPACE_OID, name).bytes)}
