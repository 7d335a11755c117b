"""Which dask worker of a node runs which order. No I/O: the node's relay asks, and passes on what comes back.

Dask is told the worker of each task: cores, memory and GPUs are counted here, and a worker that has one thread runs one
task at a time. Short tasks are given several at once, so that a worker does not wait for the scheduler in between.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from executors.dask_wire import Recall, Retire
from executors.deal import AHEAD_S
from executors.pace import Pace
from executors.room import Room
from executors.wire import Hello, Order, Outcome

_OVERDUE_S = 0.25
_STUCK_S = 0.25
_AHEAD_MOST = 1 << 19


@dataclass(eq=False)
class _Seat:
    """A worker, and the orders that it was given, by serial number."""

    name: str
    address: str
    orders: dict[int, Order] = field(default_factory=dict)
    gpus: tuple[int, ...] | None = None  # those of its last order that had any: libraries do not let go of them
    first: Order | None = None  # as large as all that it was given
    moved: float = 0.0  # when it was last given something, told of something, or asked
    slow: bool = False  # what it runs is not as short as was thought
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """An order that a worker is to run, under a number that no other giving has, with these GPUs of its node."""

    serial: int
    order: Order
    address: str
    gpus: tuple[int, ...]


class Bench:
    """The workers of one node.

    Parameters
    ----------
    hello
        The node.
    serials
        Numbers for what is given, shared by all nodes.
    """

    def __init__(self, hello: Hello, serials: itertools.count[int]) -> None:
        self._room, self._pace, self._serials = Room(hello), Pace(), serials
        self._queue: deque[Order] = deque()
        self._moved = time.monotonic()  # when the queue last began to wait, or was last taken from
        self._seats: dict[str, _Seat] = {}
        self._at: dict[int, tuple[_Seat, int]] = {}  # seat and serial number by ticket
        self._gpus = list(range(hello.gpus))
        self._asked: list[Recall | Retire] = []

    def accept(self, orders: Iterable[Order], now: float) -> list[Outcome]:
        """Run these after those that wait; outcomes of those that the node is too small for."""
        refused = []
        for order in orders:
            if why := self._room.lacks(order):
                at = time.time()
                refused.append(Outcome(order.ticket, at, at, None, f"the task can never run: {why}"))
                continue
            if not self._queue:
                self._moved = now
            self._queue.append(order)
        return refused

    def sit(self, name: str, address: str) -> None:
        """A worker has come."""
        self._seats[name] = _Seat(name, address)

    def leave(self, name: str) -> list[int]:
        """A worker has ended: what it was given and has not ended waits again; its tickets."""
        seat = self._seats.pop(name, None)
        tickets = [order.ticket for order in seat.orders.values()] if seat else []
        self.back(tickets)
        return tickets

    def end(self, outcome: Outcome, now: float) -> None:
        """An order has ended."""
        if found := self._take(outcome.ticket):
            seat, order = found
            self._pace.learn(order.stage, outcome.ended - outcome.started)
            seat.moved, seat.slow = now, False

    def back(self, tickets: Iterable[int]) -> None:
        """These were not begun where they were given, and wait again before all others."""
        orders = []
        for ticket in tickets:
            if found := self._take(ticket):
                found[0].slow = True
                orders.append(found[1])
        self._queue.extendleft(reversed(orders))

    def assign(self, now: float) -> list[Given]:
        """Orders from the queue for the workers that have room, strictly in turn."""
        given: list[Given] = []
        while self._queue:
            order = self._queue[0]
            seat = self._idle(order) or self._soon_idle(order)
            if seat is None:
                break
            self._moved = seat.moved = now
            for each in self._group(seat):
                serial = next(self._serials)
                seat.orders[serial] = each
                self._at[each.ticket] = seat, serial
                given.append(Given(serial, each, seat.address, seat.gpus or () if each.gpus else ()))
        return given

    def review(self, now: float) -> tuple[list[Recall | Retire], list[int]]:
        """What to tell the workers' crew, and orders that another node may have room for sooner."""
        for seat in self._seats.values():
            if len(seat.orders) > 1 and now - seat.moved > _OVERDUE_S:
                seat.moved = now
                self._asked.append(Recall(seat.name, {serial: order.ticket for serial, order in seat.orders.items()}))
        asked, self._asked = self._asked, []
        returned = []
        if self._queue and len(self._seats) >= self._room.cores and now - self._moved > _STUCK_S:
            returned = [order.ticket for order in self._queue]
            self._queue.clear()
        return asked, returned

    def due(self, now: float) -> float | None:
        """In how many seconds [s] to `review` again although nothing happens, or None."""
        due = [seat.moved + _OVERDUE_S for seat in self._seats.values() if len(seat.orders) > 1]
        if self._queue and len(self._seats) >= self._room.cores:
            due.append(self._moved + _STUCK_S)
        return max(0.0, min(due) - now) + 0.001 if due else None

    # -------------------------------------------------------------- choosing

    def _idle(self, order: Order) -> _Seat | None:
        """A worker without orders, if the node has room for this one; the room is taken."""
        if not self._room.fits(order):
            return None
        seats = [seat for seat in self._seats.values() if not seat.orders and not seat.retired]
        seat = self._with_gpus(order.gpus, seats) if order.gpus else next(iter(seats), None)
        if seat is not None:
            self._room.take(order)
            seat.first, seat.slow = order, False
        return seat

    def _with_gpus(self, count: int, seats: list[_Seat]) -> _Seat | None:
        """A worker whose libraries know so many of the free GPUs, or none yet."""
        for seat in seats:
            if seat.gpus is not None and len(seat.gpus) == count and set(seat.gpus) <= set(self._gpus):
                break
        else:
            fresh = [seat for seat in seats if seat.gpus is None]
            if not fresh:
                if seats and not any(seat.retired for seat in self._seats.values()):
                    seats[0].retired = True
                    self._asked.append(Retire(seats[0].name))
                return None
            seat = fresh[0]
            seat.gpus = tuple(self._gpus[:count])
        self._gpus = [gpu for gpu in self._gpus if gpu not in (seat.gpus or ())]
        return seat

    def _soon_idle(self, order: Order) -> _Seat | None:
        """A worker that is about to run out of short orders like this one."""
        most = self._most(order) // 2
        seats = [
            seat
            for seat in self._seats.values()
            if 0 < len(seat.orders) <= most and not seat.slow and _shape(seat.first) == _shape(order)
        ]
        return min(seats, key=lambda seat: len(seat.orders), default=None)

    def _group(self, seat: _Seat) -> list[Order]:
        """The next order, and some more like it: a few milliseconds' work, and no more than is fair."""
        first = self._queue.popleft()
        count = self._most(first) - len(seat.orders) - 1
        count = min(count, len(self._queue) // (2 * self._room.cores))
        group = [first]
        while len(group) <= count and _shape(self._queue[0]) == _shape(first):
            group.append(self._queue.popleft())
        return group

    def _most(self, order: Order) -> int:
        """How many like this one to have on their way to a worker: few milliseconds' work, and few bytes."""
        return min(self._pace.fit(order.stage, AHEAD_S), max(1, _AHEAD_MOST // (order_size(order) + 1)))

    def _take(self, ticket: int) -> tuple[_Seat, Order] | None:
        """Take an order from its seat; with the last one, the seat's room is free."""
        seat, serial = self._at.pop(ticket, (None, 0))
        if seat is None:
            return None
        order = seat.orders.pop(serial)
        if not seat.orders and seat.first:
            self._room.free(seat.first)
            if seat.first.gpus:
                self._gpus = sorted([*self._gpus, *(seat.gpus or ())])
        return seat, order


def order_size(order: Order) -> int:
    """How much of an order travels with it [bytes]."""
    return sum(len(stored) for stored in (order.arguments, *order.inputs))


def _shape(order: Order | None) -> tuple[str, int, int, int] | None:
    return order and (order.stage, order.cores, order.memory, order.gpus)
