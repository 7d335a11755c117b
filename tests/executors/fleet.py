"""Many supervisors in one process: the product's own, each with its own connection, whose tasks are timers.

``python -m tests.executors.fleet DIRECTORY ALLOCATION NODES SLOTS`` connects them to the driver of a run, and prints
how they are, once a second, as JSON. Each line of its standard input is a number of them that die at once.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import pickle
import selectors
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from executors.supervisor import Supervisor
from executors.wire import Channel, Hello, OrderOutcome, TaskOrder, TaskReport, Welcome, connect

VALUE = pickle.dumps(None)
LOOK_S = 1.0
TRIES = 200


class Fleet(selectors.EpollSelector):
    """The supervisors of an allocation's nodes; the selector that all of them share; the timers of their tasks.

    Parameters
    ----------
    directory
        Of the run.
    allocation
        Whose nodes they are.
    slots
        Cores of each node.
    """

    def __init__(self, directory: str, allocation: str, slots: int) -> None:
        super().__init__()
        self._directory, self._allocation, self._slots = directory, allocation, slots
        self._timers: list[tuple[float, int, float, Timers]] = []
        self._due: list[tuple[float, int, Supervisor]] = []
        self._nodes: dict[Supervisor, Channel] = {}
        self.pools: dict[str, Timers] = {}
        self._looked, self._numbers = 0.0, itertools.count(1)
        self._began = time.time()
        self._running = self._ended = 0
        self._busy_s = self._late_s = 0.0

    def join(self, name: str) -> None:
        """One more supervisor, which connects, or raises what `connect` does."""
        number = next(self._numbers)
        supervisor = Supervisor(self._directory, Hello(self._allocation, name, number, self._slots, 0, 0), 600.0, self)
        channel = self._connect()
        self._nodes[supervisor] = channel
        supervisor.greet(channel)
        heapq.heappush(self._due, (time.time() + 1.0, number, supervisor))

    def _connect(self) -> Channel:
        for _ in range(TRIES):
            with suppress(OSError, ValueError):  # it is busy
                return connect(self._directory)
            time.sleep(0.05)
        return connect(self._directory)

    def begin(self, pool: Timers, ticket: int, seconds: float) -> None:
        now = time.time()
        pool.running[ticket] = now + seconds
        heapq.heappush(self._timers, (now + seconds, ticket, now, pool))
        self._running += 1
        self._busy_s -= now - self._began

    def stop(self, pool: Timers, tickets: Collection[int]) -> None:
        """These timers are of no use any more."""
        now = time.time()
        for due in [pool.running.pop(ticket) for ticket in tickets if ticket in pool.running]:
            self._running -= 1
            self._busy_s += min(now, due) - self._began

    def turn(self, timeout: float) -> None:
        """Do what is due, wait for what comes next, for `timeout` at most [s], and do that."""
        now = time.time()
        ended: dict[Timers, list[OrderOutcome]] = {}
        while self._timers and self._timers[0][0] <= now:
            due, ticket, started, pool = heapq.heappop(self._timers)
            if pool.running.pop(ticket, None) is None:
                continue
            ended.setdefault(pool, []).append(OrderOutcome(ticket, started, now, VALUE))
            self._running -= 1
            self._busy_s += due - self._began  # what it is late by is not the task's
            self._ended += 1
            self._late_s = max(self._late_s, now - due)
        for pool, outcomes in ended.items():
            pool.report(outcomes)
        while self._due and self._due[0][0] <= now:
            _, number, supervisor = heapq.heappop(self._due)
            if supervisor in self._nodes:
                heapq.heappush(self._due, (now + (supervisor.advance() or 1.0), number, supervisor))
        if now >= self._looked + LOOK_S:
            self._looked = now
            for supervisor in [supervisor for supervisor in self._nodes if not supervisor.is_served]:
                self._without_driver(supervisor)
        if self._timers:
            timeout = min(timeout, self._timers[0][0] - now)
        for key, mask in self.select(max(0.0, timeout)):
            if key.fd in self._fd_to_key:  # type: ignore[attr-defined]  # it has not gone meanwhile
                key.data(mask)

    def _without_driver(self, supervisor: Supervisor) -> None:
        """It is released, or there may be another driver."""
        if supervisor.code is not None:
            supervisor.close()
            del self._nodes[supervisor]
            return
        with suppress(OSError, ValueError):  # not yet
            channel = self._nodes[supervisor] = connect(self._directory)
            supervisor.greet(channel)

    def die(self, count: int) -> None:
        """So many of the nodes are gone, as when their power fails."""
        gone = list(self._nodes)[:: max(1, len(self._nodes) // count)][:count]
        for supervisor in gone:
            channel = self._nodes.pop(supervisor)
            self.unregister(channel)
            channel.close()
            self.pools.pop(supervisor.hello.node).close()

    @property
    def size(self) -> int:
        """How many supervisors are connected."""
        return len(self._nodes)

    def look(self) -> dict[str, float]:
        """How many nodes there are, how many tasks run and have ended; for how long slots have had something to do, all
        together [s]; by how much the latest timer was late since the last look [s]."""
        late_s, self._late_s = self._late_s, 0.0
        busy_s = self._busy_s + self._running * (time.time() - self._began)
        found = {"nodes": self.size, "running": self._running, "ended": self._ended}
        return found | {"busy_s": busy_s, "late_s": late_s}


class Timers:
    """A worker pool; its tasks last for as long as their argument says [s], and their function is not looked at."""

    def __init__(
        self, hello: Hello, welcome: Welcome, selector: selectors.BaseSelector, report: Callable[[TaskReport], None]
    ) -> None:
        assert isinstance(selector, Fleet)
        self._fleet, self._report, self._cores = selector, report, hello.cores
        self.running: dict[int, float] = {}
        """When each timer is due, by ticket."""
        selector.pools[hello.node] = self

    def accept(self, orders: list[TaskOrder]) -> None:
        for order in orders:
            assert isinstance(order.arguments, bytes)
            (seconds,), _ = pickle.loads(order.arguments)
            self._fleet.begin(self, order.ticket, seconds)
        assert len(self.running) <= self._cores, "more than there are slots"

    def report(self, outcomes: list[OrderOutcome]) -> None:
        self._report(TaskReport(outcomes, []))

    def advance(self) -> float | None:
        return None

    def relay(self) -> None:
        pass

    def reap(self) -> None:
        pass

    def renew(self, welcome: Welcome) -> None:
        pass

    def drop(self, tickets: Collection[int]) -> None:
        self._fleet.stop(self, tickets)

    def close(self) -> None:
        self.drop(list(self.running))


def main(directory: str, allocation: str, nodes: int, slots: int) -> None:
    fleet, printed, joined = Fleet(directory, allocation, slots), 0.0, 0
    os.set_blocking(0, False)
    while fleet.size or joined < nodes:
        if joined < nodes:
            fleet.join(f"n{joined:04}")
            joined += 1
        fleet.turn(0.0 if joined < nodes else 0.25)
        if (now := time.time()) >= printed + LOOK_S:
            printed = now
            print(json.dumps(fleet.look() | {"at": now, "cpu_s": time.process_time()}), flush=True)
            with suppress(BlockingIOError):
                for line in os.read(0, 4096).split():
                    fleet.die(int(line))


if __name__ == "__main__":
    from tests.executors import fleet as loaded  # the pool's class is looked for there

    loaded.main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
