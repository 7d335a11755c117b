"""Which node of an allocation gets which order, and how many at once. No I/O: hub and supervisors ask, and send.

`NodeSlots` counts what is taken on a node, `Batching` how many short tasks travel together, `Assignment` chooses nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from executors.wire import Hello, TaskOrder


class NodeSlots:
    """Cores, memory [bytes; 0 when not limited] and GPUs of one node.

    Parameters
    ----------
    hello
        The node.

    Examples
    --------
    >>> slots = NodeSlots(Hello("a", "n1", 1, cores=2, memory=0, gpus=0))
    >>> order = TaskOrder(1, "s", 0, "f", b"", (), cores=2, memory=0, gpus=0, nodes=1)
    >>> slots.take(order)
    >>> slots.fits(order), slots.fits(order, times=2)
    (False, True)
    """

    def __init__(self, hello: Hello) -> None:
        self.cores, self.memory, self.gpus = hello.cores, hello.memory, hello.gpus
        self._cores = self._memory = self._gpus = 0

    def lacks(self, order: TaskOrder) -> str:
        """Why the whole node is too small for this order, in words; "" when it is not.

        Cores and memory are not reasons: a batch system may have spread them otherwise than was thought when the task
        was planned. Such a task gets the whole node.
        """
        if order.gpus > self.gpus:
            return f"it needs {order.gpus} GPUs on a node, and this one has {self.gpus}: lower gpus="
        return ""

    def fits(self, order: TaskOrder, times: int = 1) -> bool:
        """Whether the order fits beside what is taken, in a node so many `times` as large."""
        return (
            self._cores + min(order.cores, self.cores) <= self.cores * times
            and (not self.memory or self._memory + min(order.memory, self.memory) <= self.memory * times)
            and (not order.gpus or self._gpus + min(order.gpus, self.gpus) <= self.gpus * times)
        )

    def take(self, order: TaskOrder) -> None:
        self._count(order, +1)

    def free(self, order: TaskOrder) -> None:
        self._count(order, -1)

    def _count(self, order: TaskOrder, sign: int) -> None:
        self._cores += sign * min(order.cores, self.cores)
        self._memory += sign * min(order.memory, self.memory)
        self._gpus += sign * min(order.gpus, self.gpus)


_DECAY = 0.98
_MOST = 128


class Batching:
    """Remembers about how long each stage's longest recent tasks ran.

    One long task is enough to hand out singly for a while: a short task that waits behind a long one while another
    worker idles costs more than a message does.

    Examples
    --------
    >>> batching = Batching()
    >>> batching.fit("blur", 0.005)
    1
    >>> batching.learn("blur", 0.001)
    >>> batching.fit("blur", 0.005)
    5
    >>> batching.learn("blur", 2.0)
    >>> batching.fit("blur", 0.005)
    1
    """

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def learn(self, stage: str, seconds: float) -> None:
        """A task of this stage ran for so long [s]."""
        self._longest[stage] = max(seconds, self._longest.get(stage, 0.0) * _DECAY, 1e-6)

    def fit(self, stage: str, seconds: float) -> int:
        """How many of its tasks run in so many `seconds` [s]: between 1 (also when nothing is known) and 128."""
        longest = self._longest.get(stage)
        return 1 if longest is None else max(1, min(_MOST, int(seconds / longest + 1e-9)))


AHEAD_S = 0.02
"""Work that a node is given beyond what it can run at once, while tasks are short [s]."""


class AssignedNode:
    """A node of an allocation, and the orders it was given.

    Parameters
    ----------
    hello
        What its supervisor said.
    """

    def __init__(self, hello: Hello) -> None:
        self.name, self.hello, self.slots = hello.node, hello, NodeSlots(hello)
        self.orders: dict[int, TaskOrder] = {}


class Assignment:
    """One allocation: its nodes, and the orders that none of them has yet.

    Orders start strictly in turn, so that small ones cannot keep a large one waiting for ever. The nodes take turns;
    what does not fit stays here, for whichever node has room first.
    """

    def __init__(self) -> None:
        self.queue: deque[TaskOrder] = deque()
        self.nodes: list[AssignedNode] = []
        self._beside: dict[int, list[AssignedNode]] = {}  # orders that span nodes: those that only lend their room
        self._hurt: set[int] = set()
        self._turn = 0

    def assign(self, batching: Batching, ready: Callable[[AssignedNode], bool]) -> dict[AssignedNode, list[TaskOrder]]:
        """Take orders from the queue for the nodes that have room and are `ready` to be sent more."""
        given: dict[AssignedNode, list[TaskOrder]] = {}
        candidates = [node for node in self.nodes if ready(node)]
        while self.queue and candidates:
            order = self.queue[0]
            if order.nodes > 1:
                chosen = [node for node in candidates if node.slots.fits(order)][: order.nodes]
                if len(chosen) < order.nodes:
                    break
                self._beside[order.ticket] = chosen[1:]
            else:
                node = candidates[self._turn % len(candidates)]
                if not node.slots.fits(order, batching.fit(order.stage, AHEAD_S)):
                    candidates.remove(node)
                    continue
                chosen = [node]
            self._turn += 1
            self.queue.popleft()
            for node in chosen:
                node.slots.take(order)
            if order.launch is not None:
                order = order._replace(hosts=tuple(node.name for node in chosen))
            chosen[0].orders[order.ticket] = order
            given.setdefault(chosen[0], []).append(order)
        return given

    def finish(self, node: AssignedNode, ticket: int) -> TaskOrder | None:
        """The order of this ticket is over; None when the node was not given it."""
        order = node.orders.pop(ticket, None)
        self._hurt.discard(ticket)
        if order is not None:
            for other in (node, *self._beside.pop(ticket, ())):
                other.slots.free(order)
        return order

    def host(self, ticket: int, name: str) -> AssignedNode | None:
        """The node of this name among those that an order has; None when it has none such."""
        given = [node for node in self.nodes if ticket in node.orders or node in self._beside.get(ticket, ())]
        return next((node for node in given if node.name == name), None)

    def is_idle(self, node: AssignedNode) -> bool:
        """Whether a node has nothing to do, and nothing waits for it."""
        return not (self.queue or node.orders or any(node in others for others in self._beside.values()))

    def is_hurt(self, ticket: int) -> bool:
        """Whether an order that spans nodes has lost one of them: if it fails, it is not to blame."""
        return ticket in self._hurt

    def take_back(self, node: AssignedNode, tickets: Iterable[int]) -> set[str]:
        """Orders that a node could not start soon wait here again, before all others; the stages they belong to."""
        orders = [order for ticket in tickets if (order := self.finish(node, ticket)) is not None]
        self.queue.extendleft(reversed(orders))
        return {order.stage for order in orders}

    def leave(self, node: AssignedNode) -> list[TaskOrder]:
        """A node is gone; what it had, and what waited for more nodes than are left."""
        self.nodes.remove(node)
        lost = [order for ticket in list(node.orders) if (order := self.finish(node, ticket)) is not None]
        lost += [order for order in self.queue if order.nodes > len(self.nodes)]
        self.queue = deque(order for order in self.queue if order.nodes <= len(self.nodes))
        self._hurt |= {ticket for ticket, others in self._beside.items() if node in others}
        return lost
