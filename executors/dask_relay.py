"""Between the hub and the nodes of the `dask` executor: orders turn off to dask here.

The hub talks to every node as always; in the middle of each connection stands a relay. What is about the node itself
(hello, welcome, release, signs of life) it passes on. Orders it gives to the node's `Bench`, and from there to dask;
what becomes of them it hears from the node's crew, and tells the hub in the node's name.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from executors.dask_bench import Bench, Given
from executors.dask_wire import Gone, Scheduler
from executors.transport import Listener
from executors.wire import LARGEST, Channel, Hello, Outcome, Report, Run, Welcome


class Farm(Protocol):
    """What a relay needs of dask."""

    def submit(self, given: Sequence[Given]) -> None: ...
    def forget(self, tickets: Iterable[int]) -> None: ...


class Front:
    """The hub's listener, with a relay in the middle of each connection.

    Parameters
    ----------
    listener
        Where supervisors knock; closed with this.
    adopt
        Takes both channels of a new relay: to the node, and to the hub.
    """

    def __init__(self, listener: Listener, adopt: Callable[[Channel, Channel], None]) -> None:
        self._listener, self._adopt = listener, adopt

    def fileno(self) -> int:
        return self._listener.fileno()

    def address(self) -> dict[str, Any]:
        return self._listener.address()

    def accept(self) -> Channel | None:
        node = self._listener.accept()
        if node is None:
            return None
        ours, hubs = socket.socketpair()
        self._adopt(node, Channel(ours))
        return Channel(hubs)

    def close(self) -> None:
        self._listener.close()


class Relay:
    """One node, in the event loop's thread.

    Parameters
    ----------
    node, hub
        Channels to both sides.
    serials
        Numbers for what is given to workers.
    left
        Told when the connection has ended.
    """

    def __init__(
        self, node: Channel, hub: Channel, serials: itertools.count[int], left: Callable[[Relay], None]
    ) -> None:
        self._node, self._hub, self._serials, self._left = node, hub, serials, left
        self._loop = asyncio.get_running_loop()
        self._bench: Bench | None = None
        self._farm: Farm | None = None
        self._announced: tuple[tuple[str, ...], int] | None = None
        self._welcomed = False
        self._given: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._token = secrets.token_hex(4)
        self.prefix = ""
        """What the names of this node's workers begin with, once the node has introduced itself."""
        hub.largest = LARGEST
        for channel in (node, hub):
            self._loop.add_reader(channel.fileno(), self._serve, channel)

    def use(self, farm: Farm, hosts: tuple[str, ...], port: int) -> None:
        """Dask is there, and its scheduler listens here."""
        self._farm, self._announced = farm, (hosts, port)
        self._turn()

    def sit(self, worker: str, address: str) -> None:
        """One of the node's workers has joined the scheduler."""
        if self._bench:
            self._bench.sit(worker, address)
            self._turn()

    def close(self) -> None:
        """Hang up on both sides."""
        if self._timer:
            self._timer.cancel()
        for channel in (self._node, self._hub):
            if channel.fileno() >= 0:
                self._loop.remove_reader(channel.fileno())
                self._loop.remove_writer(channel.fileno())
                channel.close()
        if self._farm:
            self._farm.forget(self._given)
        self._left(self)

    def _serve(self, channel: Channel) -> None:
        """Something can be read, or written."""
        try:
            channel.flush()
            for message in channel.receive():
                (self._from_node if channel is self._node else self._from_hub)(message)
            self._turn()
        except Exception:  # a peer that sends nonsense loses its connection, not the others theirs
            self.close()

    def _from_node(self, message: Any) -> None:
        if isinstance(message, Hello) and self._bench is None:
            self._node.largest = LARGEST
            self._bench, self.prefix = Bench(message, self._serials), f"{message.node}-{self._token}"
        if isinstance(message, Report) and self._bench:
            self._bench.back(message.returned)
            for outcome in message.outcomes:
                self._bench.end(outcome, self._loop.time())
            self._forget([*message.returned, *(outcome.ticket for outcome in message.outcomes)])
            self._report(message.outcomes)
        elif isinstance(message, Gone) and self._bench:
            self._forget(self._bench.leave(message.worker))
        else:
            self._hub.send(message)

    def _from_hub(self, message: Any) -> None:
        if isinstance(message, Run) and self._bench:
            self._report(self._bench.accept(message.orders, self._loop.time()))
            return
        self._node.send(message)
        if isinstance(message, Welcome):
            self._welcomed = True

    def _invite(self) -> None:
        """Tell the crew once where to send its workers, as soon as both are there."""
        if self._welcomed and self._announced:
            hosts, port = self._announced
            self._announced = None
            self._tell([Scheduler(hosts, port, self.prefix)])

    def _turn(self) -> None:
        """Do all that can be done now."""
        try:
            self._invite()
            if self._bench and self._farm:
                self._manage(self._bench, self._farm)
            self._watch()
        except OSError:
            self.close()

    def _manage(self, bench: Bench, farm: Farm) -> None:
        now = self._loop.time()
        if given := bench.assign(now):
            self._given.update(each.order.ticket for each in given)
            farm.submit(given)
        asked, returned = bench.review(now)
        if asked:
            self._tell(asked)
        if returned:
            self._hub.send(Report([], returned))
        if self._timer:
            self._timer.cancel()
        due = bench.due(now)
        self._timer = None if due is None else self._loop.call_later(due, self._turn)

    def _watch(self) -> None:
        """Wait until more can be written exactly while something is left to write."""
        for channel in (self._node, self._hub):
            if channel.unsent:
                self._loop.add_writer(channel.fileno(), self._serve, channel)
            else:
                self._loop.remove_writer(channel.fileno())

    def _tell(self, messages: list[Any]) -> None:
        """Say something to the crew, in the way that reaches it: as if they were orders."""
        self._node.send(Run(messages))

    def _report(self, outcomes: list[Outcome]) -> None:
        if outcomes:
            self._hub.send(Report(outcomes, []))

    def _forget(self, tickets: Sequence[int]) -> None:
        self._given.difference_update(tickets)
        if self._farm:
            self._farm.forget(tickets)
