"""Roles as operators see and change them: weights, quota, and who has what.

References
----------
Apache Mesos, ``docs/roles.md``, ``docs/weights.md`` and ``docs/quota.md``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.master import offers, quota, rows, views
from executors.mesos.master.core import Core
from executors.mesos.master.framework_info import wrong_role
from executors.mesos.master.state import State
from executors.mesos.messages import field, identity
from executors.mesos.resources import NONE, Resources, to_json

HEAVIEST = 1e9
"""Largest weight that is taken."""


class Role(NamedTuple):
    """A role that somebody is in, has something reserved for, or that operators have said something about."""

    name: str
    weight: float
    frameworks: list[str]
    allocated: Resources
    offered: Resources
    reserved: Resources


def known(state: State) -> list[Role]:
    """All roles, by name."""
    frameworks: dict[str, list[str]] = defaultdict(list)
    for framework in state.frameworks.values():
        for name in framework.roles:
            frameworks[name].append(framework.id)
    allocated: dict[str, Resources] = defaultdict(lambda: NONE)
    offered: dict[str, Resources] = defaultdict(lambda: NONE)
    reserved: dict[str, Resources] = defaultdict(lambda: NONE)
    for agent in state.agents.values():
        for kind, amount in agent.total.reserved():
            reserved[kind.role] += Resources({kind: amount})
        for name, resources in views.taken((*agent.tasks.values(), *agent.executors.values())).items():
            allocated[name] += resources
        for name, resources in views.offered(agent.offers.values()).items():
            offered[name] += resources
    names = {*frameworks, *allocated, *offered, *reserved, *state.weights, *state.quota, *state.guarantees}
    return [
        Role(name, state.weights.get(name, 1.0), frameworks[name], allocated[name], offered[name], reserved[name])
        for name in sorted(names)
    ]


def view(state: State) -> Message:
    """The answer to GET_ROLES."""
    return {
        "roles": [
            {
                "name": role.name,
                "weight": role.weight,
                "frameworks": [identity(framework) for framework in role.frameworks],
                "resources": to_json(role.allocated + role.offered),
            }
            for role in known(state)
        ]
    }


def weights(state: State) -> Message:
    """The answer to GET_WEIGHTS: those that are not 1 by default."""
    return {"weight_infos": [{"role": role, "weight": weight} for role, weight in sorted(state.weights.items())]}


def update_weights(core: Core, payload: Message) -> None:
    """UPDATE_WEIGHTS: from now on these roles have these weights; all offers are made anew.

    Raises
    ------
    BadMessage, HTTPError
        When one is no positive number, or a role no role.
    """
    found = {}
    for item in field(payload, "weight_infos", list):
        info = {"weight_info": item}
        role, weight = field(info, "weight_info.role", str, "*").strip(), field(info, "weight_info.weight", float)
        if reason := wrong_role(role):
            raise HTTPError(400, f"role {role!r:.100} {reason}")
        if not 0 < weight <= HEAVIEST:
            reason = f"the weight of role {role!r:.100} must be positive and at most {HEAVIEST:g}: {weight}"
            raise HTTPError(400, reason)
        found[role] = weight
    core.state.weights |= found
    rows.keep_roles(core)
    if any(not found.keys().isdisjoint(framework.roles) for framework in core.state.frameworks.values()):
        _offer_anew(core)


def update_quota(core: Core, payload: Message) -> None:
    """UPDATE_QUOTA: limits and guarantees of some roles; raises as `quota.update` does."""
    _change_quota(core, quota.update(core.state, payload))


def set_quota(core: Core, payload: Message) -> None:
    """SET_QUOTA, which is deprecated: a guarantee that is the limit as well; raises as `quota.set_guarantee` does."""
    _change_quota(core, quota.set_guarantee(core.state, field(payload, "quota_request", dict)))


def remove_quota(core: Core, payload: Message) -> None:
    """REMOVE_QUOTA, which is deprecated: a role has neither limit nor guarantee; raises as `quota.remove` does."""
    _change_quota(core, quota.remove(core.state, field(payload, "role", str)))


def _change_quota(core: Core, found: quota.Quota) -> None:
    core.state.quota, core.state.guarantees = found.limits, found.guarantees
    rows.keep_roles(core)
    _offer_anew(core)


def _offer_anew(core: Core) -> None:
    """Take back all offers, so that the next allocation follows what has changed."""
    for offer in [offer for offer in core.state.offers.values() if not offer.inverse]:
        offers.rescind(core, offer)
    core.dirty.update(core.state.agents)
