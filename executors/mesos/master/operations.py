"""Operations on offers beside launches: reservations. `feedback` has what frameworks are told of them."""

from __future__ import annotations

from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import feedback, rows
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import wrong_role
from executors.mesos.master.state import Agent, Framework
from executors.mesos.messages import field, identity, value_of
from executors.mesos.resources import NONE, Kind, Resources, parse, to_json


def apply(
    core: Core, framework: Framework, agent: Agent, operation: Message, rest: Resources, *, role: str
) -> Resources:
    """RESERVE or UNRESERVE, out of what was offered to a role; other operations are not supported, and say so.

    Returns
    -------
    What is left of the offer: as much as before, otherwise reserved.
    """
    kind = field(operation, "type", str)
    try:
        if "id" in operation and value_of(operation, "id") in framework.operations:
            raise BadMessage("an operation with this id waits to be acknowledged: choose another id")
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
        feedback.failed(core, framework, agent.id, operation, str(error))
        return rest
    total = agent.total - before + after
    core.usage.resized(agent.total, total)
    agent.total = total
    rows.keep_agent(core, agent)
    if "id" in operation:
        asked = {"resources": to_json(after if kind == "RESERVE" else before)}
        info = {"type": kind, "id": identity(value_of(operation, "id")), kind.lower(): asked}
        feedback.finished(core, framework, agent.id, info, to_json(after))
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
