"""Specs: a name with options as people write it, the same on the command line and in Python.

``easy``, ``slurm:partition=core``, ``asa:dependency=predicted,sampling=tuned``. What the names stand for is in
`asa.core.registry`.
"""

from __future__ import annotations

from typing import Any

from asa.core.errors import InvalidInput


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,flag`` into the name and its options; numbers and booleans are converted.

    >>> parse_spec("slurm:partition=core,nice=10,exclusive")
    ('slurm', {'partition': 'core', 'nice': 10, 'exclusive': True})
    """
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        options[key.strip().replace("-", "_")] = convert(value.strip()) if equals else True
    return name.strip(), options


def with_options(spec: str, **options: Any) -> str:
    """The spec with these options added; None for one that is not given.

    >>> with_options("auto:lead_s=10", patience=50.0, max_overhead=None)
    'auto:lead_s=10,patience=50.0'
    """
    added = ",".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return spec + ("," if ":" in spec else ":") * bool(added) + added


def convert(text: str) -> Any:
    """A number or boolean when `text` reads like one, else the text."""
    if text.lower() in ("true", "yes"):
        return True
    if text.lower() in ("false", "no"):
        return False
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def fitting(option: str, value: Any, annotation: Any) -> Any:
    """The value of an option as an annotation wants it: what reads like a number may be meant as text.

    Raises
    ------
    InvalidInput
        When it is text, and a number or a boolean is wanted.
    """
    kinds = set(getattr(annotation, "__name__", str(annotation)).split(" | ")) - {"None"}
    if kinds == {"str"}:
        return str(value)
    if kinds and kinds <= {"int", "float"} and isinstance(value, str | bool):
        raise InvalidInput(f"{option}={value} is no number")
    if kinds == {"bool"} and isinstance(value, str):
        raise InvalidInput(f"{option}={value}: true or false expected")
    return value
