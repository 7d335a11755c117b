"""Which node of an allocation gets which order. No I/O: the hub asks, and sends what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from executors.pace import Pace
from executors.room import Room
from executors.wire import Hello, Order

AHEAD_S = 0.02
"""Work that a node is given beyond what it can run at once, while tasks are short [s]."""


class Node:
    """A node of an allocation, and the orders it was given.

    Parameters
    ----------
    hello
        What its supervisor said.
    """

    def __init__(self, hello: Hello) -> None:
        self.name, self.hello, self.room = hello.node, hello, Room(hello)
        self.orders: dict[int, Order] = {}


class Share:
    """One allocation: its nodes, and the orders that none of them has yet.

    Orders start strictly in turn, so that small ones cannot keep a large one waiting for ever. The nodes take turns;
    what does not fit stays here, for whichever node has room first.
    """

    def __init__(self) -> None:
        self.queue: deque[Order] = deque()
        self.nodes: list[Node] = []
        self._beside: dict[int, list[Node]] = {}  # orders that span nodes: those that only lend their room
        self._hurt: set[int] = set()
        self._turn = 0

    def deal(self, pace: Pace, ready: Callable[[Node], bool]) -> dict[Node, list[Order]]:
        """Take orders from the queue for the nodes that have room and are `ready` to be sent more."""
        given: dict[Node, list[Order]] = {}
        candidates = [node for node in self.nodes if ready(node)]
        while self.queue and candidates:
            order = self.queue[0]
            if order.nodes > 1:
                chosen = [node for node in candidates if node.room.fits(order)][: order.nodes]
                if len(chosen) < order.nodes:
                    break
                self._beside[order.ticket] = chosen[1:]
            else:
                node = candidates[self._turn % len(candidates)]
                if not node.room.fits(order, pace.fit(order.stage, AHEAD_S)):
                    candidates.remove(node)
                    continue
                chosen = [node]
            self._turn += 1
            self.queue.popleft()
            for node in chosen:
                node.room.take(order)
            if order.launch is not None:
                order = order._replace(hosts=tuple(node.name for node in chosen))
            chosen[0].orders[order.ticket] = order
            given.setdefault(chosen[0], []).append(order)
        return given

    def finish(self, node: Node, ticket: int) -> Order | None:
        """The order of this ticket is over; None when the node was not given it."""
        order = node.orders.pop(ticket, None)
        self._hurt.discard(ticket)
        if order is not None:
            for other in (node, *self._beside.pop(ticket, ())):
                other.room.free(order)
        return order

    def host(self, ticket: int, name: str) -> Node | None:
        """The node of this name among those that an order has; None when it has none such."""
        given = [node for node in self.nodes if ticket in node.orders or node in self._beside.get(ticket, ())]
        return next((node for node in given if node.name == name), None)

    def is_idle(self, node: Node) -> bool:
        """Whether a node has nothing to do, and nothing waits for it."""
        return not (self.queue or node.orders or any(node in others for others in self._beside.values()))

    def is_hurt(self, ticket: int) -> bool:
        """Whether an order that spans nodes has lost one of them: if it fails, it is not to blame."""
        return ticket in self._hurt

    def take_back(self, node: Node, tickets: Iterable[int]) -> set[str]:
        """Orders that a node could not start soon wait here again, before all others; the stages they belong to."""
        orders = [order for ticket in tickets if (order := self.finish(node, ticket)) is not None]
        self.queue.extendleft(reversed(orders))
        return {order.stage for order in orders}

    def leave(self, node: Node) -> list[Order]:
        """A node is gone; what it had, and what waited for more nodes than are left."""
        self.nodes.remove(node)
        lost = [order for ticket in list(node.orders) if (order := self.finish(node, ticket)) is not None]
        lost += [order for order in self.queue if order.nodes > len(self.nodes)]
        self.queue = deque(order for order in self.queue if order.nodes <= len(self.nodes))
        self._hurt |= {ticket for ticket, others in self._beside.items() if node in others}
        return lost
