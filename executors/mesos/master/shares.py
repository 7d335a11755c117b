"""Who holds how much, and whose turn it is: dominant resource fairness over a tree of roles.

The share of a role or framework is the largest, over all scalar resources, of what it holds out of what all agents
have. What it holds is what its tasks and executors use and what it is offered, and for a role also what the roles below
it hold. The smallest share, divided by the role's weight, is first; of equal ones the one that had fewer turns.

References
----------
Ghodsi et al., "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011. Bhattacharya et al.,
"Hierarchical Scheduling for Diverse Datacenter Workloads", SoCC 2013. The tree is that of Apache Mesos
(``src/master/allocator/mesos/sorter/drf/sorter.cpp``): frameworks of a role that has others below it are together a
sibling of those, of weight 1.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from executors.mesos.master.state import Agent, State
from executors.mesos.messages import TERMINAL
from executors.mesos.resources import Kind, Resources

Tally = dict[str, int]
"""Thousandths of each scalar; none that are zero."""
Path = tuple[str, ...]
"""A node of the tree: the parts of a role's name; its own frameworks ``(*role, ".")``; one ``(*role, ".", id)``."""


def leaf(role: str, framework: str) -> Path:
    """The node of a framework in a role.

    >>> leaf("eng/dev", "F1")
    ('eng', 'dev', '.', 'F1')
    """
    return *role.split("/"), ".", framework


def above(path: Path) -> Iterator[Path]:
    """The nodes from the root to this one.

    >>> list(above(("eng", "dev")))
    [(), ('eng',), ('eng', 'dev')]
    """
    return (path[:depth] for depth in range(len(path) + 1))


def nodes(paths: Iterable[Path]) -> set[Path]:
    """All nodes on the way to these, without the root."""
    return {path[: depth + 1] for path in paths for depth in range(len(path))}


def counts(kind: Kind) -> bool:
    """Whether it counts against quota once it is taken: it is neither reserved nor revocable."""
    return kind.role == "*" and not kind.revocable


def tallies(resources: Resources) -> tuple[Tally, Tally]:
    """The scalars among resources: all, and those that count against quota once they are taken."""
    whole: Tally = {}
    counted: Tally = {}
    for kind, amount in resources:
        if isinstance(amount, int):
            whole[kind.name] = whole.get(kind.name, 0) + amount
            if counts(kind):
                counted[kind.name] = counted.get(kind.name, 0) + amount
    return whole, counted


@dataclass
class Usage:
    """Running totals of what is held, so that a change on one agent costs no look at the others.

    `joined`, `left` and `resized` tell it of agents, `took` and `gave_back` of what is offered to or used by a
    framework. `Usage.of` counts everything anew, and finds the same.
    """

    total: Tally = field(default_factory=dict)
    """What all agents have."""
    held: dict[Path, Tally] = field(default_factory=dict)
    """What is used and offered, at each node and below it."""
    drawn: dict[Path, Tally] = field(default_factory=dict)
    """Of `held`, what is neither reserved nor revocable; of roles only."""
    open: Tally = field(default_factory=dict)
    """Of `total`, what is neither reserved nor revocable."""
    reserved: dict[Path, Tally] = field(default_factory=dict)
    """What is reserved for a role or one below it, whether or not it is used."""
    turns: dict[Path, int] = field(default_factory=dict, compare=False)
    """How often each node has taken something: equal shares are served in turn."""

    @classmethod
    def of(cls, state: State) -> Usage:
        """The totals of a state, counted anew; nobody has had a turn."""
        usage = cls()
        for agent in state.agents.values():
            usage.joined(agent)
        usage.turns.clear()
        return usage

    def copy(self) -> Usage:
        """One that changes by itself."""
        return Usage(
            dict(self.total),
            {path: dict(tally) for path, tally in self.held.items()},
            {path: dict(tally) for path, tally in self.drawn.items()},
            dict(self.open),
            {path: dict(tally) for path, tally in self.reserved.items()},
            dict(self.turns),
        )

    def joined(self, agent: Agent) -> None:
        """The agent is there, with what is used and offered of it."""
        self._resize(agent.total, 1)
        for framework, role, resources in _held(agent):
            self.took(framework, role, resources)

    def left(self, agent: Agent) -> None:
        """The agent is not there any more, nor is what is used and offered of it at this moment."""
        self._resize(agent.total, -1)
        for framework, role, resources in _held(agent):
            self.gave_back(framework, role, resources)

    def resized(self, before: Resources, after: Resources) -> None:
        """What an agent has in total has changed, or is reserved otherwise."""
        self._resize(before, -1)
        self._resize(after, 1)

    def took(self, framework: str, role: str, resources: Resources) -> None:
        """These are offered to, or used by, a framework in a role."""
        self._hold(leaf(role, framework), resources, 1)
        for node in above(leaf(role, framework)):
            self.turns[node] = self.turns.get(node, 0) + 1

    def gave_back(self, framework: str, role: str, resources: Resources) -> None:
        """These are no longer; the opposite of `took`."""
        self._hold(leaf(role, framework), resources, -1)

    def forget(self, framework: str, roles: Iterable[str]) -> None:
        """The framework is gone, and its turns with it."""
        for role in roles:
            self.turns.pop(leaf(role, framework), None)
            for node in reversed(list(above(leaf(role, framework)[:-1]))):
                if any(other[: len(node)] == node for other in self.turns if other != node):
                    break
                self.turns.pop(node, None)

    def charged(self, role: Path, name: str) -> int:
        """What counts against the quota of a role [thousandths]: what it and roles below hold or have reserved."""
        return self.drawn.get(role, {}).get(name, 0) + self.reserved.get(role, {}).get(name, 0)

    def _resize(self, total: Resources, sign: int) -> None:
        whole, counted = tallies(total)
        _add(self.total, whole, sign)
        _add(self.open, counted, sign)
        for role in {kind.role for kind, _ in total} - {"*"}:
            here, _ = tallies(total.reserved(role))
            for node in above(tuple(role.split("/"))):
                _add_at(self.reserved, node, here, sign)

    def _hold(self, path: Path, resources: Resources, sign: int) -> None:
        whole, counted = tallies(resources)
        for node in above(path):
            _add_at(self.held, node, whole, sign)
        for node in above(path[:-2]):
            _add_at(self.drawn, node, counted, sign)


