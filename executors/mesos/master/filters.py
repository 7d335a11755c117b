"""Refusals: for how long a framework does not want to be offered what it has declined."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from typing import NamedTuple

from executors.mesos.resources import Resources

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
        """The agent is gone."""
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
