"""What a node holds and how much of it is taken. Hub and supervisor count alike."""

from __future__ import annotations

from executors.wire import Hello, Order


class Room:
    """Cores, memory [bytes; 0 when not limited] and GPUs of one node.

    Parameters
    ----------
    hello
        The node.

    Examples
    --------
    >>> room = Room(Hello("a", "n1", 1, cores=2, memory=0, gpus=0))
    >>> order = Order(1, "s", 0, "f", b"", (), cores=2, memory=0, gpus=0, nodes=1)
    >>> room.take(order)
    >>> room.fits(order), room.fits(order, times=2)
    (False, True)
    """

    def __init__(self, hello: Hello) -> None:
        self.cores, self.memory, self.gpus = hello.cores, hello.memory, hello.gpus
        self._cores = self._memory = self._gpus = 0

    def lacks(self, order: Order) -> str:
        """Why the whole node is too small for this order, in words; "" when it is not.

        Cores and memory are not reasons: a batch system may have spread them otherwise than was thought when the task
        was planned. Such a task gets the whole node.
        """
        if order.gpus > self.gpus:
            return f"it needs {order.gpus} GPUs on a node, and this one has {self.gpus}: lower gpus="
        return ""

    def fits(self, order: Order, times: int = 1) -> bool:
        """Whether the order fits beside what is taken, in a node so many `times` as large."""
        return (
            self._cores + min(order.cores, self.cores) <= self.cores * times
            and (not self.memory or self._memory + min(order.memory, self.memory) <= self.memory * times)
            and (not order.gpus or self._gpus + min(order.gpus, self.gpus) <= self.gpus * times)
        )

    def take(self, order: Order) -> None:
        """Count an order in."""
        self._count(order, +1)

    def free(self, order: Order) -> None:
        """Count an order out."""
        self._count(order, -1)

    def _count(self, order: Order, sign: int) -> None:
        self._cores += sign * min(order.cores, self.cores)
        self._memory += sign * min(order.memory, self.memory)
        self._gpus += sign * min(order.gpus, self.gpus)
