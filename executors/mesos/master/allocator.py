"""Allocation: which free resources are offered to whom next.

Offers are coarse, as in Apache Mesos: all that is free on an agent goes to the framework whose turn it is, as far as
its role may have it, and what is left to the next. Agents that will be unavailable soon are offered as well; the offer
says until when they are there.

References
----------
Apache Mesos, ``src/master/allocator/mesos/hierarchical.cpp``; `executors.mesos.master.shares` for the order,
`executors.mesos.master.quota` for limits and guarantees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from executors.mesos.master.filters import Filters
from executors.mesos.master.minimums import Minimum, allocatable, minimums
from executors.mesos.master.quota import Budget
from executors.mesos.master.shares import Path, Sorter, Usage, leaf
from executors.mesos.master.state import Agent, Framework, State
from executors.mesos.resources import NONE, Resources

Demands = Mapping[str, Mapping[str, Minimum]]
"""Framework id -> role -> how small an offer may be, where frameworks say that themselves."""


class Grant(NamedTuple):
    """Free resources of an agent that are to be offered to a framework, in one of its roles."""

    framework: str
    role: str
    agent: str
    resources: Resources


def allocate(
    state: State, filters: Filters, now: float, agents: Collection[str] | None = None, usage: Usage | None = None
) -> list[Grant]:
    """What to offer now; nothing is changed.

    Parameters
    ----------
    now
        Time, at which refusals are looked at [s since the epoch].
    agents
        Ids of the agents whose resources are allocated; None for all.
    usage
        What is used and offered in `state`; None to count it anew, which looks at every task.
    """
    demands = {name: minimums(one.info) for name, one in state.frameworks.items() if "offer_filters" in one.info}
    free = {agent.id: agent.free for agent in _offering(state, agents)}
    free = {name: resources for name, resources in free.items() if allocatable(resources, _least(demands))}
    if not free:
        return []
    seekers = {
        leaf(role, framework.id): (framework, role)
        for framework in state.frameworks.values()
        if framework.active and framework.stream is not None
        for role in framework.roles - framework.suppressed
    }
    if not seekers:
        return []
    usage = Usage.of(state) if usage is None else usage.copy()
    return _Round(state, filters, now, free, seekers, usage=usage, demands=demands).grants()


def revisited(state: State, filters: Filters, now: float) -> set[str] | None:
    """The agents to allocate once in a while although nothing on them has changed; None for all.

    They are those of which a refusal has ended; each is told once. With quota they are all, because what is freed on
    one agent may let a role have more of another.
    """
    ended = filters.ended(now)
    return None if state.quota or state.guarantees else ended


class _Round:
    """One allocation. Order and quota follow what it has granted so far."""

    def __init__(
        self,
        state: State,
        filters: Filters,
        now: float,
        free: dict[str, Resources],
        seekers: dict[Path, tuple[Framework, str]],
        *,
        usage: Usage,
        demands: Demands,
    ) -> None:
        self._state, self._filters, self._now = state, filters, now
        self._free, self._seekers, self._usage = free, seekers, usage
        self._demands = demands
        self._budget = Budget(state.quota, state.guarantees, usage)
        self._sorter = Sorter(seekers, usage, state.weights)
        self._granted: dict[tuple[str, str, str], Resources] = {}

    def grants(self) -> list[Grant]:
        """First what guarantees are owed, on all agents, then the rest."""
        for guaranteed in (True, False) if self._state.guarantees else (False,):
            for agent in self._free:
                self._allocate(self._state.agents[agent], guaranteed)
        return [Grant(*key, resources) for key, resources in self._granted.items()]

    def _allocate(self, agent: Agent, guaranteed: bool) -> None:
        free, gpus = self._free[agent.id], agent.total.thousandths("gpus") > 0
        revocable, least = any(kind.revocable for kind in free.amounts), _least(self._demands)
        moved: list[Path] = []
        # By role, whether revocable ones are taken, and the framework, if it has demands of its own.
        parts: dict[tuple[str, bool, str], Resources] = {}
        for path in self._sorter:
            framework, role = self._seekers[path]
            if gpus and not framework.can("GPU_RESOURCES"):
                continue
            revocable_too = revocable and framework.can("REVOCABLE_RESOURCES")
            part = role, revocable_too, framework.id if framework.id in self._demands else ""
            resources = parts.get(part)
            if resources is None:
                resources = self._budget.part(path, _usable(free, role, revocable_too), guaranteed=guaranteed)
                minimum = self._demands[framework.id].get(role) if part[2] else None
                parts[part] = resources = resources if allocatable(resources, minimum) else NONE
            if not resources:
                continue
            if self._filters.suppresses(framework.id, role, agent.id, resources, self._now):
                continue
            key = framework.id, role, agent.id
            self._granted[key] = self._granted.get(key, NONE) + resources
            self._usage.took(framework.id, role, resources)
            moved.append(path)
            free -= resources
            if not allocatable(free, least):
                break
            parts.clear()
        self._free[agent.id] = free
        for path in moved:
            self._sorter.moved(path)


def _least(demands: Demands) -> Minimum | None:
    """What is worth looking at: where frameworks have demands of their own, the smallest rest may be."""
    return () if demands else None


def _offering(state: State, agents: Collection[str] | None) -> Iterator[Agent]:
    names = state.agents if agents is None else sorted(state.agents.keys() & agents)
    for name in names:
        agent = state.agents[name]
        if agent.active and agent.stream is not None and agent.drain is None:
            yield agent


def _usable(free: Resources, role: str, revocable: bool) -> Resources:
    if all(kind.role == "*" and not kind.revocable for kind in free.amounts):
        return free
    usable = free.usable(role)
    return usable if revocable else usable - usable.revocable()
