"""What is told in confidence is not shown: secrets in the messages of frameworks."""

from __future__ import annotations

from typing import Any


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
