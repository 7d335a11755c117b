"""Slurm's short way to write many host names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from asa.core.errors import BackendError

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> tuple[str, ...]:
    """Host names of a Slurm host list, in its order.

    Raises
    ------
    BackendError
        When `text` is not a host list.

    Examples
    --------
    >>> expand("n[1-3,7],login")
    ('n1', 'n2', 'n3', 'n7', 'login')
    >>> expand("rack[1-2]-n[08-10]")
    ('rack1-n08', 'rack1-n09', 'rack1-n10', 'rack2-n08', 'rack2-n09', 'rack2-n10')
    """
    return tuple(name for part in _split(text) for name in _product(part, text))


def _split(text: str) -> Iterator[str]:
    """Parts between those commas that are not in brackets."""
    start = depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text:
        yield text[start:]


def _product(part: str, whole: str) -> Iterator[str]:
    pieces = _GROUP.split(part)  # literal, ranges, literal, ranges, ... literal
    if any("[" in piece or "]" in piece for piece in pieces) or not part:
        raise BackendError(f"host list {whole!r}: expected something like 'n[1-4,7],m2'")
    choices = [[piece] if at % 2 == 0 else list(_numbers(piece, whole)) for at, piece in enumerate(pieces)]
    return map("".join, itertools.product(*choices))


def _numbers(ranges: str, whole: str) -> Iterator[str]:
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise BackendError(f"host list {whole!r}: expected a number or a range, not {item!r}")
        low, high = match[1], match[2] or match[1]
        for number in range(int(low), int(high) + 1):
            yield str(number).zfill(len(low))
