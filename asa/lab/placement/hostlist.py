"""Lists of host names as Slurm writes them: ``cn[001-003,7],gpu-[1-2]-[a,b]``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product

from asa.core.errors import InvalidInput

MOST = 2**20
"""Most names that one list may stand for: a slip of the pen is told before it fills the memory."""

_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)-(\d+)")


def expand(text: str) -> list[str]:
    """The names in a host list, in order.

    A range keeps the width of its first number. Several brackets stand for all combinations, the last one fastest.

    Raises
    ------
    InvalidInput
        When brackets do not match or are empty, a range falls, or there are more than `MOST` names.

    Examples
    --------
    >>> expand("cn[008-010],login")
    ['cn008', 'cn009', 'cn010', 'login']
    >>> expand("r[1,3]-n[1-2]")
    ['r1-n1', 'r1-n2', 'r3-n1', 'r3-n2']
    """
    names: list[str] = []
    for part in _split(text):
        if not part:
            raise InvalidInput(f"{text!r}: there is no name between two commas, or none at all")
        pieces = _PART.split(part)  # text, inside of brackets, text, ...
        if any(sign in piece for piece in pieces[::2] for sign in "[]"):
            raise InvalidInput(f"{part!r}: brackets do not match")
        choices = [list(_inside(piece, part)) if k % 2 else [piece] for k, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > MOST:
            raise InvalidInput(f"{part!r} stands for too many names: at most {MOST} in a list")
        names += map("".join, product(*choices))
    return names


def _split(text: str) -> Iterator[str]:
    """Its parts, at commas outside of brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _inside(piece: str, part: str) -> Iterator[str]:
    """What the text inside of a pair of brackets stands for."""
    for item in piece.split(","):
        found = _RANGE.fullmatch(item)
        if not found:
            if not item or not item.isalnum():
                raise InvalidInput(
                    f"{part!r}: {item!r} in brackets: a number, a name or a range such as 01-16 expected"
                )
            yield item
            continue
        first, last = int(found[1]), int(found[2])
        if last < first or last - first >= MOST:
            raise InvalidInput(f"{part!r}: the range {item} falls, or has more than {MOST} numbers")
        yield from (str(number).zfill(len(found[1])) for number in range(first, last + 1))
