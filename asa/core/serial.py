"""Frozen dataclasses to JSON-able values and back, by their type hints. What the event log is written in."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

Converter = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, types.NoneType})


def to_json(value: Any) -> Any:
    """JSON-able form of a dataclass, enum, tuple, list or plain value; of anything else, itself.

    Left out: fields at their default, and those marked ``metadata={"logged": False}``.

    >>> from asa.core.job import JobState
    >>> to_json((JobState.PENDING, 1.5))
    ['pending', 1.5]
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (fields := _logged_fields(kind)) is not None:
        return {
            name: item if type(item) in _PLAIN else to_json(item)
            for name, default in fields
            if (item := getattr(value, name)) != default
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


@functools.cache
def _logged_fields(kind: Any) -> tuple[tuple[str, Any], ...] | None:
    """Name and default of a dataclass's fields to write; kept, because the event log writes thousands a second."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(
        (field.name, field.default) for field in dataclasses.fields(kind) if field.metadata.get("logged", True)
    )


def from_json(kind: Any, value: Any) -> Any:
    """Inverse of `to_json` for a value of type `kind`; unknown fields are ignored, so older code reads newer logs."""
    return _converter(kind)(value)


@functools.cache
def _converter(kind: Any) -> Converter:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_converter(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if origin in (typing.Union, types.UnionType):
        (inner,) = (_converter(item) for item in arguments if item is not types.NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            each = _converter(arguments[0])
            return lambda value: tuple(each(item) for item in value)
        parts = [_converter(item) for item in arguments]
        return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))
    return lambda value: value


def _dataclass_converter(kind: type) -> Converter:
    hints = typing.get_type_hints(kind)
    converters: dict[str, Converter] = {}

    def convert(value: dict[str, Any]) -> Any:
        if not converters:  # filled late, so that a dataclass may contain itself
            converters.update({field.name: _converter(hints[field.name]) for field in dataclasses.fields(kind)})
        return kind(**{name: converters[name](item) for name, item in value.items() if name in converters})

    return convert
