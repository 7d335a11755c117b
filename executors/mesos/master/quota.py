"""Quota: how much a role may have at most (limits), and what is kept for it (guarantees, deprecated).

A role's quota covers the roles below it. What counts is what they use or are offered, and what is reserved for them,
used or not; revocable resources do not.

References
----------
Apache Mesos, ``docs/quota.md`` and ``include/mesos/v1/quota/quota.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master.framework_info import wrong_role
from executors.mesos.master.shares import Path, Tally, Usage, above, counts, nodes
from executors.mesos.master.state import State
from executors.mesos.messages import field
from executors.mesos.resources import LARGEST, NONE, THOUSAND, Amount, Kind, Resources, parse, scalars, to_json

Quotas = Mapping[str, Mapping[str, int]]
"""Role -> scalar -> thousandths."""


class Quota(NamedTuple):
    """Limits and guarantees of all roles: `State.quota` and `State.guarantees`."""

    limits: dict[str, Tally]
    guarantees: dict[str, Tally]


def update(state: State, update_quota: Message) -> Quota:
    """What quota is after an UPDATE_QUOTA: that of each role it names is replaced, by none if it names no amounts.

    Raises
    ------
    HTTPError
        When it names a role twice or one that cannot have quota, or when limits leave no room for guarantees; and
        without ``force`` when agents do not have what is guaranteed, or a role has more than its new limit.
    BadMessage
        When it has not the shape of an ``UpdateQuota``.
    """
    found, roles = _copy(state), []
    for config in field(update_quota, "quota_configs", list):
        role = _role(field({"quota_config": config}, "quota_config.role", str))
        if role in roles:
            raise HTTPError(400, f"role {role!r} is named twice: name it once")
        roles.append(role)
        _put(found.limits, role, _amounts(config, "limits"))
        _put(found.guarantees, role, _amounts(config, "guarantees"))
    _check(state, found, roles, force=field(update_quota, "force", bool, False))
    return found


def set_guarantee(state: State, quota_request: Message) -> Quota:
    """What quota is after a SET_QUOTA, which is deprecated: what it guarantees is the limit as well.

    Raises
    ------
    HTTPError
        As `update`, and when the role has quota already.
    BadMessage
        When it has not the shape of a ``QuotaRequest``, or the resources it names are not plain scalars.
    """
    found, role = _copy(state), _role(field(quota_request, "role", str))
    if role in found.limits or role in found.guarantees:
        raise HTTPError(400, f"role {role!r} has quota already: remove it first, or use UPDATE_QUOTA")
    resources = parse(field(quota_request, "guarantee", list))
    if not all(isinstance(amount, int) and counts(kind) for kind, amount in resources):
        raise BadMessage("expected 'guarantee' to be scalars, neither reserved nor revocable")
    _put(found.limits, role, resources.scalars())
    _put(found.guarantees, role, resources.scalars())
    _check(state, found, [role], force=field(quota_request, "force", bool, False))
    return found


def remove(state: State, role: str) -> Quota:
    """What quota is after a REMOVE_QUOTA; raises `HTTPError` when the role has none."""
    if role not in state.quota and role not in state.guarantees:
        raise HTTPError(400, f"role {role!r} has no quota")
    found = _copy(state)
    found.limits.pop(role, None)
    found.guarantees.pop(role, None)
    return found


def status(state: State) -> Message:
    """Quota as GET_QUOTA tells it: a ``QuotaStatus``; ``infos`` are guarantees for those who know nothing newer."""
    roles = sorted(state.quota.keys() | state.guarantees.keys())
    return {
        "infos": [
            {"role": role, "guarantee": to_json(scalars(**_floats(state.guarantees[role])))}
            for role in roles
            if role in state.guarantees
        ],
        "configs": [
            {
                "role": role,
                "guarantees": {name: {"value": x} for name, x in _floats(state.guarantees.get(role, {})).items()},
                "limits": {name: {"value": x} for name, x in _floats(state.quota.get(role, {})).items()},
            }
            for role in roles
        ],
    }


class Budget:
    """What roles may still be offered, given what is held.

    Parameters
    ----------
    usage
        What is held; looked at anew by every call.
    """

    def __init__(self, limits: Quotas, guarantees: Quotas, usage: Usage) -> None:
        self._limits = {tuple(role.split("/")): amounts for role, amounts in limits.items()}
        self._guarantees = {tuple(role.split("/")): amounts for role, amounts in guarantees.items()}
        self._usage = usage

    def part(self, path: Path, resources: Resources, *, guaranteed: bool = False) -> Resources:
        """As much of free resources as a framework may be offered: scalars are cut, so that its roles keep within
        their limits, and what is owed to others is left for them.

        Parameters
        ----------
        path
            The framework's node; see `executors.mesos.master.shares.leaf`.
        guaranteed
            Offer only what helps to meet a guarantee, and with it what is on the agent of other resources.
        """
        if not self._guarantees and not self._limits:
            return resources
        roles = list(above(path[:-2]))
        names = {kind.name for kind, amount in resources if isinstance(amount, int) and counts(kind)}
        owed = {name: self._owed(roles, name) for name in names}
        if guaranteed and not any(owed.values()):
            return NONE
        most: dict[str, float] = {}
        for name in names:
            spare = 0 if guaranteed and self._has_guarantee(roles, name) else self._spare(name)
            most[name] = min(self._room(roles, name), owed[name] + spare)
        cut: dict[Kind, Amount] = {}
        for kind, amount in resources:
            if isinstance(amount, int) and counts(kind):
                amount = int(min(amount, most[kind.name]))
                most[kind.name] -= amount
            if amount:
                cut[kind] = amount
        return Resources(cut)

    def _has_guarantee(self, roles: Iterable[Path], name: str) -> bool:
        return any(name in self._guarantees.get(role, ()) for role in roles)

    def _room(self, roles: Iterable[Path], name: str) -> float:
        """How much of a scalar the limits leave to a role, the last of `roles`, and to those above it."""
        left = (
            self._limits[role][name] - self._usage.charged(role, name)
            for role in roles
            if name in self._limits.get(role, ())
        )
        return max(0, min(left, default=math.inf))

    def _spare(self, name: str) -> float:
        """How much of a scalar is free on all agents and owed to nobody."""
        if not (missing := self.missing((), name)):
            return math.inf
        return max(0, self._usage.open.get(name, 0) - self._usage.drawn.get((), {}).get(name, 0) - missing)

    def _owed(self, roles: Iterable[Path], name: str) -> int:
        """How much more of a scalar in a role, the last of `roles`, would help to meet guarantees."""
        return sum(self.missing(role, name) - self._missing_below(role, name) for role in roles)

    def missing(self, role: Path, name: str) -> int:
        """What a role and those below it are owed: what is guaranteed below counts for the role as well."""
        guaranteed = self._guarantees.get(role, {}).get(name, 0)
        below = self._missing_below(role, name)
        return max(below, guaranteed - self._usage.charged(role, name)) if guaranteed else below

    def _missing_below(self, role: Path, name: str) -> int:
        return sum(self.missing(child, name) for child in self._children.get(role, ()))

    @cached_property
    def _children(self) -> dict[Path, list[Path]]:
        return _children(self._guarantees)


def _children(roles: Iterable[Path]) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for node in sorted(nodes(roles)):
        found.setdefault(node[:-1], []).append(node)
    return found


def _copy(state: State) -> Quota:
    return Quota(dict(state.quota), dict(state.guarantees))


def _put(quotas: dict[str, Tally], role: str, amounts: Tally) -> None:
    quotas.pop(role, None)
    if amounts:
        quotas[role] = amounts


def _role(role: str) -> str:
    if reason := wrong_role(role):
        raise HTTPError(400, f"role {role!r:.100} {reason}")
    if role == "*":
        raise HTTPError(400, "role '*' cannot have quota: name another one")
    return role


def _amounts(config: Message, what: str) -> Tally:
    found = {}
    for name in field(config, what, dict, {}):
        number = field({what: config[what][name]}, f"{what}.value", float)  # a name may have dots
        if not 0 <= number * THOUSAND <= LARGEST:
            raise BadMessage(f"expected {what!r} of {name!r} to be between 0 and {LARGEST // THOUSAND}, not {number}")
        found[name] = round(number * THOUSAND)
    return found


def _floats(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / THOUSAND for name, amount in amounts.items()}


def _check(state: State, found: Quota, roles: list[str], *, force: bool) -> None:
    """Raise `HTTPError` for promises that cannot be kept; `force` lets pass those that may be kept some day."""
    empty = Budget({}, found.guarantees, Usage())
    for role, limits in found.limits.items():
        for name, limit in limits.items():
            if (needed := empty.missing(tuple(role.split("/")), name)) > limit:
                raise HTTPError(
                    400, f"role {role!r} is limited to {limit / THOUSAND} {name}, but guaranteed {needed / THOUSAND}"
                )
    if force:
        return
    usage = Usage.of(state)
    for offer in state.offers.values():  # they can be taken back
        if not offer.inverse:
            usage.gave_back(offer.framework, offer.role, offer.resources)
    for name in sorted({name for amounts in found.guarantees.values() for name in amounts}):
        if (needed := empty.missing((), name)) > (there := usage.total.get(name, 0)):
            raise HTTPError(
                400, f"{needed / THOUSAND} {name} would be guaranteed, agents have {there / THOUSAND}; use 'force'"
            )
    for role in roles:
        for name, limit in found.limits.get(role, {}).items():
            if (charged := usage.charged(tuple(role.split("/")), name)) > limit:
                raise HTTPError(
                    400, f"role {role!r} has {charged / THOUSAND} {name}, more than {limit / THOUSAND}; use 'force'"
                )
