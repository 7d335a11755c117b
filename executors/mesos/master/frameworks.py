"""Schedulers: what they say of themselves is checked; they subscribe, fail over, disconnect, and are removed."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import offers, tasks, views
from executors.mesos.master.core import Core, keep_framework, number
from executors.mesos.master.state import COMPLETED_MOST, FrameworkRecord
from executors.mesos.messages import TERMINAL, field, identity, message, value_of

_log = logging.getLogger(__name__)

FAILOVER_MOST_S = 10 * 365 * 86400.0
_DURATION_MOST_S = 2**63 / 1e9  # what Mesos' durations hold
_ID_MOST = 255
HISTORIES_MOST = 50
"""Of how many removed frameworks the tasks are remembered."""


def subscribe(core: Core, call: Message, principal: str | None, stream: str) -> None:
    """SUBSCRIBE: a new scheduler, one that comes back, or another one that takes a framework over.

    What is wrong with its FrameworkInfo is said by the stream's first record, an ERROR, after which it ends. Raises
    `BadMessage` when the call is malformed, and `HTTPError` when it claims another principal.
    """
    info = field(call, "subscribe.framework_info", dict)
    claimed = field(info, "principal", str, None)
    if principal is not None and claimed not in (None, principal):
        reason = f"'FrameworkInfo.principal' is {claimed!r}, but the credentials are those of {principal!r}"
        raise HTTPError(400, reason)
    framework_id = value_of(call, "framework_id", None) if "framework_id" in call else None
    own_id = value_of(info, "id", None) if "id" in info else None
    known = core.state.frameworks.get(framework_id or own_id or "")
    try:
        if (framework_id or own_id) != (own_id or framework_id):
            raise BadMessage(f"'framework_id' is {framework_id!r}, but 'FrameworkInfo.id' is {own_id!r}")
        if (framework_id or own_id) in core.state.completed:
            raise BadMessage("Framework has been removed")
        found = checked_info(
            info if own_id or not framework_id else info | {"id": identity(framework_id)}, core.state.options.user
        )
        quiet = suppressed(call["subscribe"], frozenset(found["roles"]))
        if known is not None and principal is not None and known.principal not in (None, principal):
            raise BadMessage(f"framework {known.id!r} belongs to another principal")
        if known is not None and not core.state.options.authenticated:
            _check_successor(known, claimed)
    except BadMessage as error:
        _log.info("framework %s is refused: %s", framework_id or own_id or "without an id", error)
        core.send(stream, message("ERROR", message=str(error)))
        core.close(stream)
        return
    if known is None:
        id = framework_id or own_id or _new_id(core)
        known = FrameworkRecord(
            id, completed_info(found, id, principal), frozenset(found["roles"]), core.now, principal
        )
        core.state.frameworks[id] = known
        _log.info("framework %s (%s) has subscribed", id, found["name"])
        _welcome(core, known, stream, quiet)
        if core.state.operators:
            core.publish(message("FRAMEWORK_ADDED", framework=views.framework(known, core.state)))
    else:
        _log.info("framework %s %s", known.id, "has subscribed again" if known.stream is None else "fails over")
        if known.stream is not None:
            core.send(known.stream, message("ERROR", message="Framework failed over"))
            core.close(known.stream)
        _forget_offers(core, known)
        known.principal = known.principal if principal is None else principal
        known.reregistered = core.now
        _inform(core, known, completed_info(found, known.id, known.principal))
        _welcome(core, known, stream, quiet)
        _publish(core, known)
        _resend(core, known)


def _check_successor(known: FrameworkRecord, claimed: str | None) -> None:
    """Whether a scheduler that has shown no credentials may go on with a framework."""
    if known.stream is not None:
        raise BadMessage(
            f"framework {known.id!r} has a scheduler, which is connected: without authentication no other one takes it "
            "over before that has gone"
        )
    if claimed != known.info.get("principal"):
        raise BadMessage(f"framework {known.id!r} belongs to another principal")


def _new_id(core: Core) -> str:
    while True:  # schedulers may choose ids, too
        id = f"{core.state.id}-{number(core, 'framework'):04d}"
        if id not in core.state.frameworks and id not in core.state.completed:
            return id


def _welcome(core: Core, framework: FrameworkRecord, stream: str, quiet: set[str]) -> None:
    framework.stream, framework.disconnected, framework.suppressed = stream, None, quiet
    core.state.streams[stream] = ("framework", framework.id)
    keep_framework(core, framework)
    interval = core.state.options.heartbeat_s
    master = views.master(core.state)
    identified = identity(framework.id)
    core.send(
        stream,
        message("SUBSCRIBED", framework_id=identified, heartbeat_interval_seconds=interval, master_info=master),
    )
    core.send(stream, message("HEARTBEAT"))
    core.dirty.update(core.state.agents)


def _resend(core: Core, framework: FrameworkRecord) -> None:
    """Its scheduler is back: it is sent what it has not acknowledged."""
    for task in framework.tasks.values():
        if task.pending is not None:
            core.send(framework.stream, message("UPDATE", status=task.pending))


def _inform(core: Core, framework: FrameworkRecord, info: Message) -> None:
    """What is known of a framework has changed: its agents are informed."""
    if info != framework.info:
        _log.info("framework %s has changed what it says of itself", framework.id)
        framework.info, framework.roles = info, frozenset(info["roles"])
        for agent_id in agents_of(core, framework):
            core.send(core.state.agents[agent_id].stream, message("FRAMEWORK", framework_info=info))


def _publish(core: Core, framework: FrameworkRecord) -> None:
    """Operators are sent its present state."""
    if core.state.operators:
        core.publish(message("FRAMEWORK_UPDATED", framework=views.framework(framework, core.state)))


def update(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """UPDATE_FRAMEWORK: another FrameworkInfo, other suppressed roles.

    Raises `BadMessage` when it is not allowed, or would change what cannot change: id, principal, user, checkpoint.
    """
    info = field(call, "framework_info", dict)
    if value_of(info, "id") != framework.id:
        raise BadMessage("'FrameworkInfo.id' cannot change")
    found = checked_info(info, core.state.options.user)
    found = completed_info(found, framework.id, framework.principal)
    for name in ("principal", "user", "checkpoint"):
        before = framework.info.get(name)
        if (info | {"user": found["user"]}).get(name, before) != before:
            raise BadMessage(f"'FrameworkInfo.{name}' cannot change")
    framework.suppressed = suppressed(call, frozenset(found["roles"]))
    _inform(core, framework, found)
    for offer in list(framework.offers.values()):
        if offer.role not in framework.roles:
            offers.rescind(core, offer)
    keep_framework(core, framework)
    core.dirty.update(core.state.agents)
    _publish(core, framework)


def revive(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """REVIVE: the framework wants offers again, whatever it has refused, in these roles or in all of them."""
    roles = _named(framework, call)
    core.filters.clear(framework.id, roles)
    if framework.suppressed & roles:
        _log.info("framework %s wants offers again, as %s", framework.id, sorted(roles))
        framework.suppressed -= roles
        keep_framework(core, framework)
    core.dirty.update(core.state.agents)


def suppress(core: Core, framework: FrameworkRecord, call: Message) -> None:
    """SUPPRESS: the framework gets no offers until it revives, in these roles or in all of them."""
    roles = _named(framework, call)
    if roles - framework.suppressed:
        _log.info("framework %s wants no offers, as %s", framework.id, sorted(roles))
        framework.suppressed |= roles
        keep_framework(core, framework)


def _named(framework: FrameworkRecord, call: Message) -> set[str]:
    names = field(call, "roles", list, [])
    if "role" in call:  # the older form
        names = [*names, field(call, "role", str)]
    return set(framework.roles.intersection(map(str, names)) if names else framework.roles)


def disconnected(core: Core, framework: FrameworkRecord) -> None:
    """Its stream is gone: it has its failover time to come back."""
    _log.info("framework %s is disconnected: it has %g s to come back", framework.id, failover_s(framework.info))
    framework.stream, framework.disconnected = None, core.now
    _forget_offers(core, framework)
    keep_framework(core, framework)
    await_return(core, framework)
    _publish(core, framework)


def await_return(core: Core, framework: FrameworkRecord) -> None:
    """Look whether it is back once its failover time is over."""
    core.timers.at(("framework", framework.id), _gives_up(framework))


def expire(core: Core, framework_id: str) -> None:
    """Remove a framework that did not come back in time."""
    framework = core.state.frameworks.get(framework_id)
    if framework is not None and framework.disconnected is not None and core.now >= _gives_up(framework):
        remove(core, framework, "Framework did not come back within its failover timeout")


def _gives_up(framework: FrameworkRecord) -> float:
    since = 0.0 if framework.disconnected is None else framework.disconnected
    return since + failover_s(framework.info)


def _forget_offers(core: Core, framework: FrameworkRecord) -> None:
    """Offers and refusals are those of one scheduler: another one, or the same after a break, begins anew."""
    for offer in list(framework.offers.values()):
        offers.remove(core, offer)
    core.filters.clear(framework.id)


def remove(core: Core, framework: FrameworkRecord, text: str) -> None:
    """The framework is over: its tasks and executors are ended. `text` is sent to its scheduler, if not empty.

    What they take is free once their agents say that they have ended.
    """
    state = core.state
    _log.info("framework %s is removed: %s", framework.id, text or "it was torn down")
    if text:
        core.send(framework.stream, message("ERROR", message=text))
    core.close(framework.stream)
    framework.stream = None
    _forget_offers(core, framework)
    for agent_id in agents_of(core, framework):
        core.send(state.agents[agent_id].stream, message("SHUTDOWN_FRAMEWORK", framework_id=identity(framework.id)))
    for task in (*framework.tasks.values(), *framework.unreachable.values()):
        if task.state in TERMINAL:
            tasks.forget(core, framework, task)
        else:
            why = text or "Framework torn down"
            agent = tasks.agent_of(core, task)
            tasks.end(core, framework, task, "TASK_KILLED", "REASON_FRAMEWORK_REMOVED", text=why)
            if agent is not None:
                tasks.hold_orphan(core, agent, replace(task, state="TASK_KILLING"))
    for agent_id in list(state.unreachable_tasks):
        state.unreachable_tasks[agent_id] = [
            task for task in state.unreachable_tasks[agent_id] if task.framework != framework.id
        ]
    framework.disconnected = core.now
    del state.frameworks[framework.id]
    core.usage.forget(framework.id, framework.roles)
    state.completed[framework.id] = framework
    keep_framework(core, framework)
    _forget_oldest(core)
    if state.operators:
        core.publish(message("FRAMEWORK_REMOVED", framework_info=views.own_info(framework.info)))


def agents_of(core: Core, framework: FrameworkRecord) -> list[str]:
    """Registered agents on which it has tasks or executors."""
    found = {task.agent: None for task in framework.tasks.values()}
    for agent in core.state.agents.values():
        if any(executor.framework == framework.id for executor in agent.executors.values()):
            found[agent.id] = None
    return [agent_id for agent_id in found if agent_id in core.state.agents]


def _forget_oldest(core: Core) -> None:
    completed = core.state.completed
    if len(completed) > HISTORIES_MOST:
        list(completed.values())[-HISTORIES_MOST - 1].completed.clear()
    while len(completed) > COMPLETED_MOST:
        oldest = next(iter(completed))
        del completed[oldest]
        core.keep("frameworks", oldest, None)


# ---------------------------------------------------------------------- FrameworkInfo


def checked_info(info: Message, user: str | None) -> Message:
    """A FrameworkInfo with `roles` and `user` filled in; only frameworks of `user` are taken, if given.

    Raises `BadMessage` when something in it is not allowed; the text goes to the scheduler.
    """
    found = dict(info)
    found["user"] = field(info, "user", str, "") or user or ""
    found["name"] = field(info, "name", str, "")
    if user is not None and found["user"] != user:
        raise BadMessage(f"frameworks of user {found['user']!r} are not taken: this master runs tasks as {user!r} only")
    if "id" in info and (reason := wrong_id(value_of(info, "id"))):
        raise BadMessage(f"the framework's id {reason}")
    _check_shape(info)
    found["roles"] = _roles(info)
    return found


def adopted_info(info: Message) -> Message:
    """The FrameworkInfo of a framework that the master has forgotten, as an agent has it; raises `BadMessage`."""
    _check_shape(info)
    field(info, "principal", str, None)
    roles = field(info, "roles", list, [])
    return info | {"roles": [role for role in roles if not wrong_role(role)] or ["*"]}


def _check_shape(info: Message) -> None:
    failover_s: float = field(info, "failover_timeout", float, 0.0)
    if not 0 <= failover_s < _DURATION_MOST_S:
        raise BadMessage(
            f"'failover_timeout' must be a duration in seconds below {_DURATION_MOST_S:.4g}, found {failover_s}"
        )
    for item in field(info, "capabilities", list, []):
        field({"capabilities": item}, "capabilities.type", str)


def _roles(info: Message) -> list[str]:
    many = _is_multi_role(info)
    listed = field(info, "roles", list, [])
    if many and "role" in info:
        raise BadMessage("'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable: use 'roles'")
    if listed and not many:
        raise BadMessage("'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable")
    roles = listed if many else [field(info, "role", str, "*")]
    if len(set(map(str, roles))) < len(roles):
        raise BadMessage(f"'FrameworkInfo.roles' has duplicates: {roles}")
    for role in roles:
        if reason := wrong_role(role):
            raise BadMessage(f"role {role!r:.100} {reason}")
    return roles


def failover_s(info: Message) -> float:
    """For how long a framework may be away [s].

    >>> failover_s({"failover_timeout": 100})
    100.0
    """
    given: float = field(info, "failover_timeout", float, 0.0)
    return min(FAILOVER_MOST_S, given)


def suppressed(subscribe: Message, roles: frozenset[str]) -> set[str]:
    """The roles in which a scheduler suppresses offers; raises `BadMessage` when one is none of its roles."""
    names = field(subscribe, "suppressed_roles", list, [])
    for name in names:
        if not isinstance(name, str) or name not in roles:
            raise BadMessage(f"suppressed role {name!r:.100} is none of the framework's roles: {sorted(roles)}")
    return set(names)


def completed_info(info: Message, framework_id: str, principal: str | None) -> Message:
    """With its id and its principal."""
    found = info | {"id": identity(framework_id)}
    return found if principal is None else found | {"principal": principal}


def _is_multi_role(info: Message) -> bool:
    return any(item.get("type") == "MULTI_ROLE" for item in info.get("capabilities", ()))


def wrong_id(text: Any) -> str | None:
    """What is wrong with an id, if anything is; they become parts of paths.

    >>> wrong_id("task-1") is None, wrong_id("a/b")
    (True, "must not contain '/', spaces or control characters")
    """
    if not isinstance(text, str) or not 1 <= len(text) <= _ID_MOST:
        return f"must be a text of 1 to {_ID_MOST} characters"
    if text in (".", ".."):
        return "must not be '.' or '..'"
    if "/" in text or any(letter.isspace() or not letter.isprintable() for letter in text):
        return "must not contain '/', spaces or control characters"
    return None


def wrong_role(name: Any) -> str | None:
    """What is wrong with a role's name, if anything is.

    >>> wrong_role("eng/dev") is None, wrong_role("eng//dev")
    (True, "must not have empty parts, '.', '..' or '*' between slashes")
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _ID_MOST:
        return f"must be a text of 1 to {_ID_MOST} characters"
    if name == "*":
        return None
    if any(letter.isspace() or not letter.isprintable() for letter in name):
        return "must not contain spaces or control characters"
    parts = name.split("/")
    if any(part in ("", ".", "..", "*") for part in parts):
        return "must not have empty parts, '.', '..' or '*' between slashes"
    if any(part.startswith("-") for part in parts):
        return "must not start with '-'"
    return None
