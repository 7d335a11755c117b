"""What a run takes of other runs' allocations in a pool that they share. No I/O.

Cores serve the run whose allocation they are, as long as it has work for them. So an offer of another run's agent is
declined at first: the master offers the same to that run at once. What comes again a little later nobody else wanted,
or those who did have more already, for the master serves first who has least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from asa.core.units import MIB
from executors.mesos.codec import Message
from executors.mesos.decisions import NEVER_S, Accept, Decline
from executors.mesos.offered import Need, Offered, Program, task_info

RUN = "run"
"""Attribute of an agent: the run that its allocation belongs to."""

PASS_S = 2.0
"""How long an offer of another run's agent is left to others before it is taken [s]."""

LEAST_S = 60.0
"""How much longer an agent must be there to be worth a lease [s]."""

_STALE_S = 30.0  # its owner may have used what was passed so long ago


class Lease(NamedTuple):
    """Part of an agent of another run, for one supervisor of ours.

    Parameters
    ----------
    key
        Its name, and that of its task.
    agent, lender
        Whose it is: the agent, and the run that has it.
    need
        What it holds.
    until
        When the agent becomes unavailable [s since the epoch].
    """

    key: str
    agent: str
    lender: str
    need: Need
    until: float


@dataclass
class Borrower:
    """Takes what others leave, as long as more is wanted.

    Parameters
    ----------
    run
        Ours. Leases are called by it, by `name`, and by a number.
    name
        As that of the framework.
    program
        Makes the program of a lease from the offer.
    leases
        Those that have not ended, by key.
    """

    run: str
    name: str
    program: Callable[[Lease, Offered], Program]
    leases: dict[str, Lease] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._task, self._count = Need(1.0), 0
        self._serial = 0
        self._passed: dict[str, float] = {}  # agent -> when its offer was left to others

    @property
    def prefix(self) -> str:
        """What the keys of all our leases begin with, and nothing else's."""
        return f"{self.run}.lease-"

    def want(self, task: Need, count: int) -> None:
        """Take room for so many tasks of this size, and no more."""
        self._task, self._count = task, count
        if not count:
            self._passed.clear()

    def take(self, offers: Iterable[Offered], now: float) -> Iterator[tuple[Accept | Decline, Lease | None]]:
        """What to do with some of these offers, and the leases that come of it."""
        for offer in offers:
            lender = offer.attributes.get(RUN, self.run)
            if lender == self.run or not self._count or not offer.lasts(now + LEAST_S):
                continue
            if (count := self._fits(offer)) == 0:
                continue
            passed = self._passed.get(offer.agent, -math.inf)
            if now > passed + _STALE_S:
                passed = self._passed[offer.agent] = now
            if now < passed + PASS_S:
                yield Decline((offer.id,), passed + PASS_S - now), None
                continue
            lease = self._lease(offer, lender, count, now)
            yield Accept((offer.id,), (self._info(lease, offer),)), lease

    def ended(self, key: str) -> Lease | None:
        """A task has ended; its lease, if it was one."""
        lease = self.leases.pop(key, None)
        if lease is not None:
            self._passed.pop(lease.agent, None)
        return lease

    def _fits(self, offer: Offered) -> int:
        """How many of the wanted tasks there is room for."""
        there = (offer.resources.scalar(name) for name in ("cpus", "mem", "gpus"))
        needs = (self._task.cpus, self._task.memory / MIB, self._task.gpus)
        return min(
            [self._count, *(int(amount / need + 1e-9) for amount, need in zip(there, needs, strict=True) if need)]
        )

    def _lease(self, offer: Offered, lender: str, count: int, now: float) -> Lease:
        self._serial += 1
        self._count -= count
        cpus, memory, gpus = self._task
        need = Need(count * cpus, count * memory, count * gpus)
        if not need.memory:  # as much as goes with the cores
            share = need.cpus / offer.resources.scalar("cpus")
            need = need._replace(memory=int(share * offer.resources.scalar("mem")) * MIB)
        key = f"{self.prefix}{self.name}-{self._serial}"
        lease = Lease(key, offer.agent, lender, need, now + NEVER_S if offer.ends is None else offer.ends)
        self.leases[key] = lease
        del self._passed[offer.agent]
        return lease

    def _info(self, lease: Lease, offer: Offered) -> Message:
        taken = lease.need.of(offer.resources)
        assert taken is not None, "it fits"
        return task_info(lease.key, "lease", offer, self.program(lease, offer), taken)
