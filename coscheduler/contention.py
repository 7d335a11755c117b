"""What jobs on the same cores do to one another: who gets how much CPU, and how much slower everybody is.

A fluid model: at any instant each job wants so many cores, gets so many, and gets on at the ratio of the two.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput, UnknownName


@dataclass(frozen=True, slots=True)
class Contention:
    """Constants of the law.

    Parameters
    ----------
    tax
        Rate that is left for each further job on the same cores (caches, memory bandwidth), in (0, 1].
    thrash
        Rate that is left for all of them when together they want more memory than there is, in (0, 1].
    """

    tax: float = 0.97
    thrash: float = 0.4

    def __post_init__(self) -> None:
        for name in ("tax", "thrash"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}: expected a number above 0, at most 1")

    def factor(self, together: int, memory: float) -> float:
        """Common factor of the rates of `together` jobs that want `memory` of the host's (1: all there is)."""
        return float(self.tax ** (together - 1) * (self.thrash if memory > 1 + 1e-9 else 1.0))


PAPER_LIKE = Contention()
"""Invented constants with which the published trends come out: see docs/coscheduler.md."""

MEASURED = Contention(0.879, PAPER_LIKE.thrash)
"""What ``asa calibrate-contention`` found; no application filled the memory: see docs/coscheduler.md."""

CONTENTIONS = {"paper-like": PAPER_LIKE, "measured": MEASURED}


def named(name: str) -> Contention:
    """The constants of this name: one of `CONTENTIONS`, or the path of a file of ``asa calibrate-contention``.

    Files end in ``.json``.

    Raises
    ------
    UnknownName
        When there are none.
    InvalidInput
        When they are to come from a file that is not there, or makes no sense.
    """
    if name in CONTENTIONS:
        return CONTENTIONS[name]
    if name.endswith(".json"):
        return _measured(Path(name))
    raise UnknownName("contention", name, [*CONTENTIONS, "FILE.json"])


def _measured(path: Path) -> Contention:
    """Constants of a file; what was not measured is that of `PAPER_LIKE`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"contention {path}: {error}. Expected a file of asa calibrate-contention") from error
    if not isinstance(data, dict) or "tax" not in data:
        raise InvalidInput(f"contention {path}: it has no 'tax'. Expected a file of asa calibrate-contention")
    thrash = data.get("thrash")
    try:
        return Contention(
            _number(data["tax"], "tax"), PAPER_LIKE.thrash if thrash is None else _number(thrash, "thrash")
        )
    except InvalidInput as error:
        raise InvalidInput(f"contention {path}: {error}") from error


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name} is {value!r}: expected a number above 0, at most 1")
    return float(value)


def weighted(cores: float, demands: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Cores that each job gets when shares are weights: what one does not want goes to the others by their weights.

    Parameters
    ----------
    cores
        Cores there are.
    demands, shares
        Cores that each wants, and its weight; above 0.

    Examples
    --------
    >>> weighted(8, [1.0, 8.0], [0.9, 0.1])
    [1.0, 7.0]
    >>> [round(each, 3) for each in weighted(8, [8.0, 8.0], [0.9, 0.1])]
    [7.2, 0.8]
    """
    granted, left = [0.0] * len(demands), float(cores)
    # In order of demand over weight: whoever wants less than its part of what is left is served in full.
    order = sorted(range(len(demands)), key=lambda place: demands[place] / shares[place])
    for rank, place in enumerate(order):
        weight = sum(shares[other] for other in order[rank:])
        granted[place] = min(demands[place], left * (shares[place] / weight))
        left -= granted[place]
    return granted


def capped(cores: float, demands: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Cores that each job gets when shares are hard quotas.

    >>> capped(8, [1.0, 8.0], [0.5, 0.5])
    [1.0, 4.0]
    """
    return [min(demand, share * cores) for demand, share in zip(demands, shares, strict=True)]
