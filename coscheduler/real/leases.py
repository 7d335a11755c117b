"""Shares of containers that come back by themselves: a dead co-scheduler harms no host for long."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from asa.core.errors import AsaError
from coscheduler.nouns import FLOOR
from coscheduler.real.machine import Machine

LEASE_S = 5.0
"""For how long a node keeps to a share that is not asked for again [s]."""
RENEW_S = 2.0
"""How often it is asked for again [s]."""
AGAIN_S = 10.0
"""How often what is for good is told again [s]: nobody says whether a node has heard."""
RESERVED = 2 * FLOOR
"""Part of its cores that a host does not request: guests start with a request of `FLOOR` each."""
_NEAR = 0.15  # weights that differ by less are as good as the same


@dataclass(slots=True)
class _Container:
    """What a container falls back to, what it has, and when that is to be asked for again; [cores] and [s]."""

    request: float
    limit: float
    leased: tuple[float, float] | None = None
    due: float = math.inf
    settled: bool = True
    """Whether it began with this: else the node was told, and may not have heard."""

    def differs(self, request: float, limit: float) -> bool:
        return abs(request - self.request) > _NEAR * self.request or limit != self.limit


class Leases:
    """Requests and limits of the containers of a machine.

    What a container starts with is what it falls back to: hosts to all but the reserve, without a limit, and guests to
    the least share. Anything else is leased, and asked for again while it is wanted.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._all: dict[str, _Container] = {}

    def begin(self, container: str, cores: int, *, guest: bool, limit: float) -> tuple[float, float]:
        """Request and limit [cores] that a container is to be started with.

        Parameters
        ----------
        cores
            Of the node, that its job has there.
        limit
            What it may have at most [cores], to its end if nobody says otherwise.
        """
        own = self._all[container] = _Container(cores * (FLOOR if guest else 1 - RESERVED), limit)
        return own.request, own.limit

    def inherit(self, container: str, cores: int, limit: float, now: float) -> None:
        """A guest's container has the cores to itself from now on [s], for good."""
        own = self._all[container]
        own.request, own.limit, own.leased, own.settled = cores * (1 - RESERVED), limit, None, False
        self._renew(container, own, now)

    def want(self, container: str, request: float, limit: float, now: float) -> None:
        """From now on [s], a container is to have this request and limit [cores]."""
        own = self._all[container]
        if not own.differs(request, limit):
            if own.leased is not None:
                own.leased, own.due = None, math.inf if own.settled else now + AGAIN_S
                self._ask(container, own.request, own.limit, 0.0)
        elif own.leased != (request, limit):
            own.leased = request, limit
            self._renew(container, own, now)

    def end(self, container: str) -> None:
        """A container is gone."""
        self._all.pop(container, None)

    def due(self) -> float:
        """When `renew` is to be called again [s]; infinite while there is nothing to be asked for."""
        return min((own.due for own in self._all.values()), default=math.inf)

    def renew(self, now: float) -> None:
        """Ask again for what is leased, and tell again what is for good."""
        for container, own in self._all.items():
            if own.due <= now:
                self._renew(container, own, now)

    def _renew(self, container: str, own: _Container, now: float) -> None:
        if own.leased is None:
            own.due = now + AGAIN_S
            self._ask(container, own.request, own.limit, None)
        else:
            own.due = now + RENEW_S
            self._ask(container, *own.leased, LEASE_S)

    def _ask(self, container: str, request: float, limit: float, lease_s: float | None) -> None:
        with suppress(AsaError):  # it has just ended, or its agent does not answer: then it is asked again
            self._machine.share(container, request, limit, lease_s)
