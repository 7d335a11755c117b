"""What is done when a host's memory is short: a guest is squeezed, asked to save its state, and evicted; never a host.

`decide` is a function of a view; `MemoryGuard` makes that view of what is measured, and remembers who was asked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from coscheduler.ledger import Ledger
from coscheduler.queuefile import QueuedCommand
from coscheduler.real.gangs import Places
from coscheduler.real.machine import SharedNode
from coscheduler.real.monitor import WatchedJob

MARGIN = 0.05
"""Memory is short on a node of which less than this is left, as a share of its memory."""
LEAST = 0.02
"""With less than this left, a guest is evicted without being asked."""
STALLED = 0.1
"""Memory is short for a host that waits for it for this share of the time."""
SQUEEZE = 0.9
"""How much of its memory a guest that is squeezed may keep."""
SETTLE_S = 5.0
"""How long it is waited for what was done to show [s]: for a guest that was squeezed to give way, or one that was
evicted to be gone."""
CALM_S = 30.0
"""How long a guest stays squeezed at least, where there is enough again [s]."""
AWAY_S = 300.0
"""For how long a job that was evicted for want of memory is no guest again [s]."""
_NEAR = 0.05  # of a node's memory: amounts that differ by less are as good as the same

Condition = Literal["enough", "short", "out"]
State = Literal["running", "squeezed", "asked"]
Next = Literal["running", "squeezed", "asked", "evicted"]

TABLE: dict[tuple[State, Condition], Next] = {
    ("running", "enough"): "running",
    ("running", "short"): "squeezed",
    ("running", "out"): "evicted",
    ("squeezed", "enough"): "running",  # after `CALM_S`
    ("squeezed", "short"): "asked",  # after `SETTLE_S`; one that cannot save its state is evicted then
    ("squeezed", "out"): "evicted",
    ("asked", "enough"): "evicted",  # when its grace is over: it may have stopped to work
    ("asked", "short"): "evicted",  # the same
    ("asked", "out"): "evicted",
}
"""What becomes of a guest, by its state and how its node is. On a node whose memory is short that is one guest at a
time: who was asked, else who was squeezed, else who has most memory there."""


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A node's memory [bytes].

    Parameters
    ----------
    memory
        What it offers.
    hosts, guests
        The most that each host had there, and what each guest has; the guest that started last is last.
    available
        What the machine under it can still give; None where it does not say.
    stalled
        Host -> share of the time for which it has waited for memory lately; without those whose node does not say.
    settles
        Until when what was done there last has not shown [s].
    """

    node: str
    memory: int
    hosts: Mapping[str, int]
    guests: Mapping[str, int]
    available: int | None = None
    stalled: Mapping[str, float] = field(default_factory=dict)
    settles: float = -math.inf

    @property
    def left(self) -> int:
        """What is left once each host uses as much as it ever did [bytes]."""
        left = self.memory - sum(self.hosts.values()) - sum(self.guests.values())
        return left if self.available is None else min(left, self.available)

    @property
    def condition(self) -> Condition:
        if self.left < LEAST * self.memory:
            return "out"
        waits = max(self.stalled.values(), default=0.0) >= STALLED
        return "short" if waits or self.left < MARGIN * self.memory else "enough"

    def because(self, host: str) -> str:
        """Why a guest of this host must give way here, in words."""
        waiting = max(self.stalled, key=self.stalled.__getitem__, default=host)
        if self.stalled.get(waiting, 0.0) >= STALLED:
            return f"{waiting} waits for memory, for {self.stalled[waiting]:.0%} of the time on {self.node}"
        unseen = "" if self.stalled else "; pressure is not measured there"
        return f"{host}'s memory is short: {max(self.left, 0) / self.memory:.0%} of that of {self.node} is left{unseen}"


class GuestState(NamedTuple):
    """A guest, and what was done to it last, at this time [s].

    `grace_s` is how long it may take to save its state [s]; None for a guest that cannot.
    """

    host: str
    state: State = "running"
    since: float = -math.inf
    grace_s: float | None = None


class MemoryStep(NamedTuple):
    """What becomes of a guest, and why, in words."""

    guest: str
    to: Next
    because: str


def decide(now: float, nodes: Sequence[NodeMemory], guests: Mapping[str, GuestState]) -> list[MemoryStep]:
    """What becomes of guests now [s], by `TABLE`; those that stay as they are are left out."""
    chosen: dict[str, NodeMemory] = {}
    crowded: set[str] = set()
    for node in nodes:
        if node.condition != "enough" or now < node.settles:
            crowded.update(node.guests)
            if node.guests and now >= node.settles:
                first = _chosen(node, guests)
                if first not in chosen or node.left / node.memory < chosen[first].left / chosen[first].memory:
                    chosen[first] = node
    steps = []
    for name, guest in guests.items():
        place = chosen.get(name)
        if place is None and name in crowded and guest.state != "asked":
            continue
        condition: Condition = "enough" if place is None else place.condition
        to = TABLE[guest.state, condition]
        if to == "asked" and guest.grace_s is None:
            to = "evicted"
        if to == guest.state or (condition != "out" and now < guest.since + _stay_s(guest, condition)):
            continue
        if place is not None:
            because = place.because(guest.host)
        else:
            because = "there is enough again" if to == "running" else "the time to save its state is over"
        steps.append(MemoryStep(name, to, because))
    return steps


