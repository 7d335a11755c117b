"""What a scheduler says of itself: checked, and with what it may leave out filled in."""

from __future__ import annotations

import math
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.master.minimums import minimums
from executors.mesos.messages import field, identity, value_of

FAILOVER_MOST_S = 10 * 365 * 86400.0
_ID_MOST = 255


def checked_info(info: Message, user: str | None) -> Message:
    """A FrameworkInfo that can be worked with: `roles` and `user` are filled in.

    Parameters
    ----------
    user
        The only one whose tasks are run; None for any.

    Raises
    ------
    BadMessage
        When something in it is not allowed; the text goes to the scheduler.
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
    """The FrameworkInfo of a framework that the master has forgotten, as an agent has it from that master.

    Raises
    ------
    BadMessage
        When it is none.
    """
    _check_shape(info)
    field(info, "principal", str, None)
    roles = field(info, "roles", list, [])
    return info | {"roles": [role for role in roles if not wrong_role(role)] or ["*"]}


def _check_shape(info: Message) -> None:
    failover_s: float = field(info, "failover_timeout", float, 0.0)
    if not 0 <= failover_s < math.inf:
        raise BadMessage(f"'failover_timeout' must be a duration in seconds, found {failover_s}")
    for item in field(info, "capabilities", list, []):
        field({"capabilities": item}, "capabilities.type", str)
    minimums(info)


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
    """The roles in which a scheduler wants no offers for now.

    Raises
    ------
    BadMessage
        When one is none of its roles.
    """
    names = field(subscribe, "suppressed_roles", list, [])
    for name in names:
        if not isinstance(name, str) or name not in roles:
            raise BadMessage(f"suppressed role {name!r:.100} is none of the framework's roles: {sorted(roles)}")
    return set(names)


def completed_info(info: Message, framework_id: str, principal: str | None) -> Message:
    """With the id it got and who it was found to be."""
    found = info | {"id": identity(framework_id)}
    return found if principal is None else found | {"principal": principal}


def own_info(info: Message) -> Message:
    """As its scheduler would write it, who could subscribe with it: ``role`` or, with MULTI_ROLE, ``roles``.

    >>> own_info({"name": "x", "roles": ["*"]})
    {'name': 'x', 'role': '*'}
    """
    if _is_multi_role(info):
        return info
    role = next(iter(info.get("roles", ())), "*")
    return {name: item for name, item in info.items() if name != "roles"} | {"role": role}


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
