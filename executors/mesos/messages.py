"""What v1 messages have in common: how they are built and how a field is asked for.

Messages stay the JSON objects that came: a field that is not known here passes through unharmed.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from typing import Any

from executors.mesos.codec import BadMessage, Message

VERSION = "1.11.0"
"""The version of Mesos whose API is spoken; clients expect nothing but numbers and dots."""

SCHEDULER_PATH, EXECUTOR_PATH = "/api/v1/scheduler", "/api/v1/executor"
OPERATOR_PATHS = ("/api/v1", "/api/v1/operator")
"""Where the calls of schedulers, executors and operators are posted."""

TERMINAL = frozenset(
    "TASK_" + word for word in ("FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR")
)
"""States after which a task is over. TASK_UNREACHABLE and TASK_UNKNOWN are not among them."""

_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def message(kind: str, **payload: Any) -> Message:
    """A call, an event or a response: what it is, and under the same name in small letters what it says.

    >>> message("RESCIND", offer_id=identity("O1"))
    {'type': 'RESCIND', 'rescind': {'offer_id': {'value': 'O1'}}}
    >>> message("HEARTBEAT")
    {'type': 'HEARTBEAT'}
    """
    return {"type": kind, kind.lower(): payload} if payload else {"type": kind}


def identity(value: str) -> Message:
    """An id as messages have it."""
    return {"value": value}


def nanoseconds(seconds: float) -> Message:
    """A time [s since the epoch] or a duration [s] as messages have it; as exact as a double is."""
    whole = math.floor(seconds)
    return {"nanoseconds": whole * 1_000_000_000 + round((seconds - whole) * 1e9)}


def field(source: Mapping[str, Any], path: str, kind: type, default: Any = ...) -> Any:
    """The value at a dotted path.

    Parameters
    ----------
    kind
        What it must be: ``dict``, ``list``, ``str``, ``bool``, ``int`` or ``float``. Numbers may come as texts, as the
        JSON mapping of .proto files allows, ``"Infinity"`` among them.
    default
        What an absent field means; without it the field is required.

    Raises
    ------
    BadMessage
        When it is absent although required, or something else; the message names the path.

    Examples
    --------
    >>> field({"kill": {"task_id": {"value": "t1"}}}, "kill.task_id.value", str)
    't1'
    """
    found: Any = source
    for name in path.split(".") if "." in path else (path,):
        if type(found) is not dict and not isinstance(found, Mapping):  # a dict is seen at once, and usual
            raise BadMessage(f"expected an object around {name!r} in {path!r}, found {type(found).__name__}")
        if name not in found:
            if default is ...:
                raise BadMessage(f"expected {path!r} to be present")
            return default
        found = found[name]
    if kind in (int, float):
        return _number(found, path, kind)
    if not isinstance(found, kind):
        raise BadMessage(f"expected {path!r} to be {_NAMES[kind]}, found {type(found).__name__}")
    return found


def _number(found: Any, path: str, kind: type) -> Any:
    try:
        if isinstance(found, bool):
            raise ValueError
        number = kind(found)
        if kind is float and math.isnan(number):
            raise ValueError
        return number
    except (TypeError, ValueError, OverflowError):
        raise BadMessage(f"expected {path!r} to be a number, found {found!r:.50}") from None


def value_of(source: Mapping[str, Any], path: str, default: Any = ...) -> Any:
    """The text of the id at a dotted path: ``value_of(call, "kill.task_id")``; raises as `field` does."""
    return field(source, f"{path}.value", str, default)


def values(items: Iterable[Any], what: str) -> list[str]:
    """The texts of a list of ids; raises `BadMessage`, in which `what` names the list."""
    return [field({what: item}, f"{what}.value", str) for item in items]


def attribute(source: Mapping[str, Any], name: str, default: Any = "") -> Any:
    """A text among the attributes of an offer, or of an agent's info; of other types the default."""
    for item in field(source, "attributes", list, []):
        if field(item, "name", str, "") == name:
            return field(item, "text.value", str, default)
    return default


def octets(source: Mapping[str, Any], path: str, default: Any = ...) -> Any:
    """The bytes at a dotted path, which travel as base64, standard or URL-safe; raises as `field` does."""
    text = field(source, path, str, None if default is not ... else ...)
    if text is None:
        return default
    try:
        return base64.b64decode(text.translate(_URL_SAFE), validate=True)
    except (binascii.Error, ValueError):
        raise BadMessage(f"expected {path!r} to be base64") from None


_URL_SAFE = str.maketrans("-_", "+/")


def base64_of(data: bytes) -> str:
    """Bytes as they travel."""
    return base64.b64encode(data).decode()


def redacted(value: Any) -> Any:
    """A message, without the data of a ``Secret`` and the values of variables that are secret, however deep they are.

    >>> redacted({"name": "TOKEN", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": "aHVzaA=="}}})
    {'name': 'TOKEN', 'type': 'SECRET', 'secret': {'type': 'VALUE', 'value': {'data': ''}}}
    """
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind, inner = value.get("type"), value.get("value")
    found = {name: redacted(item) for name, item in value.items() if (name, kind) != ("value", "SECRET")}
    if isinstance(inner, dict) and "data" in inner and "value" in found:
        found["value"] = found["value"] | {"data": ""}
    return found


def task_status(
    task_id: str,
    state: str,
    now: float,
    *,
    source: str,
    agent_id: str | None = None,
    executor_id: str | None = None,
    reason: str | None = None,
    text: str | None = None,
    uuid: bytes | None = None,
    **more: Any,
) -> Message:
    """A ``TaskStatus``.

    Parameters
    ----------
    now
        When it was so [s since the epoch].
    source
        ``SOURCE_MASTER``, ``SOURCE_AGENT`` or ``SOURCE_EXECUTOR``.
    uuid
        16 bytes; one that has it is to be acknowledged, and is sent again until it is.
    **more
        Other fields, as they are.
    """
    optional = {
        "agent_id": None if agent_id is None else identity(agent_id),
        "executor_id": None if executor_id is None else identity(executor_id),
        "reason": reason,
        "message": text,
        "uuid": None if uuid is None else base64_of(uuid),
    }
    given = {name: item for name, item in optional.items() if item is not None}
    return {"task_id": identity(task_id), "state": state, "source": source, "timestamp": now} | given | more
