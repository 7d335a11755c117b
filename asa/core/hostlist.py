"""Lists of host names as Slurm, Flux and site files write them: ``cn[001-003,7],gpu-[1-2]-[a,b]``. Pure.

References
----------
Slurm's hostlist expressions, as ``scontrol show hostnames`` reads them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from asa.core.errors import InvalidInput

MOST = 2**20
"""Most names that one list may stand for."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_LONGEST = 255  # a host's name, in letters
_SHOWN = 200


class InvalidHostList(InvalidInput):
    """A text that is no list of host names, or one of too many."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(
            f"host list {text[:_SHOWN]!r}: {problem}: expected something like 'n[1-4,7],login', {MOST} names at most"
        )


def expand(text: str) -> tuple[str, ...]:
    """The names in a host list, in order.

    A range keeps the width of its first number. Brackets may hold names, too; several of them stand for all
    combinations, the last one fastest.

    Raises
    ------
    InvalidHostList
        When brackets do not match or are empty, a range falls, a name is missing, or there are more than `MOST` names.

    Examples
    --------
    >>> expand("cn[008-010],login")
    ('cn008', 'cn009', 'cn010', 'login')
    >>> expand("r[1,3]-n[a,b]")
    ('r1-na', 'r1-nb', 'r3-na', 'r3-nb')
    """
    names: list[str] = []
    for part in _parts(text):
        pieces = _BRACKETS.split(part)  # text, inside of brackets, text, ...
        if not part:
            raise InvalidHostList(text, "a name is missing")
        if any(sign in piece for piece in pieces[::2] for sign in "[]"):
            raise InvalidHostList(text, "brackets do not match")
        if sum(map(len, pieces[::2])) > _LONGEST or len(pieces) > 2 * _LONGEST:
            raise InvalidHostList(text, f"a name of more than {_LONGEST} letters")
        choices = [_inside(piece, text) if at % 2 else [piece] for at, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > MOST:
            raise InvalidHostList(text, "too many names")
        names += map("".join, itertools.product(*choices))
    return tuple(names)


def _parts(text: str) -> Iterator[str]:
    """Pieces between those commas that are not in brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _inside(piece: str, text: str) -> list[str]:
    """What the inside of a pair of brackets stands for."""
    names: list[str] = []
    for item in piece.split(","):
        found = _RANGE.fullmatch(item)
        if found is None:
            if not item.isalnum() or len(item) > _LONGEST:
                raise InvalidHostList(text, f"{item[:_SHOWN]!r} in brackets is no number, name or range")
            names.append(item)
            continue
        first, last = int(found[1]), int(found[2])
        if last < first:
            raise InvalidHostList(text, f"the range {item} falls")
        if last - first >= MOST:
            raise InvalidHostList(text, "too many names")
        names += (str(number).zfill(len(found[1])) for number in range(first, last + 1))
    return names
