"""Operations on offers beside launches: reservations, and what a framework is told of those that have an id."""

from __future__ import annotations

import uuid
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import rows
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import wrong_role
from executors.mesos.master.state import Agent, Framework
from executors.mesos.messages import base64_of, field, identity, message, octets, value_of
from executors.mesos.resources import NONE, Kind, Resources, parse

PENDING_MOST = 1000
"""How many statuses of operations wait for a framework's acknowledgement; of more, the oldest are dropped."""


def apply(core: Core, framework: Framework, agent: Agent, role: str, operation: Message, rest: Resources) -> Resources:
    """RESERVE or UNRESERVE, out of what was offered to a role; other operations are not supported, and say so.

    Returns
    -------
    What is left of the offer: as much as before, otherwise reserved.
    """
    kind = field(operation, "type", str)
    try:
        if kind == "RESERVE":
            after = field(operation, "reserve.resources", list)
            before, after = reserved(after, role, framework.principal)
        elif kind == "UNRESERVE":
            after, before = reserved(field(operation, "unreserve.resources", list), role, None)
        else:
            raise BadMessage(f"operation {kind:.50} is not supported: there are no volumes and disks here")
        if not rest.covers(before):
            raise BadMessage(f"{kind} wants more than what is offered")
    except BadMessage as error:
        report(core, framework, agent.id, operation, "OPERATION_ERROR", str(error))
        return rest
    total = agent.total - before + after
    core.usage.resized(agent.total, total)
    agent.total = total
    rows.keep_agent(core, agent)
    report(core, framework, agent.id, operation, "OPERATION_FINISHED")
    return rest - before + after


def reserved(items: list[Any], role: str, principal: str | None) -> tuple[Resources, Resources]:
    """The same resources before and after they were reserved.

    Raises
    ------
    BadMessage
        When they are reserved for no role, for one that `role` may not use, or by another principal.
    """
    before, after = NONE, NONE
    for kind, amount in parse(items):
        if not kind.dynamic or wrong_role(kind.role):
            raise BadMessage(f"resource {kind.name!r:.50} must have a dynamic reservation for a role")
        if kind.role != role and not role.startswith(kind.role + "/"):
            raise BadMessage(f"resource {kind.name!r:.50} is for role {kind.role!r:.100}, but was offered to {role!r}")
        if principal is not None and kind.principal not in ("", principal):
            raise BadMessage(f"resource {kind.name!r:.50} must be reserved by {principal!r}")
        before += Resources({Kind(kind.name, revocable=kind.revocable): amount})
        after += Resources({kind: amount})
    if not after:
        raise BadMessage("expected resources to reserve, found none")
    return before, after


def report(
    core: Core, framework: Framework, agent_id: str | None, operation: Message, state: str, text: str = ""
) -> None:
    """Tell what became of an operation, if it has an id; what is not an error is told until acknowledged."""
    if "id" not in operation:
        return
    operation_id = value_of(operation, "id")
    status = _status(operation_id, state, agent_id, text)
    if state == "OPERATION_FINISHED":
        name = f"{core.state.id} {rows.number(core, 'operation')}"
        status["uuid"] = {"value": base64_of(uuid.uuid5(uuid.NAMESPACE_OID, name).bytes)}
        framework.operations[operation_id] = status
        if len(framework.operations) > PENDING_MOST:
            del framework.operations[next(iter(framework.operations))]
    core.send(framework.stream, message("UPDATE_OPERATION_STATUS", status=status))


def acknowledge(framework: Framework, call: Message) -> None:
    """ACKNOWLEDGE_OPERATION_STATUS: the framework has taken note."""
    operation_id = value_of(call, "operation_id")
    number = octets(call, "uuid.value" if isinstance(call.get("uuid"), dict) else "uuid")  # pymesos sends the status
    status = framework.operations.get(operation_id)
    if status is not None and octets(status, "uuid.value") == number:
        del framework.operations[operation_id]


def reconcile(core: Core, framework: Framework, call: Message) -> None:
    """RECONCILE_OPERATIONS: say what is known of these operations, or of all that wait for an acknowledgement."""
    asked = []
    for item in field(call, "operations", list, []):
        one = {"it": item}
        agent_id = value_of(one, "it.agent_id") if "agent_id" in field(one, "it", dict) else None
        asked.append((value_of(one, "it.operation_id"), agent_id))
    if not asked:
        for status in framework.operations.values():
            core.send(framework.stream, message("UPDATE_OPERATION_STATUS", status=status))
    for operation_id, agent_id in asked:
        known = framework.operations.get(operation_id)
        status = known or _status(operation_id, _unknown(core, agent_id), agent_id, "Reconciliation")
        core.send(framework.stream, message("UPDATE_OPERATION_STATUS", status=status))


def _unknown(core: Core, agent_id: str | None) -> str:
    if agent_id in core.state.recovered:
        return "OPERATION_RECOVERING"
    if agent_id in core.state.unreachable:
        return "OPERATION_UNREACHABLE"
    return "OPERATION_GONE_BY_OPERATOR" if agent_id in core.state.gone else "OPERATION_UNKNOWN"


def _status(operation_id: str, state: str, agent_id: str | None, text: str) -> Message:
    found: Message = {"operation_id": identity(operation_id), "state": state}
    if agent_id is not None:
        found["agent_id"] = identity(agent_id)
    return found | ({"message": text} if text else {})
