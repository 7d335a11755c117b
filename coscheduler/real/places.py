"""Which cores of which nodes a job has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coscheduler.real.machine import Node


class Place(NamedTuple):
    """Cores of one node."""

    node: str
    cores: int


class Places:
    """Cores of all nodes, and who has them.

    Guests are on the nodes of their host, from its last one on, for what a job does alone it mostly does on its first.
    Two guests of one host never have the same cores, so that each can keep its own when the host ends.

    Examples
    --------
    >>> places = Places([Node("a", 2, 1 << 30), Node("b", 2, 1 << 30)])
    >>> places.own("host", 3)
    (Place(node='a', cores=2), Place(node='b', cores=1))
    >>> places.beside("guest", 2, "host", [])
    (Place(node='b', cores=1), Place(node='a', cores=1))
    >>> places.leave("host")
    >>> places.inherit("guest")
    >>> places.own("third", 2)
    (Place(node='a', cores=1), Place(node='b', cores=1))
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._free = {node.name: node.cores for node in nodes}
        self._of: dict[str, tuple[Place, ...]] = {}
        self._guests: set[str] = set()

    def __getitem__(self, job: str) -> tuple[Place, ...]:
        """The places of a job that has some."""
        return self._of[job]

    def own(self, job: str, cores: int) -> tuple[Place, ...]:
        """Give a job free cores: the smallest gap that is large enough, else as few nodes as possible.

        There must be as many: `coscheduler.ledger` sees to that.
        """
        enough = [node for node, free in self._free.items() if free >= cores]
        if enough:
            order = [min(enough, key=self._free.__getitem__)]
        else:
            order = sorted(self._free, key=lambda node: -self._free[node])
        found = self._of[job] = _taken(((node, self._free[node]) for node in order), cores)
        self._take(found)
        return found

    def beside(self, job: str, cores: int, host: str, guests: Iterable[str]) -> tuple[Place, ...]:
        """Give a job cores of its host that none of the other `guests` has.

        There must be as many: `coscheduler.ledger` sees to that.
        """
        left = {place.node: place.cores for place in self._of[host]}
        for place in (place for guest in guests for place in self._of[guest]):
            left[place.node] -= place.cores
        found = self._of[job] = _taken(reversed(left.items()), cores)
        self._guests.add(job)
        return found

    def inherit(self, job: str) -> None:
        """The host of this guest has left: what the guest has is its own from now on."""
        self._guests.remove(job)
        self._take(self._of[job])

    def leave(self, job: str) -> None:
        """A job has nothing any more."""
        places = self._of.pop(job)
        if job in self._guests:
            self._guests.remove(job)
            return
        for node, cores in places:
            self._free[node] += cores

    def join(self, node: str, cores: int) -> None:
        """A node has come, or come back, or has so many more cores."""
        self._free[node] = self._free.get(node, 0) + cores

    def lose(self, node: str) -> None:
        """A node is gone; nobody may have cores of it any more."""
        assert all(place.node != node for places in self._of.values() for place in places), "jobs leave it first"
        del self._free[node]

    def on(self, node: str) -> list[str]:
        """Jobs that have cores of a node, guests first."""
        jobs = [job for job, places in self._of.items() if any(place.node == node for place in places)]
        return sorted(jobs, key=lambda job: job not in self._guests)

    def _take(self, places: Iterable[Place]) -> None:
        for node, cores in places:
            self._free[node] -= cores


def _taken(offered: Iterable[tuple[str, int]], cores: int) -> tuple[Place, ...]:
    """So many cores of what is offered, in that order."""
    found = []
    for node, free in offered:
        if taken := min(free, cores):
            found.append(Place(node, taken))
            cores -= taken
    assert not cores, "as many are offered"
    return tuple(found)
