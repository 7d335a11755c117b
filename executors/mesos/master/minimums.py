"""How small an offer may be: what a framework says for a role in its ``FrameworkInfo.offer_filters``, or a default.

References
----------
Apache Mesos, ``OfferFilters`` in ``include/mesos/v1/mesos.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field
from executors.mesos.resources import LARGEST, THOUSAND, Resources

Minimum = tuple[Mapping[str, int], ...]
"""Sets of quantities by name [thousandths]: an offer has all of one set at least. Without sets, all offers will do."""

CPUS_LEAST, MEM_LEAST = 10, 32_000
"""An offer has at least one of these, unless its framework says otherwise [thousandths of a core or a MiB]."""


def minimums(info: Message) -> dict[str, Minimum]:
    """What a FrameworkInfo says, by role; roles of which it says nothing are not in it.

    Raises
    ------
    BadMessage
        When a set is empty, or a quantity is no number from 0 on.
    """
    found: dict[str, Minimum] = {}
    for role, item in field(info, "offer_filters", dict, {}).items():
        least = field({"offer_filters": item}, "offer_filters.min_allocatable_resources", dict, None)
        if least is not None:
            found[role] = tuple(_quantities(one) for one in field(least, "quantities", list, []))
    return found


def allocatable(resources: Resources, minimum: Minimum | None = None) -> bool:
    """Whether it is enough for an offer.

    >>> from executors.mesos.resources import scalars
    >>> allocatable(scalars(cpus=0.01)), allocatable(scalars(mem=32)), allocatable(scalars(cpus=0.009, mem=31, gpus=1))
    (True, True, False)
    >>> allocatable(scalars(cpus=1, mem=64), ({"cpus": 1000, "mem": 128_000}, {"gpus": 1000}))
    False
    """
    if minimum is None:
        return resources.thousandths("cpus") >= CPUS_LEAST or resources.thousandths("mem") >= MEM_LEAST
    if not minimum or not resources:
        return bool(resources)
    return any(all(_quantity(resources, name) >= least for name, least in one.items()) for one in minimum)


def _quantities(item: Any) -> dict[str, int]:
    found = {}
    for name, scalar in field({"quantities": item}, "quantities.quantities", dict, {}).items():
        value: float = field({"quantities": scalar}, "quantities.value", float)
        if not math.isfinite(value) or not 0 <= value * THOUSAND <= LARGEST:
            raise BadMessage(f"expected the least quantity of {name!r:.50} to be a number from 0 on, found {value}")
        found[name] = round(value * THOUSAND)
    if not found:
        raise BadMessage("expected each set of 'min_allocatable_resources' to have a quantity, found an empty one")
    return found


def _quantity(resources: Resources, name: str) -> int:
    """How much there is [thousandths]; of ranges and sets, how many members."""
    found = 0
    for kind, amount in resources:
        if kind.name != name:
            continue
        if isinstance(amount, int):
            found += amount
        elif isinstance(amount, frozenset):
            found += THOUSAND * len(amount)
        else:
            found += THOUSAND * sum(last - first + 1 for first, last in amount)
    return found
