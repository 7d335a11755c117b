"""Resources: what an agent has, an offer offers and a task takes.

Scalars are counted in thousandths, as Mesos rounds them, so sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field

THOUSAND = 1000
LEAST_CPUS = 0.01
"""The smallest CPU quota that is given to anything [cores]; that of Mesos."""
LARGEST = 10**15
"""Largest scalar that is taken [thousandths]; a double still holds every thousandth of it."""

Range = tuple[int, int]
"""First and last, both included."""
Amount = int | tuple[Range, ...] | frozenset[str]
"""Thousandths of a scalar; disjoint ranges in order; a set."""


class Kind(NamedTuple):
    """What tells resources apart: amounts of one kind can be added to one another.

    `role` is the one they are reserved for, ``"*"`` for none; a reservation made at run time is `dynamic`, and may know
    its `principal`. `revocable` ones may be taken back.
    """

    name: str
    role: str = "*"
    dynamic: bool = False
    principal: str = ""
    revocable: bool = False


@dataclass(frozen=True)
class Resources:
    """Amounts by kind; an amount of nothing is not in it."""

    amounts: Mapping[Kind, Amount]

    def __add__(self, other: Resources) -> Resources:
        found = dict(self.amounts)
        for kind, amount in other.amounts.items():
            found[kind] = _add(found[kind], amount) if kind in found else amount
        return Resources(found)

    def __sub__(self, other: Resources) -> Resources:
        """What is left; of what is not there, nothing can be taken."""
        found = dict(self.amounts)
        for kind, amount in other.amounts.items():
            if kind in found:
                if left := _subtract(found[kind], amount):
                    found[kind] = left
                else:
                    del found[kind]
        return Resources(found)

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def __iter__(self) -> Iterator[tuple[Kind, Amount]]:
        return iter(self.amounts.items())

    def covers(self, other: Resources) -> bool:
        """Whether all of the other is in here, kind by kind."""
        return all(
            kind in self.amounts and _covers(self.amounts[kind], amount) for kind, amount in other.amounts.items()
        )

    def scalar(self, name: str) -> float:
        """How much of a scalar there is, whatever role it is reserved for: ``scalar("cpus")``."""
        return self.thousandths(name) / THOUSAND

    def thousandths(self, name: str) -> int:
        """As `scalar`, in thousandths."""
        return sum(amount for kind, amount in self if kind.name == name and isinstance(amount, int))

    def scalars(self) -> dict[str, int]:
        """Thousandths of each scalar, whatever role it is reserved for."""
        names = {kind.name: None for kind, amount in self if isinstance(amount, int)}
        return {name: self.thousandths(name) for name in names}

    def unreserved(self) -> Resources:
        """Those that any role may have."""
        return Resources({kind: amount for kind, amount in self if kind.role == "*"})

    def reserved(self, role: str | None = None) -> Resources:
        """Those reserved for a role, or for any."""
        return Resources({kind: amount for kind, amount in self if kind.role != "*" and role in (None, kind.role)})

    def usable(self, role: str) -> Resources:
        """Those that may be offered to a role: unreserved, or reserved for it or for a role above it."""
        return Resources({kind: amount for kind, amount in self if usable(kind.role, role)})

    def revocable(self) -> Resources:
        """Those that may be taken back."""
        return Resources({kind: amount for kind, amount in self if kind.revocable})

    def unspecific(self) -> Resources:
        """The same amounts without reservations."""
        return sum(
            (Resources({Kind(kind.name, revocable=kind.revocable): amount}) for kind, amount in self), start=NONE
        )


NONE = Resources({})


def usable(reserved_for: str, role: str) -> bool:
    """Whether a role may use what is reserved for another: it is the same, or one below it.

    >>> usable("eng", "eng/dev"), usable("eng/dev", "eng"), usable("*", "eng")
    (True, False, True)
    """
    return reserved_for in ("*", role) or role.startswith(reserved_for + "/")


def parse(items: Iterable[Any]) -> Resources:
    """Resources from a message's list; those of one kind are added up.

    Raises
    ------
    BadMessage
        When one has no name or value, a negative amount, a range from high to low, more than one reservation, or is a
        disk or shared resource, of which there are none here.
    """
    found = NONE
    for item in items:
        if not isinstance(item, dict):
            raise BadMessage(f"expected a resource to be an object, found {type(item).__name__}")
        kind, amount = _kind(item), _amount(item)
        if amount:
            found += Resources({kind: amount})
    return found


def to_json(resources: Resources, allocated_to: str | None = None) -> list[Message]:
    """A message's list of resources.

    Parameters
    ----------
    allocated_to
        The role that they are offered to or used by; None for what no role has.
    """
    return [_item(kind, amount, allocated_to) for kind, amount in resources]


def scalars(**amounts: float) -> Resources:
    """Unreserved scalars: ``scalars(cpus=4, mem=512)``; `mem` and `disk` are in MiB.

    >>> scalars(cpus=0.5).amounts
    {Kind(name='cpus', role='*', dynamic=False, principal='', revocable=False): 500}
    """
    return Resources({Kind(name): round(amount * THOUSAND) for name, amount in amounts.items() if amount > 0})


def _kind(item: Message) -> Kind:
    name, role = field(item, "name", str), field(item, "role", str, "*")
    for odd in ("disk", "shared", "provider_id"):
        if odd in item:
            raise BadMessage(f"resource {name!r} has {odd!r}: only plain resources are supported")
    reservations = field(item, "reservations", list, [])
    if len(reservations) > 1:
        raise BadMessage(f"resource {name!r} has {len(reservations)} reservations: one at most is supported")
    dynamic, principal = False, ""
    if reservations:
        role = field(reservations[0], "role", str)
        dynamic = field(reservations[0], "type", str, "DYNAMIC") == "DYNAMIC"
        principal = field(reservations[0], "principal", str, "")
    elif "reservation" in item:  # the older form
        dynamic, principal = True, field(item, "reservation.principal", str, "")
    if dynamic and role == "*":
        raise BadMessage(f"resource {name!r} is reserved for role '*': name a role")
    return Kind(name, role, dynamic, principal, "revocable" in item)


def _amount(item: Message) -> Amount:
    name, shape = field(item, "name", str), field(item, "type", str, "SCALAR")
    if shape == "SCALAR":
        number: float = field(item, "scalar.value", float)
        if not math.isfinite(number) or not 0 <= number * THOUSAND <= LARGEST:
            raise BadMessage(f"resource {name!r} must be between 0 and {LARGEST // THOUSAND}, not {number}")
        return round(number * THOUSAND)
    if shape == "RANGES":
        return _merged(_range(one, name) for one in field(item, "ranges.range", list))
    if shape == "SET":
        members = field(item, "set.item", list)
        if not all(isinstance(member, str) for member in members):
            raise BadMessage(f"resource {name!r} must be a set of texts")
        return frozenset(members)
    raise BadMessage(f"resource {name!r} has type {shape!r}: expected SCALAR, RANGES or SET")


def _range(one: Any, name: str) -> Range:
    begin, end = field(one, "begin", int), field(one, "end", int)
    if not 0 <= begin <= end:
        raise BadMessage(f"resource {name!r} has a range from {begin} to {end}")
    return begin, end


def _item(kind: Kind, amount: Amount, allocated_to: str | None) -> Message:
    item: Message = {"name": kind.name}
    if isinstance(amount, int):
        item |= {"type": "SCALAR", "scalar": {"value": amount / THOUSAND}}
    elif isinstance(amount, frozenset):
        item |= {"type": "SET", "set": {"item": sorted(amount)}}
    else:
        item |= {"type": "RANGES", "ranges": {"range": [{"begin": first, "end": last} for first, last in amount]}}
    item["role"] = kind.role
    if kind.dynamic:  # in the newer form and the older one: clients know one or the other
        principal = {"principal": kind.principal} if kind.principal else {}
        item["reservations"] = [{"type": "DYNAMIC", "role": kind.role} | principal]
        item["reservation"] = principal
    if kind.revocable:
        item["revocable"] = {}
    if allocated_to is not None:
        item["allocation_info"] = {"role": allocated_to}
    return item


def _add(one: Amount, other: Amount) -> Amount:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return one | other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _merged((*one, *other))
    raise BadMessage("one resource is given as amounts of different types")


def _subtract(one: Amount, other: Amount) -> Amount:
    if isinstance(one, int) and isinstance(other, int):
        return max(0, one - other)
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return one - other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _without(one, other)
    raise BadMessage("one resource is given as amounts of different types")


def _covers(one: Amount, other: Amount) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one >= other
    if isinstance(one, frozenset) and isinstance(other, frozenset):
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
