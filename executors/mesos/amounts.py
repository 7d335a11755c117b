"""Resources in the older, plainer form: amounts by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from executors.mesos.codec import Message
from executors.mesos.resources import NONE, THOUSAND, Amount, Kind, Resources

_COMMON = ("cpus", "gpus", "mem", "disk")


def amounts(resources: Resources) -> Message:
    """Resources by name, whoever may have them; the most common ones even if there are none.

    >>> from executors.mesos.resources import scalars
    >>> amounts(scalars(cpus=2, mem=512))
    {'cpus': 2.0, 'gpus': 0.0, 'mem': 512.0, 'disk': 0.0}
    """
    counts = dict.fromkeys(_COMMON, 0)
    others: Resources = NONE
    for kind, amount in resources:
        name = f"{kind.name}_revocable" if kind.revocable else kind.name
        if isinstance(amount, int):
            counts[name] = counts.get(name, 0) + amount
        else:
            others += Resources({Kind(name): amount})
    return numbers(counts) | {kind.name: as_text(amount) for kind, amount in others}


def numbers(quantities: Mapping[str, int]) -> dict[str, Any]:
    """Thousandths as numbers."""
    return {name: amount / THOUSAND for name, amount in quantities.items()}


def as_text(amount: Amount) -> float | str:
    """An amount as a number or a text.

    >>> as_text(((31000, 32000), (40000, 40000))), as_text(frozenset({"b", "a"}))
    ('[31000-32000, 40000-40000]', '{a, b}')
    >>> as_text(1500)
    1.5
    """
    if isinstance(amount, int):
        return amount / THOUSAND
    if isinstance(amount, frozenset):
        return "{" + ", ".join(sorted(amount)) + "}"
    return "[" + ", ".join(f"{first}-{last}" for first, last in amount) + "]"
