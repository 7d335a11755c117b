"""Allocation: which free resources are offered to whom next.

Offers are coarse, as in Apache Mesos: all that is free on an agent goes to the framework whose turn it is, as far as
its role may have it, and what is left to the next. Agents that will be unavailable soon are offered as well; the offer
says until when they are there.

Whose turn it is: dominant resource fairness, first among roles, then among the frameworks of one. The share of a role
or framework is the largest, over all scalar resources, of what it holds out of what all agents have. What it holds is
what its tasks and executors use and what it is offered. The smallest share is first; of equal ones the one that had
fewer turns. A role never gets more than its quota.

References
----------
Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011. Other than in Apache
Mesos (``sorter/drf/sorter.cpp``), roles have no weights, and no role is below another.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterState
from executors.mesos.messages import TERMINAL
from executors.mesos.resources import NONE, Amount, Resources

CPUS_LEAST, MEM_LEAST = 10, 32_000
"""An offer has at least one of these [thousandths of a core or a MiB]; the default of Mesos."""

Tally = dict[str, int]
"""Thousandths of each scalar; none that are zero."""
Path = tuple[str, ...]
"""A role, ``(role,)``, or a framework in it, ``(role, framework)``."""


@dataclass
class RoleUsage:
    """Running totals of what is held, so that a change on one agent costs no look at the others.

    `joined` and `left` are about agents, `took` and `gave_back` about what is offered to or used by a framework.
    `RoleUsage.of` counts everything anew, and finds the same.
    """

    total: Tally = field(default_factory=dict)
    """What all agents have."""
    held: dict[Path, Tally] = field(default_factory=dict)
    """What is used and offered."""
    turns: dict[Path, int] = field(default_factory=dict, compare=False)
    """How often each has taken something: equal shares are served in turn."""

    @classmethod
    def of(cls, state: MasterState) -> RoleUsage:
        """The totals of a state, counted anew, without turns."""
        usage = cls()
        for agent in state.agents.values():
            usage.joined(agent)
        usage.turns.clear()
        return usage

    def copy(self) -> RoleUsage:
        """One that changes by itself."""
        return RoleUsage(
            dict(self.total),
            {path: dict(tally) for path, tally in self.held.items()},
            dict(self.turns),
        )

    def joined(self, agent: AgentRecord) -> None:
        """The agent is there, with what is used and offered of it."""
        _add(self.total, agent.total.scalars(), 1)
        for framework, role, resources in _held(agent):
            self.took(framework, role, resources)

    def left(self, agent: AgentRecord) -> None:
        """The agent is not there any more, nor is what is used and offered of it at this moment."""
        _add(self.total, agent.total.scalars(), -1)
        for framework, role, resources in _held(agent):
            self.gave_back(framework, role, resources)

    def took(self, framework: str, role: str, resources: Resources) -> None:
        """These are offered to, or used by, a framework in a role."""
        for path in ((role,), (role, framework)):
            _add_at(self.held, path, resources.scalars(), 1)
            self.turns[path] = self.turns.get(path, 0) + 1

    def gave_back(self, framework: str, role: str, resources: Resources) -> None:
        """These are no longer; the opposite of `took`."""
        for path in ((role,), (role, framework)):
            _add_at(self.held, path, resources.scalars(), -1)

    def forget(self, framework: str, roles: Iterable[str]) -> None:
        """The framework is gone, and its turns with it."""
        for role in roles:
            self.turns.pop((role, framework), None)
            if not any(path[0] == role for path in self.turns if path != (role,)):
                self.turns.pop((role,), None)


class Sorter:
    """Frameworks in their roles, in the order of shares; `moved` says for which one usage has changed."""

    def __init__(self, seekers: Iterable[Path], usage: RoleUsage) -> None:
        self._usage = usage
        # Whole numbers compare as the fractions do, exactly, so equal shares are seen to be equal.
        whole = math.lcm(*usage.total.values())
        self._factors = {name: whole // amount for name, amount in usage.total.items()}
        self._siblings: dict[Path, list[tuple[int, int, Path]]] = {}  # () -> roles; role -> its frameworks
        for path in {path[:depth] for path in seekers for depth in (1, 2)}:
            self._siblings.setdefault(path[:-1], []).append(self._entry(path))
        for entries in self._siblings.values():
            entries.sort()
        self._current = {entry[2]: entry for entries in self._siblings.values() for entry in entries}

    def __iter__(self) -> Iterator[Path]:
        """In order; to be ended before the next `moved`."""
        for _, _, role in self._siblings.get((), ()):
            for _, _, path in self._siblings[role]:
                yield path

    def moved(self, path: Path) -> None:
        """What a framework holds in a role has changed."""
        for node in (path[:1], path):
            siblings, old = self._siblings[node[:-1]], self._current[node]
            del siblings[bisect_left(siblings, old)]
            self._current[node] = self._entry(node)
            insort(siblings, self._current[node])

    def _entry(self, path: Path) -> tuple[int, int, Path]:
        held = self._usage.held.get(path, _NOTHING)
        share = max((amount * self._factors.get(name, 0) for name, amount in held.items()), default=0)
        return share, self._usage.turns.get(path, 0), path


_NOTHING: Tally = {}


def _held(agent: AgentRecord) -> Iterator[tuple[str, str, Resources]]:
    for task in agent.tasks.values():
        if task.state not in TERMINAL:
            yield task.framework, task.role, task.resources
    for executor in agent.executors.values():
        yield executor.framework, executor.role, executor.resources
    for offer in agent.offers.values():
        yield offer.framework, offer.role, offer.resources


def _add(tally: Tally, amounts: Tally, sign: int) -> None:
    for name, amount in amounts.items():
        if left := tally.get(name, 0) + sign * amount:
            tally[name] = left
        else:
            tally.pop(name, None)


def _add_at(found: dict[Path, Tally], node: Path, amounts: Tally, sign: int) -> None:
    if not amounts:
        return
    if (tally := found.get(node)) is None:
        found[node] = tally = {}
    _add(tally, amounts, sign)
    if not tally:
        del found[node]


REFUSALS_MOST = 16
"""How many refusals of one agent by one framework in one role are kept; of more, those that end soonest are dropped."""


class Refusal(NamedTuple):
    """What was refused, until when [s since the epoch]."""

    until: float
    resources: Resources


class Filters:
    """Who has refused what until when.

    A refusal stands for the refused resources and for less of them on the same agent: once more than that is free, the
    framework is asked again. Memory is bounded by frameworks, their roles and agents.
    """

    def __init__(self) -> None:
        self._refused: dict[str, dict[str, dict[str, list[Refusal]]]] = {}  # framework, role, agent
        self._ends: list[tuple[float, str, str, str]] = []  # heap: until, framework, role, agent; some are outdated
        self._ends_most = 1024

    def __len__(self) -> int:
        """How many refusals are kept, those that have ended but were not looked at since among them."""
        return sum(1 for _ in self._all())

    def refuse(self, framework: str, role: str, agent: str, resources: Resources, until: float) -> None:
        """Do not offer these again before `until` [s since the epoch]."""
        known = self._refused.setdefault(framework, {}).setdefault(role, {}).setdefault(agent, [])
        if any(one.until >= until and one.resources.covers(resources) for one in known):
            return
        known[:] = [one for one in known if one.until > until or not resources.covers(one.resources)]
        known.append(Refusal(until, resources))
        if len(known) > REFUSALS_MOST:
            known.remove(min(known, key=lambda one: one.until))
        heapq.heappush(self._ends, (until, framework, role, agent))
        if len(self._ends) > self._ends_most:
            self._ends = sorted((one.until, *where) for where, one in self._all())
            self._ends_most = max(1024, 2 * len(self._ends))

    def clear(self, framework: str, roles: Collection[str] | None = None) -> None:
        """The framework wants all offers again, in these roles or in all; or it is gone."""
        if roles is None:
            self._refused.pop(framework, None)
            return
        for role in roles:
            self._refused.get(framework, {}).pop(role, None)

    def forget(self, agent: str) -> None:
        for roles in self._refused.values():
            for agents in roles.values():
                agents.pop(agent, None)

    def suppresses(self, framework: str, role: str, agent: str, resources: Resources, now: float) -> bool:
        """Whether these are covered by what was refused: freed resources break through."""
        known = self._refused.get(framework, {}).get(role, {}).get(agent, ())
        # Mostly nothing has changed: to see that is faster than to compare each amount.
        return any(one.until > now and (one.resources == resources or one.resources.covers(resources)) for one in known)

    def ended(self, now: float) -> set[str]:
        """Agents of which a refusal has ended since this was asked last: what they have may be offered again.

        Who allocates them, and those whose resources change, need not look at all agents time and again.
        """
        agents = set()
        while self._ends and self._ends[0][0] <= now:
            _, framework, role, agent = heapq.heappop(self._ends)
            found = self._refused.get(framework, {}).get(role, {})
            if agent in found:
                left = [one for one in found[agent] if one.until > now]
                if len(left) < len(found[agent]):
                    agents.add(agent)
                if left:
                    found[agent] = left
                else:
                    del found[agent]
                    if not found:
                        del self._refused[framework][role]
        return agents

    def due(self) -> float:
        """When the next refusal ends, or may do so [s since the epoch]; infinite without any."""
        return self._ends[0][0] if self._ends else float("inf")

    def _all(self) -> Iterator[tuple[tuple[str, str, str], Refusal]]:
        for framework, roles in self._refused.items():
            for role, agents in roles.items():
                for agent, known in agents.items():
                    for one in known:
                        yield (framework, role, agent), one


class Grant(NamedTuple):
    """Free resources of an agent that are to be offered to a framework, in one of its roles."""

    framework: str
    role: str
    agent: str
    resources: Resources


def allocate(
    state: MasterState,
    filters: Filters,
    now: float,
    agents: Collection[str] | None = None,
    usage: RoleUsage | None = None,
) -> list[Grant]:
    """What to offer now [s since the epoch], of these agents or of all; nothing is changed.

    Without `usage` what is used and offered is counted anew, which looks at every task.
    """
    free = {agent.id: agent.free for agent in _offering(state, agents)}
    free = {name: resources for name, resources in free.items() if allocatable(resources)}
    if not free:
        return []
    seekers: dict[Path, FrameworkRecord] = {
        (role, framework.id): framework
        for framework in state.frameworks.values()
        if framework.stream is not None
        for role in framework.roles - framework.suppressed
    }
    if not seekers:
        return []
    usage = RoleUsage.of(state) if usage is None else usage.copy()
    return _Round(state, filters, now, free, seekers, usage=usage).grants()


def revisited(state: MasterState, filters: Filters, now: float) -> set[str] | None:
    """The agents to allocate once in a while although nothing on them has changed; None for all.

    They are those of which a refusal has ended; each comes once. With quota they are all, because what is freed on
    one agent may let a role have more of another.
    """
    ended = filters.ended(now)
    return None if state.quota else ended


class _Round:
    """One allocation. Order and quota follow what it has granted so far."""

    def __init__(
        self,
        state: MasterState,
        filters: Filters,
        now: float,
        free: dict[str, Resources],
        seekers: dict[Path, FrameworkRecord],
        *,
        usage: RoleUsage,
    ) -> None:
        self._state, self._filters, self._now = state, filters, now
        self._free, self._seekers, self._usage = free, seekers, usage
        self._sorter = Sorter(seekers, usage)
        self._granted: dict[tuple[str, str, str], Resources] = {}

    def grants(self) -> list[Grant]:
        for agent in self._free:
            self._allocate(self._state.agents[agent])
        return [Grant(*key, resources) for key, resources in self._granted.items()]

    def _allocate(self, agent: AgentRecord) -> None:
        free, gpus = self._free[agent.id], agent.total.thousandths("gpus") > 0
        moved: list[Path] = []
        parts: dict[str, Resources] = {}  # by role: what it may have of what is free
        for path in self._sorter:
            framework, role = self._seekers[path], path[0]
            if gpus and not framework.can("GPU_RESOURCES"):
                continue
            if (resources := parts.get(role)) is None:
                part = self._within_limits(role, free)
                resources = parts[role] = part if allocatable(part) else NONE
            if not resources or self._filters.suppresses(framework.id, role, agent.id, resources, self._now):
                continue
            key = framework.id, role, agent.id
            self._granted[key] = self._granted.get(key, NONE) + resources
            self._usage.took(framework.id, role, resources)
            moved.append(path)
            free -= resources
            if not allocatable(free):
                break
            parts.clear()
        self._free[agent.id] = free
        for path in moved:
            self._sorter.moved(path)

    def _within_limits(self, role: str, free: Resources) -> Resources:
        """As much of free resources as the role may be offered: scalars are cut to what its quota leaves."""
        if not (limits := self._state.quota.get(role)):
            return free
        held, cut = self._usage.held.get((role,), _NOTHING), dict[str, Amount]()
        for name, amount in free:
            if isinstance(amount, int) and name in limits:
                amount = min(amount, max(0, limits[name] - held.get(name, 0)))
            if amount:
                cut[name] = amount
        return Resources(cut)


def allocatable(resources: Resources) -> bool:
    """Whether it is enough for an offer.

    >>> from executors.mesos.resources import scalars
    >>> allocatable(scalars(cpus=0.01)), allocatable(scalars(mem=32)), allocatable(scalars(cpus=0.009, mem=31, gpus=1))
    (True, True, False)
    """
    return resources.thousandths("cpus") >= CPUS_LEAST or resources.thousandths("mem") >= MEM_LEAST


def _offering(state: MasterState, agents: Collection[str] | None) -> Iterator[AgentRecord]:
    names = state.agents if agents is None else sorted(state.agents.keys() & agents)
    for name in names:
        agent = state.agents[name]
        if agent.active and agent.stream is not None and agent.drain is None:
            yield agent