def _chosen(node: NodeMemory, guests: Mapping[str, GuestState]) -> str:
    rank = {"asked": 2, "squeezed": 1, "running": 0}
    order = list(node.guests)
    return max(order, key=lambda name: (rank[guests[name].state], node.guests[name], order.index(name)))


def _stay_s(guest: GuestState, condition: Condition) -> float:
    """How long it stays in its state at least [s]."""
    if guest.state == "asked":
        return guest.grace_s or 0.0
    if guest.state == "squeezed":
        return CALM_S if condition == "enough" else SETTLE_S
    return 0.0


def most(node: NodeMemory, guest: str, state: State) -> int | None:
    """How much a guest may have on a node before it is held up [bytes]; None for any amount.

    It may grow into what its host does not use, but for `LEAST`; one that saves its state is not held up.
    """
    if state == "asked":
        return None
    has = node.guests[guest]
    return int(SQUEEZE * has) if state == "squeezed" else has + max(0, int(node.left - LEAST * node.memory))


class MemoryGuard:
    """What was done to guests for want of memory. Times are [s]."""

    def __init__(self, commands: Mapping[str, QueuedCommand]) -> None:
        self._commands = commands
        self._states: dict[str, tuple[State, float]] = {}
        self._most: dict[tuple[str, str], tuple[State, int | None]] = {}  # of guests on nodes, and in which state
        self._settles: dict[str, float] = {}
        self._away: dict[str, float] = {}

    def steps(self, now: float, nodes: Sequence[NodeMemory], ledger: Ledger) -> list[MemoryStep]:
        """What becomes of guests now; they are taken to be as it says from then on."""
        guests = {name: self._state(name, placed.host) for name, placed in ledger.running.items() if placed.host}
        steps = decide(now, nodes, guests)
        for step in steps:
            if step.to != "evicted":
                self._states[step.guest] = step.to, now
                continue
            for node in nodes:
                if step.guest in node.guests:
                    self._settles[node.node] = now + SETTLE_S
        return steps

    def limits(self, nodes: Sequence[NodeMemory], ledger: Ledger) -> list[tuple[str, str, int | None]]:
        """Guest, node, and how much it may have there from now on [bytes], where that is another amount than before;
        None for any."""
        changed = []
        for node in nodes:
            for guest in (name for name in node.guests if name in ledger.running):
                state, _ = self._states.get(guest, ("running", 0.0))
                was, before = self._most.get((guest, node.node), ("running", None))
                new = before if was == state == "squeezed" else most(node, guest, state)
                near = new is not None and before is not None and abs(new - before) < _NEAR * node.memory
                if new != before and not near:
                    self._most[guest, node.node] = state, new
                    changed.append((guest, node.node, new))
        return changed

    def view(
        self,
        nodes: Mapping[str, SharedNode],
        jobs: Mapping[str, WatchedJob],
        places: Places,
        ledger: Ledger,
        runs: Callable[[str], bool],
    ) -> list[NodeMemory]:
        """Memory of the nodes that have guests; `runs` says whether a container has not ended."""
        hosts, guests, stalled = (defaultdict[str, dict[str, Any]](dict) for _ in range(3))
        available: dict[str, int] = {}
        for name, placed in ledger.running.items():
            watched = jobs[name]
            for (node, _), (container, *_) in zip(places[name], watched.where, strict=True):
                if container not in watched.resident or not runs(container):
                    continue
                if container in watched.available:
                    available[node] = watched.available[container]
                if placed.host is not None:
                    guests[node][name] = watched.resident[container]
                    continue
                hosts[node][name] = watched.peaks[container]
                if container in watched.stalled:
                    stalled[node][name] = watched.stalled[container]
        return [
            NodeMemory(
                node,
                nodes[node].memory,
                hosts[node],
                guests[node],
                available.get(node),
                stalled[node],
                self._settles.get(node, -math.inf),
            )
            for node in guests
        ]

    def asked(self, name: str, now: float) -> bool:
        """Whether a job has been asked to save its state, and may be about to."""
        state, since = self._states.get(name, ("running", 0.0))
        return state == "asked" and now <= since + (self._saves_s(name) or 0.0) + SETTLE_S

    def inherit(self, name: str) -> list[str]:
        """A guest has its cores to itself from now on: it is not held up any more on these nodes."""
        if self._states.get(name, ("running", 0.0))[0] != "asked":
            self._states.pop(name, None)
        return [node for (guest, node), (_, held) in self._most.items() if guest == name and held is not None]

    def take_over(self, name: str, asked: float) -> None:
        """Another co-scheduler has asked this job to save its state, then."""
        self._states[name] = "asked", asked

    def gone(self, name: str) -> None:
        """A job runs no more."""
        self._states.pop(name, None)
        self._most = {key: held for key, held in self._most.items() if key[0] != name}

    def send_away(self, name: str, now: float) -> None:
        """A job gave way for want of memory: for a while it is no guest."""
        self._away[name] = now + AWAY_S

    def is_away(self, name: str, now: float) -> bool:
        return now < self._away.get(name, -math.inf)

    def _state(self, name: str, host: str) -> GuestState:
        return GuestState(host, *self._states.get(name, ("running", -math.inf)), grace_s=self._saves_s(name))

    def _saves_s(self, name: str) -> float | None:
        saves = self._commands[name].saves
        return None if saves is None else saves.grace_s
