"""Resources: what an agent has, an offer offers and a task takes.

Scalars are counted in thousandths, as Mesos rounds them, so sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field

THOUSAND = 1000
LEAST_CPUS = 0.01
"""The smallest CPU quota that is given to anything [cores]; that of Mesos."""
CAPACITY = "capacity"
"""The attribute of an agent that owns a part of its node's processor only [cores]."""
LARGEST = 10**15
"""Largest scalar that is taken [thousandths]; a double still holds every thousandth of it."""

Range = tuple[int, int]
"""First and last, both included."""
Amount = int | tuple[Range, ...]
"""Thousandths of a scalar; disjoint ranges in order."""


@dataclass(frozen=True)
class Resources:
    """Amounts by name; an amount of nothing is not in it."""

    amounts: Mapping[str, Amount]

    def __add__(self, other: Resources) -> Resources:
        found = dict(self.amounts)
        for name, amount in other.amounts.items():
            found[name] = _add(found[name], amount) if name in found else amount
        return Resources(found)

    def __sub__(self, other: Resources) -> Resources:
        """What is left; of what is not there, nothing can be taken."""
        found = dict(self.amounts)
        for name, amount in other.amounts.items():
            if name in found:
                if left := _subtract(found[name], amount):
                    found[name] = left
                else:
                    del found[name]
        return Resources(found)

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def __iter__(self) -> Iterator[tuple[str, Amount]]:
        return iter(self.amounts.items())

    def covers(self, other: Resources) -> bool:
        """Whether all of the other is in here."""
        return all(
            name in self.amounts and _covers(self.amounts[name], amount) for name, amount in other.amounts.items()
        )

    def scalar(self, name: str) -> float:
        """How much of a scalar there is: ``scalar("cpus")``."""
        return self.thousandths(name) / THOUSAND

    def thousandths(self, name: str) -> int:
        """As `scalar`, in thousandths."""
        amount = self.amounts.get(name, 0)
        return amount if isinstance(amount, int) else 0

    def scalars(self) -> dict[str, int]:
        return {name: amount for name, amount in self if isinstance(amount, int)}


NONE = Resources({})


def parse(items: Iterable[Any]) -> Resources:
    """Resources from a message's list; those of one name are added up.

    Raises
    ------
    BadMessage
        When one has no name or value, a negative amount, a range from high to low, or is reserved for a role,
        revocable, shared, or a disk, of which there are none here.
    """
    found = NONE
    for item in items:
        if not isinstance(item, dict):
            raise BadMessage(f"expected a resource to be an object, found {type(item).__name__}")
        name, amount = _name(item), _amount(item)
        if amount:
            found += Resources({name: amount})
    return found


def to_json(resources: Resources, allocated_to: str | None = None) -> list[Message]:
    """A message's list of resources.

    Parameters
    ----------
    allocated_to
        The role that they are offered to or used by; None for what no role has.
    """
    return [_item(name, amount, allocated_to) for name, amount in resources]


def scalars(**amounts: float) -> Resources:
    """Scalars: ``scalars(cpus=4, mem=512)``; `mem` and `disk` are in MiB.

    >>> scalars(cpus=0.5).amounts
    {'cpus': 500}
    """
    return Resources({name: round(amount * THOUSAND) for name, amount in amounts.items() if amount > 0})


def _name(item: Message) -> str:
    name: str = field(item, "name", str)
    for odd in ("disk", "shared", "provider_id", "revocable", "reservation"):
        if odd in item:
            raise BadMessage(f"resource {name!r} has {odd!r}: only plain resources are supported")
    if field(item, "reservations", list, []) or field(item, "role", str, "*") != "*":
        raise BadMessage(f"resource {name!r} is reserved for a role: there are no reservations here")
    return name


def _amount(item: Message) -> Amount:
    name, shape = field(item, "name", str), field(item, "type", str, "SCALAR")
    if shape == "SCALAR":
        number: float = field(item, "scalar.value", float)
        if not math.isfinite(number) or not 0 <= number * THOUSAND <= LARGEST:
            raise BadMessage(f"resource {name!r} must be between 0 and {LARGEST // THOUSAND}, not {number}")
        return round(number * THOUSAND)
    if shape == "RANGES":
        return _merged(_range(one, name) for one in field(item, "ranges.range", list))
    raise BadMessage(f"resource {name!r} has type {shape!r}: expected SCALAR or RANGES")


def _range(one: Any, name: str) -> Range:
    begin, end = field(one, "begin", int), field(one, "end", int)
    if not 0 <= begin <= end:
        raise BadMessage(f"resource {name!r} has a range from {begin} to {end}")
    return begin, end


def _item(name: str, amount: Amount, allocated_to: str | None) -> Message:
    item: Message = {"name": name}
    if isinstance(amount, int):
        item |= {"type": "SCALAR", "scalar": {"value": amount / THOUSAND}}
    else:
        item |= {"type": "RANGES", "ranges": {"range": [{"begin": first, "end": last} for first, last in amount]}}
    item["role"] = "*"
    if allocated_to is not None:
        item["allocation_info"] = {"role": allocated_to}
    return item


def _add(one: Amount, other: Amount) -> Amount:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _merged((*one, *other))
    raise BadMessage("one resource is given as amounts of different types")


def _subtract(one: Amount, other: Amount) -> Amount:
    if isinstance(one, int) and isinstance(other, int):
        return max(0, one - other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _without(one, other)
    raise BadMessage("one resource is given as amounts of different types")


def _covers(one: Amount, other: Amount) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one >= other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return not _without(other, one)
    return False


def _merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _without(ranges: tuple[Range, ...], taken: tuple[Range, ...]) -> tuple[Range, ...]:
    found = list(ranges)
    for first, last in taken:
        found = [
            piece
            for begin, end in found
            for piece in ((begin, min(end, first - 1)), (max(begin, last + 1), end))
            if piece[0] <= piece[1]
        ]
    return tuple(found)