class Sorter:
    """Frameworks in the order of their shares.

    Parameters
    ----------
    leaves
        Nodes of frameworks; see `leaf`.
    usage
        What they hold. When it changes for one, say so with `moved`.
    weights
        Role -> weight, > 0; 1 where there is none.
    """

    def __init__(self, leaves: Iterable[Path], usage: Usage, weights: Mapping[str, float]) -> None:
        self._usage = usage
        # Whole numbers compare as the fractions do, exactly, so equal shares are seen to be equal.
        whole = math.lcm(*usage.total.values())
        self._factors = {name: whole // amount for name, amount in usage.total.items()}
        exact = {role: Fraction(str(weight)) for role, weight in weights.items()}
        self._unit = math.lcm(*(weight.numerator for weight in exact.values()))
        self._per_weight = {
            tuple(role.split("/")): self._unit // weight.numerator * weight.denominator
            for role, weight in exact.items()
        }
        self._children: dict[Path, list[tuple[int, int, Path]]] = {}
        for node in nodes(leaves):
            self._children.setdefault(node[:-1], []).append(self._entry(node))
        for entries in self._children.values():
            entries.sort()
        self._current = {entry[2]: entry for entries in self._children.values() for entry in entries}

    def __iter__(self) -> Iterator[Path]:
        """The leaves, in order; to be ended before the next `moved`."""
        return self._under(())

    def moved(self, path: Path) -> None:
        """What a leaf holds has changed."""
        for node in above(path):
            if node:
                siblings, old = self._children[node[:-1]], self._current[node]
                del siblings[bisect_left(siblings, old)]
                self._current[node] = self._entry(node)
                insort(siblings, self._current[node])

    def _under(self, path: Path) -> Iterator[Path]:
        for _, _, node in self._children.get(path, ()):
            if node in self._children:
                yield from self._under(node)
            else:
                yield node

    def _entry(self, node: Path) -> tuple[int, int, Path]:
        share = 0
        for name, amount in self._usage.held.get(node, _NOTHING).items():
            share = max(share, amount * self._factors.get(name, 0))
        return share * self._per_weight.get(node, self._unit), self._usage.turns.get(node, 0), node


_NOTHING: Tally = {}


def _held(agent: Agent) -> Iterator[tuple[str, str, Resources]]:
    for task in agent.tasks.values():
        if task.state not in TERMINAL:
            yield task.framework, task.role, task.resources
    for executor in agent.executors.values():
        yield executor.framework, executor.role, executor.resources
    for offer in agent.offers.values():
        if not offer.inverse:
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
