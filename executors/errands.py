"""Which commands of launchers run on which nodes, and whose remote shells wait for them. No I/O: the hub sends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from executors.wire import Ask, Refused, Start, Stop, Stopped

Peer = TypeVar("Peer")


@dataclass(frozen=True, slots=True)
class _Errand(Generic[Peer]):
    asker: Peer
    host: Peer
    ticket: int


class Errands(Generic[Peer]):
    """The commands that run.

    Parameters
    ----------
    send
        Sends a peer a message; nothing when it is gone.
    """

    def __init__(self, send: Callable[[Peer, object], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._running: dict[int, _Errand[Peer]] = {}

    def start(self, asker: Peer, host: Peer | None, ask: Ask) -> None:
        """Have a node run a command; without a `host`, refuse it."""
        if host is None:
            self._send(asker, Refused("it is not, or not any more, one of the task's nodes"))
            return
        number = next(self._numbers)
        self._running[number] = _Errand(asker, host, ask.ticket)
        self._send(host, Start(number, ask.command, ask.environment))

    def stopped(self, message: Stopped) -> None:
        """A command has ended, as its node says."""
        if (errand := self._running.pop(message.number, None)) is not None:
            self._send(errand.asker, message)

    def end(self, ticket: int, reason: str) -> None:
        """End the commands of an order."""
        self._end({number: errand for number, errand in self._running.items() if errand.ticket == ticket}, reason)

    def leave(self, peer: Peer, reason: str) -> None:
        """End the commands that a peer asked for, and forget those that it ran, for it is gone."""
        lost = {number: errand for number, errand in self._running.items() if peer in (errand.asker, errand.host)}
        self._end(lost, reason)

    def _end(self, errands: dict[int, _Errand[Peer]], reason: str) -> None:
        for number, errand in errands.items():
            del self._running[number]
            self._send(errand.host, Stop(number))
            self._send(errand.asker, Refused(reason))
