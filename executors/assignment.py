"""Which node of an allocation gets which order, and how many at once. No I/O: hub and supervisors ask, and send.

`NodeSlots` counts what is taken on a node, `Batching` how many short tasks travel together, `Assignment` chooses nodes.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice

from executors.wire import Hello, KeptOrder, TaskOrder


class NodeSlots:
    """Cores, memory [bytes; 0 when not limited] and GPUs of one node.

    Guests take what is `unused` of other orders first; what they hold beyond that is taken from the rest of the node,
    but by the first.

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
        self._guests = self._guests_memory = 0
        self.unused: dict[str, tuple[int, int]] = {}  # stage -> cores, memory [bytes]

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
        cores, memory = min(order.cores, self.cores), min(order.memory, self.memory)
        if order.guest or self._guests:
            cores, memory = self._beyond_unused(order, cores, memory)
        return (
            self._cores + cores <= self.cores * times
            and (not self.memory or self._memory + memory <= self.memory * times)
            and (not order.gpus or self._gpus + self.devices(order) <= self.gpus * times)
        )

    def _beyond_unused(self, order: TaskOrder, cores: int, memory: int) -> tuple[int, int]:
        """Cores and memory [bytes] that an order of this size, and the guests, take beyond what is unused of others."""
        idle, spare = (sum(left) for left in zip(*self.unused.values(), (0, 0), strict=True))
        if not order.guest:
            return cores + max(0, self._guests - idle), memory + max(0, self._guests_memory - spare)
        first = idle and not self._guests  # it may ask for more cores than are idle
        return 0 if first else max(0, self._guests + cores - idle), max(0, self._guests_memory + memory - spare)

    def devices(self, order: TaskOrder) -> int:
        """How many GPUs an order has here: all of them where it has some and a launcher, whose ranks see them all."""
        return self.gpus if order.launch and order.gpus else min(order.gpus, self.gpus)

    def ranks(self, order: TaskOrder) -> int:
        """How many ranks of an order that takes whatever nodes there are have room beside what is taken."""
        each, whole = order.launch.cores if order.launch else order.cores, max(1, order.cores)
        room = (self.cores - self._cores) // each
        memory = order.memory * each // whole
        return min(room, (self.memory - self._memory) // memory) if self.memory and memory else room

    @property
    def idle(self) -> bool:
        """Whether nothing is taken."""
        return not (self._cores or self._memory or self._gpus or self._guests)

    def take(self, order: TaskOrder) -> None:
        self._count(order, +1)

    def free(self, order: TaskOrder) -> None:
        self._count(order, -1)

    def _count(self, order: TaskOrder, sign: int) -> None:
        if order.guest:
            self._guests += sign * min(order.cores, self.cores)
            self._guests_memory += sign * min(order.memory, self.memory)
            return
        self._cores += sign * min(order.cores, self.cores)
        self._memory += sign * min(order.memory, self.memory)
        self._gpus += sign * self.devices(order)


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


Part = tuple[AssignedNode, TaskOrder]
"""A node, and an order with what it takes there."""


_SHAPES_MOST = 16
Shape = tuple[int, int, int, int, bool, int, bool]
"""What an order needs of a node: how many cores it must have, then cores, memory [bytes], GPUs, whether there is a
launcher; in a node so many times as large; whether it is a guest."""


class Assignment:
    """One allocation: its nodes, and the orders that none of them has yet.

    Orders start strictly in turn, so that small ones cannot keep a large one waiting for ever; only guests are passed
    by. The nodes take turns; what does not fit stays here, for whichever node has room first. A node without room for
    orders of some shape is not looked at for them before something on it is free, so that the work for an order does
    not grow with their number.
    """

    def __init__(self) -> None:
        self.queue: deque[TaskOrder] = deque()
        self.nodes: list[AssignedNode] = []
        self.adopted = False
        self._sizes = Counter[int]()  # how many nodes have so many cores
        self._room: dict[Shape, dict[AssignedNode, None]] = {}  # nodes that may have room; whose turn it is comes first
        self._awaited: dict[tuple[str, int], TaskOrder] = {}
        self._away: set[str] = set()
        self._kept: list[tuple[str, int]] = []
        self._until = math.inf
        self._parts: dict[int, list[Part]] = {}  # orders that span nodes: what they take of each, the first one first
        self._hurt: set[int] = set()
        self._spanning = 0  # orders in the queue that do

    def add(self, orders: Sequence[TaskOrder]) -> None:
        """These wait behind all others."""
        self.queue.extend(orders)
        self._spanning += sum(order.nodes != 1 for order in orders)

    def assign(self, batching: Batching, ready: Callable[[AssignedNode], bool]) -> dict[AssignedNode, list[TaskOrder]]:
        """Take orders from the queue for the nodes that have room and are `ready` to be sent more."""
        given: dict[AssignedNode, list[TaskOrder]] = {}
        passed: list[TaskOrder] = []
        while self.queue:
            order = self.queue[0]
            if order.nodes != 1:
                if not (parts := self._abreast(order, ready)):
                    break
                self._parts[order.ticket] = parts
                self._spanning -= 1
            else:
                # A node that is too small for a task is of use to it only where all nodes are.
                least, times = min(order.cores, max(self._sizes, default=0)), batching.fit(order.stage, AHEAD_S)
                if not (parts := self._next(order, 1, least, 1 if order.guest else times, ready)):
                    if order.guest:  # what it was to use is used by now
                        passed.append(self.queue.popleft())
                        continue
                    break
            self.queue.popleft()
            for node, part in parts:
                node.slots.take(part)
                for room in self._room.values():
                    if node in room:  # the others come first now
                        del room[node]
                        room[node] = None
            order, sent = _addressed(order, parts)
            parts[0][0].orders[order.ticket] = order
            given.setdefault(parts[0][0], []).append(sent)
        self.queue.extendleft(reversed(passed))
        return given

    def note_unused(self, node: AssignedNode, unused: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Guests may use so much of a node: what is new of it."""
        new = {stage: left for stage, left in unused.items() if node.slots.unused.get(stage, (0, 0)) != left}
        node.slots.unused = unused
        self._look_again(node)
        return new

    def _next(
        self, order: TaskOrder, count: int, least: int, times: int, ready: Callable[[AssignedNode], bool]
    ) -> list[Part]:
        """The next so many nodes, of at least so many cores, that an order fits; [] while there are fewer."""
        shape = least, order.cores, order.memory, order.gpus, order.launch is not None, times, order.guest
        room = self._room.pop(shape, None)
        if room is None:
            room = dict.fromkeys(self.nodes)
            if len(self._room) >= _SHAPES_MOST:
                del self._room[next(iter(self._room))]
        self._room[shape] = room  # the one that was not used for longest is the first
        found: list[Part] = []
        full: list[AssignedNode] = []
        for node in room:
            if node.slots.cores < least or not node.slots.fits(order, times):
                full.append(node)
            elif ready(node):
                found.append((node, order))
                if len(found) == count:
                    break
        for node in full:
            del room[node]
        return found if len(found) == count else []

    def _look_again(self, node: AssignedNode) -> None:
        """A node may have room again."""
        for room in self._room.values():
            room[node] = None

    def _abreast(self, order: TaskOrder, ready: Callable[[AssignedNode], bool]) -> list[Part]:
        """What an order that spans nodes takes of each of them; [] while there is no room.

        One whose ranks may be anywhere, and which has more of them than the whole allocation has room for, takes all of
        it: a batch system may give fewer cores than it was asked for.
        """
        if order.nodes:
            return self._next(order, order.nodes, 0, 1, ready)
        candidates = [node for node in self.nodes if ready(node)]
        assert order.launch, "only ranks may be anywhere"
        left, counts = order.launch.ranks, dict[AssignedNode, int]()
        for node in candidates:
            if count := min(left, node.slots.ranks(order)):
                counts[node] = count
                left -= count
        if left and len(candidates) == len(self.nodes) and all(node.slots.idle for node in self.nodes):
            for node in islice(cycle(self.nodes), left):
                counts[node] = counts.get(node, 0) + 1
            left = 0
        return [] if left else [(node, _part(order, count)) for node, count in counts.items()]

    def join(self, node: AssignedNode) -> None:
        """A node is there. It may lend its room to orders that it does not know of: an earlier driver's."""
        self.nodes.append(node)
        self._sizes[node.slots.cores] += 1
        self._look_again(node)
        for ticket, parts in self._parts.items():
            self._lend(parts[0][0].orders[ticket], node)

    def adopt(self, orders: Iterable[TaskOrder], away: Iterable[str], until: float) -> None:
        """An earlier driver gave these to the allocation: its nodes will `claim` what they have, those that are `away`
        until some time [s, monotonic]."""
        self.adopted, self._until = True, until
        self._awaited = {(order.stage, order.number): order for order in orders}
        self._away = set(away)

    def claim(self, node: AssignedNode, kept: Iterable[KeptOrder]) -> list[int]:
        """A node has these orders of an earlier driver; the tickets of those that are wanted."""
        self._away.discard(node.name)
        found: list[int] = []
        for item in kept:
            key = item.stage, item.number
            order = self._awaited.get(key)
            if order is None or order.identity != item.identity:
                continue
            del self._awaited[key]
            self._kept.append(key)
            found.append(item.ticket)
            order = order._replace(ticket=item.ticket, hosts=item.hosts, ranks=item.ranks)
            node.orders[item.ticket] = order
            if not item.hosts:
                node.slots.take(order)
                continue
            self._parts[item.ticket] = []
            self._take(order, node)
            for other in self.nodes:
                if other is not node:
                    self._lend(order, other)
        return found

    def settled(self, now: float) -> list[tuple[str, int]] | None:
        """Which tasks of an earlier driver go on, once, when all nodes have said or it is too late; else None."""
        if (self._away and now < self._until) or not (self._awaited or self._kept):
            return None
        kept, self._kept, self._awaited = self._kept, [], {}
        return kept

    def _lend(self, order: TaskOrder, node: AssignedNode) -> None:
        if node.name in order.hosts[1:] and node.name not in [other.name for other, _ in self._parts[order.ticket]]:
            self._take(order, node)

    def _take(self, order: TaskOrder, node: AssignedNode) -> None:
        """Note what an order takes of one of its hosts."""
        ranks = dict(zip(order.hosts, order.ranks, strict=False)).get(node.name)
        part = order if order.nodes or ranks is None else _part(order, ranks)
        self._parts[order.ticket].append((node, part))
        node.slots.take(part)

    def finish(self, node: AssignedNode, ticket: int) -> TaskOrder | None:
        """The order of this ticket is over; None when the node was not given it."""
        order = node.orders.pop(ticket, None)
        self._hurt.discard(ticket)
        if order is not None:
            if order.shares:
                node.slots.unused.pop(order.stage, None)
            for other, part in self._parts.pop(ticket, [(node, order)]):
                other.slots.free(part)
                self._look_again(other)
        return order

    def is_idle(self, node: AssignedNode) -> bool:
        """Whether a node has nothing to do, and nothing waits for it."""
        return not (self.queue or node.orders or any(self._spans(ticket, node) for ticket in self._parts))

    def is_hurt(self, ticket: int) -> bool:
        """Whether an order that spans nodes has lost one of them: if it fails, it is not to blame."""
        return ticket in self._hurt

    def take_back(self, node: AssignedNode, tickets: Iterable[int]) -> set[str]:
        """Orders that a node could not start soon wait here again, before all others; the stages they belong to."""
        orders = [order for ticket in tickets if (order := self.finish(node, ticket)) is not None]
        self.queue.extendleft(reversed(orders))
        self._spanning += sum(order.nodes != 1 for order in orders)
        return {order.stage for order in orders}

    def leave(self, node: AssignedNode) -> list[TaskOrder]:
        """A node is gone; what it had, and what waited for more nodes than are left."""
        self.nodes.remove(node)
        self._sizes -= Counter([node.slots.cores])
        lost = [order for ticket in list(node.orders) if (order := self.finish(node, ticket)) is not None]
        short: list[TaskOrder] = []
        if self._spanning or not self.nodes:
            short = [order for order in self.queue if order.nodes > len(self.nodes) or not order.nodes]
            self.queue = deque(order for order in self.queue if 0 < order.nodes <= len(self.nodes))
            self._spanning = sum(order.nodes != 1 for order in self.queue)
        for room in self._room.values():
            room.pop(node, None)
        for ticket, parts in self._parts.items():
            if self._spans(ticket, node):  # its other ranks run on; if it joins again, what it lends is counted anew
                self._hurt.add(ticket)
                self._parts[ticket] = [part for part in parts if part[0] is not node]
        return lost + short

    def _spans(self, ticket: int, node: AssignedNode) -> bool:
        return any(other is node for other, _ in self._parts.get(ticket, ()))


def _part(order: TaskOrder, ranks: int) -> TaskOrder:
    """What an order takes of the node on which so many of its ranks run."""
    assert order.launch
    whole = order.launch.ranks
    return order._replace(cores=order.launch.cores * ranks, memory=-(-order.memory * ranks // whole))


def _addressed(order: TaskOrder, parts: Sequence[Part]) -> tuple[TaskOrder, TaskOrder]:
    """An order with its hosts: as it is kept here, for it may have to wait again, and as its first node gets it."""
    if order.launch is None and order.nodes == 1:
        return order, order
    order = order._replace(hosts=tuple(node.name for node, _ in parts))
    if order.nodes or not order.launch:
        return order, order
    order = order._replace(ranks=tuple(part.cores // order.launch.cores for _, part in parts))
    return order, parts[0][1]._replace(nodes=len(parts), hosts=order.hosts, ranks=order.ranks)
